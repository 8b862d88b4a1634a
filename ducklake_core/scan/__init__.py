"""From a snapshot and a predicate to the exact files to read."""
