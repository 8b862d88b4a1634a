"""Arguments that several operations share: their types and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.request import CommitMessage
from ducklake_core.errors import UsageError
from ducklake_core.format import arguments
from ducklake_core.format.expressions.conditions import Column, Condition
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.text import shown

if TYPE_CHECKING:
    from pyspark.pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame


class ArrowStreamable(Protocol):
    """Anything that gives a stream of Arrow rows: pyarrow tables and readers, pandas and polars DataFrames, DuckDB relations."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream in a PyCapsule."""


class ArrowArrayable(Protocol):
    """Anything that gives one batch of Arrow rows, such as a struct array of nanoarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return columns and rows in PyCapsules."""


FrameLike: TypeAlias = "ArrowStreamable | ArrowArrayable | Sequence[Mapping[str, object]] | DataFrame | ConnectDataFrame | PandasFrame[Any]"
"""Rows that an operation takes: Arrow data of any library, a list of dicts, or a Spark DataFrame, whose session does the work then.

A stream, such as a pyarrow RecordBatchReader, is read once, and by an append or an overwrite never as a whole.
"""

At: TypeAlias = int | datetime | None
"""A snapshot: its id, a time with a zone (the last snapshot at or before it), or None for the newest."""

Where: TypeAlias = str | Condition | Column | Predicate | None
"""A condition on rows: SQL text in DuckDB's dialect, or one built with :func:`ducklake_core.col`; None for all rows."""

Partitions: TypeAlias = Sequence[Mapping[str, object]] | Literal["in_data"]
"""Partitions of a table, each by the values of all of its keys; or those that rows of the frame are in."""

SqlParameters: TypeAlias = Sequence[object] | Mapping[str, object] | None
"""Values of the parameters of SQL: by position, by name, or none."""

WriteMode: TypeAlias = Literal["append", "overwrite", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]

MissingColumns: TypeAlias = Literal["error", "null"]
"""Treatment of columns that a frame lacks and that have no default: a :class:`SchemaError`, or NULL in new rows."""

ConcurrentAppends: TypeAlias = Literal["fail", "replace"]
"""Treatment of rows that another writer commits to the replaced slice after the overwrite has read it: fail with a
conflict, or replace them too."""

RestoredColumns: TypeAlias = Literal["now", "then"]
"""Columns of a restored table when they were changed since."""


class CommitOptions(CommitMessage, total=False):
    """Options for the snapshot that an operation makes: author, message and extra information, and its identity.

    Attributes:
        commit_id: Makes the commit happen once: if a snapshot carries this id already, nothing is done and the result says ``repeated``.
    """

    commit_id: str | None


def resolve_at(reader: CatalogReader, at: At) -> Snapshot:
    """Return the snapshot that ``at`` means: the newest for None, else by id or time.

    Raises:
        UsageError: ``at`` is neither an id nor a time with a zone.
        NotFoundError: There is no such snapshot, or it was expired.
    """
    if at is None:
        return reader.latest_snapshot()
    wanted = arguments.snapshot("at", at)
    return reader.snapshot(timestamp=wanted) if isinstance(wanted, datetime) else reader.snapshot(version=wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """Arguments of a write, as :meth:`DuckLake.write` documents them, checked. Public methods build it from their parameters.

    Raises:
        UsageError: An argument has a wrong value, or belongs to another mode.
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
        """Return whether the partitions that rows of the frame are in are replaced."""
        return isinstance(self.partitions, str) and self.partitions == "in_data"

    def _check_mode(self) -> None:
        if self.mode not in ("append", "overwrite", "upsert"):
            raise UsageError(f"unknown write mode {shown(self.mode)}: append, overwrite or upsert", parameter="mode")
        for name in ("where", "partitions", "concurrent_appends", "read_at"):
            if getattr(self, name) is not None and self.mode != "overwrite":
                raise UsageError(f"{name} belongs to overwrite, not to {self.mode}", parameter=name)
        if self.partitions is not None and self.where is not None:
            raise UsageError("an overwrite takes where or partitions, not both", parameter="partitions")
        arguments.optional(partial(arguments.choice, choices=("fail", "replace")), "concurrent_appends", self.concurrent_appends)
        if self.on and self.mode != "upsert":
            raise UsageError(f"on belongs to upsert, not to {self.mode}", parameter="on")


def _partitions(given: object) -> tuple[Mapping[str, object], ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"partitions must be 'in_data' or a list of mappings, not {shown(given)}", parameter="partitions")
    return tuple(arguments.mapping("each of partitions", one) for one in given)


def missing_columns_of(given: MissingColumns | None, evolution: SchemaEvolution) -> MissingColumns:
    """Return what happens to columns that a frame lacks: an error under ``strict`` and NULL under ``additive``, unless given.

    Raises:
        UsageError: The value or the schema evolution does not exist.
    """
    if evolution not in ("strict", "additive"):
        raise UsageError(f"unknown schema_evolution {shown(evolution)}: strict or additive", parameter="schema_evolution")
    if given is None:
        return "error" if evolution == "strict" else "null"
    if given not in ("error", "null"):
        raise UsageError(f"unknown missing_columns {shown(given)}: error or null", parameter="missing_columns")
    return given


def check_keys(on: Sequence[str], state: TableState) -> None:
    """Reject an upsert without keys or with columns that the table does not have."""
    if not on:
        raise UsageError(f"an upsert into {state.qualified_name} needs its key columns: on=[...]", table=state.qualified_name)
    for name in on:
        state.schema.column(name)
