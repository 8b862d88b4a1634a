"""An open transaction: what is staged, how its rows are found and written, and how it becomes a snapshot."""
