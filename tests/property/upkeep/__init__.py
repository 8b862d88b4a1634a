"""Random maintenance by us and by DuckDB between random changes by both: no retained snapshot reads differently for it."""
