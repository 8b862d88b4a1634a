"""Files: file systems and object stores, Parquet input and output, delete files, encryption.

``filesystems`` opens a store by path and options, ``stores`` holds the options of each kind of store and classifies its errors,
``uploads`` writes objects atomically. ``parquet_files`` opens Parquet files, ``parquet_writer`` writes data files, ``delete_files`` and
``deletion_vectors`` hold deleted positions, ``file_statistics`` collects statistics while a file is written, ``added_files`` inspects
files of other programs.
"""
