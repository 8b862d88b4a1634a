"""Open transactions: stage changes, find and write their rows, and commit them as one snapshot.

Input: calls of :class:`~ducklake_core.transaction.Transaction`, whose arguments ``arguments`` types and checks. Output: one snapshot;
    after an error no snapshot and no files.

``context`` provides the base snapshot, from a cache of table states. ``namespace`` is the catalog as the transaction sees it. ``reads``
scans its tables with the methods of ``scanned``. Each call stages a step: ``staged_table`` holds the steps and the definition of one
table, ``staged_rows`` the rows that they add and delete. ``adding`` checks files of other writers, and ``lake_restore`` computes the
steps that restore a whole lake. ``execute`` applies a step to the rows of the base snapshot. ``publish`` commits everything as one
snapshot, and applies the steps again to a newer snapshot after a conflict. ``lake_files`` finds the address of a lake by its name.
"""
