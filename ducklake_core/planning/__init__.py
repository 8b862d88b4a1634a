"""From a question to the exact files and inlined rows that answer it.

In: a table state and a condition, or two snapshots. Out: picklable plans (``plan``) that an engine runs. ``planner`` plans scans and
change feeds, ``lake_changes`` the differences between two snapshots of a lake; ``native`` decides which files Spark's own reader may
take, ``explanation`` prints why a file is read or skipped, ``table_info`` computes sizes and summaries.
"""
