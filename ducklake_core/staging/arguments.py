"""Types and checks of arguments that several operations share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ducklake_core.catalog.reading.options import resolve_bound
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.request import CommitMessage
from ducklake_core.errors import SchemaError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.expressions.conditions import Column, Condition
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown

if TYPE_CHECKING:
    from pyspark.pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame


class ArrowStreamable(Protocol):
    """An object that returns a stream of Arrow rows: pyarrow tables and readers, pandas and polars DataFrames, DuckDB relations."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream in a PyCapsule."""


class ArrowArrayable(Protocol):
    """An object that returns one batch of Arrow rows, such as a struct array of nanoarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return columns and rows in PyCapsules."""


FrameLike: TypeAlias = "ArrowStreamable | ArrowArrayable | Sequence[Mapping[str, object]] | DataFrame | ConnectDataFrame | PandasFrame[Any]"
"""Rows to write: Arrow data of any library, a list of dicts, or a Spark DataFrame, whose session does the work.

A stream, such as a pyarrow RecordBatchReader, is read once; appends and overwrites do not hold it in memory.
"""

At: TypeAlias = int | datetime | str | None
"""A snapshot: an id, a time for the last snapshot at or before it, the name of a hold (:attr:`DuckLake.holds`), or None for the newest.

A time is a datetime with a zone, or a string such as ``"2026-01-31 12:00:00+00:00"`` or ``"2026-01-31"``. A string without a zone is read
in the effective time zone (``TZ``, otherwise that of the machine), as in SQL; a date is its midnight.
"""

Where: TypeAlias = str | Condition | Column | Predicate | None
"""A condition on rows: SQL text in DuckDB's dialect, or a condition built with :func:`ducklake_core.col`; None for all rows."""

Partitions: TypeAlias = Sequence[Mapping[str, object]] | Literal["in_data"]
"""Partitions of a table, each with the values of all keys, or ``"in_data"`` for the partitions of the written rows."""

SqlParameters: TypeAlias = Sequence[object] | Mapping[str, object] | None
"""Values of the parameters of SQL: by position, by name, or none."""

WriteMode: TypeAlias = Literal["append", "overwrite", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]

MissingColumns: TypeAlias = Literal["error", "null"]
"""Treatment of columns without a default that a frame lacks: a :class:`SchemaError`, or NULL in new rows."""

ConcurrentAppends: TypeAlias = Literal["fail", "replace"]
"""Treatment of rows that another writer commits to the replaced slice after the overwrite has read it: raise a conflict, or replace them,
too."""

RestoredColumns: TypeAlias = Literal["now", "then"]
"""Columns of a restored table if they have changed since: the current ones, or those of the snapshot."""


class CommitOptions(CommitMessage, total=False):
    """Options of the snapshot that an operation commits.

    Attributes:
        commit_id: Makes a repeated operation safe: if a snapshot already has this id, nothing is done, and the result has ``repeated`` set.
    """

    commit_id: str | None


def checked_at(at: At, name: str = "at") -> At:
    """Return an argument that names a snapshot, before the catalog is read: a string that is no time is the name of a hold.

    Args:
        at: The value.
        name: Name of the argument. Default: ``at``.

    Raises:
        UsageError: The value is neither an id, a time nor a string.
    """
    try:
        return None if at is None else arguments.snapshot(name, at)
    except UsageError:
        if not isinstance(at, str):
            raise
        return storable(name, at)


def resolve_at(reader: CatalogReader, at: At) -> Snapshot:
    """Return the snapshot of an ``at`` argument: the newest for None, otherwise by id, time or name of a hold.

    Args:
        reader: The catalog.
        at: Snapshot id, time, name of a hold, or None.

    Raises:
        UsageError: ``at`` is neither an id, a time nor the name of a hold.
        NotFoundError: The snapshot does not exist or has expired.
    """
    if at is None:
        return reader.latest_snapshot()
    wanted = resolve_bound(reader, "at", at)
    return reader.snapshot(timestamp=wanted) if isinstance(wanted, datetime) else reader.snapshot(version=wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """Arguments of a write, checked; see :meth:`DuckLake.write`. Public methods build it from their parameters.

    Raises:
        UsageError: An argument has an invalid value, or belongs to another mode.
    """

    name: str
    mode: WriteMode = "append"
    where: Where = None
    partitions: Partitions | None = None
    on: Sequence[str] = ()
    create: bool = False
    partition_by: Sequence[str] = ()
    schema_evolution: SchemaEvolution = "strict"
    missing_columns: MissingColumns | None = None
    comment: str | None = None
    inline: bool | None = None
    concurrent_appends: ConcurrentAppends | None = None
    read_at: int | None = None

    def __post_init__(self) -> None:
        arguments.flag("create", self.create)
        arguments.optional(arguments.flag, "inline", self.inline)
        checked = {
            "where": arguments.optional(arguments.condition, "where", self.where),
            "partitions": self.partitions if self.partitions is None or self.replaces_in_data else _partitions(self.partitions),
            "on": arguments.names("on", self.on),
            "partition_by": arguments.names("partition_by", self.partition_by),
            "comment": arguments.optional(storable, "comment", self.comment),
            "read_at": arguments.optional(arguments.whole_number, "read_at", self.read_at),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_mode()

    @property
    def replaces_in_data(self) -> bool:
        """Return whether the write replaces the partitions of its own rows."""
        return isinstance(self.partitions, str) and self.partitions == "in_data"

    def _check_mode(self) -> None:
        if self.mode not in ("append", "overwrite", "upsert"):
            raise UsageError(f"Unknown write mode {shown(self.mode)}. Choose append, overwrite or upsert", parameter="mode")
        for name in ("where", "partitions", "concurrent_appends", "read_at"):
            if getattr(self, name) is not None and self.mode != "overwrite":
                raise UsageError(
                    f"{name} applies only to mode='overwrite', not to {self.mode!r}. Remove {name}, or change the mode", parameter=name
                )
        if self.partitions is not None and self.where is not None:
            raise UsageError("An overwrite takes where or partitions, not both. Remove one of them", parameter="partitions")
        arguments.optional(partial(arguments.choice, choices=("fail", "replace")), "concurrent_appends", self.concurrent_appends)
        if self.on and self.mode != "upsert":
            raise UsageError(f"on applies only to mode='upsert', not to {self.mode!r}. Remove on, or change the mode", parameter="on")


def _partitions(given: object) -> tuple[Mapping[str, object], ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"partitions must be 'in_data' or a list of mappings, not {shown(given)}", parameter="partitions")
    return tuple(arguments.mapping("each of partitions", one) for one in given)


def missing_columns_of(given: MissingColumns | None, evolution: SchemaEvolution) -> MissingColumns:
    """Return the treatment of columns that a frame lacks. The default is an error under ``strict`` and NULL under ``additive``.

    Args:
        given: The argument ``missing_columns``.
        evolution: The argument ``schema_evolution``.

    Raises:
        UsageError: One of the values does not exist.
    """
    if evolution not in ("strict", "additive"):
        raise UsageError(f"Unknown schema_evolution {shown(evolution)}. Choose strict or additive", parameter="schema_evolution")
    if given is None:
        return "error" if evolution == "strict" else "null"
    if given not in ("error", "null"):
        raise UsageError(f"Unknown missing_columns {shown(given)}. Choose error or null", parameter="missing_columns")
    return given


def check_keys(on: Sequence[str], state: TableState) -> None:
    """Reject an upsert without key columns, or with key columns that the table lacks."""
    if not on:
        raise UsageError(f"An upsert into {state.qualified_name} needs key columns. Pass on=[...]", table=state.qualified_name)
    for name in on:
        state.schema.column(name)


def check_key_columns(on: Sequence[str], data: Schema) -> None:
    """Reject an upsert whose data lacks a key column."""
    for name in on:
        if data.find(name) is None:
            raise SchemaError(f"the data has no column {name!r}, which is part of the key. Add it, or change the key", column=name)
