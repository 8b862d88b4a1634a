"""Staged changes, and how they become a snapshot."""
