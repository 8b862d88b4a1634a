"""An open transaction: what is staged, how its rows are found and written, and how it becomes a snapshot.

In: calls of :class:`~ducklake_core.transaction.Transaction`, whose arguments ``arguments`` types and checks. Out: one snapshot; after an
error none, and no files.

``context`` gives the transaction its base snapshot, from a cache of table states. ``namespace`` is the catalog as the transaction sees it,
and ``reads`` scans its tables, by the methods of ``scanned``. Each call stages a step: ``staged_table`` holds the steps and the definition
of one table, ``staged_rows`` the rows that they add and delete. ``adding`` checks files of other writers, and ``lake_restore`` finds the
steps that restore a whole lake. ``execute`` applies a step to the rows of the base snapshot. ``publish`` commits everything as one
snapshot, and applies the steps again on a newer snapshot after a conflict. ``lake_files`` finds the address of a lake by its name.
"""
