"""Tests without a whole lake: codecs, predicates, plans, commits, files, by package."""
