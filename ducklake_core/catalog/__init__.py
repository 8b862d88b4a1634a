"""The metadata database: everything that knows SQL.

A DuckLake catalog is a set of SQL tables. This package opens the database, reads what it contains at a snapshot, and writes the rows
of a commit. Other packages receive values from :mod:`ducklake_core.format` and never see a connection.

In: a catalog address, a snapshot id, catalog changes as values (:mod:`changes`). Out: table states, file lists, snapshots.

Subpackages, highest first:

- ``migrations``: bring a catalog of an earlier version to a newer one.
- ``writing``: reads and writes of a commit inside its own database transaction; snapshot expiry.
- ``inlined``: rows that the catalog itself stores.
- ``reading``: read the catalog at one snapshot, prune files in SQL.
- ``database``: connections, dialects, table definitions, error classification.

``changed`` and ``feed`` find what differs between two snapshots.
"""
