"""A table's columns at one snapshot, found by name or by id (specification: Schema Evolution, ducklake_column)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import NULL, Field, StructType, with_children
from ducklake_core.format.types.message_text import similar_in_brackets
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema_text import schema_html, schema_line, schema_tree
from ducklake_core.format.versions import DEFAULT_VERSION, RESERVED_PREFIX, FormatVersion

if TYPE_CHECKING:
    import pyarrow as pa


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
        """The top-level column of that name without regard to case, or None."""
        wanted = folded(name)
        return next((c for c in self.columns if folded(c.name) == wanted), None)

    def column(self, name: str) -> Field:
        """The top-level column of that name without regard to case.

        Raises:
            NotFoundError: It does not exist.
        """
        found = self.find(name)
        if found is None:
            raise NotFoundError(
                f"there is no column {name!r}{similar_in_brackets(name, self.names)}; the columns are: {', '.join(self.names)}", column=name
            )
        return found

    def walk(self) -> Iterator[Field]:
        """All nodes, parents first."""
        for column in self.columns:
            yield from column.walk()

    def leaves(self) -> Iterator[Field]:
        """All leaves, in the order of a file's leaf columns."""
        for column in self.columns:
            yield from column.leaves()

    def by_id(self) -> dict[int, Field]:
        """All nodes by their id."""
        return {node.id: node for node in self.walk()}

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of its rows, as they are read.

        >>> from ducklake_core.format.types.data_types import INT64
        >>> Schema(columns=(Field(id=1, name="a", type=INT64),)).to_arrow().names
        ['a']
        """
        from ducklake_core.format.types.arrow_types import to_arrow_schema

        return to_arrow_schema(self)

    def select(self, names: Iterable[str]) -> Schema:
        """The named columns, in the order asked for."""
        return Schema(columns=tuple(self.column(name) for name in names))


def with_ids(schema: Schema, first_id: int = 1) -> Schema:
    """The same schema with ids given in pre-order from ``first_id`` on, as DuckDB numbers them at CREATE."""
    counter = iter(range(first_id, first_id + sum(1 for _ in schema.walk())))

    def number(field: Field) -> Field:
        own = next(counter)
        return replace(field, id=own, type=with_children(field.type, number))

    return Schema(columns=tuple(number(column) for column in schema.columns))


def committed_at(schema: Schema, snapshot_id: int) -> Schema:
    """The same schema, its nodes that are not committed yet counting as made by a snapshot."""

    def dated(field: Field) -> Field:
        begin = field.begin_snapshot or snapshot_id
        return replace(field, begin_snapshot=begin, type=with_children(field.type, dated))

    return Schema(columns=tuple(dated(column) for column in schema.columns))


_INTERNAL_NAMES = frozenset({"_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"})


def check_reserved(name: str, version: FormatVersion) -> None:
    """Refuse a column's name that a version of the format keeps for itself.

    Raises:
        SchemaError: It is one.
    """
    if folded(name) in _INTERNAL_NAMES:
        raise SchemaError(f"a column cannot be called {name!r}: DuckLake uses this name for its own columns in data files", column=name)
    if version.reserves_prefix and folded(name).startswith(RESERVED_PREFIX):
        raise SchemaError(f"a column cannot be called {name!r}: lakes of version {version} reserve names that begin with {RESERVED_PREFIX}")


def check_names(schema: Schema, version: FormatVersion = DEFAULT_VERSION) -> None:
    """Refuse what no catalog can hold: no columns, empty or reserved names, names that differ only in case.

    Raises:
        SchemaError: One of these.
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
