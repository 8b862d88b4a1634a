"""Reads the catalog at one snapshot."""
