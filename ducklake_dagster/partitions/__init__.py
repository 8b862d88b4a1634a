"""Map partition keys to rows.

In: a partitions definition, the keys of a run and the column that they are values of. Out: conditions for the catalog, for SQL and for
Arrow. ``slices`` turns the partition keys of a run into boxes over columns, ``predicates`` turns boxes into conditions with typed literals
and into summaries that are small enough to store in a commit.
"""
