"""Tables and views of a lake as plain values, which definitions are made of; a file can keep them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ducklake_core import folded
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_dagster.naming import name_list

if TYPE_CHECKING:
    from ducklake_core import DuckLake, PartitionField, Schema, Table, View

TimeUnit: TypeAlias = Literal["hour", "day", "month", "year"]
# Finest first.
_UNITS: tuple[TimeUnit, ...] = ("hour", "day", "month", "year")
_MICROSECONDS = 86_400_000_000
_NANOSECONDS = 1000 * _MICROSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeColumn:
    """A column as the catalog has it.

    Attributes:
        type: DuckLake's name of the type.
        comment: Its comment, None for none.
    """

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """The column of time that a table's layout follows.

    Attributes:
        name: Column.
        unit: The finest unit among the partition keys of that column.
        first: Day of the earliest value that the statistics know, ``2026-03-01``.
    """

    name: str
    unit: TimeUnit
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """A table or a view of a lake.

    Attributes:
        kind: ``table`` or ``view``.
        comment: Its comment, None for none.
        columns: Of a view, none when its query is not understood.
        partition_by: Partition keys as a user writes them.
        uri: Folder of its files, None for a view.
        time_column: The column of time that the layout follows, None where it follows none, or no value is known.
        references: Tables and views that a view reads, ``schema.name``.
        sql: Query of a view.
        problem: Why the references of a view are not known.
    """

    schema: str
    name: str
    kind: Literal["table", "view"] = "table"
    comment: str | None = None
    columns: tuple[LakeColumn, ...] = ()
    partition_by: tuple[str, ...] = ()
    uri: str | None = None
    time_column: TimeColumn | None = None
    references: tuple[str, ...] = ()
    sql: str | None = None
    problem: str | None = None

    @property
    def qualified_name(self) -> str:
        """``schema.name``, parts with dots double-quoted."""
        from ducklake_core import join_name

        return join_name(self.schema, self.name)

    def to_dict(self) -> dict[str, Any]:
        """The value as JSON knows it; :meth:`from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LakeTable:
        """The value that :meth:`to_dict` gave."""
        time_column = fields.get("time_column")
        return cls(
            **{
                **fields,
                "columns": tuple(LakeColumn(**column) for column in fields.get("columns", ())),
                "partition_by": tuple(fields.get("partition_by", ())),
                "references": tuple(fields.get("references", ())),
                "time_column": TimeColumn(**time_column) if time_column else None,
            }
        )


def read_lake_tables(lake: DuckLake, include: str | Sequence[str] = "*", exclude: str | Sequence[str] = ()) -> list[LakeTable]:
    """The tables and views of a lake whose names fit, by name, all at one snapshot. No data file is opened.

    Args:
        lake: The lake.
        include: Names or patterns of ``schema.name``, such as ``raw.*``; a pattern without a dot is about the schema ``main``, but for
            ``*``, which is everything. Case does not matter.
        exclude: Likewise, what to leave out.

    Raises:
        UsageError: A name without ``*``, ``?`` or ``[`` that neither a table nor a view has.
    """
    wanted, unwanted = _patterns("include", include), _patterns("exclude", exclude)
    state = lake.at(None)
    names = {info.table: False for info in state.tables()} | {view.name: True for view in state.views()}
    for pattern in wanted:
        if not set("*?[") & set(pattern) and not any(_fits(name, (pattern,)) for name in names):
            raise UsageError(f"include names {pattern}, which is neither a table nor a view of the lake", parameter="include")
    _warn_of_idle("include", [pattern for pattern in wanted if pattern != "*"], names)
    _warn_of_idle("exclude", unwanted, names)
    chosen = sorted(name for name in names if _fits(name, wanted) and not _fits(name, unwanted))
    return [_view(state.view(name)) if names[name] else _table(state.table(name)) for name in chosen]


def _warn_of_idle(what: str, patterns: Sequence[str], names: Iterable[str]) -> None:
    """Say which patterns fit nothing: a lake may get such tables later, so it is no error."""
    idle = [pattern for pattern in patterns if not any(_fits(name, (pattern,)) for name in names)]
    if idle:
        warnings.warn(f"{what}: no table or view of the lake fits {', '.join(idle)}", stacklevel=3)


def _patterns(what: str, value: str | Sequence[str]) -> tuple[str, ...]:
    from ducklake_core import DEFAULT_SCHEMA

    found = name_list(what, value)
    return tuple(folded(one if "." in one or one == "*" else f"{DEFAULT_SCHEMA}.{one}") for one in found)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(folded(name), pattern) for pattern in patterns)


def _columns(schema: Schema, comments: dict[str, str]) -> tuple[LakeColumn, ...]:
    return tuple(
        LakeColumn(name=column.name, type=str(column.type), nullable=column.nullable, comment=comments.get(column.name))
        for column in schema
    )


def _table(table: Table) -> LakeTable:
    info = table.info()
    return LakeTable(
        schema=table.state.schema_name,
        name=table.state.name,
        comment=table.comment,
        columns=_columns(table.schema, table.column_comments),
        partition_by=info.partition_by,
        uri=table.state.path,
        time_column=_time_column(table),
    )


def _view(view: View) -> LakeTable:
    schema: Schema | None = None
    references: tuple[str, ...] = ()
    problem = None
    try:
        references = view.references
    except UnsupportedFeatureError as error:
        problem = error.message
    try:
        schema = view.schema
    except UnsupportedFeatureError as error:
        problem = problem or error.message
    return LakeTable(
        schema=view.state.schema_name,
        name=view.state.name,
        kind="view",
        comment=view.comment,
        columns=_columns(schema, view.column_comments) if schema is not None else (),
        references=references,
        sql=view.sql,
        problem=problem,
    )


def _time_column(table: Table) -> TimeColumn | None:
    """The first column of time that the layout follows, with the finest of its units."""
    keys = table.partition_spec.fields if table.partition_spec is not None else ()
    found = [(key.column, unit) for key in keys for unit in [_unit(table.schema, key)] if unit is not None]
    if not found:
        return None
    name = found[0][0]
    unit = next(unit for unit in _UNITS if (name, unit) in found)
    summary = table.column_summaries().get(name)
    first = _day(summary.min_value, str(table.schema.column(name).type)) if summary is not None else None
    return TimeColumn(name=name, unit=unit, first=first) if first is not None else None


def _unit(schema: Schema, key: PartitionField) -> TimeUnit | None:
    """The unit of time of a partition key; a day itself is one too."""
    for unit in _UNITS:
        if key.transform == unit:
            return unit
    return "day" if key.transform == "identity" and str(schema.column(key.column).type) == "date" else None


def _day(bound: object, type_name: str) -> str | None:
    """The day of a bound, which is a number of days, or of micro- or nanoseconds; None of infinite and very early ones."""
    if not isinstance(bound, int):
        return None
    days = bound if type_name == "date" else bound // (_NANOSECONDS if type_name == "timestamp_ns" else _MICROSECONDS)
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None
