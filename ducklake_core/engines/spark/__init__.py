"""Work units on Spark executors: the only package that imports PySpark.

In: plans, DataFrames and work units. Out: lazy DataFrames, or descriptions of files that executors wrote and that are not committed.
Tasks receive files and rows, never the address or password of the catalog.

Reading: ``read`` chooses between Spark's own Parquet reader (``native_read``) and Arrow work units in tasks (``tasks``). Writing:
``frame`` holds the caller's DataFrame, and ``write`` distributes, sorts and writes it with the Arrow writer on executors. Changing:
``positions`` and ``changes``. Maintenance: ``work_units``. Sessions and types: ``session`` holds settings and constant frames, ``types``
and ``scan_schema`` convert columns, and ``probe`` inspects executors and files.
"""
