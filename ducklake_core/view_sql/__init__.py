"""DuckDB's SQL as Spark SQL, with DuckDB's types and results.

In: the query of a view, or of a caller, at a snapshot. Out: one Spark query over scans of the tables that it reads, with the columns and
conditions of each scan, and the result's columns as DuckDB names and types them.

``translation`` is the entry point: it parses a query (``parsing``), resolves its names (``scopes``), types every expression as DuckDB
does (``typed``, ``expressions``, ``operators``, ``functions``) and renders Spark SQL clause by clause (``queries``, ``clauses``). What
the two engines would answer differently is rejected by name. ``selection`` is the short way: a query of columns of one table becomes a
scan, without any Spark SQL.
"""
