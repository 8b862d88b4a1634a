"""Work units in Arrow: read a task, evaluate conditions, write files, find positions, rewrite groups.

Reading: ``read`` runs a scan plan; ``file_reader`` reads one data file, with ``decoding`` below it; ``evaluate`` filters rows.
Writing: ``frame`` holds the caller's rows, ``write_state`` the settings of one write and the fitting of rows to columns, ``writer``
splits rows into files. Changing: ``positions`` finds rows to delete, ``merge`` and ``changes`` compute updates and merges,
``compaction`` flushes, merges and rewrites files. Nothing here knows a catalog, so all of it can run on an executor.
"""
