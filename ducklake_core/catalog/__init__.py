"""Read and write the metadata database; the only package that uses SQL.

A DuckLake catalog is a set of SQL tables. This package opens the database, reads what it contains at a snapshot, and writes the rows
of a commit. Other packages receive values from :mod:`ducklake_core.format` and never see a connection.

In: a catalog address, a snapshot id, catalog changes as values (``changes``). Out: table states, file lists, snapshots.

Subpackages, highest first:

- ``migrations``: bring a catalog of an earlier version to a newer one.
- ``writing``: read the head and write catalog changes in the transaction of a commit; expire snapshots.
- ``inlined``: read and write rows that the catalog itself stores.
- ``reading``: read the catalog at one snapshot, prune files in SQL.
- ``database``: open connections, define the metadata tables, classify errors.

``feed`` finds the changed files and rows of one table between two snapshots, ``changed`` those of all tables at once.
"""
