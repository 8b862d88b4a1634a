"""Turn a scan or a change feed into the exact files and inlined rows to read.

Input: an open read transaction, a table state and a condition, or two snapshots. Output: picklable plans (``plan``) that an engine runs
    without
the catalog. ``planner`` plans scans and change feeds, and ``lake_changes`` the differences between two snapshots of a lake. ``native``
decides which files Spark's own reader may read. ``explanation`` prints why a file is read or skipped, and ``table_info`` computes sizes
and summaries. Planning opens no data file.
"""
