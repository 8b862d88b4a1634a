"""Change the columns of a table, and read values of their earlier types (specification: Schema Evolution).

In: a table's columns, with the columns of a frame or the arguments of ALTER TABLE. Out: the new columns with their ids and what changed,
or an error that lists every difference.

``reconciliation`` compares the columns of a frame with those of a table, ``schema_edits`` applies ALTER TABLE at any depth,
``promotion`` casts old values to the present type of their column, ``defaults`` reads and writes column defaults.
"""
