"""DuckDB as an optional engine in this process: it computes, and never opens a catalog or a file.

In: SQL text, and scans of this library as functions that return Arrow streams. Out: Arrow streams.

``syntax`` parses SQL with DuckDB, ``relations`` exposes scans of this library as Arrow streams with filter pushdown, ``query`` runs
statements over them, and ``functions`` adds what DuckDB needs for variants and geometries. The instances that run all of it come from
``engines.duckdb_instance``.
"""
