"""Check a Parquet file that is to be added to a table: columns, partition values and statistics in its footer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Literal, TypeAlias

import pyarrow as pa

from ducklake_core.errors import CorruptFileError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, ColumnStatistics, WrittenFile
from ducklake_core.format.files.name_mapping import AddedFile, MappedColumn, accepted_types, fits, path_keys, plain_text, unquoted
from ducklake_core.format.files.partitioning import EPOCH_TRANSFORMS, PartitionField, PartitionSpec
from ducklake_core.format.files.paths import relative_to
from ducklake_core.format.files.statistics import truncate_bounds
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    FLOATS,
    GEOMETRY,
    INT32,
    INT64,
    INT128,
    INTERVAL,
    JSON,
    PRIMITIVES,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    TIMETZ,
    UINT128,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ArrowType, Schema, is_list
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.format.values.leaf_values import order_key, stat_value
from ducklake_core.format.values.leaf_values import to_text as stat_text
from ducklake_core.format.values.temporal import INFINITE_DAYS, INFINITE_UNITS
from ducklake_core.format.values.value_text import from_cast_text, from_text, to_cast_text, to_text
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.footers import Chunk, Footer, Node, Raw, raw_bounds
from ducklake_core.storage.parquet_files import read_footer

_SYSTEM_IDS = (ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID)
_CALENDAR: tuple[Literal["year", "month", "day", "hour"], ...] = ("year", "month", "day", "hour")

Unit: TypeAlias = Literal["ms", "us", "ns"]
_UNITS: dict[str, Unit] = {"ms": "ms", "us": "us", "ns": "ns"}
_PHYSICAL: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN, "INT32": INT32, "INT64": INT64, "INT96": TIMESTAMP, "FLOAT": FLOAT32, "DOUBLE": FLOAT64,
    "BYTE_ARRAY": BLOB, "FIXED_LEN_BYTE_ARRAY": BLOB,
}  # fmt: skip
_LOCAL_TIMESTAMPS: dict[Unit, DataType] = {"ms": TIMESTAMP_MS, "us": TIMESTAMP, "ns": TIMESTAMP_NS}
_ANNOTATED: dict[str, DataType] = {
    "STRING": VARCHAR, "ENUM": VARCHAR, "JSON": JSON, "UUID": UUID, "DATE": DATE, "INTERVAL": INTERVAL, "GEOMETRY": GEOMETRY,
    "FLOAT16": FLOAT32,
}  # fmt: skip

_NANOSECONDS: dict[Unit, int] = {"ms": 1_000_000, "us": 1000, "ns": 1}
_DAY = 86_400_000_000
_INTEGERS = {
    **{f"int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}
_EXACT = Context(prec=80)
_NOT_IN_PARQUET = (INT128, UINT128)
_BARE = "is repeated without the annotation LIST"
_TWO_LEVELS = "is a list of structs without a group around the elements"
_NEW_FORM = "has a logical type without the converted type of older versions of the format"
_CONVERTED_TYPES = frozenset(("STRING", "ENUM", "JSON", "DECIMAL", "DATE", "LIST", "MAP"))
"""Annotations that DuckDB reads from the converted type alone; of integers, those of large unsigned numbers as well."""
_WITHOUT_BOUNDS = (*_NOT_IN_PARQUET, INTERVAL, TIMETZ, VARIANT, GEOMETRY)
"""Types that files store as others, whose order is not that of the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddingRules:
    """The rules that all added files of one call must satisfy. Sent to executors, so it has no access to the catalog.

    Attributes:
        table: ``schema.table`` for messages.
        directory: Full path of the table's directory, with a trailing slash.
        schema: The table's columns.
        partition_spec: Its keys, None for none.
        allow_missing: Whether files may lack columns of the table.
        ignore_extra_columns: Whether files may have columns that the table lacks.
        hive_partitioning: Whether directories ``key=value`` of a path are columns: required in all paths (True), optional (None),
            or ignored (False).
        for_duckdb: Whether DuckDB must be able to read the files.
    """

    table: str
    directory: str
    schema: Schema
    partition_spec: PartitionSpec | None = None
    allow_missing: bool = False
    ignore_extra_columns: bool = False
    hive_partitioning: bool | None = None
    for_duckdb: bool = True


def inspect_file(storage: Storage, path: str, rules: AddingRules) -> AddedFile:
    """Read the footer of a file and match its columns with the table. Reads no rows.

    Raises:
        NotFoundError: There is no such file.
        CorruptFileError: The file is not a Parquet file.
        StorageError: It cannot be read.
        SchemaError: A column is missing, unknown or of another type, or has a NULL that the table does not allow.
        UsageError: The value of a partition key cannot be determined, or its path has no ``key=value`` where it must.
        UnsupportedFeatureError: The file has columns that this library cannot add.
    """
    return _Inspection(path=path, rules=rules, footer=read_footer(storage, path)).added()


@dataclass(slots=True, kw_only=True)
class _Inspection:
    path: str
    rules: AddingRules
    footer: Footer
    keys: Mapping[str, str] = field(default_factory=dict)
    statistics: dict[int, ColumnStatistics] = field(default_factory=dict)
    absent: list[ColumnStatistics] = field(default_factory=list)

    @property
    def where(self) -> str:
        return printable(self.path)

    def added(self) -> AddedFile:
        rules = self.rules
        if rules.hive_partitioning is not False:
            self.keys = path_keys(self.path)
            if rules.hive_partitioning and not self.keys:
                raise UsageError(
                    f"the path of {self.where} has no directory key=value, which hive_partitioning=True requires", path=self.where
                )
        columns = self._columns(readable_columns(self.footer, self.where), rules.schema.columns)
        values = () if rules.partition_spec is None else tuple(self._partition_value(key) for key in rules.partition_spec.fields)
        path, is_relative = relative_to(rules.directory, self.path)
        order = {leaf.id: place for place, leaf in enumerate(rules.schema.leaves())}
        file = WrittenFile(
            path=path,
            record_count=self.footer.record_count,
            file_size_bytes=self.footer.file_size_bytes,
            footer_size=self.footer.footer_size,
            statistics=tuple(sorted(self.statistics.values(), key=lambda column: order[column.column_id])),
            partition_values=values,
            row_group_count=len(self.footer.row_groups),
        )
        return AddedFile(file=file, path_is_relative=is_relative, full_path=self.path, columns=columns, absent=tuple(self.absent))

    def _columns(self, held: Sequence[ForeignColumn], wanted: Sequence[Field], above: str = "") -> tuple[MappedColumn, ...]:
        by_name = {folded(column.name): column for column in wanted}
        found: list[MappedColumn] = []
        for column in held:
            name = above + column.name
            if column.field_id in _SYSTEM_IDS:
                raise UnsupportedFeatureError(
                    f"{self.where} holds row ids or snapshots of a lake (column {name!r}), which would be taken for this lake's; "
                    "write its rows instead of adding it",
                    path=self.where,
                    column=name,
                )
            target = by_name.get(folded(column.name))
            if target is None:
                if folded(column.name) in {folded(other.name) for other in wanted}:
                    raise SchemaError(
                        f"{self.where} has column {name!r} twice (names are case-insensitive). Rename one of the columns in the file",
                        path=self.where,
                        column=name,
                    )
                if self.rules.ignore_extra_columns:
                    continue
                raise SchemaError(
                    f"{self.where} has column {name!r}, but table {self.rules.table} does not; pass ignore_extra_columns=True to add it "
                    "all the same",
                    path=self.where,
                    table=self.rules.table,
                    column=name,
                )
            del by_name[folded(target.name)]
            # As in DuckDB, the value in the path hides the one in the file.
            in_path = not above and column.name in self.keys
            if in_path:
                found.append(self._from_path(target, column.name))
                continue
            found.append(self._column(column, target, name))
            if not above:
                self._check_nulls(column, target, name)
        for lacking in by_name.values():
            if not above and lacking.name in self.keys:
                found.append(self._from_path(lacking, lacking.name))
            else:
                self._missing(lacking, above)
        return tuple(found)

    def _column(self, held: ForeignColumn, wanted: Field, name: str) -> MappedColumn:
        children: tuple[MappedColumn, ...] = ()
        if wanted.type in (VARIANT, GEOMETRY):
            raise UnsupportedFeatureError(
                f"column {name!r} of {self.where} is of type {wanted.type}, which can be added with DuckDB's ducklake_add_data_files only; "
                "or write its rows",
                path=self.where,
                column=name,
            )
        if wanted.type in _NOT_IN_PARQUET:
            raise UnsupportedFeatureError(
                f"column {wanted.name!r} of table {self.rules.table} is of type {wanted.type}, which no Parquet type stores exactly; write "
                f"the rows of {self.where} instead of adding it",
                path=self.where,
                column=name,
            )
        obstacle = held.obstacle or (_page_obstacle(self.footer, held.leaf) if held.leaf is not None else "")
        if obstacle and self.rules.for_duckdb:
            raise UnsupportedFeatureError(
                f"column {name!r} of {self.where} {obstacle}, and DuckDB cannot read such columns of a lake; write the rows of the "
                "file instead, or pass for_duckdb=False if DuckDB does not read the table",
                path=self.where,
                column=name,
            )
        match held.kind, wanted.type:
            case "struct", StructType(fields=fields):
                children = self._columns(held.children, fields, f"{name}.")
            case "list", ListType(element=element):
                children = (self._column(held.children[0], element, f"{name}.list"),)
            case "map", MapType(key=key, value=value):
                parts = zip(held.children, (key, value), strict=True)
                children = tuple(self._column(part, target, f"{name}.{part.name}") for part, target in parts)
            case "leaf", _ if held.leaf is not None and wanted.is_leaf:
                self._check_leaf(held.leaf, wanted, name)
                self.statistics[wanted.id] = external_statistics(self.footer, held.leaf, wanted)
            case _:
                raise self._unlike(name, held.kind if held.leaf is None else str(held.leaf.type), wanted)
        return MappedColumn(source_name=held.name, field_id=wanted.id, children=children)

    def _check_leaf(self, leaf: ForeignLeaf, wanted: Field, name: str) -> None:
        if not fits(leaf.type, wanted.type):
            raise self._unlike(name, str(leaf.type), wanted)

    def _unlike(self, name: str, held: str, wanted: Field) -> SchemaError:
        accepted = [str(wanted.type)]
        if wanted.is_leaf and not isinstance(wanted.type, DecimalType):
            accepted = [str(one) for one in accepted_types(wanted.type)]
        if wanted.type == INTERVAL and held == "int64":
            return SchemaError(
                f"column {name!r} of {self.where} is of type int64, as Parquet has no type for durations, and does not fit column "
                f"{wanted.name!r} of table {self.rules.table} of type interval; write the rows of the file instead, or use a column of "
                "type int64",
                path=self.where,
                table=self.rules.table,
                column=name,
            )
        return SchemaError(
            f"column {name!r} of {self.where} is of type {held}, which does not fit column {wanted.name!r} of table {self.rules.table} of "
            f"type {wanted.type} (it takes {', '.join(accepted)})",
            path=self.where,
            table=self.rules.table,
            column=name,
        )

    def _check_nulls(self, held: ForeignColumn, wanted: Field, name: str) -> None:
        if wanted.nullable or not self.footer.record_count:
            return
        count = self.statistics[wanted.id].null_count if held.leaf is not None else None
        # No row is read, so NOT NULL has to be proved by the footer: by a count of 0, or by a column that is REQUIRED in the file.
        if count == 0 or held.is_required:
            return
        reason = f"has {count} NULLs in" if count else "does not say how many NULLs are in"
        raise SchemaError(
            f"{self.where} {reason} column {name!r}, which is NOT NULL in table {self.rules.table}", path=self.where, column=name
        )

    def _missing(self, column: Field, above: str) -> None:
        name = above + column.name
        if not self.rules.allow_missing:
            raise SchemaError(
                f"table {self.rules.table} has column {name!r}, but {self.where} does not; pass allow_missing=True to take its default",
                path=self.where,
                table=self.rules.table,
                column=name,
            )
        rows = self.footer.record_count
        if not column.nullable and column.initial_default is None and rows:
            raise SchemaError(f"{self.where} lacks column {name!r}, which is NOT NULL and has no default", path=self.where, column=name)
        for leaf in column.leaves():
            if above or not column.is_leaf or column.initial_default is None:
                self.absent.append(ColumnStatistics(column_id=leaf.id, column_size_bytes=0, value_count=0, null_count=rows))
            else:
                text = to_text(from_cast_text(column.initial_default, column.type), column.type)
                self.absent.append(_constant(leaf, text, rows))

    def _from_path(self, column: Field, key: str) -> MappedColumn:
        if not column.is_leaf:
            raise SchemaError(
                f"column {key!r} of type {column.type} cannot come from the path of {self.where}", path=self.where, column=key
            )
        text = self._path_text(column, key)
        if text is None and not column.nullable and self.footer.record_count:
            raise SchemaError(f"the path of {self.where} gives NULL to column {key!r}, which is NOT NULL", path=self.where, column=key)
        stored = None if text is None else to_text(from_cast_text(text, column.type), column.type)
        self.statistics[column.id] = _constant(column, stored, self.footer.record_count)
        return MappedColumn(source_name=column.name, field_id=column.id, in_path=True)

    def _path_text(self, column: Field, key: str) -> str | None:
        """Return the catalog's text of the value in the path."""
        raw = unquoted(self.keys[key], key, self.path)
        try:
            text = None if raw is None else plain_text(raw, column.type)
            # Reads it once, so that what is not a value of the type is found here.
            return None if text is None else to_cast_text(from_cast_text(text, column.type), column.type)
        except (ValueError, ArithmeticError, SchemaError) as error:
            raise SchemaError(
                f"the path of {self.where} gives {raw!r} to column {key!r}, which is not a value of type {column.type}",
                path=self.where,
                column=key,
            ) from error

    def _partition_value(self, key: PartitionField) -> str | None:
        column = self.rules.schema.by_id()[key.column_id]
        if column.name in self.keys:
            return self._transformed(key, column, self._path_text(column, column.name))
        found = self.statistics.get(column.id)
        rows = self.footer.record_count
        if found is not None and found.null_count is not None and rows:
            if found.null_count == rows:
                return None
            low, high = found.min_value, found.max_value
            if found.null_count == 0 and low is not None and high is not None and found.exact_min is None and found.exact_max is None:
                # Equal bounds without NULL prove that all rows have one value. Of floats they do not: bounds leave NaN out.
                if low == high and column.type not in FLOATS:
                    return self._transformed(key, column, to_cast_text(from_text(low, column.type), column.type))
                # Transforms of time are monotonic: if both bounds are in one period, all values are.
                if key.transform in (*_CALENDAR, *EPOCH_TRANSFORMS):
                    return self._one_period(key, column, low, high)
        named = next((name for name in (key.transform, f"{key.transform}_{column.name}") if name in self.keys), None)
        if key.transform in (*_CALENDAR, *EPOCH_TRANSFORMS) and named is not None:
            raw = unquoted(self.keys[named], named, self.path)
            if raw is None or raw.isdecimal() or (key.transform in EPOCH_TRANSFORMS and raw.removeprefix("-").isdecimal()):
                return None if raw is None else str(int(raw))
        raise UsageError(
            f"{self.where} cannot be added: neither its path nor its statistics determine partition key {key.expression} of table "
            f"{self.rules.table}. Put it into a directory {column.name}=value, write its rows instead, or reset the partitioning first",
            path=self.where,
            table=self.rules.table,
            column=column.name,
        )

    def _one_period(self, key: PartitionField, column: Field, low: str, high: str) -> str | None:
        """Return the calendar part that all values share, if least and greatest lie within one."""
        parts = _CALENDAR[: _CALENDAR.index(key.transform) + 1] if key.transform in _CALENDAR else (key.transform,)
        spec = PartitionSpec(fields=tuple(replace(key, transform=part) for part in parts))
        first, last = (self._values(spec, column, to_cast_text(from_text(text, column.type), column.type)) for text in (low, high))
        if first != last:
            raise UsageError(
                f"{self.where} holds rows of several partitions of table {self.rules.table}: {column.name!r} goes from {low} to {high}",
                path=self.where,
                table=self.rules.table,
                column=column.name,
            )
        return first[-1]

    def _transformed(self, key: PartitionField, column: Field, text: str | None) -> str | None:
        return self._values(PartitionSpec(fields=(key,)), column, text)[0]

    def _values(self, spec: PartitionSpec, column: Field, text: str | None) -> list[str | None]:
        value = constant_array(text, replace(column, nullable=True), 1)
        batch = pa.RecordBatch.from_arrays([value], names=[column.name])
        return [array[0].as_py() for array in partition_arrays(spec, Schema(columns=(column,)), batch)]


def _constant(leaf: Field, text: str | None, rows: int) -> ColumnStatistics:
    """Return statistics of a column that has one value in all rows."""
    if text is None:
        return ColumnStatistics(column_id=leaf.id, column_size_bytes=0, value_count=0, null_count=rows)
    if leaf.type in FLOATS and from_text(text, leaf.type) != from_text(text, leaf.type):
        return ColumnStatistics(column_id=leaf.id, column_size_bytes=0, value_count=rows, null_count=0, contains_nan=True)
    return ColumnStatistics(column_id=leaf.id, column_size_bytes=0, value_count=rows, null_count=0, min_value=text, max_value=text)


def external_statistics(footer: Footer, leaf: ForeignLeaf, column: Field) -> ColumnStatistics:
    """Convert the bounds of a footer to the catalog's strings for the table's column; None where there are none that can be trusted.

    Whether there is NaN is never known, as in DuckDB.

    Args:
        footer: The file's footer.
        leaf: The file's column.
        column: The matching leaf of the table.
    """
    chunks = [group.chunks[leaf.node.position] for group in footer.row_groups]
    slots = sum(chunk.num_values for chunk in chunks)
    nulls = _null_count(chunks, leaf)
    low, high = _bounds(chunks, leaf, column.type)
    kept = truncate_bounds(low, high, column.type)
    return ColumnStatistics(
        column_id=column.id,
        column_size_bytes=sum(chunk.compressed_size for chunk in chunks),
        value_count=None if nulls is None else slots - nulls,
        null_count=nulls,
        min_value=kept.min_value,
        max_value=kept.max_value,
        exact_min=kept.exact_min,
        exact_max=kept.exact_max,
        # Footers may hold truncated bounds, and few mark them.
        min_is_exact=False,
        max_is_exact=False,
    )


def _page_obstacle(footer: Footer, leaf: ForeignLeaf) -> str:
    """Return why DuckDB cannot decode the pages of a leaf; empty if it can."""
    return next((obstacle for group in footer.row_groups if (obstacle := group.chunks[leaf.node.position].obstacle)), "")


def _null_count(chunks: list[Chunk], leaf: ForeignLeaf) -> int | None:
    counts = [chunk.null_count for chunk in chunks]
    if None in counts:
        return 0 if leaf.node.never_null and not any(counts) else None
    return sum(count for count in counts if count is not None)


def _bounds(chunks: list[Chunk], leaf: ForeignLeaf, wanted: DataType) -> tuple[str | None, str | None]:
    nothing = (None, None)
    lows: list[object] = []
    highs: list[object] = []
    for chunk in chunks:
        if chunk.null_count == chunk.num_values:
            continue
        found = trusted_bounds(chunk, leaf, wanted)
        if found is None:
            return nothing
        lows.append(found[0])
        highs.append(found[1])
    if not lows:
        return nothing
    # DuckDB's rewrite keeps dates of a column that became one of timestamps, whose bounds may be strings of dates.
    stored = DATE if leaf.type == DATE else wanted
    try:
        return stat_text(min(lows, key=order_key), stored), stat_text(max(highs, key=order_key), stored)
    except (SchemaError, UnsupportedFeatureError, ArithmeticError):
        return nothing


def trusted_bounds(chunk: Chunk, leaf: ForeignLeaf, wanted: DataType) -> tuple[object, object] | None:
    """Return bounds of a chunk in the Python form of a column of the table; None where there are none, or the file contradicts them.

    Args:
        chunk: The chunk.
        leaf: The file's column.
        wanted: The type of the table's column.
    """
    raw = raw_bounds(chunk, leaf.node) if leaf.has_bounds and wanted not in _WITHOUT_BOUNDS else None
    if raw is None:
        return None
    try:
        low, high = _value(raw[0], leaf, wanted, upper=False), _value(raw[1], leaf, wanted, upper=True)
    except (CorruptFileError, ValueError, ArithmeticError):
        # Not the bounds of such values, whatever they are.
        return None
    return None if low is None or high is None or order_key(low) > order_key(high) else (low, high)


def _value(raw: Raw, leaf: ForeignLeaf, wanted: DataType, *, upper: bool) -> object | None:
    """Return a bound as a Python value of the table's type, rounded outwards; None if the type cannot represent it."""
    if leaf.unit is not None:
        return _moment(raw, leaf.unit, leaf.type, wanted, upper=upper)
    value = stat_value(raw, leaf.type)
    match leaf.type, value:
        case DecimalType(precision=precision), Decimal():
            if len(value.as_tuple().digits) > precision:
                return None
            return value.quantize(Decimal(1).scaleb(-wanted.scale), context=_EXACT) if isinstance(wanted, DecimalType) else value
        case PrimitiveType(name=name), int() if name in _INTEGERS:
            low, high = _INTEGERS[name]
            return value if low <= value <= high else None
        case PrimitiveType(name="date"), int():
            return value if abs(value) < INFINITE_DAYS else None
        case _, float():
            return None if math.isnan(value) else value
        case _:
            return value


def _moment(raw: Raw, unit: Unit, held: DataType, wanted: DataType, *, upper: bool) -> int | None:
    if not isinstance(raw, int):
        return None
    nanoseconds = raw * _NANOSECONDS[unit]
    if wanted in (TIMESTAMP_NS, TIME_NS):
        value, day = nanoseconds, _DAY * 1000
    else:
        value, day = -(-nanoseconds // 1000) if upper else nanoseconds // 1000, _DAY
    if held in (TIME, TIME_NS):
        return value if 0 <= value <= day else None
    # The least and the greatest numbers are infinities to readers, in any unit.
    return value if abs(raw) < INFINITE_UNITS and abs(value) < INFINITE_UNITS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLeaf:
    """One leaf column as a file describes it.

    Attributes:
        node: The leaf in the schema of the file.
        type: The type that DuckDB takes it for.
        unit: Unit of its times and timestamps.
        has_bounds: Whether the statistics of such columns can be read as values.
    """

    node: Node
    type: DataType
    unit: Unit | None = None
    has_bounds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignColumn:
    """A column, or a node within one, of a file.

    Attributes:
        name: Its name. Elements of lists have the name of the group above them, keys and values of maps ``key`` and ``value``.
        kind: Leaf, or the kind of nested type.
        field_id: The Parquet field id, None where it has none.
        is_required: Whether the file cannot store NULL for it, regardless of the nodes above it.
        obstacle: Reason why DuckDB cannot read the column; empty if it can.
        leaf: Description of a leaf; None for nested columns.
        children: Nodes below it.
    """

    name: str
    kind: Literal["leaf", "struct", "list", "map", "variant"]
    field_id: int | None = None
    is_required: bool = False
    obstacle: str = ""
    leaf: ForeignLeaf | None = None
    children: tuple[ForeignColumn, ...] = ()


def readable_columns(footer: Footer, where: str) -> tuple[ForeignColumn, ...]:
    """Return all columns of a file, in its order, if Arrow reads them as this module does.

    Args:
        footer: Its footer.
        where: Its path, for messages.

    Raises:
        UnsupportedFeatureError: Arrow has no type for a column, or takes it for another structure.
    """
    columns = external_columns(footer)
    try:
        fields = list(footer.arrow_schema())
    except (pa.ArrowException, OSError, UnicodeDecodeError, NotImplementedError) as error:
        raise UnsupportedFeatureError(
            f"{where} has columns of types that are not supported: {error}; write its rows with the program that reads it", path=where
        ) from error
    for column, arrow in zip(columns, fields, strict=True):
        if not _agrees(column, arrow.type):
            raise UnsupportedFeatureError(
                f"column {column.name!r} of {where} is nested in a form that is not supported: Arrow reads it as {arrow.type}; write its "
                "rows with the program that reads it",
                path=where,
                column=column.name,
            )
    return columns


def _agrees(column: ForeignColumn, arrow: ArrowType) -> bool:
    """Return whether Arrow reads a column as the same structure."""
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    parts: list[ArrowType]
    if column.kind == "leaf":
        return not pa.types.is_nested(arrow)
    if column.kind == "variant":
        return bool(pa.types.is_struct(arrow))
    if pa.types.is_map(arrow):
        kind, parts = "map", [arrow.key_type, arrow.item_type]
    elif is_list(arrow):
        kind, parts = "list", [arrow.value_type]
    else:
        kind, parts = "struct", [child.type for child in arrow.fields] if pa.types.is_struct(arrow) else []
    return (
        kind == column.kind
        and len(parts) == len(column.children)
        and all(_agrees(child, part) for child, part in zip(column.children, parts, strict=True))
    )


def external_columns(footer: Footer) -> tuple[ForeignColumn, ...]:
    """Return all columns of a file, in its order."""
    return tuple(_column(node, node.name) for node in footer.columns)


def _column(node: Node, name: str) -> ForeignColumn:
    """Return a node; one that is repeated is the list of what it holds."""
    if node.repetition != "repeated":
        return _content(node, name)
    element = replace(_content(node, "list"), field_id=None)
    return ForeignColumn(name=name, kind="list", field_id=node.field_id, is_required=True, obstacle=_BARE, children=(element,))


def _content(node: Node, name: str) -> ForeignColumn:
    """Return a node without regard to its repetition."""
    kind: Literal["leaf", "struct", "list", "map", "variant"] = "struct"
    leaf: ForeignLeaf | None = None
    children: tuple[ForeignColumn, ...] = ()
    obstacle = ""
    inner = node.children[0] if len(node.children) == 1 and node.children[0].repetition == "repeated" else None
    if node.physical:
        kind, leaf = "leaf", foreign_leaf(node)
    elif node.annotation.name == "VARIANT":
        kind = "variant"
    elif node.annotation.name == "LIST" and inner is not None:
        kind, children = "list", (_element(node, inner),)
        obstacle = _list_obstacle(node, inner)
    elif node.annotation.name == "MAP" and inner is not None and len(inner.children) == 2:
        kind, children = "map", tuple(_column(child, part) for child, part in zip(inner.children, ("key", "value"), strict=True))
        names = [child.name for child in inner.children]
        obstacle = "" if [folded(name) for name in names] == ["key", "value"] else f"is a map of {names[0]!r} and {names[1]!r}"
    else:
        children = tuple(_column(child, child.name) for child in node.children)
    is_required = node.repetition != "optional"
    annotation = node.annotation
    if annotation.is_new and (annotation.name in _CONVERTED_TYPES or (not annotation.is_signed and annotation.bits >= 32)):
        obstacle = _NEW_FORM
    return ForeignColumn(
        name=name, kind=kind, field_id=node.field_id, is_required=is_required, obstacle=obstacle, leaf=leaf, children=children
    )


def _element(node: Node, inner: Node) -> ForeignColumn:
    """Return the element of a list of three levels, or of two, as old writers made them (rules of the Parquet specification)."""
    # In lists of three levels, DuckDB finds the element by the name of the group above it.
    return _content(inner, "list") if _has_two_levels(node, inner) else _column(inner.children[0], inner.name)


def _has_two_levels(node: Node, inner: Node) -> bool:
    """Return whether a repeated node is the element of its list itself, and not the group around it."""
    return len(inner.children) != 1 or inner.name in ("array", f"{node.name}_tuple") or inner.annotation.name in ("LIST", "MAP")


def _list_obstacle(node: Node, inner: Node) -> str:
    """Return why DuckDB cannot read a list; empty if it can."""
    if _has_two_levels(node, inner):
        is_known = not inner.children or inner.annotation.name in ("LIST", "MAP") or (inner.name == "array" and len(inner.children) > 1)
        return "" if is_known else _TWO_LEVELS
    is_map = inner.children[0].annotation.name == "MAP"
    return f"is a list of maps in a group {inner.name!r}" if is_map and folded(inner.name) != "list" else ""


def foreign_leaf(node: Node) -> ForeignLeaf:
    """Return a leaf of a file with the type that DuckDB takes it for."""
    annotation = node.annotation
    data_type: DataType
    unit: Unit | None = None
    match annotation.name:
        case "TIMESTAMP":
            unit = _UNITS[annotation.unit]
            # Without a word on zones, as in files of old writers, DuckDB takes them for local ones.
            data_type = TIMESTAMP if annotation.is_utc is None else TIMESTAMPTZ if annotation.is_utc else _LOCAL_TIMESTAMPS[unit]
        case "TIME":
            unit = _UNITS[annotation.unit]
            data_type = TIME_NS if unit == "ns" else TIME
        case "DECIMAL":
            data_type = DecimalType(precision=annotation.precision, scale=annotation.scale)
        case "INT":
            data_type = PRIMITIVES[f"{'' if annotation.is_signed else 'u'}int{annotation.bits}"]
        case name:
            data_type = _ANNOTATED.get(name, _PHYSICAL[node.physical])
    has_bounds = node.physical != "INT96" and annotation.name not in ("INTERVAL", "FLOAT16")
    return ForeignLeaf(node=node, type=data_type, unit=unit, has_bounds=has_bounds)
