"""Decide whether Spark's own Parquet reader gives exactly the right rows of a file, and name the obstacle if not.

Both paths give the same rows: Spark's reader is faster for plain files, and the Arrow reader can read every file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.types.data_types import DataType, DecimalType, Field, ListType, MapType, PrimitiveType, StructType
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ColumnRow, Schema

# Types whose Parquet form Spark's reader converts to exactly the Spark type of the column.
_NATIVE_TYPES = frozenset(
    {
        *("boolean", "int8", "int16", "int32", "int64", "float32", "float64"),
        *("date", "timestamp", "timestamp_s", "timestamptz", "varchar", "json", "blob"),
    }
)
# Types for which Spark's reader accepts the narrower type of an older file.
_NATIVE_PROMOTIONS = frozenset({("int8", "int16"), ("int8", "int32"), ("int16", "int32")})
# Spark expands these characters in paths, and skips files whose name begins with one of the hidden prefixes.
_GLOB = re.compile(r"[*?\[\]{}\\]")
_HIDDEN = ("_", ".")
_OWN_NAMES = "_ducklake_"
ROW_INDEX = "_tmp_metadata_row_index"
"""Spark's Parquet reader fills a column of this name with the position of each row in its file."""
_LOCAL = re.compile(r"^(file:|/|\.|[^:]*$)")

REMOTE = "the file is not on a local path, and the JVM may lack the file system"
"""The only obstacle that depends on the session (engines/spark/scan_schema.py); it is reported only if there is no other."""

SMALL_FILE_BYTES = 1 << 20
MANY_SMALL_FILES = 64
"""More small files than this are read with Arrow in Spark Connect, where looking up a path takes a Spark task."""
DELETED_BITS = 4096
"""Rows whose deletes are one piece of the bits by which Spark leaves deleted rows out."""
MAX_DELETED_BYTES = 64 << 20
"""More than this of such bits stays away from the driver: further files with deletes are read with Arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnVersion:
    """A column as it was from one snapshot on, until its next version."""

    begin_snapshot: int
    end_snapshot: int | None
    type_text: str
    name: str = ""
    parent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFeatures:
    """The facts about the columns of a projection that are the same for every file.

    Attributes:
        schema: Columns to read.
        history: Versions of every column by id, oldest first; may be empty when no column changed after any file.
        misnamed: As :func:`misnamed` finds them in that history.
        may_hold_nan: Ids of the leaves to read that may hold NaN in some file.
        obstacle: Why Spark's own reader can read these columns of no file.
        changed: The last snapshot that changed one of them.
        known: Cache of :func:`native_obstacle` for files that began at the same snapshot.
        places: Cache of directories: whether Spark would expand one, and whether it is remote.
    """

    schema: Schema
    history: Mapping[int, tuple[ColumnVersion, ...]] = field(default_factory=dict)
    misnamed: tuple[ColumnVersion, ...] = ()
    may_hold_nan: frozenset[int] = frozenset()
    obstacle: str | None = field(init=False)
    changed: int = field(init=False)
    known: dict[tuple[int, bool], str | None] = field(init=False, default_factory=dict, repr=False, compare=False)
    places: dict[str, tuple[bool, str | None]] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "obstacle", next((o for o in map(_column_obstacle, self.schema) if o is not None), None))
        object.__setattr__(self, "changed", max((node.begin_snapshot for node in self.schema.walk()), default=0))


def column_versions(rows: Iterable[tuple[ColumnRow, int | None]]) -> dict[int, tuple[ColumnVersion, ...]]:
    """Return the catalog's column history, by column id."""
    found: dict[int, tuple[ColumnVersion, ...]] = {}
    for row, end in rows:
        version = ColumnVersion(
            begin_snapshot=row.begin_snapshot,
            end_snapshot=end,
            type_text=row.column_type,
            name=row.column_name,
            parent=row.parent_column,
        )
        found[row.column_id] = (*found.get(row.column_id, ()), version)
    return found


def misnamed(schema: Schema, history: Mapping[int, tuple[ColumnVersion, ...]]) -> tuple[ColumnVersion, ...]:
    """Return column versions by which a name of the schema meant another column, or a column of the schema had another name."""
    parents = {node.id: column.id for column in schema.walk() for node in column.children}
    wanted = {node.id: (parents.get(node.id), folded(node.name)) for node in schema.walk()}
    names = set(wanted.values())
    return tuple(
        version
        for column_id, versions in history.items()
        for version in versions
        if wanted.get(column_id, (version.parent, folded(version.name))) != (version.parent, folded(version.name))
        or (column_id not in wanted and (version.parent, folded(version.name)) in names)
    )


def trusts_bounds(file: DataFile, statistics: Mapping[int, ColumnStatistics], features: ReadFeatures) -> bool:
    """Return whether Spark may leave out parts of the file by the bounds in its footer.

    Spark finds bounds by the present names of columns, although it reads the columns themselves by their ids. Parquet bounds leave out
    NaN, which DuckDB orders above all numbers.
    """
    if not features.may_hold_nan and not features.misnamed:
        return True
    for column_id in features.may_hold_nan:
        if column_id not in statistics or statistics[column_id].contains_nan is not False:
            return False
    # A file of flushed rows begins at the snapshot of the insert, but has the column names of the later flush.
    return not any(
        file.row_id_start is None or version.end_snapshot is None or version.end_snapshot >= file.begin_snapshot
        for version in features.misnamed
    )


def native_obstacle(file: DataFile, features: ReadFeatures, snapshot_filter: int | None) -> str | None:
    """Return why Spark's own reader cannot read this file, or None when it can.

    Facts about the file come first, because they cost nothing; then its directory and the projection, once per scan; then the columns'
    history, once per age of a file. The remote location comes last: it is the only obstacle that a session can lift.

    Args:
        file: The file.
        features: The projection; this function caches findings in it.
        snapshot_filter: The newest visible snapshot of its rows if it holds rows of later ones, else None.
    """
    if file.encryption_key is not None:
        return "the file is encrypted"
    if file.mapping_id is not None:
        return "the file's columns are found by name"
    if file.row_counts:
        return "the file may not store the snapshots of its rows"
    if snapshot_filter is not None:
        return "the file contains rows of later snapshots"
    directory, _, name = file.path.rpartition("/")
    place = features.places.get(directory)
    if place is None:
        place = features.places[directory] = (_GLOB.search(directory) is not None, None if _LOCAL.match(f"{directory}/") else REMOTE)
    is_glob, remote = place
    has_own_name = paths.has_own_name(name)
    if is_glob or (not has_own_name and (_GLOB.search(name) or name.startswith(_HIDDEN))):
        return "Spark would expand or skip the file's path"
    if not (file.path_is_relative and has_own_name):
        return "the file does not have a name of DuckLake's writers, so it may lack field ids or have other types"
    if features.obstacle is not None:
        return features.obstacle
    # The usual case, a file that is younger than every change of its columns, needs no history.
    if file.row_id_start is not None and file.begin_snapshot > features.changed:
        return remote
    age = (file.begin_snapshot, file.row_id_start is None)
    if age not in features.known:
        found = (_change_obstacle(column, file, features) for column in features.schema)
        features.known[age] = next((obstacle for obstacle in found if obstacle is not None), None)
    return features.known[age] or remote


def deleted_bytes(file: DataFile) -> int:
    """Estimate the bytes that the driver and each executor need to skip the deleted rows of a file natively.

    One bit per row in pieces of :data:`DELETED_BITS` rows; a piece without deletes takes only its 8 bytes in the index.
    """
    deletes = len(file.inlined_deletes) + sum(one.delete_count for one in file.delete_files)
    if not (file.delete_files or file.inlined_deletes):
        return 0
    return file.record_count * 8 // DELETED_BITS + min(file.record_count // 8, deletes * DELETED_BITS // 8) + 8


def _column_obstacle(column: Field) -> str | None:
    """Return the reason why Spark's own reader cannot read a column in any file, None when it can."""
    if folded(column.name).startswith(_OWN_NAMES) or folded(column.name) == ROW_INDEX:
        return f"column {column.name!r} has the name of a column that is added to find deleted rows"
    rejected = next((r for node in column.walk() if (r := _rejected_type(node.type)) is not None), None)
    return f"column {column.name!r} holds {rejected}" if rejected is not None else None


def _change_obstacle(column: Field, file: DataFile, features: ReadFeatures) -> str | None:
    """Return the reason why it cannot read a column in a file older than the column's present version, None when it can."""
    for node in column.walk():
        if written_before(node, file):
            if node.initial_default is not None:
                return f"column {column.name!r} has a default for older rows"
            if _retyped(node, file, features):
                return f"column {column.name!r} had another type"
    return None


def _rejected_type(data_type: DataType) -> str | None:
    match data_type:
        case PrimitiveType(name=name):
            return None if name in _NATIVE_TYPES else name
        case DecimalType() | ListType() | MapType() | StructType():
            return None
        case _:
            assert_never(data_type)


def written_before(node: Field, file: DataFile) -> bool:
    """Return whether a file may have been written before the present version of a column.

    Within one snapshot either may be older. Files without ``row_id_start`` were rewritten: DuckDB gives them a new begin snapshot,
    but they have the columns of their sources.
    """
    return file.row_id_start is None or node.begin_snapshot >= file.begin_snapshot


def _retyped(node: Field, file: DataFile, features: ReadFeatures) -> bool:
    if not node.is_leaf:
        return False
    now = node.type.name if isinstance(node.type, PrimitiveType) else str(node.type)
    versions = features.history.get(node.id, ())
    # A rewritten file may have any type of the column's history, so that all of them have to be readable.
    held = {v.type_text for v in versions if file.row_id_start is None or _overlaps(v, file.begin_snapshot)}
    return any(text != now and (text, now) not in _NATIVE_PROMOTIONS for text in held)


def _overlaps(version: ColumnVersion, snapshot: int) -> bool:
    """Return whether a version was effective before or after a snapshot's changes."""
    return version.begin_snapshot <= snapshot and (version.end_snapshot is None or snapshot <= version.end_snapshot)


def prefers_arrow(sizes: list[int]) -> bool:
    """Return whether so many of the files are small that planning them natively costs more than reading them with Arrow.

    >>> prefers_arrow([1000] * 10), prefers_arrow([1000] * 100), prefers_arrow([10**9] * 100)
    (False, True, False)
    """
    return sum(size < SMALL_FILE_BYTES for size in sizes) > MANY_SMALL_FILES
