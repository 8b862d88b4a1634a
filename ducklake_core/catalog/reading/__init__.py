"""Read the catalog at one snapshot.

In: a read transaction, the settings of the lake and a snapshot id. Out: frozen values of :mod:`ducklake_core.format`.

:class:`~ducklake_core.catalog.reading.reader.CatalogReader` is the entry point: it holds a read transaction and returns table states,
schemas and snapshots. ``snapshots``, ``table_rows`` and ``file_rows`` convert rows to those values, and ``options`` and
``running_writes`` read rows of ducklake_metadata. ``files`` reads the data files of a table with their deletes, and ``pruning`` leaves
out files in SQL; ``definitions`` reads views and macros. ``bulk_reader`` and ``integrity_scan`` read whole lakes with a fixed number of
statements, for listings and integrity checks; ``maintenance`` reads sizes and histories for compaction and sweeps. ``visibility`` has the
SQL conditions that all of them share, and ``completeness`` proves that a list of rows is complete before files are deleted.
"""
