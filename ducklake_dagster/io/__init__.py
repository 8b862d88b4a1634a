"""One output is one commit; one input is one read.

Writing: ``outputs`` plans what is written where and checks it before anything is written, ``commit`` stages rows, columns and comments
of the table in one transaction, ``audits`` tests the rows in it. Reading: ``inputs`` plans which rows of which snapshot are read
(``read_points``). ``branches`` redirects both to another lake or schema, ``handlers`` converts frames.
"""
