"""Work units in Arrow: read a task, evaluate conditions, write files, find positions, rewrite groups.

In: tasks of a plan, and rows as Arrow batches. Out: batches, or descriptions of files that are in place but not committed. Nothing in
this package knows a catalog, so that all of it can run on an executor.

Reading: ``read`` runs a scan plan and ``feed`` a change feed. ``file_reader`` reads one data file, with ``decoding`` below it, and
``readable`` converts rows to other libraries; ``pushdown`` is for those that read lazily and push filters down. Expressions: ``evaluate``
filters rows and computes values with ``scalar_functions``. Writing: ``frame`` holds the caller's rows, ``write_state`` the settings of
one write and the fitting of rows to columns; ``writer`` splits rows into files, and ``sorting`` orders them. Changing: ``positions``
finds rows to delete, ``merge`` binds updates and merges, and ``changes`` carries them out. Maintenance: ``compaction`` flushes, merges
and rewrites files; ``work`` defines its work units.
"""
