"""Measure the state of a lake: growth, causes of slow reads, and work for maintenance."""

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
    "record_count": "Rows in live data files, including deleted rows.",
    "small_file_count": "Live data files that count as small.",
    "small_file_bytes": "Bytes of live data files that count as small.",
    "ended_file_count": "Data files that only earlier snapshots read.",
    "ended_file_bytes": "Bytes of data files that only earlier snapshots read.",
    "delete_file_count": "Live delete files.",
    "delete_file_bytes": "Bytes of live delete files.",
    "deleted_row_count": "Rows of live data files that are deleted.",
    "delete_ratio": "Deleted rows among the rows of live data files.",
    "inlined_row_count": "Visible inlined rows.",
    "inlined_ended_row_count": "Inlined rows that only earlier snapshots read.",
    "inlined_delete_count": "Inlined deletes of rows of live data files.",
}

_UNITS = ("KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """One table at the newest snapshot.

    Attributes:
        schema: Name of its schema.
        name: Name of the table.
        file_count: Number of live data files.
        file_size_bytes: Bytes of these files.
        record_count: Rows in these files, including deleted rows.
        small_file_count: Number of live files below ``small_file_size``.
        small_file_bytes: Bytes of small files.
        files_by_size: Number of live files by size: below 1 MiB, 16 MiB, 128 MiB, 512 MiB, and larger.
        ended_file_count: Number of files that only earlier snapshots read.
        ended_file_bytes: Bytes of these files.
        delete_file_count: Number of live delete files.
        delete_file_bytes: Bytes of live delete files.
        deleted_row_count: Rows of live files that delete files or the catalog hide.
        inlined_row_count: Visible inlined rows.
        inlined_ended_row_count: Inlined rows that only earlier snapshots read.
        inlined_delete_count: Inlined deletes of rows of live files.
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
        """``schema.table``, quoted where necessary."""
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
    """A lake at its newest snapshot. The last attributes, from ``scheduled_twice``, count faults: they are 0 in a lake without faults.

    Attributes:
        at: Time of the measurement, by the catalog's clock.
        snapshot_id: Id of the newest snapshot.
        newest_snapshot: Time of the newest snapshot.
        oldest_snapshot: Time of the oldest snapshot.
        snapshot_count: Number of snapshots that have not expired.
        small_file_size: Size in bytes below which a file counts as small.
        tables: Live tables by schema and name.
        dropped_table_count: Number of dropped tables that earlier snapshots still contain.
        scheduled_file_count: Number of files that are scheduled for deletion.
        oldest_scheduled: Time at which the oldest of them was scheduled.
        scheduled_twice: Rows of the schedule that repeat a file.
        orphaned_column_statistics: Statistics of files that the catalog does not contain.
        orphaned_partition_values: Partition values of such files.
        orphaned_delete_files: Delete files of such files.
        orphaned_table_statistics: Statistics of tables that the catalog does not contain.
        missing_inlined_tables: Registered tables of inlined rows that do not exist.
        dead_inlined_tables: Unused tables of inlined rows or deletes.
        files_named_twice: Live data files beyond the first of a path.
        surplus_delete_files: Live delete files beyond the first of a data file.
        tables_named_twice: Live tables beyond the first of a name.
        odd_partition_values: Live files whose partition values do not match their partition keys.
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
        """Return one table.

        Args:
            name: ``schema.table``, as in :attr:`TableHealth.table`, or a name in schema ``main``.

        Raises:
            UsageError: There is no such table.
        """
        found = next((one for one in self.tables if name in (one.table, f"{one.schema}.{one.name}")), None)
        found = found or next((one for one in self.tables if (one.schema, one.name) == ("main", name)), None)
        if found is None:
            raise UsageError(
                f"Table {name!r} is not one of the {counted(len(self.tables), 'table')} of the result. Pass schema.table", table=name
            )
        return found

    @property
    def faults(self) -> Mapping[str, int]:
        """Counts of faults by name, without those that are 0. ``lake.check()`` describes each fault."""
        return {name: number for name in _FAULTS if (number := getattr(self, name))}

    def lines(self) -> list[str]:
        """Return a line for the lake and for each table."""
        files = sum(one.file_count for one in self.tables)
        size = sum(one.file_size_bytes for one in self.tables)
        head = (
            f"snapshot {self.snapshot_id}: {counted(self.snapshot_count, 'snapshot')}, the oldest "
            f"{_span(self.at - self.oldest_snapshot)} old; "
            f"{counted(len(self.tables), 'table')}, {counted(files, 'file')} ({format_bytes(size)}), "
            f"{self.scheduled_file_count:,} scheduled for deletion"
        )
        faults = [f"{number} {name.replace('_', ' ')}" for name, number in self.faults.items()]
        return [head, *map(_line, self.tables), *([f"faults (details: lake.check()): {', '.join(faults)}"] if faults else [])]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<LakeHealth: {self}>"

    def to_arrow(self) -> pa.Table:
        """Return one row for each table, with a column for each number, and ``delete_ratio`` and ``average_file_bytes`` at the end."""
        import pyarrow as pa

        names = [item.name for item in fields(TableHealth)]
        kinds = {"schema": pa.string(), "name": pa.string(), "files_by_size": pa.list_(pa.int64())}
        columns = {name: pa.array([_fitting(getattr(one, name)) for one in self.tables], kinds.get(name, pa.int64())) for name in names}
        ratios = {name: pa.array([getattr(one, name) for one in self.tables], pa.float64()) for name in _RATIOS}
        return pa.table({**columns, **ratios})

    def to_openmetrics(self, labels: Mapping[str, str] | None = None) -> str:
        """Return the numbers as OpenMetrics text, which Prometheus and its textfile collector read.

        Args:
            labels: Labels of every sample, such as ``{"lake": "sales"}``. Default: none.

        Raises:
            UsageError: The name of a label is invalid or already used by samples of tables, or a value is not a string.
        """
        given: Any = {} if labels is None else labels
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
            raise UsageError(f"labels must be strings by name, such as {{'lake': 'sales'}}, not {shown(labels)}", parameter="labels")
        for name in given:
            if not _LABEL.fullmatch(name):
                rule = "Use letters, digits and underscores, and do not begin with a digit or two underscores"
                raise UsageError(f"{name!r} is not a valid label. {rule}", parameter="labels")
            if name in _OWN_LABELS:
                raise UsageError(f"The label {name!r} is already used by the samples. Choose another name", parameter="labels")
        return "".join(f"{line}\n" for line in (*self._lake_metrics(given), *self._table_metrics(given), "# EOF"))

    def _lake_metrics(self, labels: Mapping[str, str]) -> Iterator[str]:
        times = {name: getattr(self, name) for name in ("oldest_snapshot", "newest_snapshot", "oldest_scheduled")}
        numbers = {
            "ducklake_snapshots": (self.snapshot_count, "Snapshots that have not expired."),
            "ducklake_newest_snapshot_id": (self.snapshot_id, "Id of the newest snapshot."),
            "ducklake_tables": (len(self.tables), "Live tables."),
            "ducklake_dropped_tables": (self.dropped_table_count, "Dropped tables of earlier snapshots."),
            "ducklake_scheduled_files": (self.scheduled_file_count, "Files scheduled for deletion."),
            **{f"ducklake_{name}": (getattr(self, name), f"{name.replace('_', ' ').capitalize()}; 0 without faults.") for name in _FAULTS},
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
        # Prometheus rejects a text with two samples of the same labels, including the samples that report the fault.
        numbers = [{"table_id": str(one.table_id)} if names[one.schema, one.name] > 1 else {} for one in self.tables]
        own = [(one, {**labels, "schema": one.schema, "table": one.name, **more}) for one, more in zip(self.tables, numbers, strict=True)]
        for attribute, text in _TABLE_METRICS.items():
            unit = {"record_count": "rows", "file_size_bytes": "data_bytes"}.get(attribute, attribute.replace("_count", "s"))
            name = f"ducklake_table_{unit}"
            yield from _family(name, text, [(mine, getattr(one, attribute)) for one, mine in own])
        ends = (*map(str, FILE_SIZE_BANDS), "+Inf")
        bands = [({**mine, "below": end}, number) for one, mine in own for end, number in zip(ends, one.files_by_size, strict=True)]
        yield from _family("ducklake_table_files_by_size", "Live data files by size, each in the lowest band that it fits.", bands)


_FAULTS = tuple(item.name for item in fields(LakeHealth))[-10:]


def measure_health(database: Database, *, small_file_size: int = SMALL_FILE_BYTES) -> LakeHealth:
    """Measure a lake; see ``DuckLake.health`` for the parameters."""
    if small_file_size < 1:
        raise UsageError(f"small_file_size is {small_file_size}, but must be at least 1 byte", parameter="small_file_size")
    with database.read() as connection:
        found = read_gauges(connection, database.tables, small_file_size)
        now = database.now(connection)
    missing = found.missing if found is not None else ()
    if missing and database.abilities.commits_at_ddl:
        with database.read() as connection:
            still = registered_names(connection, database.tables)
        missing = tuple(name for name in missing if name in still)
    if found is None:
        raise CatalogCorruptError("The catalog contains no snapshot. Restore it from a backup")
    if found.oldest_snapshot is None or found.newest_snapshot is None:
        raise CatalogCorruptError("A snapshot of the catalog has no time. Restore the catalog from a backup", snapshot_id=found.snapshot_id)
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
    # Sums of BIGINT are numeric on PostgreSQL, and NULL if every term is NULL.
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
        f"{counted(one.record_count, 'row')} in files",
    ]
    if one.deleted_row_count:
        parts.append(f"{one.deleted_row_count:,} deleted ({one.delete_ratio:.1%}, {counted(one.delete_file_count, 'delete file')})")
    if one.inlined_row_count or one.inlined_ended_row_count:
        parts.append(f"{counted(one.inlined_row_count, 'inlined row')} ({one.inlined_ended_row_count:,} more for earlier snapshots)")
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
    """Yield a metric with its samples, if it has any."""
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
    """Return a size in a readable unit.

    >>> format_bytes(999), format_bytes(1536), format_bytes(3 * 1024**3)
    ('999 B', '1.5 KiB', '3.0 GiB')
    """
    if size < 1024:
        return f"{size} B"
    steps = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**steps:.1f} {_UNITS[steps - 1]}"
