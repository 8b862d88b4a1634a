"""Compare the columns of a frame with those of a table: which fit, widen or are new (specification: Schema Evolution)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, TypeAlias

from ducklake_core.errors import SchemaError
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    GEOMETRY,
    INT16,
    INT32,
    INT64,
    INT128,
    INTEGERS,
    INTERVAL,
    JSON,
    NULL,
    SIGNED_INTEGERS,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    TIMETZ,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    UINT128,
    UNSIGNED_INTEGERS,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
    with_children,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import similar

Mode: TypeAlias = Literal["strict", "additive"]
_ADDITIVE = "schema_evolution='additive' would change the table"
_REMEDY = ". Cast the data, or change the column with table.set_column_type(...)"
# Decimal digits that hold every value of an integer type, in the order of INTEGERS.
_DIGITS: dict[DataType, int] = dict(zip(INTEGERS, (3, 5, 10, 19, 39, 3, 5, 10, 20, 39), strict=True))
_MAX_DIGITS = 38
_WIDER_TIMES: dict[DataType, tuple[DataType, ...]] = {
    DATE: (TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMP_NS, TIMESTAMPTZ),
    TIMESTAMP_S: (TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_NS),
    TIMESTAMP_MS: (TIMESTAMP, TIMESTAMP_NS),
    TIMESTAMP: (TIMESTAMP_NS, TIMESTAMPTZ),
}
_NAIVE_TIMES = (TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMP_NS)
# Only pairs in which every value of the first type is one of the second. Nanoseconds have the smallest range of years, dates the largest.
_CONTAINED = ((FLOAT32, FLOAT64), (TIMESTAMP_S, TIMESTAMP_MS), (TIMESTAMP_S, TIMESTAMP), (TIMESTAMP_MS, TIMESTAMP))
# Types that engines lack arrive as these. The writer casts them back and rejects values that do not fit.
_CARRIERS: dict[DataType, DataType] = {
    UINT8: INT16,
    UINT16: INT32,
    UINT32: INT64,
    UINT64: DecimalType(precision=20, scale=0),
    INT128: DecimalType(precision=38, scale=0),
    UINT128: DecimalType(precision=38, scale=0),
    TIMESTAMP_S: TIMESTAMP,
    TIMESTAMP_MS: TIMESTAMP,
    TIMETZ: TIME,
    INTERVAL: VARCHAR,
    UUID: VARCHAR,
    NULL: INT32,
}
# Types as which Spark reads columns that it has no exact type for (engines/spark/types.py). Every value is parsed and checked when it
# is written back.
_EXACT_CARRIERS: dict[DataType, DataType] = {
    INT128: VARCHAR,
    UINT128: VARCHAR,
    TIME: VARCHAR,
    TIMETZ: VARCHAR,
    TIME_NS: VARCHAR,
    TIMESTAMP_NS: INT64,
}

Parts: TypeAlias = Callable[[Any], Sequence[Any] | None]
"""Types of the children of an engine's type, in order, none where they are not known; None for the type of NULLs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """Changes to the columns of a table so that it can store a frame.

    Attributes:
        schema: The table's columns afterwards, with final ids; the same as before when nothing changes.
        ended: Ids of columns whose present row ends, because their type widens.
        added: Every node to insert, parents first, each with the id of its parent (None on top level): widened nodes under their old
            id, new ones under new ids. Children of a new node are listed on their own.
        differences: Readable descriptions of the changes.
        missing: Paths of columns and struct fields without a default that the frame lacks.
    """

    schema: Schema
    ended: tuple[int, ...] = ()
    added: tuple[tuple[Field, int | None], ...] = ()
    differences: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def promotes(source: DataType, target: DataType) -> bool:
    """Return whether ALTER may change a leaf column of ``source`` to ``target``: exactly what DuckDB allows.

    That is more than :func:`widens`: everything becomes JSON, and numbers become decimals of 38 digits whether they all fit or not.

    >>> promotes(INT64, DecimalType(precision=38, scale=38)), widens(INT64, DecimalType(precision=38, scale=38))
    (True, False)
    >>> promotes(UUID, JSON), promotes(JSON, VARCHAR), promotes(INT32, VARCHAR), promotes(FLOAT64, FLOAT32)
    (True, False, False, False)
    """
    if source == target:
        return False
    if target == JSON:
        return source not in (VARIANT, GEOMETRY)
    widest = isinstance(target, DecimalType) and target.precision == _MAX_DIGITS
    if widest and source in _DIGITS:
        return True
    if widest and isinstance(source, DecimalType) and isinstance(target, DecimalType):
        return target.precision - target.scale >= source.precision - source.scale
    return widens(source, target)


def widens(source: DataType, target: DataType) -> bool:
    """Return whether a column of ``source`` may become ``target``: what DuckDB promotes, less what would lose digits.

    >>> widens(INT32, INT64), widens(INT64, INT32), widens(UINT32, INT64), widens(UINT32, INT32), widens(DATE, TIMESTAMP)
    (True, False, True, False, True)
    >>> widens(NULL, VARCHAR), widens(VARCHAR, NULL), widens(NULL, VARIANT)
    (True, False, False)
    >>> widens(INT32, DecimalType(precision=10, scale=0)), widens(INT32, DecimalType(precision=10, scale=2))
    (True, False)
    """
    if source == target:
        return False
    if source == NULL:
        return target != VARIANT and not isinstance(target, ListType | MapType | StructType)
    if source == BOOLEAN:
        return target in INTEGERS
    if source in _DIGITS:
        return _integer_widens(source, target)
    if isinstance(source, DecimalType):
        whole = source.precision - source.scale
        if isinstance(target, DecimalType):
            return target.precision - target.scale >= whole and target.scale >= source.scale
        return target in FLOATS
    if source == FLOAT32:
        return target == FLOAT64
    if source == VARCHAR:
        return target == JSON
    return target in _WIDER_TIMES.get(source, ())


def _integer_widens(source: DataType, target: DataType) -> bool:
    if isinstance(target, DecimalType):
        return target.precision - target.scale >= _DIGITS[source]
    if target in (FLOAT32, FLOAT64):
        return True
    for family in (SIGNED_INTEGERS, UNSIGNED_INTEGERS):
        if source in family and target in family:
            return family.index(target) > family.index(source)
    if source in UNSIGNED_INTEGERS and target in SIGNED_INTEGERS:
        return SIGNED_INTEGERS.index(target) > UNSIGNED_INTEGERS.index(source)
    return False


def fits(frame: DataType, table: DataType) -> bool:
    """Return whether values of a leaf type can be written to a column of another without changing the table.

    >>> fits(INT32, INT64), fits(INT64, INT32), fits(VARCHAR, UUID), fits(INT64, TIMESTAMP_NS)
    (True, False, True, True)
    """
    return frame == table or widens(frame, table) or _carries(frame, table)


def _carries(frame: DataType, table: DataType) -> bool:
    """Return whether an engine that lacks a type has its values in another."""
    carrier = _CARRIERS.get(table)
    if _EXACT_CARRIERS.get(table) == frame or frame == carrier:
        return True
    return carrier is not None and widens(frame, carrier) and carrier not in FLOATS


def may_fit(frame: DataType, table: DataType) -> bool:
    """Return whether some values of a leaf type are values of another.

    The writer casts them, and rejects the first value that is not, with its row.

    The type of a frame reveals little about its values: languages have one width of integers, and pandas turns integers with a missing
    value into floats, counts nanoseconds whatever a time is measured in, and has no dates.

    >>> may_fit(INT64, INT32), may_fit(INT64, DecimalType(precision=5, scale=2)), may_fit(TIMESTAMP_NS, TIMESTAMP), may_fit(FLOAT64, INT32)
    (True, True, True, True)
    >>> may_fit(TIMESTAMP_NS, DATE), may_fit(FLOAT64, FLOAT32), may_fit(FLOAT64, VARCHAR), may_fit(VARCHAR, INT32)
    (True, True, False, False)
    """
    if frame in _DIGITS or isinstance(frame, DecimalType) or frame in FLOATS:
        return table in _DIGITS or isinstance(table, DecimalType) or table in FLOATS
    if frame == BLOB:
        # Polars has no type for UUIDs, and reads their 16 bytes.
        return table == UUID
    return frame in _NAIVE_TIMES and table in (*_NAIVE_TIMES, TIMESTAMPTZ, DATE)


def may_not_fit(frame: DataType, table: DataType) -> bool:
    """Return whether a leaf type that may fit (:func:`may_fit`) also has values that are not values of the table's type.

    >>> may_not_fit(FLOAT64, INT32), may_not_fit(INT64, FLOAT64), may_not_fit(INT32, INT64), may_not_fit(INT16, UINT8)
    (True, True, False, False)
    """
    return frame != table and may_fit(frame, table) and not contains(table, frame) and not _carries(frame, table)


def contains(new: DataType, old: DataType) -> bool:
    """Return whether every value of an old leaf type is a value of the new one, so that a column may widen without ALTER.

    ALTER may do more (:func:`promotes`): an integer of 64 bits may become a float there, and lose digits.

    >>> contains(INT64, INT32), contains(FLOAT64, FLOAT32), contains(DecimalType(precision=12, scale=3), DecimalType(precision=10, scale=2))
    (True, True, True)
    >>> contains(FLOAT64, INT64), contains(FLOAT64, INT32), contains(TIMESTAMP_NS, TIMESTAMP), contains(TIMESTAMP, DATE)
    (False, False, False, False)
    """
    if old == NULL:
        return widens(old, new)
    if old in INTEGERS:
        return widens(old, new) and new not in FLOATS
    if isinstance(old, DecimalType):
        return isinstance(new, DecimalType) and widens(old, new)
    return (old, new) in _CONTAINED


def reconcile(
    table: Schema,
    frame: Schema,
    mode: Mode,
    next_column_id: int,
    holds_only_nulls: Callable[[Field, bool], bool] | None = None,
    name: str = "the table",
) -> Reconciliation:
    """Compare a frame's columns with a table's, by name without regard to case, at any depth.

    Columns that the frame lacks are written as their default or NULL; those without a default are in the result, and the caller decides.
    Narrower types of the frame are cast up.

    Args:
        table: The table's present columns.
        frame: The frame's columns; their ids mean nothing.
        mode: ``strict`` rejects whatever would change the table; ``additive`` adds new columns and fields and widens types. Where
            nothing widens, types whose values may fit (:func:`may_fit`) are taken as they are. A type widens only to one that has
            every value of the present type (:func:`contains`).
        next_column_id: First id that new columns may take.
        holds_only_nulls: Returns whether a column of the table has only NULL. Called for columns that do not fit, or may not fit (the
            second argument). Such a column is replaced by a new one of the frame's type. None if columns are never replaced.
        name: Name of the table, for the error.

    Raises:
        SchemaError: The frame does not fit; the message lists every difference with both types.
    """
    work = _Work(ids=count(next_column_id), widens=mode == "additive", holds_only_nulls=holds_only_nulls or (lambda *_: False))
    columns = work.level(table.columns, frame.columns, None, "")
    rejected = [*work.rejected, *(work.changed if mode == "strict" else ())]
    if rejected:
        cast = "cast the data; " if work.replaced else ""
        hint = "".join(sorted(work.remedies)) if work.rejected or mode != "strict" else f"; {_misspelled(table, frame)}{cast}{_ADDITIVE}"
        raise SchemaError(f"the data does not fit {name}: {'; '.join(rejected)}{hint}", differences=tuple(rejected))
    return Reconciliation(
        schema=Schema(columns=columns) if work.changed else table,
        ended=tuple(work.ended),
        added=tuple(work.added),
        differences=tuple(work.changed),
        missing=tuple(work.missing),
    )


# How a leaf of the frame meets the table's leaf of that name (_Work.node); the first line that applies decides:
#
#   the frame's type ...                              strict              additive
#   fits the table's type (fits)                      cast                cast
#   may fit, and does not contain the table's type    cast and check      cast and check
#   may fit, and contains the table's type            cast and check      the column widens
#   contains the table's type (contains)              error               the column widens
#   anything else                                     error               error
#
# "Cast and check": the writer rejects the first value that the table's type does not have. A top-level column that holds only NULL does
# not raise an error but gives way to a new column of the frame's type (gives_way).
@dataclass(slots=True, kw_only=True)
class _Work:
    """Collects the differences that one comparison finds."""

    ids: Iterator[int]
    widens: bool
    holds_only_nulls: Callable[[Field, bool], bool]
    ended: list[int] = field(default_factory=list)
    added: list[tuple[Field, int | None]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    remedies: set[str] = field(default_factory=set)
    replaced: bool = False

    def level(self, table: tuple[Field, ...], frame: tuple[Field, ...], parent: int | None, path: str) -> tuple[Field, ...]:
        """Return the columns of the table, or the fields of one struct, after they took in the frame."""
        given: dict[str, Field] = {}
        for column in frame:
            if given.setdefault(folded(column.name), column) is not column:
                self.rejected.append(f"the data has {path}{column.name!r} twice (names are case-insensitive)")
        result: list[Field] = []
        replacing: list[Field] = []
        for column in table:
            mine, rejected = given.pop(folded(column.name), None), len(self.rejected)
            node = self.column(column, mine, parent, path)
            if parent is None and mine is not None and self.gives_way(column, node, mine, is_rejected=len(self.rejected) > rejected):
                # Files cannot have values of the old type, so that the column gives way to a new one with the same name.
                del self.rejected[rejected:]
                self.changed.append(f"column {column.name!r} is {column.type} without values in the table, and {mine.type} in the data")
                replacing.append(mine)
                self.replaced = True
            else:
                result.append(node)
        # Last, so that the columns that stay keep their ids and their order.
        result += [self.new(replace(column, nullable=True), None) for column in replacing]
        for column in given.values():
            self.changed.append(f"column {path + column.name!r} is new ({column.type})")
            result.append(self.new(column, parent))
        return tuple(result)

    def gives_way(self, column: Field, node: Field, frame: Field, *, is_rejected: bool) -> bool:
        """Return whether a column of the table holds only NULL and did not take the frame's type, so that some values may not fit."""
        may_be_rejected = node is column and may_not_fit(frame.type, column.type)
        return (is_rejected or may_be_rejected) and self.holds_only_nulls(column, is_rejected)

    def column(self, column: Field, frame: Field | None, parent: int | None, path: str) -> Field:
        if frame is not None:
            return self.node(column, frame, parent, path)
        if parent is None and not column.nullable and column.default is None:
            self.rejected.append(f"column {path + column.name!r} ({column.type}) is NOT NULL, but the data does not have it")
        elif column.default is None:
            self.missing.append(path + column.name)
        return column

    def node(self, column: Field, frame: Field, parent: int | None, path: str) -> Field:
        """Return a node of both sides after the change."""
        here = path + column.name
        match column.type, frame.type:
            case StructType(fields=fields), StructType(fields=others):
                return replace(column, type=StructType(fields=self.level(fields, others, column.id, f"{here}.")))
            case ListType(element=element), ListType(element=other):
                return replace(column, type=ListType(element=self.node(element, other, column.id, f"{here}.")))
            case MapType(key=key, value=value), MapType(key=other_key, value=other_value):
                key = self.node(key, other_key, column.id, f"{here}.")
                return replace(column, type=MapType(key=key, value=self.node(value, other_value, column.id, f"{here}.")))
            case table_type, frame_type if fits(frame_type, table_type):
                return column
            case table_type, frame_type if may_fit(frame_type, table_type) and not (self.widens and contains(frame_type, table_type)):
                return column
            case table_type, frame_type if contains(frame_type, table_type):
                return self.widened(column, frame_type, parent, here)
            case table_type, frame_type:
                self.rejected.append(f"column {here!r} is {table_type} in the table and {frame_type} in the data")
                self.remedies.add(_REMEDY)
                return column

    def widened(self, column: Field, data_type: DataType, parent: int | None, here: str) -> Field:
        # 0 marks a version of the column that is not committed.
        wider = replace(column, type=data_type, begin_snapshot=0)
        self.changed.append(f"column {here!r} widens from {column.type} to {data_type}")
        self.ended.append(column.id)
        self.added.append((wider, parent))
        return wider

    def new(self, column: Field, parent: int | None) -> Field:
        """Return the column with ids in pre-order; it is nullable, because older rows do not have it."""
        own = next(self.ids)
        # The position is taken before the children append themselves: parents are inserted first.
        place = len(self.added)
        numbered = Field(id=own, name=column.name, type=with_children(column.type, lambda child: self.new(child, own)))
        self.added.insert(place, (numbered, parent))
        return numbered


def _misspelled(table: Schema, frame: Schema) -> str:
    """Return a question for a new column whose name is like that of a column that the frame lacks."""
    lacking = [column.name for column in table if frame.find(column.name) is None]
    return next((f"{near} " for column in frame if table.find(column.name) is None and (near := similar(column.name, lacking))), "")


def with_adopted_types(frame: Schema, table: Schema, adopted_type: Callable[[Field, Field], DataType]) -> Schema:
    """Return the frame's columns, some of them with the type of the table's column.

    Args:
        frame: The frame's columns.
        table: The table's columns.
        adopted_type: The type that a column of the frame has next to a column of the table; binaries where the table has geometries, which
            are well-known binary wherever there is no type for them, are geometries.
    """

    def adopted(column: Field) -> Field:
        known = table.find(column.name)
        if known is None:
            return column
        is_geometry = column.type == BLOB and known.type == GEOMETRY
        return replace(column, type=GEOMETRY if is_geometry else adopted_type(column, known))

    return Schema(columns=tuple(adopted(column) for column in frame))


def with_types_for_nulls(frame: Schema, table: Schema, given: Mapping[str, Any], parts: Parts) -> Schema:
    """Return the frame's columns. Columns, elements and fields with only NULL get the type of the table's column.

    Args:
        frame: The frame's columns.
        table: The table's columns.
        given: The engine's types of the frame's columns, by name.
        parts: Takes such a type apart.
    """
    columns = ((column, table.find(column.name)) for column in frame)
    return Schema(columns=tuple(mine if known is None else _typed(given[mine.name], mine, known, parts) for mine, known in columns))


def _typed(given: Any, mine: Field, known: Field, parts: Parts) -> Field:
    children = parts(given)
    if children is None:
        return replace(mine, type=known.type)
    if not children:
        return mine
    match mine.type, known.type:
        case ListType(element=element), ListType(element=other):
            return replace(mine, type=ListType(element=_typed(children[0], element, other, parts)))
        case MapType(key=key, value=value), MapType(key=other_key, value=other):
            typed = MapType(key=_typed(children[0], key, other_key, parts), value=_typed(children[1], value, other, parts))
            return replace(mine, type=typed)
        case StructType(fields=fields), StructType(fields=others):
            names = {folded(field.name): field for field in others}
            pairs = ((child, field, names.get(folded(field.name))) for child, field in zip(children, fields, strict=True))
            found = (field if same is None else _typed(child, field, same, parts) for child, field, same in pairs)
            return replace(mine, type=StructType(fields=tuple(found)))
        case _:
            return mine
