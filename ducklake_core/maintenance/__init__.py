"""Maintenance operations: keep a lake small, fast and free of faults.

Input: a lake, and a request for tables with limits. Output: a result that lists each step, planned or done, and usually a few snapshots.

Every operation first creates a plan, which prints itself, and then runs it; a dry run returns only the plan. ``request`` contains what
all operations share (budgets, progress, steps), and ``groups`` runs planned groups of files as work units. One module per operation:
``flush`` moves inlined rows to files, ``merge`` joins small files, ``rewrite`` removes deleted rows from files, ``expire`` expires
snapshots, ``cleanup`` deletes files that were scheduled for deletion, ``orphans`` deletes files that the catalog does not contain,
``checkpoint`` runs all of these, and ``migrate`` changes the version of the format. ``clustering`` measures how well files separate
values, for ``merge`` and ``rewrite``. ``moving`` copies a lake to another database or directory. ``health`` and ``check`` report the
state of a lake.
"""
