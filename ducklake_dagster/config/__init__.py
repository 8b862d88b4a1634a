"""Configure a lake in a code location, and open it.

In: fields of :class:`~ducklake_dagster.config.resources.DuckLakeResource`, as Python, YAML or run configuration. Out: an open
:class:`~ducklake_core.DuckLake`. ``catalogs`` describes the database, ``resources`` the resource with its storage, ``values`` reads
numbers, spans of time and secrets, ``errors`` turns errors of the lake into failures with or without a retry.
"""
