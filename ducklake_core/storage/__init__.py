"""Files: file systems and object stores, Parquet input and output, delete files, encryption.

In: full paths, storage options and Arrow data. Out: Arrow data, and reports of the files that were written, for the catalog. No module
here reads or writes the catalog.

``filesystems`` opens a store by path and options; ``stores`` holds the options of each kind of store and classifies its errors, and
``limited_s3`` bounds the time of calls to S3. ``uploads`` writes objects atomically, and ``unfinished`` cleans up after writes that were
interrupted. ``parquet_files`` opens Parquet files, decrypted by ``encryption`` where they have a key. ``parquet_writer`` writes data files:
``file_statistics`` collects their statistics, ``variant_columns`` shreds variants, and ``annotations`` marks types that pyarrow has no name
for. ``delete_files`` and ``deletion_vectors`` hold deleted positions. ``added_files`` inspects files of other programs. ``spill`` keeps
rows that do not fit into memory on the local disk. ``waiting`` waits for threads in a way that Ctrl-C ends.
"""
