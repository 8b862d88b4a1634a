"""Operations that keep a lake small, fast and sound.

In: a lake, and a request for tables with limits. Out: a result that lists each step, as planned or as done, and at most a few snapshots.

Every operation plans first, as values that print themselves, and then runs its plan; a dry run returns the plan alone. ``request``
holds what all operations share (budgets, progress, steps) and ``groups`` runs planned groups of files as work units. One module per
operation: ``flush`` moves inlined rows to files, ``merge`` joins small files, ``rewrite`` drops deleted rows from files, ``expire`` forgets
snapshots, ``cleanup`` deletes files that were scheduled for deletion, ``orphans`` deletes files that the catalog does not name,
``checkpoint`` runs all of these, and ``migrate`` changes the version of the format. ``clustering`` measures how well files separate values,
for ``merge`` and ``rewrite``. ``lake_options`` sets options. ``health`` and ``check`` report the state of a lake.
"""
