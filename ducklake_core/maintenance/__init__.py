"""Verbs that keep a lake small: plan, explain, run."""
