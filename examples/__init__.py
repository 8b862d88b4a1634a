"""Projects to copy from."""
