"""Gauges of a lake's state: what grows, what slows reads, and what maintenance would improve."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.integrity_scan import registered_names
from ducklake_core.catalog.reading.maintenance import FILE_SIZE_BANDS, LakeGauges, read_gauges
from ducklake_core.errors import CatalogCorruptError, UsageError
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.text import counted, shown

if TYPE_CHECKING:
    import pyarrow as pa


SMALL_FILE_BYTES = 16 << 20
_RATIOS = ("delete_ratio", "average_file_bytes")
_OWN_LABELS = ("schema", "table", "table_id", "below")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_TABLE_METRICS = {
    "file_count": "Live data files.",
    "file_size_bytes": "Bytes of live data files.",
    "record_count": "Rows in live data files, deleted ones too.",
    "small_file_count": "Live data files that count as small.",
    "small_file_bytes": "Bytes of live data files that count as small.",
    "ended_file_count": "Data files that only earlier snapshots read.",
    "ended_file_bytes": "Bytes of data files that only earlier snapshots read.",
    "delete_file_count": "Live delete files.",
    "delete_file_bytes": "Bytes of live delete files.",
    "deleted_row_count": "Rows of live data files that are deleted.",
    "delete_ratio": "Deleted rows among the rows of live data files.",
    "inlined_row_count": "Visible rows that the catalog holds.",
    "inlined_ended_row_count": "Rows that the catalog holds for earlier snapshots only.",
    "inlined_delete_count": "Deletes of rows of live data files that the catalog holds.",
}

_UNITS = ("KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """One table at the newest snapshot.

    Attributes:
        schema: Name of its schema; ``name`` is its own.
        file_count: Live data files, ``file_size_bytes`` their bytes.
        record_count: Rows in them, deleted ones too.
        small_file_count: Live files below the size that was requested, ``small_file_bytes`` their bytes.
        files_by_size: Live files by size: below 1 MiB, 16 MiB, 128 MiB, 512 MiB, and larger ones.
        ended_file_count: Files that only earlier snapshots read, ``ended_file_bytes`` their bytes.
        delete_file_count: Live delete files, ``delete_file_bytes`` their bytes.
        deleted_row_count: Rows of live files that delete files or the catalog hide.
        inlined_row_count: Visible rows that the catalog itself holds.
        inlined_ended_row_count: Rows that it holds for earlier snapshots only.
        inlined_delete_count: Deletes of rows of live files that it holds.
    """

    schema: str
    name: str
    table_id: int
    file_count: int = 0
    file_size_bytes: int = 0
    record_count: int = 0
    small_file_count: int = 0
    small_file_bytes: int = 0
    files_by_size: tuple[int, ...] = (0,) * (len(FILE_SIZE_BANDS) + 1)
    ended_file_count: int = 0
    ended_file_bytes: int = 0
    delete_file_count: int = 0
    delete_file_bytes: int = 0
    deleted_row_count: int = 0
    inlined_row_count: int = 0
    inlined_ended_row_count: int = 0
    inlined_delete_count: int = 0

    @property
    def table(self) -> str:
        """``schema.table``, quoted where it must be."""
        return join_name(self.schema, self.name)

    @property
    def delete_ratio(self) -> float:
        """Deleted rows among the rows of live files, 0 for a table without files."""
        return self.deleted_row_count / self.record_count if self.record_count else 0.0

    @property
    def average_file_bytes(self) -> float:
        """Mean size of live files, 0 for a table without files."""
        return self.file_size_bytes / self.file_count if self.file_count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeHealth:
    """A whole lake at its newest snapshot. What should be 0 in any lake comes last.

    Attributes:
        at: When it was measured, by the catalog's clock.
        snapshot_id: The newest snapshot; ``newest_snapshot`` and ``oldest_snapshot`` are times of commits.
        snapshot_count: Snapshots that were not expired.
        small_file_size: Bytes below which a file counts as small.
        tables: Live tables by schema and name.
        dropped_table_count: Dropped tables that the catalog still keeps for earlier snapshots.
        scheduled_file_count: Files that are scheduled for deletion, the oldest since ``oldest_scheduled``.
        scheduled_twice: Rows of the schedule that name a file once more.
        orphaned_column_statistics: Statistics of files that the catalog does not know. Likewise ``orphaned_partition_values``,
            ``orphaned_delete_files`` and (of tables) ``orphaned_table_statistics``.
        missing_inlined_tables: Tables of inlined rows that are registered and not there.
        dead_inlined_tables: Tables of inlined rows or deletes that nothing reads.
        files_named_twice: Live rows of data files beyond the first for a path.
        surplus_delete_files: Live delete files beyond the first of a data file.
        tables_named_twice: Live tables beyond the first of a name.
        odd_partition_values: Live files whose partition values are not those of their partition keys.
    """

    at: datetime
    snapshot_id: int
    snapshot_count: int
    oldest_snapshot: datetime
    newest_snapshot: datetime
    small_file_size: int
    tables: tuple[TableHealth, ...] = ()
    dropped_table_count: int = 0
    scheduled_file_count: int = 0
    oldest_scheduled: datetime | None = None
    scheduled_twice: int = 0
    orphaned_column_statistics: int = 0
    orphaned_partition_values: int = 0
    orphaned_delete_files: int = 0
    orphaned_table_statistics: int = 0
    missing_inlined_tables: int = 0
    dead_inlined_tables: int = 0
    files_named_twice: int = 0
    surplus_delete_files: int = 0
    tables_named_twice: int = 0
    odd_partition_values: int = 0

    def table(self, name: str) -> TableHealth:
        """Return one table by ``schema.table`` as :attr:`TableHealth.table` spells it, or by its name in schema ``main``.

        Raises:
            UsageError: It is not among the tables.
        """
        found = next((one for one in self.tables if name in (one.table, f"{one.schema}.{one.name}")), None)
        found = found or next((one for one in self.tables if (one.schema, one.name) == ("main", name)), None)
        if found is None:
            raise UsageError(f"there is no table {name!r} among the {len(self.tables)} tables that were measured", table=name)
        return found

    @property
    def faults(self) -> Mapping[str, int]:
        """Counts by name of what should be 0 in any lake, and is not; ``lake.check()`` says what each of them is."""
        return {name: number for name in _FAULTS if (number := getattr(self, name))}

    def lines(self) -> list[str]:
        """Return the lake and each table in words, one line each."""
        files = sum(one.file_count for one in self.tables)
        size = sum(one.file_size_bytes for one in self.tables)
        head = (
            f"snapshot {self.snapshot_id}: {counted(self.snapshot_count, 'snapshot')}, "
            f"the oldest {_span(self.at - self.oldest_snapshot)} old; "
            f"{counted(len(self.tables), 'table')}, {counted(files, 'file')} ({format_bytes(size)}), "
            f"{self.scheduled_file_count:,} scheduled for deletion"
        )
        faults = [f"{number} {name.replace('_', ' ')}" for name, number in self.faults.items()]
        return [head, *map(_line, self.tables), *([f"faults, which a check describes: {', '.join(faults)}"] if faults else [])]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<LakeHealth: {self}>"

    def to_arrow(self) -> pa.Table:
        """Return one row for each table, with a column for each number; ``delete_ratio`` and ``average_file_bytes`` come last."""
        import pyarrow as pa

        names = [item.name for item in fields(TableHealth)]
        kinds = {"schema": pa.string(), "name": pa.string(), "files_by_size": pa.list_(pa.int64())}
        columns = {name: pa.array([_fitting(getattr(one, name)) for one in self.tables], kinds.get(name, pa.int64())) for name in names}
        ratios = {name: pa.array([getattr(one, name) for one in self.tables], pa.float64()) for name in _RATIOS}
        return pa.table({**columns, **ratios})

    def to_openmetrics(self, labels: Mapping[str, str] | None = None) -> str:
        """Return the numbers as OpenMetrics text, which Prometheus and its textfile collector read.

        Args:
            labels: Labels for every sample, ``{"lake": "sales"}`` for instance.

        Raises:
            UsageError: A label that has no name of a label, or one that samples of tables have; a value that is no text.
        """
        given: Any = {} if labels is None else labels
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
            raise UsageError(f"labels must be texts by name, such as {{'lake': 'sales'}}, not {shown(labels)}", parameter="labels")
        for name in given:
            if not _LABEL.fullmatch(name):
                rule = "letters, digits and underscores, no digit and no two underscores first"
                raise UsageError(f"{name!r} cannot be a label: {rule}", parameter="labels")
            if name in _OWN_LABELS:
                raise UsageError(f"{name!r} cannot be a label, as samples have one of that name already", parameter="labels")
        return "".join(f"{line}\n" for line in (*self._lake_metrics(given), *self._table_metrics(given), "# EOF"))

    def _lake_metrics(self, labels: Mapping[str, str]) -> Iterator[str]:
        times = {name: getattr(self, name) for name in ("oldest_snapshot", "newest_snapshot", "oldest_scheduled")}
        numbers = {
            "ducklake_snapshots": (self.snapshot_count, "Snapshots that were not expired."),
            "ducklake_newest_snapshot_id": (self.snapshot_id, "Id of the newest snapshot."),
            "ducklake_tables": (len(self.tables), "Live tables."),
            "ducklake_dropped_tables": (self.dropped_table_count, "Dropped tables kept for earlier snapshots."),
            "ducklake_scheduled_files": (self.scheduled_file_count, "Files scheduled for deletion."),
            **{f"ducklake_{name}": (getattr(self, name), f"{name.replace('_', ' ').capitalize()}; 0 in a sound lake.") for name in _FAULTS},
            **{
                f"ducklake_{name}_timestamp_seconds": (time.timestamp(), f"Time of the {name.replace('_', ' ')}.")
                for name, time in times.items()
                if time is not None
            },
        }
        for name, (number, text) in numbers.items():
            yield from _family(name, text, [(labels, number)])

    def _table_metrics(self, labels: Mapping[str, str]) -> Iterator[str]:
        names = Counter((one.schema, one.name) for one in self.tables)
        # Prometheus rejects a text with two samples of the same labels, and with it the samples that report the fault.
        numbers = [{"table_id": str(one.table_id)} if names[one.schema, one.name] > 1 else {} for one in self.tables]
        own = [(one, {**labels, "schema": one.schema, "table": one.name, **more}) for one, more in zip(self.tables, numbers, strict=True)]
        for attribute, text in _TABLE_METRICS.items():
            unit = {"record_count": "rows", "file_size_bytes": "data_bytes"}.get(attribute, attribute.replace("_count", "s"))
            name = f"ducklake_table_{unit}"
            yield from _family(name, text, [(mine, getattr(one, attribute)) for one, mine in own])
        ends = (*map(str, FILE_SIZE_BANDS), "+Inf")
        bands = [({**mine, "below": end}, number) for one, mine in own for end, number in zip(ends, one.files_by_size, strict=True)]
        yield from _family("ducklake_table_files_by_size", "Live data files below so many bytes and in no lower band.", bands)


_FAULTS = tuple(item.name for item in fields(LakeHealth))[-10:]


def measure_health(database: Database, *, small_file_size: int = SMALL_FILE_BYTES) -> LakeHealth:
    """Measure a lake. See ``DuckLake.health``."""
    if small_file_size < 1:
        raise UsageError(f"small_file_size must be at least 1 byte, not {small_file_size}", parameter="small_file_size")
    with database.read() as connection:
        found = read_gauges(connection, database.tables, small_file_size)
        now = database.now(connection)
    missing = found.missing if found is not None else ()
    if missing and database.abilities.commits_at_ddl:
        with database.read() as connection:
            still = registered_names(connection, database.tables)
        missing = tuple(name for name in missing if name in still)
    if found is None:
        raise CatalogCorruptError("the catalog holds no snapshot")
    if found.oldest_snapshot is None or found.newest_snapshot is None:
        raise CatalogCorruptError("a snapshot of the catalog has no time", snapshot_id=found.snapshot_id)
    counts = dict(found.lake)
    return LakeHealth(
        at=now,
        snapshot_id=found.snapshot_id,
        snapshot_count=found.snapshot_count,
        oldest_snapshot=found.oldest_snapshot,
        newest_snapshot=found.newest_snapshot,
        small_file_size=small_file_size,
        tables=tuple(_table(found, number) for number in sorted(found.tables, key=lambda number: found.tables[number])),
        dropped_table_count=counts.pop("dropped_tables"),
        scheduled_file_count=counts.pop("scheduled_files"),
        oldest_scheduled=found.oldest_scheduled,
        missing_inlined_tables=len(missing),
        **{name: int(number) for name, number in counts.items()},
    )


def _table(found: LakeGauges, table_id: int) -> TableHealth:
    schema, name = found.tables[table_id]
    files, deletes = found.files.get(table_id), found.delete_files.get(table_id)
    inlined_deletes = found.inlined.get((table_id, "deletes"), 0)
    # Sums of BIGINT are numeric on PostgreSQL, and NULL where every term is.
    sums = {} if files is None else {key: int(value or 0) for key, value in files._mapping.items() if key != "table_id"}  # noqa: SLF001
    sums |= {} if deletes is None else {key: int(value or 0) for key, value in deletes._mapping.items() if key != "table_id"}  # noqa: SLF001
    bands = tuple(sums.pop(f"band_{place}", 0) for place in range(len(FILE_SIZE_BANDS) + 1))
    return TableHealth(
        schema=schema,
        name=name,
        table_id=table_id,
        files_by_size=bands,
        deleted_row_count=sums.pop("deleted_row_count", 0) + inlined_deletes,
        inlined_row_count=found.inlined.get((table_id, "rows"), 0),
        inlined_ended_row_count=found.inlined.get((table_id, "ended"), 0),
        inlined_delete_count=inlined_deletes,
        **sums,
    )


def _fitting(number: object) -> object:
    """Return a number that fits into 64 bits: sums over a broken catalog may exceed them."""
    return min(number, 2**63 - 1) if isinstance(number, int) else number


def _line(one: TableHealth) -> str:
    parts = [
        f"{counted(one.file_count, 'file')} ({format_bytes(one.file_size_bytes)}, {one.small_file_count:,} small)",
        f"{counted(one.record_count, 'row')} in them",
    ]
    if one.deleted_row_count:
        parts.append(f"{one.deleted_row_count:,} deleted ({one.delete_ratio:.1%}, {counted(one.delete_file_count, 'delete file')})")
    if one.inlined_row_count or one.inlined_ended_row_count:
        parts.append(f"{counted(one.inlined_row_count, 'row')} inlined ({one.inlined_ended_row_count:,} more for earlier snapshots)")
    if one.ended_file_count:
        parts.append(f"{counted(one.ended_file_count, 'file')} ({format_bytes(one.ended_file_bytes)}) for earlier snapshots only")
    return f"{one.table}: {', '.join(parts)}"


def _span(age: timedelta) -> str:
    """
    >>> _span(timedelta(days=3, hours=5)), _span(timedelta(minutes=90)), _span(timedelta(0))
    ('3 days', '1 hour', '0 minutes')
    """
    minutes = max(int(age.total_seconds()), 0) // 60
    number, unit = (minutes // 1440, "day") if minutes >= 2880 else (minutes // 60, "hour") if minutes >= 60 else (minutes, "minute")
    return counted(number, unit)


def _family(name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    """Yield a metric with its samples; one without samples is left out."""
    if samples:
        yield f"# TYPE {name} gauge"
        yield f"# HELP {name} {text}"
        for labels, number in samples:
            given = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
            yield f"{name}{'{' + given + '}' if given else ''} {_decimal(number)}"


def _escaped(text: str) -> str:
    r"""
    >>> print(_escaped('a"b\\c' + chr(10)))
    a\"b\\c\n
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _decimal(number: float) -> str:
    return str(number) if isinstance(number, int) else format(number, ".6f") if math.isfinite(number) else "NaN"


def format_bytes(size: int) -> str:
    """Return bytes for people.

    >>> format_bytes(999), format_bytes(1536), format_bytes(3 * 1024**3)
    ('999 B', '1.5 KiB', '3.0 GiB')
    """
    if size < 1024:
        return f"{size} B"
    steps = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**steps:.1f} {_UNITS[steps - 1]}"
