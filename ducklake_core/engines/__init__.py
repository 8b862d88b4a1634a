"""The engines that move rows: Arrow in this process, Spark on executors, DuckDB for SQL in this process.

In: plans of ``ducklake_core.planning`` and rows of the caller. Out: Arrow batches, DataFrames, and descriptions of files that are written
but not committed; the commit itself is not the engines' task. ``frame`` converts the caller's rows to an Arrow or a Spark frame, which
chooses the engine. The engines share work units: a task that this process runs on a thread is the same function that an executor runs.
``duckdb_instance`` creates the isolated DuckDB instances that ``duckdb`` and ``arrow`` use; only ``spark`` imports PySpark.
"""
