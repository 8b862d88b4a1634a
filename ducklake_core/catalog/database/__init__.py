"""Connections to the metadata database, its tables, and the abilities of each kind of database.

:class:`~ducklake_core.catalog.database.connections.Database` is the entry point: it opens read and write transactions on any of the
four kinds of catalog. ``url`` parses addresses; ``sqlite_catalog``, ``postgres_catalog``, ``mysql_catalog`` and ``duckdb_catalog`` hold
what is special about one kind; ``abilities`` lists the differences that statements depend on. ``bootstrap`` creates and opens lakes,
``tables`` and ``versions`` define the metadata tables, ``failures`` classifies driver errors, ``statements`` runs statements one by
one or pipelined, and ``writer_queue`` lets writers of one lake commit in turn.
"""
