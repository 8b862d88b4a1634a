"""YAML components: a lake (``lake``), its tables (``tables``) and its maintenance (``maintenance``) in a ``defs.yaml``."""
