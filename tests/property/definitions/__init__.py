"""Random definitions in SQL: DuckDB can read and write every table that this library accepts."""
