"""Rows that are kept in the catalog itself (specification: Data Inlining)."""
