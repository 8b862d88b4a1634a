"""SQL over a lake: ``lake.sql`` and ``transaction.sql``.

In: one statement in DuckDB's dialect. Out: rows as a stream or a Spark DataFrame, or calls of the methods of ``StatementTarget``.

A query first loses its AT clauses (``time_travel``). ``names`` finds the tables, views and macros that it names, and ``query`` runs it: as
a scan when it only selects columns of one table, else by DuckDB in this process or translated for Spark. ``staged_queries`` does the same
inside a transaction.

``statements`` runs every other statement. ``parts`` reads names, keys and types, ``row_statements`` takes INSERT, UPDATE, DELETE and MERGE
apart, and ``changes`` runs the last three by the library's own operations or lets DuckDB compute which rows change.
"""
