"""The verbs of a transaction, by subject."""
