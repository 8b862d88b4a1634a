"""Behaviour that a user sees: each operation is compared with DuckDB."""
