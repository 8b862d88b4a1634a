"""Data files, delete files and their history as the catalog knows them (specification: ducklake_data_file)."""

from __future__ import annotations

import base64
import binascii
import os
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError

# Parquet field ids that Iceberg reserves for the same meanings: _row_id, _last_updated_sequence_number, _file and _pos.
ROW_ID_FIELD_ID = 2147483540
SNAPSHOT_ID_FIELD_ID = 2147483539
ROW_ID_COLUMN = "_ducklake_internal_row_id"
SNAPSHOT_ID_COLUMN = "_ducklake_internal_snapshot_id"
DELETE_PATH_FIELD_ID = 2147483646
DELETE_POSITION_FIELD_ID = 2147483645
_PARTIAL_MAX = re.compile(r"partial_max:\d+", re.ASCII)
_ROW_COUNTS = re.compile(r"\d+:\d+(\|\d+:\d+)*", re.ASCII)

KEY_BYTES = 16
"""Length of new keys, which is what DuckDB makes."""
# Keys of AES-128, AES-192 and AES-256.
_LENGTHS = (16, 24, 32)
_WRAPPED = "kek"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of one leaf column in one file, in the catalog's text forms.

    Attributes:
        column_id: Id of the leaf.
        column_size_bytes: Compressed bytes of its column chunks.
        value_count: Non-null leaf values (DuckDB leaves NULLs out); None for unknown.
        null_count: Null leaf slots, those under null or empty parents included; None for unknown.
        min_value: Lower bound as text, None when there is no value or none is known. Bounds of long strings are
            truncated as DuckDB truncates them.
        max_value: Upper bound as text, like ``min_value``.
        contains_nan: For float32 and float64 only, else None.
        extra_stats: JSON for geometry and variant, else None.
        exact_min: The untruncated lower bound as text where ``min_value`` is truncated or given up, else None.
        exact_max: The same for the upper bound. Table-wide bounds are built from these, never from a missing bound.
        min_is_exact: Whether ``min_value`` is a value of the column and no smaller bound; None for unknown, as in all of version 1.0.
            The same for ``max_is_exact``.
    """

    column_id: int
    column_size_bytes: int
    value_count: int | None
    null_count: int | None
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None
    extra_stats: str | None = None
    exact_min: str | None = None
    exact_max: str | None = None
    min_is_exact: bool | None = None
    max_is_exact: bool | None = None

    def with_exact_bounds(self) -> ColumnStatistics:
        """Return the same without bounds that are known to be no value of the column."""
        if self.min_is_exact is not False and self.max_is_exact is not False:
            return self
        return replace(self, min_value=None, max_value=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A Parquet file that a writer has written and not yet committed.

    Attributes:
        path: Path relative to the table's directory (``path_is_relative``), including Hive directories.
        record_count: Rows.
        file_size_bytes: Bytes of the whole file.
        footer_size: Bytes of the Parquet footer thrift, without its length field and magic.
        statistics: One entry per leaf column.
        partition_values: Text of each partition key's value in key order, None for NULL; empty when unpartitioned.
        row_ids_embedded: Whether the file carries ``_ducklake_internal_row_id``.
        encryption_key: Opens the file; None for a plain one.
        row_group_count: Its row groups.
    """

    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int
    statistics: tuple[ColumnStatistics, ...]
    partition_values: tuple[str | None, ...] = ()
    row_ids_embedded: bool = False
    encryption_key: EncryptionKey | None = None
    row_group_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A file of deleted row positions.

    Attributes:
        id: ``delete_file_id``; negative if an open transaction has written the file. Such a file applies at every snapshot.
        path: Full path.
        format: ``parquet`` or ``puffin``.
        partial_max: Snapshot of the newest deletes, if the file stores the snapshot of each delete.
        committed_at: Snapshot that committed the newest deletes, if ``partial_max`` is wrong: when DuckDB retries a commit, the file keeps
            the snapshot of the first attempt. None if ``partial_max`` is right.
        encryption_key: Key of the file in an encrypted lake. Deletion vectors are never encrypted.
    """

    id: int
    data_file_id: int
    path: str
    format: str
    delete_count: int
    file_size_bytes: int
    footer_size: int | None
    begin_snapshot: int
    partial_max: int | None = None
    committed_at: int | None = None
    encryption_key: EncryptionKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A live data file at a snapshot, with its deletes.

    Attributes:
        id: ``data_file_id``; negative if the file is not committed.
        directory: Directory of ``relative_path`` with a trailing slash, shared by all files of a table; empty if the stored path is
            absolute.
        relative_path: Path as stored.
        row_id_start: Row id of the first row; None if the file contains row ids.
        partition_id: Id of the partition spec of the file; None without partition keys.
        partition_values: Pairs of key index and value as a string, for the file's partition spec.
        partial_max: Highest snapshot id of its rows, if it has rows of several snapshots.
        encryption_key: Opens the file; None for a plain one.
        row_counts: Pairs of snapshot id and number of rows up to that snapshot, ascending. Only catalogs before version 0.4 store them;
            later files store the snapshot of each row.
        delete_files: Live delete files at the snapshot. If a faulty writer left several, all of them apply.
        inlined_deletes: Positions that are deleted in the catalog at the snapshot.
        row_group_count: Number of row groups; None if the catalog does not store it (files of version 1.0).
    """

    id: int
    table_id: int
    directory: str
    relative_path: str
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    row_id_start: int | None
    begin_snapshot: int
    end_snapshot: int | None = None
    partition_id: int | None = None
    partition_values: tuple[tuple[int, str | None], ...] = ()
    mapping_id: int | None = None
    partial_max: int | None = None
    encryption_key: EncryptionKey | None = None
    delete_files: tuple[DeleteFile, ...] = ()
    inlined_deletes: tuple[int, ...] = ()
    row_counts: tuple[tuple[int, int], ...] = ()
    row_group_count: int | None = None

    @property
    def path(self) -> str:
        """Full path. Built on each access, because plans have up to a million files."""
        return self.directory + self.relative_path

    @property
    def path_is_relative(self) -> bool:
        """Return whether the stored path is below the table's directory."""
        return self.directory != ""


def parse_row_counts(partial_file_info: str | None) -> tuple[tuple[int, int], ...]:
    """Return ``DataFile.row_counts`` from the catalog's text; empty for a text of the other form.

    >>> parse_row_counts("2:20|3:41|4:63"), parse_row_counts("partial_max:7"), parse_row_counts(None)
    (((2, 20), (3, 41), (4, 63)), (), ())

    Raises:
        CatalogCorruptError: The string has neither form, or the counts do not increase.
    """
    if partial_file_info is None or _PARTIAL_MAX.fullmatch(partial_file_info):
        return ()
    if not _ROW_COUNTS.fullmatch(partial_file_info):
        raise CatalogCorruptError(f"the catalog holds {partial_file_info!r} where counts of rows by snapshot are expected")
    # Counts are cumulative: the rows of a snapshot follow those of the snapshots before it in the file.
    pairs = [part.split(":") for part in partial_file_info.split("|")]
    counts = tuple((int(snapshot), int(rows)) for snapshot, rows in pairs)
    for before, after in pairwise(counts):
        if after[0] <= before[0] or after[1] < before[1]:
            raise CatalogCorruptError(f"the counts of rows by snapshot {partial_file_info!r} do not grow")
    return counts


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """The key of an encrypted file. Plans send it to executors; it is masked in every repr and message.

    Attributes:
        base64_text: The key as stored in ``encryption_key`` of ``ducklake_data_file`` and ``ducklake_delete_file``.

    >>> EncryptionKey("AAECAwQFBgcICQoLDA0ODw==")
    EncryptionKey(***)
    >>> EncryptionKey("AAECAwQFBgcICQoLDA0ODw==").raw("f.parquet").hex()
    '000102030405060708090a0b0c0d0e0f'
    """

    base64_text: str = field(repr=False)

    @classmethod
    def random(cls) -> EncryptionKey:
        """Return a new key for the files of one write."""
        return cls(base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii"))

    def raw(self, where: str) -> bytes:
        """Return the key itself: 16, 24 or 32 bytes.

        Args:
            where: The file, for messages.

        Raises:
            CatalogCorruptError: The string is not an AES key in base64.
            UnsupportedFeatureError: The key is itself encrypted.
        """
        prefix, separator, _ = self.base64_text.partition(":")
        if separator and prefix.startswith(_WRAPPED):
            raise UnsupportedFeatureError(
                f"the encryption key of {where} is itself encrypted (KEY_ENCRYPTION_KEY), which is not supported", path=where
            )
        try:
            key = base64.b64decode(self.base64_text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) not in _LENGTHS:
            # Without the cause: it may quote the text.
            raise CatalogCorruptError(f"the encryption key of {where} in the catalog is not the base64 text of an AES key", path=where)
        return key

    def __repr__(self) -> str:
        return "EncryptionKey(***)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteHistory:
    """Everything that ever deleted rows of a data file.

    Attributes:
        file: The data file, live or not, with every delete file it has, ended ones too.
        inlined: (position, snapshot) of the deletes that the catalog holds.
    """

    file: DataFile
    inlined: tuple[tuple[int, int], ...] = ()


def deleted_count(file: DataFile) -> int:
    """Return the number of deleted rows of a file, from the catalog."""
    return sum(one.delete_count for one in file.delete_files) + len(file.inlined_deletes)
