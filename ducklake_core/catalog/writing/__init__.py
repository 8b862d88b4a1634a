"""Reads and writes of a commit inside its own database transaction."""
