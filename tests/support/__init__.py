"""Test support: the oracle (DuckDB with its ducklake extension), PostgreSQL from a wheel, catalog dumps."""
