"""Check a lake: compare what the catalog, the file footers and the rows contain.

``run`` is the entry point. ``facts`` reads the catalog once; ``definitions``, ``files`` and ``statistics`` compare its rows with each
other; ``footers`` and ``contents`` compare them with the files. ``findings`` lists all codes, ``repair`` fixes what is safe to fix.
"""
