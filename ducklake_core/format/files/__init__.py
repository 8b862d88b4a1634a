"""Files as the catalog describes them.

In: rows of the catalog about files, or the report of a writer. Out: the same as checked values, which scans plan with and commits store.

``data_files`` holds data files and delete files, ``statistics`` their column statistics, ``inlined_rows`` rows that need no file.
``paths`` builds paths and decides which ones a lake may name, ``partitioning`` describes partition keys, ``name_mapping`` maps columns
of files that other programs wrote.
"""
