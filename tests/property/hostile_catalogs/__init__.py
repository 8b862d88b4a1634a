"""Catalogs that somebody edited, or that another engine wrote wrongly: right rows or a clear error, never wrong rows."""
