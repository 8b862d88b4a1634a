"""Functions of variants and geometries that DuckDB needs for queries in this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ducklake_core.engines.arrow.evaluate import RELATIONS, require_shapely
from ducklake_core.engines.duckdb_instance import variant_of
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.data_types import (
    TIMETZ,
    UINT128,
    VARCHAR,
    VARIANT,
    DataType,
    Field,
    ListType,
    MapType,
    StructType,
    children_of,
)
from ducklake_core.format.types.names import folded, quoted_path
from ducklake_core.format.types.schema import to_arrow_field, to_arrow_type
from ducklake_core.format.values.arrow_cast import cast_leaf

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_Leaf: TypeAlias = Callable[[str], str]
_CONVERTED = {"variant": VARIANT, "uhugeint": UINT128, "time with time zone": TIMETZ}
"""Types by DuckDB's name that its export to Arrow changes."""

_MACROS = {
    # The database of a lake is the one that ``lake.main.t`` names.
    "current_catalog": "() AS 'lake'",
    "current_database": "() AS 'lake'",
    "st_geomfromtext": "(t) AS CAST(t AS GEOMETRY)",
    "st_makeenvelope": "(a, b, c, d) AS "
    "CAST(format('POLYGON (({} {}, {} {}, {} {}, {} {}, {} {}))', a, b, a, d, c, d, c, b, a, b) AS GEOMETRY)",
}
OWN_FUNCTIONS = frozenset({*_MACROS, *RELATIONS})
"""Names of macros that this library may create in an instance."""
_CALL = re.compile(r"\b(?:st_[a-z]+(?=\s*\()|current_database(?=\s*\()|current_catalog\b)", re.IGNORECASE)


def taken_in(text: str, data_type: DataType) -> str:
    """Return SQL that replaces the variant binaries inside a value of a type with variants."""
    return _mapped(text, data_type, variant_of)


def _given_out(text: str, data_type: DataType) -> str:
    in_utc = _mapped(text, data_type, lambda own: f"timezone(INTERVAL 0 HOURS, {own})", TIMETZ)
    with_strings = _mapped(in_utc, data_type, lambda own: f"CAST({own} AS VARCHAR)", UINT128)
    return _mapped(with_strings, data_type, lambda own: f"CASE WHEN ({own}) IS NULL THEN NULL ELSE variant_to_parquet_variant({own}) END")


def _holds(data_type: DataType, wanted: DataType) -> bool:
    return data_type == wanted or any(_holds(child.type, wanted) for child in children_of(data_type))


def _mapped(text: str, data_type: DataType, leaf: _Leaf, wanted: DataType = VARIANT, depth: int = 0) -> str:
    """Return SQL that applies ``leaf`` to every value of a type; lambda parameters are numbered by their nesting depth."""
    if not _holds(data_type, wanted):
        return text
    item = f"__item_{depth}"
    match data_type:
        case ListType(element=element):
            return f"list_transform({text}, lambda {item}: {_mapped(item, element.type, leaf, wanted, depth + 1)})"
        case MapType(key=key, value=value):
            entry = _packed(
                (name, _mapped(f"({item}).{name}", one.type, leaf, wanted, depth + 1)) for name, one in (("key", key), ("value", value))
            )
            return f"map_from_entries(list_transform(map_entries({text}), lambda {item}: {entry}))"
        case StructType(fields=fields):
            members = ((one.name, f"struct_extract_at({text}, {place})", one.type) for place, one in enumerate(fields, 1))
            packed = _packed((name, _mapped(member, kind, leaf, wanted, depth)) for name, member, kind in members)
            return f"CASE WHEN ({text}) IS NULL THEN NULL ELSE {packed} END"
        case _:
            return leaf(text)


def _packed(parts: Iterable[tuple[str, str]]) -> str:
    found = list(parts)
    # The members of row(...) have no names.
    if not any(name for name, _ in found):
        return f"row({', '.join(text for _, text in found)})"
    return f"struct_pack({', '.join(f'{quoted_path((name,))} := {text}' for name, text in found)})"


_LONG_INTEGER = re.compile(r"\d(?:_?\d){38}")


def read_query(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """Run a query whose columns may need conversion, and return its rows in the Arrow types of scans."""
    sql = sql.rstrip().rstrip(";")
    relation = connection.sql(sql)
    # DESCRIBE and SUMMARIZE give no relation that another query could read, and need no conversion.
    if not any(map(_type_needs_conversion, relation.types)):
        return relation.to_arrow_reader()
    # DuckDB's export to Arrow does not keep variants, unsigned 128-bit integers and offsets of times. The query is wrapped in one that
    # converts them to binaries, strings and times in UTC at any depth, and _marked() gives the result its Arrow types.
    fields = [Field(name=name, type=_shape(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]
    columns = [f"{_given_out(f'c{place}', one.type)} AS {quoted_path((one.name,))}" for place, one in enumerate(fields)]
    names = ", ".join(f"c{place}" for place in range(len(fields)))
    text = f"SELECT {', '.join(columns)} FROM ({sql}\n) AS __ducklake_rows({names})"  # noqa: S608 - names are quoted
    return _marked(connection.sql(text).to_arrow_reader(), fields)


_WORDS = re.compile(r"VARIANT|UHUGEINT|UINT128|MD5_NUMBER|TIMETZ|TIME\s+WITH\s+TIME\s+ZONE|CURRENT_TIME\b", re.IGNORECASE)


def query_needs_conversion(text: str) -> bool:
    """Return whether SQL text mentions a type or function whose result needs conversion, or an integer that only UHUGEINT holds."""
    return _WORDS.search(text) is not None or _LONG_INTEGER.search(text) is not None


def _type_needs_conversion(kind: Any) -> bool:
    return _shape(kind) != VARCHAR


def _shape(kind: Any) -> DataType:
    """Return the structure of a DuckDB type down to the values that need conversion; other parts become VARCHAR.

    Raises:
        UnsupportedFeatureError: A union holds such values.
    """
    parts: list[tuple[str, DataType]] = []
    if kind.id in ("list", "array"):
        # The children of an array are its element and its size.
        parts = [("element", _shape(kind.children[0][1]))]
    elif kind.id in ("map", "struct", "union"):
        parts = [(name, _shape(child)) for name, child in kind.children]
    elif kind.id in _CONVERTED:
        return _CONVERTED[kind.id]
    if all(part == VARCHAR for _, part in parts):
        return VARCHAR
    if kind.id == "union":
        raise UnsupportedFeatureError(f"DuckDB does not export the values of {kind} to Arrow. Cast the members, such as to VARCHAR")
    fields = [Field(name=name, type=part) for name, part in parts]
    match kind.id:
        case "struct":
            return StructType(fields=tuple(fields))
        case "map":
            return MapType(key=fields[0], value=fields[1])
        case _:
            return ListType(element=fields[0])


def _marked(reader: pa.RecordBatchReader, fields: Sequence[Field]) -> pa.RecordBatchReader:
    """Mark variants as Arrow extension types and parse integers from strings, as scans return them."""
    schema = pa.schema([_marked_field(own, field) for own, field in zip(reader.schema, fields, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            pairs = zip(batch.columns, fields, strict=True)
            columns = [cast_leaf(column, VARIANT, physical=False) if field.type == VARIANT else column for column, field in pairs]
            columns = [
                column.cast(own.type) if _holds(field.type, UINT128) else column
                for column, own, field in zip(columns, schema, fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _marked_field(own: pa.Field, field: Field) -> pa.Field:
    if field.type == VARIANT:
        return to_arrow_field(Field(name=own.name, type=VARIANT))
    return own.with_type(_marked_type(own.type, field.type))


def _marked_type(arrow: Any, data_type: DataType) -> Any:
    if data_type == UINT128:
        return to_arrow_type(UINT128)
    match data_type:
        case ListType(element=element):
            return pa.list_(_marked_child(arrow.value_field, element))
        case MapType(key=key, value=value):
            return pa.map_(_marked_child(arrow.key_field, key), _marked_child(arrow.item_field, value))
        case StructType(fields=fields):
            return pa.struct([_marked_child(arrow.field(place), one) for place, one in enumerate(fields)])
        case _:
            return arrow


def _marked_child(own: pa.Field, field: Field) -> pa.Field:
    if field.type == VARIANT:
        return own.with_metadata(to_arrow_field(Field(name=own.name, type=VARIANT)).metadata)
    return own.with_type(_marked_type(own.type, field.type))


def make_functions(connection: DuckDBPyConnection, statements: Collection[str], known: Collection[str]) -> None:
    """Create the functions that SQL text calls and DuckDB lacks, or answers for the instance instead of the lake.

    Args:
        connection: The instance.
        statements: A query, with the SQL text of the views and macros that it may name.
        known: Names of macros of the lake, which take precedence.

    Raises:
        UnsupportedFeatureError: A relation is called, and the package shapely is not installed.
    """
    called = {found.lower() for text in statements for found in _CALL.findall(text)} - {folded(name) for name in known}
    for name in sorted(called & _MACROS.keys()):
        connection.execute(f"CREATE MACRO main.{name}{_MACROS[name]}")
    for name in sorted(called & RELATIONS.keys()):
        shapely = require_shapely(name)
        own = f"__ducklake_{name}"
        function: Callable[..., Any] = partial(_outcomes, getattr(shapely, RELATIONS[name]), shapely.from_wkb)
        # DuckDB's type stubs lack functions over Arrow arrays.
        untyped: Any = connection
        untyped.create_function(own, function, ["BLOB", "BLOB"], "BOOLEAN", type="arrow", null_handling="special")
        connection.execute(f"CREATE MACRO main.{name}(a, b) AS {own}(st_aswkb(a), st_aswkb(b))")


def _outcomes(relation: Callable[..., Any], shapes: Callable[..., Any], left: Any, right: Any) -> pa.Array:
    """Return the outcome for each pair; NULL where one of them is."""
    first, second = (side.to_numpy(zero_copy_only=False) if isinstance(side, pa.Array) else side.to_numpy() for side in (left, right))
    missing = [a is None or b is None for a, b in zip(first, second, strict=True)]
    return pa.array(relation(shapes(first), shapes(second)), mask=pa.array(missing).to_numpy(zero_copy_only=False))
