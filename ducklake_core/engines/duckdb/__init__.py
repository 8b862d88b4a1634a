"""DuckDB as an optional engine in this process: it computes, and never touches a catalog or a file."""
