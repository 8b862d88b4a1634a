"""Work units on Spark executors: the only package that imports PySpark.

Reading: ``read`` chooses between Spark's own Parquet reader (``native_read``) and Arrow work units in tasks (``tasks``).
Writing: ``write`` distributes, sorts and writes a DataFrame with the Arrow writer on executors. Changing: ``positions`` and
``changes``. Maintenance: ``work_units``. Tasks receive files and rows, never the address or password of the catalog.
"""
