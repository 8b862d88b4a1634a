"""DuckLake types as Arrow types and back (specification: Data Types).

Two Arrow forms of every type: *logical*, what readers get, and *physical*, what is handed to the Parquet writer.  They
differ only where Parquet has no exact form, or no form at all:

=============  =========================  ====================================================================
DuckLake       logical                    physical
=============  =========================  ====================================================================
int128         decimal256(39, 0)          string (DuckDB writes DOUBLE, which loses digits; it reads text)
uint128        decimal256(39, 0)          string
timestamp_s    timestamp[s]               timestamp[us]
interval       month_day_nano_interval    string such as ``1 month 2 days 03:00:00.5`` (INTERVAL has only milliseconds)
timetz         time64[us], in UTC         the same
time_ns        time64[ns]                 none: DuckDB cannot write it to Parquet
geometry       binary, WKB                the same, marked in the footer (storage/annotations.py)
variant        struct<metadata, value>    the same, marked in the footer; shredded by the writer of the file
=============  =========================  ====================================================================

Geometries and variants are marked with the names of their Arrow extension types, ``geoarrow.wkb`` and ``arrow.parquet.variant``.
Every node that has an id carries it as ``PARQUET:field_id``, because DuckDB maps files by these ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.data_types import (
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
    NULL,
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
)  # fmt: skip
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import parse_leaf_type

ArrowArray: TypeAlias = Any
"""An Arrow array of a type known only at run time; stubs of pyarrow type arrays by what they hold."""
ArrowType: TypeAlias = Any
ArrowField: TypeAlias = Any

FIELD_ID_KEY = b"PARQUET:field_id"
TYPE_KEY = b"ducklake:type"
"""Field metadata that names the DuckLake type where the Arrow type alone says less (int128, uint128, time_ns, timetz)."""
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
_PHYSICAL = {
    **{name: arrow for name, arrow in _LOGICAL.items() if name != "time_ns"},
    "int128": pa.string(),
    "uint128": pa.string(),
    "timestamp_s": pa.timestamp("us"),
    "interval": pa.string(),
}
_AMBIGUOUS = frozenset({"int128", "uint128", "time_ns", "timetz"})
# As field metadata, not as registered extension types: packages such as geoarrow-pyarrow register theirs under the same names.
_MARKED = {"geometry": (b"geoarrow.wkb", b"{}"), "variant": (b"arrow.parquet.variant", b"")}


@lru_cache(maxsize=4096)
def to_arrow_type(data_type: DataType, *, physical: bool = False) -> ArrowType:
    """The Arrow type of a DuckLake type, with field ids on all children that have one.

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


# Small files are many, and have the same columns: making the fields anew took a tenth of a merge.
@lru_cache(maxsize=2048)
def to_arrow_field(field: Field, *, physical: bool = False) -> ArrowField:
    """One column or nested node as an Arrow field.

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
    """All columns as an Arrow schema, in order; see :func:`to_arrow_field`."""
    return pa.schema([to_arrow_field(column, physical=physical) for column in schema])


def from_arrow_schema(schema: pa.Schema) -> Schema:
    """The DuckLake schema of Arrow data, without ids.

    NOT NULL is taken from top-level fields that are not nullable. The null type becomes int32, as in DuckDB;
    durations become intervals; dictionaries, views and large types become what they hold.

    Raises:
        UnsupportedFeatureError: A type that DuckLake has no exact form for; the message names column and type.
    """
    return Schema(columns=tuple(from_arrow_field(field) for field in schema))


def from_arrow_field(field: ArrowField) -> Field:
    """One Arrow field as a column without id; see :func:`from_arrow_schema`."""
    return Field(name=field.name, type=_from_field(field, field.name), nullable=field.nullable)


_SIMPLE: dict[pa.DataType, PrimitiveType] = {
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


def _from_field(field: ArrowField, path: str) -> DataType:
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    if TYPE_KEY in metadata:
        named = parse_leaf_type(metadata[TYPE_KEY].decode())
        if to_arrow_type(named) == field.type:
            return named
    # Extension types that are not registered in this process travel as storage type and metadata.
    extension = _EXTENSIONS.get(metadata.get(EXTENSION_KEY, b"").decode())
    return extension or _from_type(field.type, path)


def _from_type(arrow: ArrowType, path: str) -> DataType:
    if arrow in _SIMPLE:
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
    """Whether an Arrow type is a list in any of its layouts."""
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
