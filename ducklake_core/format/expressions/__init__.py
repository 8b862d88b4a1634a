"""Predicates and scalar expressions: parsed from SQL, compared, pruned with, printed."""
