"""Configure a lake in a code location, and open it.

In: fields of :class:`~ducklake_dagster.config.resources.DuckLakeResource`, as Python, YAML or run configuration. Out: an open
:class:`~ducklake_core.DuckLake`. ``catalogs`` describes the database, ``resources`` the storage and the resource itself, ``values``
checks numbers, durations and secrets, and ``errors`` turns errors of the lake into failures with or without a retry.
"""
