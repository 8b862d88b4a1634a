"""Read and write rows that are stored in the catalog itself (specification: Data Inlining).

In: values with the columns of a table, or a reader at a snapshot. Out: rows of physical tables, or Arrow tables.

Each table of the lake may have tables of inlined rows, one per schema version, and one table of inlined deletes. ``ddl`` names and
creates them, ``write`` encodes and inserts values, ``rows`` reads them back in the columns that a scan needs, and ``cells``
converts single values between Arrow and the form in which each kind of database stores them.
"""
