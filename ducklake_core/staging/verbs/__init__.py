"""Methods of a transaction, by subject."""
