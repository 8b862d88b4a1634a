"""Checking a lake: what the catalog, the footers and the rows say, compared."""
