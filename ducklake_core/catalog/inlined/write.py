"""Encode and insert inlined rows, and delete rows of data files through the catalog (specification: Data Inlining)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Executable, TableClause, bindparam, column, func, insert, select
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import NullType

from ducklake_core.catalog.changes import InlinePositions, InsertInlinedRows
from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import Statements
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS, inlined_delete_name
from ducklake_core.catalog.inlined.cells import MARK, join_variant, stored_cell
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.types.data_types import BLOB, JSON, VARCHAR, DataType, Field, ListType, MapType, PrimitiveType, StructType
from ducklake_core.format.values.value_text import to_cast_text
from ducklake_core.format.values.variant_encoding import is_readable_variant

Encode = Callable[[object], object]
_STORED_AS_NUMBER = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_STORED_AS_NUMBER_ELSEWHERE = frozenset({*_STORED_AS_NUMBER, "boolean", "float64"})
_SPECIAL = frozenset(",[]{}()'\":=")
_CLOSING = frozenset("]}")
_DEEP = 2

_BATCH_VALUES = 30_000
"""Maximum number of parameters in one statement; SQLite allows 32,766, PostgreSQL 65,535."""

_BATCH_ROWS = 5_000


def encoder(data_type: DataType, abilities: Abilities) -> Encode:
    """Return the function that converts the values of a column to parameters.

    Most types are sent as strings, which PostgreSQL and DuckDB cast to the type of the column. Only strings keep the months of an interval,
    infinities, years before 1, 24:00:00 and numbers of any length.

    Args:
        data_type: Type of the column.
        abilities: Abilities of the database.
    """
    if not isinstance(data_type, PrimitiveType):
        if isinstance(data_type, ListType | MapType | StructType):
            return lambda value: None if value is None else nested_text(value, data_type)
        return lambda value: None if value is None else to_cast_text(value, data_type)
    match data_type.name:
        case "blob":
            return _as_it_is
        case "variant":
            return lambda value: join_variant(value) if isinstance(value, dict) else None
        case "varchar" | "json":
            return _utf8 if abilities.inlined_text_as_bytes else _as_it_is
        case "boolean" if abilities.boolean_as_integer:
            return lambda value: None if value is None else int(bool(value))
        case name if name in (_STORED_AS_NUMBER if abilities.inlined_as_text else _STORED_AS_NUMBER_ELSEWHERE):
            return _as_it_is
        case _:
            return lambda value: None if value is None else to_cast_text(value, data_type)


def _as_it_is(value: object) -> object:
    return value


def _utf8(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


def nested_text(value: object, data_type: DataType) -> str:
    r"""Return the text of a nested value that DuckDB can read, in the form of its ``CAST(value AS VARCHAR)``.

    For structs outside of lists and maps DuckDB itself writes SQL literals, which its parser does not always read. If both forms mean the
    same, strings in structs are quoted as in the literal. If they differ, because of a quote or a backslash, a blank follows the first
    brace: DuckDB never writes that blank and skips it, so readers can distinguish the forms.

    >>> from ducklake_core.format.types.data_types import *
    >>> nested_text(["a", "x,y", None, "", "it's", "b\\s"], ListType(element=Field(name="element", type=VARCHAR)))
    "[a, 'x,y', NULL, '', 'it\\'s', b\\s]"
    >>> nested_text([("k", 1), ("c=d", None)], MapType(key=Field(name="key", type=VARCHAR), value=Field(name="value", type=INT32)))
    "{k=1, 'c=d'=NULL}"
    >>> fields = (Field(name="d", type=DATE), Field(name="s", type=VARCHAR))
    >>> nested_text({"d": 19737, "s": "x"}, StructType(fields=fields)), nested_text({"d": None, "s": "it's"}, StructType(fields=fields))
    ("{'d': 2024-01-15, 's': 'x'}", "{ 'd': NULL, 's': 'it\\'s'}")
    """
    text = _nested(value, data_type, quoted=isinstance(data_type, StructType))
    return text.replace("{", f"{{{MARK}", 1) if isinstance(data_type, StructType) and "\\" in text else text


def is_readable(value: object, data_type: DataType, depth: int = 0) -> bool:
    """Return whether DuckDB's parser reads the text of a nested value; if not, the row must be written to a file.

    The parser ends a value inside two containers at the first closing bracket, even in quotes, and reads a list of JSON as JSON itself.

    >>> from ducklake_core.format.types.data_types import *
    >>> strings = ListType(element=Field(name="element", type=VARCHAR))
    >>> is_readable(["]"], strings), is_readable([["]"]], ListType(element=Field(name="element", type=strings)))
    (True, False)

    Nor does it read every variant: see :func:`~ducklake_core.format.values.variant_encoding.is_readable_variant`.
    """
    match data_type, value:
        case _, None:
            return True
        case ListType(element=element), list():
            return element.type != JSON and all(is_readable(item, element.type, depth + 1) for item in value)
        case MapType(key=key, value=item), list():
            return all(is_readable(k, key.type, depth + 1) and is_readable(v, item.type, depth + 1) for k, v in value)
        case StructType(fields=fields), dict():
            named = all(_is_plain(field.name, depth + 1) for field in fields)
            return named and all(is_readable(value[field.name], field.type, depth + 1) for field in fields)
        case PrimitiveType(name="varchar" | "json"), str():
            return _is_plain(value, depth)
        case PrimitiveType(name="blob"), bytes():
            return depth < _DEEP or _CLOSING.isdisjoint(to_cast_text(value, data_type))
        case PrimitiveType(name="variant"), dict():
            return is_readable_variant(value["metadata"], value["value"])
        case _:
            return True


def _is_plain(text: str, depth: int) -> bool:
    return not depth or ("\0" not in text and (depth < _DEEP or _CLOSING.isdisjoint(text)))


def _nested(value: object, data_type: DataType, *, quoted: bool) -> str:
    match data_type, value:
        case _, None:
            return "NULL"
        case ListType(element=element), list():
            return f"[{', '.join(_nested(item, element.type, quoted=False) for item in value)}]"
        case MapType(key=key, value=item), list():
            pairs = (f"{_nested(k, key.type, quoted=False)}={_nested(v, item.type, quoted=False)}" for k, v in value)
            return f"{{{', '.join(pairs)}}}"
        case StructType(fields=fields), dict():
            members = (f"{_quote(field.name)}: {_nested(value[field.name], field.type, quoted=quoted)}" for field in fields)
            return f"{{{', '.join(members)}}}"
        case PrimitiveType(name="variant"), dict():
            return _quote_where_needed(_variant_text(value))
        case _:
            text = to_cast_text(value, data_type)
            return _quote(text) if quoted and data_type == VARCHAR else _quote_where_needed(text)


def _variant_text(value: Mapping[str, bytes]) -> str:
    r"""Return the text of a blob with the bytes of a variant. Closing brackets are escaped, see :func:`is_readable`.

    >>> _variant_text({"metadata": b"\x01\0\0", "value": b"\x0da]}"})
    '\\x01\\x00\\x00\\x0Da\\x5D\\x7D'
    """
    return to_cast_text(join_variant(value), BLOB).replace("]", "\\x5D").replace("}", "\\x7D")


def _quote_where_needed(text: str) -> str:
    plain = text and text.lower() != "null" and text == text.strip() and _SPECIAL.isdisjoint(text)
    return text if plain else _quote(text)


def _quote(text: str) -> str:
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))


def insert_inlined_rows(statements: Statements, database: Database, change: InsertInlinedRows) -> None:
    """Insert the rows inside an open write transaction.

    Args:
        statements: Statements of the transaction.
        database: The catalog.
        change: The rows.

    Raises:
        CatalogCorruptError: The table does not have as many columns as the rows.
    """
    names = _stored_names(statements, database, change)
    insert_cells(statements, database, change.table_name, change.columns, parameters_of(change, database), names)


def insert_cells(
    statements: Statements,
    database: Database,
    table_name: str,
    columns: Sequence[Field],
    parameters: Sequence[Mapping[str, object]],
    names: Sequence[str],
) -> None:
    """Insert encoded rows into a table of inlined rows.

    Args:
        statements: Statements of the transaction.
        database: The catalog.
        table_name: Name of the table.
        columns: Its columns.
        parameters: The rows, see :func:`encoded_rows`.
        names: Names of the columns in the physical table.
    """

    def build() -> Executable:
        table = database.tables.inlined_data(table_name, names)
        # Parameters are numbered, because a column may have a name that is not valid for a parameter.
        cells: list[ColumnElement[Any]] = [bindparam(f"p{number}", type_=NullType()) for number in range(len(table.c))]
        if database.abilities.inlined_as_is:
            own = zip(columns, cells[INLINED_SYSTEM_COLUMNS:], strict=True)
            cells[INLINED_SYSTEM_COLUMNS:] = [stored_cell(cell, column.type) for column, cell in own]
        return insert(table).values(dict(zip(table.c, cells, strict=True)))

    size = max(1, _BATCH_VALUES // (INLINED_SYSTEM_COLUMNS + len(names)))
    for start in range(0, len(parameters), size):
        statements.run(("inlined", table_name, tuple(names)), build, parameters[start : start + size])


def parameters_of(change: InsertInlinedRows, database: Database) -> list[dict[str, object]]:
    """Return the parameters of each row, ``p0``, ``p1`` and so on, with the system columns first."""
    rows = zip(change.row_ids, change.rows.rows(), strict=True)
    return encoded_rows(change.columns, ((row_id, change.begin_snapshot, None, *row) for row_id, row in rows), database.abilities)


def encoded_rows(columns: Sequence[Field], rows: Iterable[Sequence[object]], abilities: Abilities) -> list[dict[str, object]]:
    """Return rows as parameters ``p0``, ``p1`` and so on, in the form that the database stores.

    Args:
        columns: The user's columns.
        rows: Row id, begin snapshot and end snapshot, then the values of the columns.
        abilities: Abilities of the database.
    """
    encoders = [*[_as_it_is] * INLINED_SYSTEM_COLUMNS, *(encoder(column.type, abilities) for column in columns)]
    names = [f"p{number}" for number in range(len(encoders))]
    return [dict(zip(names, (encode(value) for encode, value in zip(encoders, row, strict=True)), strict=True)) for row in rows]


def _stored_names(statements: Statements, database: Database, change: InsertInlinedRows) -> Sequence[str]:
    """Return the names of the columns in the physical table.

    DuckDB does not quote plain names, so PostgreSQL folds them to lower case: only the order of columns is reliable.
    """
    names = [column.name for column in change.columns]
    if not database.abilities.folds_names or all(name == name.lower() for name in names):
        return names
    columns = TableClause("columns", *(column(name) for name in ("column_name", "table_schema", "table_name", "ordinal_position")))
    columns.schema = "information_schema"
    query = (
        select(columns.c.column_name)
        .where(columns.c.table_schema == database.tables.schema, columns.c.table_name == change.table_name)
        .order_by(columns.c.ordinal_position)
    )
    stored = [row.column_name for row in statements.fetch(None, lambda: query)()][INLINED_SYSTEM_COLUMNS:]
    if len(stored) != len(names):
        raise CatalogCorruptError(
            f"The catalog table {change.table_name} has {len(stored)} columns, but {len(names)} are expected. Run lake.check()",
            inlined_table=change.table_name,
        )
    return stored


def insert_positions(statements: Statements, database: Database, change: InlinePositions) -> None:
    """Insert inlined deletes inside an open write transaction."""
    target = database.tables.inlined_delete(change.table_id)
    # The table is not registered, and any writer may have created it since the base, so the database decides.
    statements.define(CreateTable(target, if_not_exists=True))
    rows = [(file_id, position) for file_id, positions in change.files for position in positions]
    for start in range(0, len(rows), _BATCH_ROWS):
        batch = [
            {"file_id": file_id, "row_id": position, "begin_snapshot": change.begin_snapshot}
            for file_id, position in rows[start : start + _BATCH_ROWS]
        ]
        statements.run(("positions", change.table_id), lambda: insert(target), batch)


def newest_deletes(statements: Statements, database: Database, table_id: int, file_ids: Sequence[int], after: int) -> Mapping[int, int]:
    """Return the newest snapshot, by data file, with inlined deletes of its rows after a given snapshot.

    Args:
        statements: Statements of the transaction.
        database: The catalog.
        table_id: The table.
        file_ids: Data files to check.
        after: Snapshot id; only later snapshots count.
    """
    if not statements.has_table(inlined_delete_name(table_id), database.tables.schema):
        return {}
    deletes = database.tables.inlined_delete(table_id)
    query = (
        select(deletes.c.file_id, func.max(deletes.c.begin_snapshot).label("newest"))
        .where(deletes.c.begin_snapshot > after, deletes.c.file_id.in_(file_ids))
        .group_by(deletes.c.file_id)
    )
    return {row.file_id: row.newest for row in statements.fetch(None, lambda: query)()}
