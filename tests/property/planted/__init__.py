"""Faults planted in a sound lake: each is found by its code, and nothing else is."""
