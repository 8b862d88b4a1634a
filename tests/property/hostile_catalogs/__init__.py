"""Edited or damaged catalogs: right rows or a clear error, never wrong rows."""
