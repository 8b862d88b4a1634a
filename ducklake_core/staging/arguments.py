"""Arguments that several verbs share: their types and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.request import CommitMessage
from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.conditions import Column, Condition
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.state import Snapshot, TableState

if TYPE_CHECKING:
    from pyspark.pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame


class ArrowStreamable(Protocol):
    """Anything that gives a stream of Arrow rows: pyarrow tables and readers, pandas and polars DataFrames, DuckDB relations."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream in a PyCapsule."""


class ArrowArrayable(Protocol):
    """Anything that gives one batch of Arrow rows, such as a struct array of nanoarrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Columns and rows in PyCapsules."""


FrameLike: TypeAlias = "ArrowStreamable | ArrowArrayable | Sequence[Mapping[str, object]] | DataFrame | ConnectDataFrame | PandasFrame[Any]"
"""Rows that a verb takes: Arrow data of any library, a list of dicts, or a Spark DataFrame, whose session does the work then.

A stream, such as a pyarrow RecordBatchReader, is read once, and by an append or an overwrite never as a whole.
"""

At: TypeAlias = int | datetime | None
"""A snapshot: its id, a time with a zone (the last snapshot at or before it), or None for the newest."""

Where: TypeAlias = str | Condition | Column | Predicate | None
"""A condition on rows: SQL text in DuckDB's dialect, or one built with :func:`ducklake_core.col`; None for all rows."""

Partitions: TypeAlias = Sequence[Mapping[str, object]] | Literal["in_data"]
"""Partitions of a table, each by the values of all of its keys; or those that rows of the frame are in."""

WriteMode: TypeAlias = Literal["append", "overwrite", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]

MissingColumns: TypeAlias = Literal["error", "null"]
"""What happens when a frame lacks columns of the table that have no default: a :class:`SchemaError`, or NULL in new rows."""

ConcurrentAppends: TypeAlias = Literal["fail", "replace"]
"""What an overwrite does with rows that another writer commits to the replaced slice after the overwrite has read it: fail with a
conflict, or replace them too."""

RestoredColumns: TypeAlias = Literal["now", "then"]
"""Which columns a restored table has when they were changed since."""


class CommitOptions(CommitMessage, total=False):
    """Options for the snapshot that a verb makes: author, message and extra information, and its identity.

    Attributes:
        commit_id: Makes the commit happen once: if a snapshot carries this id already, nothing is done and the result says ``repeated``.
    """

    commit_id: str | None


def resolve_at(reader: CatalogReader, at: At) -> Snapshot:
    """The snapshot that ``at`` means: the newest for None, else by id or time."""
    if at is None:
        return reader.latest_snapshot()
    return reader.snapshot(timestamp=at) if isinstance(at, datetime) else reader.snapshot(version=at)


def check_mode(
    mode: WriteMode,
    where: Where,
    on: Sequence[str],
    partitions: Partitions | None = None,
    concurrent_appends: ConcurrentAppends | None = None,
    read_at: int | None = None,
) -> None:
    """Refuse a mode that does not exist, and arguments that belong to another one.

    Raises:
        UsageError: What is wrong with them.
    """
    if mode not in ("append", "overwrite", "upsert"):
        raise UsageError(f"unknown write mode {mode!r}: append, overwrite or upsert")
    if where is not None and mode != "overwrite":
        raise UsageError(f"where belongs to overwrite, not to {mode}")
    if partitions is not None and mode != "overwrite":
        raise UsageError(f"partitions belong to overwrite, not to {mode}")
    if partitions is not None and where is not None:
        raise UsageError("an overwrite takes where or partitions, not both")
    if concurrent_appends is not None and mode != "overwrite":
        raise UsageError(f"concurrent_appends belongs to overwrite, not to {mode}")
    if read_at is not None and mode != "overwrite":
        raise UsageError(f"read_at belongs to overwrite, not to {mode}")
    if concurrent_appends not in (None, "fail", "replace"):
        raise UsageError(f"concurrent_appends must be 'fail' or 'replace', not {concurrent_appends!r}", parameter="concurrent_appends")
    if on and mode != "upsert":
        raise UsageError(f"on belongs to upsert, not to {mode}")


def missing_columns_of(given: MissingColumns | None, evolution: SchemaEvolution) -> MissingColumns:
    """Return what happens to columns that a frame lacks: an error under ``strict`` and NULL under ``additive``, unless given.

    Raises:
        UsageError: The value or the schema evolution does not exist.
    """
    if evolution not in ("strict", "additive"):
        raise UsageError(f"unknown schema_evolution {evolution!r}: strict or additive", parameter="schema_evolution")
    if given is None:
        return "error" if evolution == "strict" else "null"
    if given not in ("error", "null"):
        raise UsageError(f"unknown missing_columns {given!r}: error or null", parameter="missing_columns")
    return given


def check_keys(on: Sequence[str], state: TableState) -> None:
    """Refuse an upsert without keys or with columns that the table does not have."""
    if not on:
        raise UsageError(f"an upsert into {state.qualified_name} needs its key columns: on=[...]", table=state.qualified_name)
    for name in on:
        state.schema.column(name)
