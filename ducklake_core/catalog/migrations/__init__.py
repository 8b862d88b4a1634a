"""Bringing catalogs to a later version, step by step in one transaction."""
