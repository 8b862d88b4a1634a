"""The logical types of DuckLake, names, and schemas (specification: Data Types)."""
