"""Parquet files encrypted as DuckDB encrypts them, opened so that any Parquet reader can read them, and made from plain ones.

DuckDB follows Parquet's modular encryption with one key for everything in a file, but binds no module to its place:
the associated data of AES-GCM is empty, where the Parquet specification wants the file's id and the module's ordinals. No other
reader opens such files. One file is::

    PARE | column chunks: module(page header) module(page) ... | FileCryptoMetaData module(footer) | length | PARE

    module = length (4 bytes, little endian) | nonce (12) | ciphertext | tag (16)

Reading. :func:`~ducklake_core.storage.parquet_files.open_parquet` gives a file-like *plain image*, which pyarrow takes for an
ordinary Parquet file::

    encrypted   PARE | chunk 0      | chunk 1      | ... | footer module | PARE
                       | decrypted when it is read: all modules of the chunk, joined, then zeros
    image       PAR1 | pages 0 | 00 | pages 1 | 00 | ... | 00 ... | footer | PAR1

A decrypted module is always shorter than its ciphertext, so every chunk begins where it did and the footer's offsets stay true;
the footer is taken over as it is. Each chunk is decrypted when a reader reads its bytes, so memory holds the wanted columns of
the row groups under way, never the file. Zeros between the last chunk and the footer keep the reader's first guess at the footer's
length from touching a chunk.

What is outside of chunks, such as page indexes and Bloom filters, is not in the image: DuckDB writes neither into
encrypted files, and pyarrow reads neither when it reads rows.

Without associated data a tag proves that a module was made with the key, not that it stands where it was written. So each
chunk is held against what else is known of it: its pages have the sizes that their headers give, fill the chunk exactly, and
hold as many values as the footer states.

Writing. :class:`~ducklake_core.storage.encryption.encrypting.EncryptingSink` takes a plain file while it is written, and passes on the
encrypted one a row group at a time: pages are found by parsing their headers, the footer gets the new offsets and loses its indexes.

Modules: ``compact`` holds Thrift structs as trees; ``reading`` the cipher, the end of an encrypted file, its chunks and the image;
``encrypting`` the writer.
"""
