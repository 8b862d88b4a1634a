"""Staged changes that move rows without changing them: flushed and rewritten files, and the deletes that go with them."""

from __future__ import annotations

from dataclasses import dataclass

from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.encryption_key import EncryptionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeDeletes:
    """A delete file that is in place but not committed, and that holds every delete of a data file with its snapshot.

    Attributes:
        path: Path relative to the table's directory.
        delete_count: Positions in it.
        min_snapshot: The snapshot of the oldest delete in it; ``max_snapshot`` is that of the newest.
        end_snapshot: The snapshot at which the data file ended, None while it is live.
        encryption_key: Opens it; None for a plain one.
        row_group_count: Its row groups.
        format: ``parquet`` or ``puffin``.
    """

    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    min_snapshot: int
    max_snapshot: int
    end_snapshot: int | None = None
    encryption_key: EncryptionKey | None = None
    row_group_count: int | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredDeletes:
    """All deletes of one committed data file in one delete file, in place of its delete files and of those that the catalog holds.

    Attributes:
        data_file_id: The data file.
        file: The delete file.
        replaced: (delete_file_id, path relative to the data path or absolute, path_is_relative) of each delete file that goes.
    """

    data_file_id: int
    file: CumulativeDeletes
    replaced: tuple[tuple[int, str, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedFile:
    """A file of rows that were inlined; each row has its row id and snapshot in it.

    Attributes:
        output: The written file.
        row_id_start: First row id, None when the row ids are not consecutive.
        begin_snapshot: The snapshot of the oldest row; ``partial_max`` is that of the newest.
        partition_id: Spec of the table of inlined rows, None for none.
        deletes: Row versions in it that have ended, None when none has.
    """

    output: WrittenFile
    row_id_start: int | None
    begin_snapshot: int
    partial_max: int
    partition_id: int | None = None
    deletes: CumulativeDeletes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushInlined:
    """Inlined rows and inlined deletes of one table become files; never in one transaction with other changes.

    Attributes:
        files: What the rows became.
        inlined_tables: Physical tables whose rows go.
        superseded: Those of the registered tables that get no more rows: each is forgotten when it is empty.
        until: Rows and deletes of later snapshots stay.
        gathered: What inlined deletes of data files became.
        deletes_of: Data files whose inlined deletes go, those that exist no more among them.
    """

    table_id: int
    files: tuple[FlushedFile, ...]
    inlined_tables: tuple[str, ...]
    superseded: tuple[str, ...] = ()
    until: int
    gathered: tuple[GatheredDeletes, ...] = ()
    deletes_of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSource:
    """A data file whose live rows were written anew.

    Attributes:
        data_file_id: The file.
        delete_file_ids: Its live delete files when it was read.
        gathered: Its deletes in one file, where the catalog held some of them, or several files did.
    """

    data_file_id: int
    delete_file_ids: frozenset[int]
    gathered: GatheredDeletes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Files without deleted rows in place of files with them, of one table; never in one transaction with other changes.

    Attributes:
        sources: Files that end. Snapshots before this one keep reading them.
        outputs: (file, partition spec or None) that take their place; rows have their row ids in them.
    """

    table_id: int
    sources: tuple[RewrittenSource, ...]
    outputs: tuple[tuple[WrittenFile, int | None], ...]
