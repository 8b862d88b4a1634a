"""Bring a catalog to a later format version, or to another database.

In: a database that follows the tables of an earlier version, and the target version. Out: the executed steps; the catalog has either all
of them or none, except on MySQL, where an interrupted migration continues with the next call.

``steps`` plans the steps as values that print themselves and renders them for each database, and ``run`` executes them in one transaction,
or in repeatable parts where the database cannot alter tables in a transaction. ``copying`` copies a catalog to an empty database.
"""
