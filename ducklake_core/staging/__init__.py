"""An open transaction: what is staged, how its rows are found and written, and how it becomes a snapshot.

``namespace`` is the catalog as the transaction sees it; ``staged_table`` and ``staged_rows`` hold what is staged for one table;
``execute`` carries out one step (write, delete, update, merge); ``publish`` commits, and plans steps again on a newer snapshot after a
conflict. ``arguments`` names the types of public arguments.
"""
