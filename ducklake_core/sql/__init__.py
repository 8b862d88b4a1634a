"""SQL over a lake: ``lake.sql`` and ``transaction.sql``.

``names`` resolves the tables, views and macros of a statement, ``query`` runs queries, ``statements`` runs DDL, ``row_statements``
and ``changes`` run INSERT, UPDATE, DELETE and MERGE, ``staged_queries`` runs queries inside a
transaction, and ``time_travel`` reads AT clauses.
"""
