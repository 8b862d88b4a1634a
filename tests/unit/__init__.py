"""What needs no whole lake: codecs, predicates, plans, commits, files, by room."""
