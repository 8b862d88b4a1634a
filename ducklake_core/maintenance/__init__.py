"""Operations that keep a lake small, fast and sound.

Every operation plans first, as values that print themselves, and then runs its plan; a dry run returns the plan alone. ``request``
holds what all operations share (budgets, progress, steps) and ``groups`` runs planned groups of files as work units. One module per
operation: ``merge``, ``rewrite``, ``flush``, ``expire``, ``cleanup``, ``orphans``, ``checkpoint``, ``migrate``. ``health`` and
``check`` report the state of a lake.
"""
