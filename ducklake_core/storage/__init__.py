"""Files: file systems, Parquet writing, delete files."""
