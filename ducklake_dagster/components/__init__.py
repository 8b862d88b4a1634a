"""YAML components: a lake in a `defs.yaml`."""
