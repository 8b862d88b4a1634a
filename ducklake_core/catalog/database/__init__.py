"""Connections to the metadata database, its tables, and what each kind of database can do."""
