"""Queries and statements in SQL over a lake."""
