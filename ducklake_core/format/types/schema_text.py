"""Columns as a person reads them: a line, a tree, an HTML table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from ducklake_core.format.types.data_types import DataType, Field, ListType, MapType, StructType
from ducklake_core.format.types.message_text import one_line


def column_text(column: Field, shown_type: str | None = None) -> str:
    """A column in one line: its name, type, and what holds for its values.

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
    """All columns in one line."""
    return ", ".join(column_text(column) for column in columns)


def schema_tree(columns: Sequence[Field]) -> str:
    """A line for each column, with the fields of structs below it.

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
    """Whether a type has parts with names, which need lines of their own."""
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
    """The columns as an HTML table, nested types in one cell; all text is escaped."""
    comments = comments or {}
    rows = [(column.name, str(column.type), _constraints(column).strip(), comments.get(column.id, "")) for column in columns]
    return html_table(("column", "type", "", "comment") if any(row[-1] for row in rows) else ("column", "type", ""), rows)


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts; rows are cut to the columns of the head."""
    lines = (f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row[: len(head)])}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{''.join(lines)}</table>"
