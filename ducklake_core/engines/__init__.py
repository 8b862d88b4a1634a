"""The engines that move rows: Arrow in this process, Spark on executors."""
