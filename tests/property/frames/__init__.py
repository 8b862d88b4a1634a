"""Random frames against the rule of fitting."""
