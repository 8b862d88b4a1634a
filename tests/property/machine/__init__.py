"""Transactions against a plain-Python model, with DuckDB reading after each commit and taking turns as the writer."""
