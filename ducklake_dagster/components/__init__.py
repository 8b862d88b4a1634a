"""Define components, which build definitions from a ``defs.yaml`` file.

In: attributes in YAML, which may name environment variables. Out: definitions. ``lake`` has the components of a lake, with its resource and
IO manager, and of its tables as assets; ``maintenance`` has the component of its maintenance. ``checks`` and
``yaml_types`` define attributes.
"""
