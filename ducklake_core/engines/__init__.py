"""The engines that move rows: Arrow in this process, Spark on executors, DuckDB for SQL in this process.

``frame`` turns what a caller passes in into an Arrow or a Spark frame, and so chooses the engine. The engines share work units: a task
that this process runs on a thread is the same function that an executor runs.
"""
