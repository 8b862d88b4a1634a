"""Bringing catalogs of earlier versions to version 1.0, step by step in one transaction."""
