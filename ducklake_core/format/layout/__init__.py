"""Lay out rows in files: partition keys and sort orders.

In: a table's partition spec and sort keys, with rows or a predicate. Out: the partition of every row, the files that a predicate may match,
and sort orders for writers.

``transforms`` computes partition keys of rows and prunes files by them, ``chosen_partitions`` turns partitions that a caller names into
a condition, ``sorting`` and ``sort_parser`` read sort orders, ``flushing`` decides whether DuckDB can flush inlined rows without
deleting the wrong ones.
"""
