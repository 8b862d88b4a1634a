"""A table's columns at one snapshot: names, types in the catalog and in Arrow, and how they print (specification: ducklake_column)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import Any, TypeAlias, assert_never

import pyarrow as pa

from ducklake_core.errors import CatalogCorruptError, NotFoundError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import (  # fmt: skip
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    GEOMETRY,
    INT8,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    JSON,
    MAX_DEPTH,
    NULL,
    PRIMITIVES,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
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
    is_too_deep,
    with_children,
)
from ducklake_core.format.types.names import folded, quoted_path
from ducklake_core.format.types.text import one_line, similar_in_brackets, similar_or_all
from ducklake_core.format.versions import DEFAULT_VERSION, RESERVED_PREFIX, FormatVersion

_INTERNAL_NAMES = frozenset({"_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"})

ArrowArray: TypeAlias = Any
"""An Arrow array of a type known only at run time; stubs of pyarrow type arrays by what they hold."""
ArrowType: TypeAlias = Any
ArrowField: TypeAlias = Any
FIELD_ID_KEY = b"PARQUET:field_id"
TYPE_KEY = b"ducklake:type"
"""Field metadata that names the DuckLake type where the Arrow type alone contains less (int128, uint128, time_ns, timetz)."""
EXTENSION_KEY = b"ARROW:extension:name"
EXTENSION_METADATA_KEY = b"ARROW:extension:metadata"
HUGE_INTEGER = pa.decimal256(39, 0)
"""Logical Arrow type of int128 and uint128: 39 digits hold all of their values."""
VARIANT_STORAGE = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
"""Logical Arrow type of variant: the two binaries of the Parquet variant encoding; what is shredded in files is put together again."""
_LOGICAL: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "int128": HUGE_INTEGER,
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "uint128": HUGE_INTEGER,
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "time_ns": pa.time64("ns"),
    "timetz": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "interval": pa.month_day_nano_interval(),
    "varchar": pa.string(),
    "json": pa.json_(),
    "blob": pa.binary(),
    "uuid": pa.uuid(),
    "geometry": pa.binary(),
    "variant": VARIANT_STORAGE,
    "null": pa.null(),
}
NO_KEY_TYPES = (TIME_NS, INTERVAL, GEOMETRY, VARIANT, NULL)
"""Types that rows are not found by."""
# The forms that are written to Parquet, which has no integers of 128 bits, no timestamps in seconds and no such intervals.
_PHYSICAL = {
    **{name: arrow for name, arrow in _LOGICAL.items() if name != "time_ns"},
    "int128": pa.string(),
    "uint128": pa.string(),
    "timestamp_s": pa.timestamp("us"),
    "interval": pa.string(),
}
_AMBIGUOUS = frozenset({"int128", "uint128", "time_ns", "timetz"})
# As field metadata, not as registered extension types: packages such as geoarrow-pyarrow register types under the same names.
_MARKED = {"geometry": (b"geoarrow.wkb", b"{}"), "variant": (b"arrow.parquet.variant", b"")}
_SIMPLE: dict[pa.DataType, PrimitiveType] = {
    # DuckDB makes an INTEGER column of values that are all NULL.
    pa.null(): INT32,
    pa.bool_(): BOOLEAN,
    pa.int8(): INT8,
    pa.int16(): INT16,
    pa.int32(): INT32,
    pa.int64(): INT64,
    pa.uint8(): UINT8,
    pa.uint16(): UINT16,
    pa.uint32(): UINT32,
    pa.uint64(): UINT64,
    pa.float16(): FLOAT32,
    pa.float32(): FLOAT32,
    pa.float64(): FLOAT64,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.string(): VARCHAR,
    pa.large_string(): VARCHAR,
    pa.string_view(): VARCHAR,
    pa.binary(): BLOB,
    pa.large_binary(): BLOB,
    pa.binary_view(): BLOB,
    pa.month_day_nano_interval(): INTERVAL,
}
_NAIVE_TIMESTAMPS = {"s": TIMESTAMP_S, "ms": TIMESTAMP_MS, "us": TIMESTAMP, "ns": TIMESTAMP_NS}
_EXTENSIONS = {
    "arrow.uuid": UUID,
    "arrow.json": JSON,
    "arrow.bool8": BOOLEAN,
    "geoarrow.wkb": GEOMETRY,
    "arrow.parquet.variant": VARIANT,
}

NO_DEFAULT = "NULL"
"""The text that DuckDB stores as ``default_value`` of a column without a default: this text, not SQL NULL."""
_ALIASES = {"timestamp_us": "timestamp"}
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", re.ASCII)
_CONTAINERS = ("list", "map", "struct")
_DUCKDB_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT",
    "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The top-level columns of a table, in order, each with its whole type tree. ``print(schema)`` shows it as a tree.

    >>> from ducklake_core.format.types.data_types import INT64, VARCHAR
    >>> schema = Schema(columns=(Field(id=1, name="id", type=INT64, nullable=False), Field(id=2, name="name", type=VARCHAR)))
    >>> schema
    Schema(id: int64 NOT NULL, name: varchar)
    >>> print(schema)
    id: int64 NOT NULL
    name: varchar
    """

    columns: tuple[Field, ...]

    def __repr__(self) -> str:
        return f"Schema({schema_line(self.columns)})"

    def __str__(self) -> str:
        return schema_tree(self.columns)

    def _repr_html_(self) -> str:
        return schema_html(self.columns)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names as written."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Field | None:
        """Return the top-level column of that name without regard to case, or None."""
        wanted = folded(name)
        return next((c for c in self.columns if folded(c.name) == wanted), None)

    def column(self, name: str) -> Field:
        """Return the top-level column of that name without regard to case.

        Raises:
            NotFoundError: It does not exist.
        """
        found = self.find(name)
        if found is None:
            parts = [part.strip() for part in name.split(",")]
            several = f". Pass {parts}" if len(parts) > 1 and all(map(self.find, parts)) else ""
            near = several or similar_or_all(name, self.names, "; the columns are:")
            raise NotFoundError(f"there is no column {name!r}{near}", column=name)
        return found

    def walk(self) -> Iterator[Field]:
        """Yield all nodes, parents first."""
        for column in self.columns:
            yield from column.walk()

    def leaves(self) -> Iterator[Field]:
        """Yield all leaves, in the order of a file's leaf columns."""
        for column in self.columns:
            yield from column.leaves()

    def by_id(self) -> dict[int, Field]:
        """Return all nodes by their id."""
        return {node.id: node for node in self.walk()}

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema of its rows, as they are read.

        >>> from ducklake_core.format.types.data_types import INT64
        >>> Schema(columns=(Field(id=1, name="a", type=INT64),)).to_arrow().names
        ['a']
        """

        return to_arrow_schema(self)

    def select(self, names: Iterable[str]) -> Schema:
        """Return the named columns, in the order of ``names``."""
        return Schema(columns=tuple(self.column(name) for name in names))


def with_ids(schema: Schema, first_id: int = 1) -> Schema:
    """Return the same schema with ids given in pre-order from ``first_id`` on, as DuckDB numbers them at CREATE."""
    counter = iter(range(first_id, first_id + sum(1 for _ in schema.walk())))

    def number(field: Field) -> Field:
        own = next(counter)
        return replace(field, id=own, type=with_children(field.type, number))

    return Schema(columns=tuple(number(column) for column in schema.columns))


def committed_at(schema: Schema, snapshot_id: int) -> Schema:
    """Return the same schema, its nodes that are not committed yet counting as made by a snapshot."""

    def dated(field: Field) -> Field:
        begin = field.begin_snapshot or snapshot_id
        return replace(field, begin_snapshot=begin, type=with_children(field.type, dated))

    return Schema(columns=tuple(dated(column) for column in schema.columns))


def check_reserved(name: str, version: FormatVersion) -> None:
    """Reject a column's name that a version of the format keeps for itself.

    Raises:
        SchemaError: It is one.
    """
    if folded(name) in _INTERNAL_NAMES:
        raise SchemaError(f"a column cannot be called {name!r}: DuckLake uses this name for its own columns in data files", column=name)
    if version.reserves_prefix and folded(name).startswith(RESERVED_PREFIX):
        raise SchemaError(f"a column cannot be called {name!r}: lakes of version {version} reserve names that begin with {RESERVED_PREFIX}")


def check_names(schema: Schema, version: FormatVersion = DEFAULT_VERSION) -> None:
    """Reject schemas that a catalog cannot store: no columns, empty or reserved names, names that differ only in case.

    Raises:
        SchemaError: There are no columns, or a name is invalid.
    """
    if not schema.columns:
        raise SchemaError("a table needs at least one column")
    _check_level("the table", schema.columns)
    for column in schema.columns:
        check_reserved(column.name, version)
    if not version.null_type and any(node.type == NULL for node in schema.walk()):
        raise UnsupportedFeatureError(f"a column cannot be of type null: lakes of version {version} have no such type", feature="type null")


def _check_level(where: str, fields: tuple[Field, ...]) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        if not field.name:
            raise SchemaError(f"a column of {where} has an empty name")
        if "\0" in field.name:
            raise SchemaError(f"the name {field.name!r} in {where} contains NUL, which no catalog can store", column=field.name)
        name = folded(field.name)
        if name in seen:
            raise SchemaError(
                f"{where} has two columns {seen[name]!r} and {field.name!r}: names are compared without regard to case",
                column=field.name,
            )
        seen[name] = field.name
        if isinstance(field.type, StructType) and not field.type.fields:
            raise SchemaError(f"the struct {field.name!r} has no fields", column=field.name)
        _check_level(f"column {field.name!r}", field.children)


def column_text(column: Field, shown_type: str | None = None) -> str:
    """Return a column in one line: its name, type, and what holds for its values.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> column_text(Field(name="n", type=INT32, nullable=False, default="7"))
    'n: int32 NOT NULL DEFAULT 7'
    """
    text = f"{one_line(column.name)}: {one_line(str(column.type)) if shown_type is None else shown_type}"
    return f"{text}{_constraints(column)}"


def _constraints(column: Field) -> str:
    default = "" if column.default is None else f" DEFAULT {one_line(column.default)}"
    return f"{'' if column.nullable else ' NOT NULL'}{default}"


def schema_line(columns: Sequence[Field]) -> str:
    """Return all columns in one line."""
    return ", ".join(column_text(column) for column in columns)


def schema_tree(columns: Sequence[Field]) -> str:
    """Return a line for each column, with the fields of structs below it.

    >>> from ducklake_core.format.types.data_types import FLOAT64, INT64, VARCHAR
    >>> point = StructType(fields=(Field(name="x", type=FLOAT64), Field(name="y", type=FLOAT64)))
    >>> tags = ListType(element=Field(name="element", type=VARCHAR))
    >>> print(schema_tree([Field(name="id", type=INT64, nullable=False), Field(name="tags", type=tags), Field(name="at", type=point)]))
    id: int64 NOT NULL
    tags: list<varchar>
    at: struct
    ├── x: float64
    └── y: float64
    """
    return "\n".join(line for column in columns for line in _lines(column))


def _lines(node: Field) -> Iterator[str]:
    if not _has_struct(node.type):
        yield column_text(node)
        return
    yield column_text(node, _kind(node.type))
    for place, child in enumerate(node.children, 1):
        first, further = ("└── ", "    ") if place == len(node.children) else ("├── ", "│   ")
        head, *rest = _lines(child)
        yield first + head
        yield from (further + line for line in rest)


def _has_struct(data_type: DataType) -> bool:
    """Return whether a type has parts with names, which need lines of their own."""
    match data_type:
        case StructType():
            return True
        case ListType(element=element):
            return _has_struct(element.type)
        case MapType(key=key, value=value):
            return _has_struct(key.type) or _has_struct(value.type)
        case _:
            return False


def _kind(data_type: DataType) -> str:
    match data_type:
        case StructType():
            return "struct"
        case ListType():
            return "list"
        case _:
            return "map"


def schema_html(columns: Iterable[Field], comments: Mapping[int, str] | None = None) -> str:
    """Return the columns as an HTML table, nested types in one cell; all text is escaped."""
    comments = comments or {}
    rows = [(column.name, str(column.type), _constraints(column).strip(), comments.get(column.id, "")) for column in columns]
    return html_table(("column", "type", "", "comment") if any(row[-1] for row in rows) else ("column", "type", ""), rows)


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of strings; rows are cut to the columns of the head."""
    lines = (f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row[: len(head)])}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{''.join(lines)}</table>"


def to_arrow_type(data_type: DataType, *, physical: bool = False) -> ArrowType:
    """Return the Arrow type of a DuckLake type, with field ids on all children that have one.

    Raises:
        UnsupportedFeatureError: A type that is read but not written, in physical form.
    """
    match data_type:
        case PrimitiveType(name=name):
            found = (_PHYSICAL if physical else _LOGICAL).get(name)
            if found is None:
                raise UnsupportedFeatureError(f"columns of type {name} can be read, but not written", type=name)
            return found
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case ListType(element=element):
            return pa.list_(_nested(element, physical=physical))
        case MapType(key=key, value=value):
            key_field = to_arrow_field(key, physical=physical).with_nullable(False)
            return pa.map_(key_field, _nested(value, physical=physical))
        case StructType(fields=fields):
            return pa.struct([_nested(field, physical=physical) for field in fields])
        case _:
            assert_never(data_type)


def _nested(field: Field, *, physical: bool) -> ArrowField:
    # DuckDB marks nested nodes NOT NULL when they are altered, without any effect on their values.
    return to_arrow_field(field, physical=physical).with_nullable(True)


# Merges read many small files with the same columns. Building the fields again for each file took a tenth of the time.
@lru_cache(maxsize=2048)
def to_arrow_field(field: Field, *, physical: bool = False) -> ArrowField:
    """Return one column or nested node as an Arrow field.

    Args:
        field: The node.
        physical: The form that is written to Parquet; it is nullable even where the column is NOT NULL, as in the
            files of DuckDB.
    """
    metadata: dict[bytes, bytes] = {}
    if field.id:
        metadata[FIELD_ID_KEY] = str(field.id).encode()
    if not physical and isinstance(field.type, PrimitiveType):
        metadata |= _markings(field.type.name)
    return pa.field(field.name, to_arrow_type(field.type, physical=physical), physical or field.nullable, metadata or None)


def _markings(name: str) -> dict[bytes, bytes]:
    if name in _MARKED:
        return dict(zip((EXTENSION_KEY, EXTENSION_METADATA_KEY), _MARKED[name], strict=True))
    return {TYPE_KEY: name.encode()} if name in _AMBIGUOUS else {}


@lru_cache(maxsize=256)
def to_arrow_schema(schema: Schema, *, physical: bool = False) -> pa.Schema:
    """Return all columns as an Arrow schema, in order; see :func:`to_arrow_field`."""
    return pa.schema([to_arrow_field(column, physical=physical) for column in schema])


def from_arrow_schema(schema: pa.Schema) -> Schema:
    """Return the DuckLake schema of Arrow data, without ids.

    NOT NULL is taken from top-level fields that are not nullable. The null type becomes int32, as in DuckDB;
    durations become intervals; dictionaries, views and large types become what they hold.

    Raises:
        UnsupportedFeatureError: A type that DuckLake has no exact form for; the message names column and type.
    """
    return Schema(columns=tuple(from_arrow_field(field) for field in schema))


def from_arrow_field(field: ArrowField) -> Field:
    """Return one Arrow field as a column without id; see :func:`from_arrow_schema`."""
    if is_too_deep(field.type, lambda kind: [kind.field(index).type for index in range(kind.num_fields)]):
        raise UnsupportedFeatureError(f"the type of column {field.name!r} is nested more than {MAX_DEPTH} levels deep", column=field.name)
    return Field(name=field.name, type=_from_field(field, field.name), nullable=field.nullable)


def _from_field(field: ArrowField, path: str) -> DataType:
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    if TYPE_KEY in metadata:
        named = parse_leaf_type(metadata[TYPE_KEY].decode())
        # Other libraries keep field metadata through a cast. The mark counts only while the Arrow type is the one it belongs to.
        if to_arrow_type(named) == field.type:
            return named
    # Extension types that are not registered in this process travel as storage type and metadata.
    extension = _EXTENSIONS.get(metadata.get(EXTENSION_KEY, b"").decode())
    return extension or _from_type(field.type, path)


def _from_type(arrow: ArrowType, path: str) -> DataType:
    # Extension types of other packages need not be hashable.
    if not isinstance(arrow, pa.BaseExtensionType) and arrow in _SIMPLE:
        return _SIMPLE[arrow]
    container = _from_container(arrow, path)
    if container is not None:
        return container
    if isinstance(arrow, pa.BaseExtensionType):
        if arrow.extension_name in _EXTENSIONS:
            return _EXTENSIONS[arrow.extension_name]
    elif pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _from_type(arrow.value_type, path)
    elif pa.types.is_timestamp(arrow):
        return TIMESTAMPTZ if arrow.tz else _NAIVE_TIMESTAMPS[arrow.unit]
    elif pa.types.is_time(arrow):
        return TIME
    elif pa.types.is_duration(arrow):
        return INTERVAL
    elif pa.types.is_fixed_size_binary(arrow):
        return BLOB
    elif pa.types.is_decimal(arrow) and 1 <= arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(precision=arrow.precision, scale=arrow.scale)
    raise UnsupportedFeatureError(f"column {path!r} has Arrow type {arrow}, which DuckLake has no type for", column=path, type=str(arrow))


def _from_container(arrow: ArrowType, path: str) -> DataType | None:
    if pa.types.is_struct(arrow):
        return StructType(fields=tuple(_child(arrow.field(i), arrow.field(i).name, path) for i in range(arrow.num_fields)))
    if pa.types.is_map(arrow):
        return MapType(key=_child(arrow.key_field, "key", path), value=_child(arrow.item_field, "value", path))
    if is_list(arrow):
        return ListType(element=_child(arrow.value_field, "element", path))
    return None


def is_list(arrow: ArrowType) -> bool:
    """Return whether an Arrow type is a list in any of its layouts."""
    types = pa.types
    return bool(
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_fixed_size_list(arrow)
        or types.is_list_view(arrow)
        or types.is_large_list_view(arrow)
    )


def _child(field: ArrowField, name: str, parent: str) -> Field:
    # NOT NULL exists in DuckLake only on top-level columns.
    return Field(name=name, type=_from_field(field, f"{parent}.{name}"))


def type_text(data_type: DataType) -> str:
    """Return the text of a type in ``ducklake_column.column_type``.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> type_text(INT32), type_text(DecimalType(precision=10, scale=2)), type_text(ListType(element=Field(name="element", type=INT32)))
    ('int32', 'decimal(10,2)', 'list')
    """
    match data_type:
        case PrimitiveType(name=name):
            return name
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListType():
            return "list"
        case MapType():
            return "map"
        case StructType():
            return "struct"


def duckdb_type(data_type: DataType) -> str:
    """Return the name of a type in DuckDB's SQL.

    >>> duckdb_type(PrimitiveType(name="int8")), duckdb_type(DecimalType(precision=10, scale=2))
    ('TINYINT', 'decimal(10,2)')
    >>> inner = Field(name='a"b', type=ListType(element=Field(name="element", type=PrimitiveType(name="varchar"))))
    >>> print(duckdb_type(StructType(fields=(inner,))))
    STRUCT("a""b" varchar[])
    """
    match data_type:
        case ListType(element=element):
            return f"{duckdb_type(element.type)}[]"
        case MapType(key=key, value=value):
            return f"MAP({duckdb_type(key.type)}, {duckdb_type(value.type)})"
        case StructType(fields=fields):
            return f"STRUCT({', '.join(f'{quoted_path((one.name,))} {duckdb_type(one.type)}' for one in fields)})"
        case PrimitiveType() | DecimalType():
            text = type_text(data_type)
            return _DUCKDB_TYPES.get(text, text)


def parse_leaf_type(text: str, names: Iterable[str] = ()) -> DataType:
    """Return the type of a string for a type without children.

    Args:
        text: Name of the type.
        names: Further names of types that the caller knows, to suggest similar ones.

    >>> parse_leaf_type("int32"), parse_leaf_type("decimal(10,2)"), parse_leaf_type("timestamp_us")
    (PrimitiveType(name='int32'), DecimalType(precision=10, scale=2), PrimitiveType(name='timestamp'))

    Raises:
        UnsupportedFeatureError: A type that this library does not know.
    """
    folded = text.strip().lower()
    found = NULL if folded == NULL.name else PRIMITIVES.get(_ALIASES.get(folded, folded))
    if found is not None:
        return found
    decimal = _DECIMAL.fullmatch(folded)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalType(precision=precision, scale=scale)
    if decimal:
        raise UnsupportedFeatureError(
            f"column type {text!r} is not supported: a decimal has 1 to 38 digits, and at most as many decimals", type=text
        )
    near = similar_in_brackets(folded, [*PRIMITIVES, *_ALIASES, *names])
    raise UnsupportedFeatureError(f"column type {text!r} is not supported{near}", type=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """One row of ``ducklake_column`` without its table and end.

    Attributes:
        column_id: Id of the node in its table.
        parent_column: Id of the container it is a child of, None on top level.
        column_order: Sort key among its siblings; DuckDB uses the column id.
        column_name: Name as written.
        column_type: Text of the type, containers without parameters.
        nulls_allowed: False for NOT NULL.
        initial_default: Text for rows of files that lack the column, None for NULL.
        default_value: Text of the default for new rows; None and the text ``NULL`` both mean that there is none.
        default_value_type: ``literal``, ``expression``, or empty for containers.
        default_value_dialect: SQL dialect of an expression.
        begin_snapshot: Snapshot that made the row; 0 before commit.
    """

    column_id: int
    parent_column: int | None = None
    column_order: int | None = None
    column_name: str
    column_type: str
    nulls_allowed: bool = True
    initial_default: str | None = None
    default_value: str | None = NO_DEFAULT
    default_value_type: str | None = "literal"
    default_value_dialect: str | None = "duckdb"
    begin_snapshot: int = 0


def column_row(field: Field, parent_column: int | None = None) -> ColumnRow:
    """Return the row of one node, without its children, as DuckDB writes it at CREATE or ADD COLUMN.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> row = column_row(Field(id=3, name="x", type=INT32), parent_column=2)
    >>> row.column_id, row.column_order, row.parent_column, row.column_type, row.default_value, row.default_value_type
    (3, 3, 2, 'int32', 'NULL', 'literal')
    """
    kind = "expression" if field.default_is_expression else "literal" if field.is_leaf else ""
    return ColumnRow(
        column_id=field.id,
        parent_column=parent_column,
        column_order=field.id,
        column_name=field.name,
        column_type=type_text(field.type),
        nulls_allowed=field.nullable,
        initial_default=field.initial_default,
        default_value=NO_DEFAULT if field.default is None else field.default,
        default_value_type=kind,
        begin_snapshot=field.begin_snapshot,
    )


def flatten(schema: Schema) -> tuple[ColumnRow, ...]:
    """Return the rows of all nodes, each parent before its children (the order of ids at CREATE)."""
    return tuple(row for column in schema for row in flatten_field(column))


def flatten_field(field: Field, parent_column: int | None = None) -> tuple[ColumnRow, ...]:
    """Return the rows of one node and of everything below it."""
    below = (row for child in field.children for row in flatten_field(child, field.id))
    return (column_row(field, parent_column), *below)


def build_schema(rows: Iterable[ColumnRow]) -> Schema:
    """Return the schema that the rows live at one snapshot spell; they may come in any order.

    Siblings are sorted by ``column_order``, ties and missing orders by id, as DuckDB does. Of several rows for one id the
    newest counts: DuckDB 1.3 left the old row live when it renamed a column.

    Raises:
        CatalogCorruptError: A row whose parent is not there or is not a container, or a container with the wrong children; two columns
            of one name or one id; cells that cannot be.
        UnsupportedFeatureError: A type that this library does not know.
    """
    children: dict[int | None, list[ColumnRow]] = {}
    newest = _newest(rows)
    for row in newest.values():
        children.setdefault(row.parent_column, []).append(row)
    for siblings in children.values():
        _check_distinct(siblings)
        siblings.sort(key=lambda row: (row.column_order is None, row.column_order or 0, row.column_id))
    schema = Schema(columns=tuple(_build_field(row, children) for row in children.get(None, ())))
    # Rows that no top-level column leads to, for example parents of each other, would be lost without an error.
    if sum(1 for _ in schema.walk()) != len(newest):
        reached = {node.id for node in schema.walk()}
        lost = sorted(row.column_id for siblings in children.values() for row in siblings if row.column_id not in reached)
        raise CatalogCorruptError(f"columns {lost} of a table belong to no live container column", columns=lost)
    return schema


def _newest(rows: Iterable[ColumnRow]) -> dict[int, ColumnRow]:
    found: dict[int, ColumnRow] = {}
    for row in rows:
        _check_cells(row)
        other = found.get(row.column_id)
        if other is not None and other.begin_snapshot == row.begin_snapshot and other != row:
            raise CatalogCorruptError(
                f"the columns {other.column_name!r} and {row.column_name!r} have the same id {row.column_id}", column_id=row.column_id
            )
        if other is None or other.begin_snapshot < row.begin_snapshot:
            found[row.column_id] = row
    return found


def _check_cells(row: ColumnRow) -> None:
    """Reject cells of another type: SQLite stores anything in a column of any type."""
    strings: tuple[object, ...] = (row.column_name, row.column_type)
    numbers: tuple[object, ...] = (row.column_id, row.parent_column or 0, row.column_order or 0, row.begin_snapshot)
    if not (all(isinstance(text, str) and text for text in strings) and all(isinstance(number, int) for number in numbers)):
        raise CatalogCorruptError(
            f"column {row.column_name!r} (id {row.column_id}) has the type {row.column_type!r}, the place {row.column_order!r} and the "
            f"parent {row.parent_column!r}",
            column=row.column_name,
            column_id=row.column_id,
        )


def _check_distinct(siblings: list[ColumnRow]) -> None:
    names: dict[str, ColumnRow] = {}
    for row in siblings:
        other = names.setdefault(folded(row.column_name), row)
        if other is not row:
            raise CatalogCorruptError(
                f"there are two columns {row.column_name!r} (ids {other.column_id} and {row.column_id})", column=row.column_name
            )


def _build_field(row: ColumnRow, children: dict[int | None, list[ColumnRow]]) -> Field:
    own = tuple(_build_field(child, children) for child in children.get(row.column_id, ()))
    default = None if row.default_value == NO_DEFAULT else row.default_value
    return Field(
        id=row.column_id,
        name=row.column_name,
        type=_build_type(row, own),
        # Only top-level columns can be NOT NULL; nested ones get a 0 from DuckDB's nested ALTERs, without effect.
        nullable=bool(row.nulls_allowed) or row.parent_column is not None,
        initial_default=row.initial_default,
        default=default,
        default_is_expression=default is not None and (row.default_value_type or "").lower() == "expression",
        begin_snapshot=row.begin_snapshot,
    )


def _build_type(row: ColumnRow, children: tuple[Field, ...]) -> DataType:
    kind = row.column_type.strip().lower()
    match kind, children:
        case "list", (element,):
            return ListType(element=element)
        case "map", (first, second):
            key, value = (second, first) if (first.name, second.name) == ("value", "key") else (first, second)
            return MapType(key=key, value=value)
        case "struct", (_, *_):
            return StructType(fields=children)
        case _ if kind in _CONTAINERS or children:
            raise CatalogCorruptError(
                f"column {row.column_name!r} (id {row.column_id}) of type {row.column_type!r} has {len(children)} child columns",
                column=row.column_name,
                column_id=row.column_id,
            )
        case _:
            return parse_leaf_type(kind)
