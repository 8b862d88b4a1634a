"""Write outputs and read inputs: one output is one commit, one input is one read.

In: Dagster's output and input contexts, frames, and an open lake. Out: a commit with notes about it, or rows as the type of frame that the
input is annotated with.

Writing: ``outputs`` plans what is written where and checks it first, ``commit`` stages rows, columns and comments of the table in one
transaction, and ``audits`` tests these rows. Reading: ``inputs`` plans which rows are read, and from which snapshot
(``read_points``, ``initial_rows``). ``audits`` also redirects both to the lake or the schema of a branch; ``handlers`` converts frames.
"""
