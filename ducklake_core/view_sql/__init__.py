"""DuckDB's SQL as Spark SQL, with DuckDB's types and results.

``translation`` is the entry point: it parses a query (``parsing``), resolves its names (``scopes``), types every expression as DuckDB
does (``typed``, ``expressions``, ``operators``, ``functions``) and renders Spark SQL clause by clause (``queries``, ``clauses``). What
the two engines would answer differently is rejected by name.
"""
