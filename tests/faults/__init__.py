"""Faults during a write: processes that die, connections that break, stores that fail."""
