"""How the columns of a table change, and how values of earlier types are read.

``reconciliation`` compares the columns of a frame with those of a table, ``schema_edits`` applies ALTER TABLE at any depth,
``promotion`` casts old values to the present type of their column, ``defaults`` reads and writes column defaults.
"""
