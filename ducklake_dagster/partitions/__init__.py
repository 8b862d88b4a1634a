"""From partition keys to rows.

``slices`` turns the partition keys of a run into boxes over columns, ``predicates`` turns boxes into conditions with typed literals and
into summaries that are small enough to store in a commit.
"""
