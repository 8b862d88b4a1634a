"""Work units on Spark executors: the only room with PySpark."""
