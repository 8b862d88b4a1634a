"""Files that others wrote, read as DuckDB reads them."""
