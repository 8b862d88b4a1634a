"""YAML components: a lake with its tables (``lake``) and its maintenance (``maintenance``) in a ``defs.yaml``."""
