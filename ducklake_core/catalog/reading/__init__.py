"""Read the catalog at one snapshot.

:class:`~ducklake_core.catalog.reading.reader.CatalogReader` is the entry point: it holds a read transaction and returns table states,
schemas, views, options and snapshots as values. ``files`` reads the data files of a table with their deletes, and ``pruning`` leaves
out files in SQL; ``definitions`` reads views and macros. ``bulk_reader`` and ``integrity_scan`` read whole lakes with a fixed number of
statements, for listings and integrity checks; ``maintenance`` reads what compaction and sweeps decide by. ``visibility`` holds the SQL
conditions that all of them share, and ``completeness`` proves that a list of rows is complete before files are deleted.
"""
