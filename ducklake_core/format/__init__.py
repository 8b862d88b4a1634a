"""The DuckLake specification as pure values; no I/O."""
