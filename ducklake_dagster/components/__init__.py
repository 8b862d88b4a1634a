"""YAML components: a lake, its tables and its maintenance in a `defs.yaml`."""
