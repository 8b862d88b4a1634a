"""DuckDB's queries as Spark SQL: typed as DuckDB types them, and refused by name where the two would differ."""
