"""Bring a catalog to a later format version.

``steps`` plans the steps as values that print themselves, ``ddl`` renders them for each database, and ``run`` executes
them in one transaction, or in repeatable parts where the database cannot alter tables in a transaction.
"""
