"""How rows are laid out in files.

``transforms`` computes partition keys of rows and prunes files by them, ``chosen_partitions`` turns partitions that a caller names into
a condition, ``sorting`` and ``sort_parser`` read sort orders, ``flushing`` restores the order of inlined rows.
"""
