"""Connect to the metadata database, and hide the differences between the kinds of database.

In: the address of a catalog and SQLAlchemy statements on the metadata tables. Out: rows, or errors with a class (retry, unavailable,
outcome unknown, fatal) that does not depend on the driver.

:class:`~ducklake_core.catalog.database.connections.Database` is the entry point: it opens read and write transactions on any of the
four kinds of catalog. ``url`` parses addresses; ``sqlite_catalog``, ``postgres_catalog``, ``mysql_catalog`` and ``duckdb_catalog`` hold
what is special about one kind, and ``server_connections`` what the servers have in
common; ``abilities`` lists the differences that statements depend on. ``bootstrap`` creates and opens lakes,
``tables`` and ``versions`` define the metadata tables, ``failures`` classifies driver errors, ``statements`` runs statements one by
one or pipelined, and ``writer_queue`` lets writers of one lake commit one after another.
"""
