"""Reduce a view's query to a scan of one table: columns under new names, and a condition.

Only queries of that form are accepted, and views on such views. Nothing is left to a second SQL dialect there, because the scan itself
evaluates the condition. Everything else is rejected by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ducklake_core.catalog.reading.definitions import ViewState, find_relations
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.predicates import sql_parts
from ducklake_core.format.macros import table_names
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FILE_INDEX, VIRTUAL_SCHEMA, with_virtual
from ducklake_core.view_sql.parsing import CATALOG, PLACEHOLDER, schema_and_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Columns of one table by their aliases, and the condition on its rows (DuckDB's dialect, None for all rows)."""

    table: TableState
    columns: tuple[tuple[str, str], ...]
    where: str | None = None

    @property
    def schema(self) -> Schema:
        """The columns under their aliases."""
        known = with_virtual(self.table.schema)
        found = ((name, known.find(base)) for name, base in self.columns)
        return Schema(columns=tuple(Field(name=name, type=column.type) for name, column in found if column is not None))


def selection(reader: CatalogReader, view: ViewState, above: frozenset[int] = frozenset()) -> Selection:
    """Return the scan of a view at its snapshot.

    Args:
        reader: Reads the catalog.
        view: The view.
        above: Ids of the views that are being resolved.

    Raises:
        UnsupportedFeatureError: The query does not just select columns of one table or such a view, under a condition of a scan.
    """
    if view.id in above:
        _reject(view, "it reads itself")
    query = _query(view)
    source, alias, is_table = _source(reader, view, query, above | {view.id})
    names = _Names(view=view, source=source, alias=alias, is_table=is_table)
    outputs = [pair for projection in query.expressions for pair in names.outputs(projection)]
    if len(view.column_aliases) > len(outputs):
        _reject(view, f"it names {len(view.column_aliases)} columns but selects {len(outputs)}")
    outputs[: len(view.column_aliases)] = [
        (name, base) for name, (_, base) in zip(view.column_aliases, outputs[: len(view.column_aliases)], strict=True)
    ]
    for index, (name, _) in enumerate(outputs):
        if any(same_name(name, other) for other, _ in outputs[:index]):
            _reject(view, f"it has two columns {name!r}")
    condition = query.args.get("where")
    own = names.condition(condition.this) if condition is not None else None
    # Each in brackets, because OR binds less tightly than the AND that joins them.
    both = [f"({text})" for text in (source.where, own) if text is not None]
    return Selection(table=source.table, columns=tuple(outputs), where=" AND ".join(both) or None)


def _query(view: ViewState) -> exp.Select:
    if view.dialect.lower() != "duckdb":
        _reject(view, f"its dialect is {view.dialect!r}")
    try:
        statements = sqlglot.parse(view.sql.replace(PLACEHOLDER, CATALOG), read="duckdb")
    except (SqlglotError, RecursionError) as problem:
        raise UnsupportedFeatureError(f"cannot read view {_name(view)}: its SQL cannot be parsed", view=_name(view)) from problem
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        _reject(view, f"it is a {type(statements[0]).__name__.upper()}, not one SELECT")
    query = statements[0]
    if any(CATALOG in text.this for text in query.find_all(exp.Literal)):
        _reject(view, f"a constant contains {PLACEHOLDER}")
    extra = [key for key, value in query.args.items() if value and key.rstrip("_") not in ("expressions", "from", "where", "kind")]
    if extra or query.args.get("kind"):
        _reject(view, f"it has {', '.join(key.rstrip('_').upper() for key in extra) or 'a KIND'}")
    return query


def _source(reader: CatalogReader, view: ViewState, query: exp.Select, above: frozenset[int]) -> tuple[Selection, str, bool]:
    """Return the table or view that the query reads, the name that qualifies its columns, and whether it is a table."""
    # The key differs between versions of sqlglot.
    clause = query.args.get("from_") or query.args.get("from")
    table = clause.this if clause is not None else None
    if not isinstance(table, exp.Table) or not table_names(table):
        _reject(view, "it does not read one table by its name")
    extra = [key for key, value in table.args.items() if value and key not in ("this", "db", "catalog", "alias")]
    if extra or table.alias_column_names:
        _reject(view, f"its table has {', '.join(extra) or 'names of columns'}")
    schema, name = schema_and_name(table)
    found = find_relations(reader, schema, name, view.schema_name, view.snapshot_id)
    if len(found) != 1:
        _reject(view, f"{name!r} is {'not a table of the lake' if not found else 'a table of several schemas'}")
    (source,) = found
    if isinstance(source, TableState):
        columns = tuple((column.name, column.name) for column in source.schema)
        return Selection(table=source, columns=columns), table.alias_or_name, True
    return selection(reader, source, above), table.alias_or_name, False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Names of columns in a view's query."""

    view: ViewState
    source: Selection
    alias: str
    is_table: bool

    def outputs(self, projection: exp.Expression) -> Iterator[tuple[str, str]]:
        """Yield name and column of the table, for each column that a projection makes."""
        match projection:
            case exp.Star() if not any(projection.args.values()):
                yield from self.source.columns
            case exp.Column(this=exp.Star()) if same_name(projection.table, self.alias) and not any(projection.this.args.values()):
                yield from self.source.columns
            case exp.Alias(this=exp.Column() as column):
                yield projection.alias, self.base(column)[1]
            case exp.Column():
                yield self.base(projection)
            case _:
                _reject(self.view, f"it computes {projection.sql('duckdb')}")

    def base(self, column: exp.Column) -> tuple[str, str]:
        """Return the column's name as the source writes it, and the column of the table that it is."""
        name = column.name
        if column.args.get("db") or (column.table and not same_name(column.table, self.alias)):
            _reject(self.view, f"{column.sql('duckdb')} is not a column of {self.alias}")
        found = [pair for pair in self.source.columns if same_name(pair[0], name)] or self._virtual(name)
        if len(found) != 1:
            _reject(self.view, f"{self.alias} has no column {name!r}")
        return found[0]

    def _virtual(self, name: str) -> list[tuple[str, str]]:
        """Return a column of a table that ``*`` does not show; views have none, and ``file_index`` counts the files of one scan."""
        known = (own.name for own in VIRTUAL_SCHEMA if own != FILE_INDEX)
        return [(own, own) for own in known if self.is_table and same_name(own, name)]

    def condition(self, condition: exp.Expression) -> str:
        """Return the condition on the columns of the table."""
        if condition.find(exp.Query) is not None:
            _reject(self.view, "its condition has a subquery")
        rewritten = condition.transform(
            lambda node: exp.column(exp.to_identifier(self.base(node)[1], quoted=True)) if isinstance(node, exp.Column) else node
        )
        text = rewritten.sql("duckdb")
        try:
            # Bound once here, so that a condition which needs a SQL engine is rejected before the scan begins.
            predicate = bind(text, with_virtual(self.source.table.schema))
        except DuckLakeError as problem:
            raise UnsupportedFeatureError(f"cannot read view {_name(self.view)}: {problem.message}", view=_name(self.view)) from problem
        opaque = sql_parts(predicate)
        if opaque:
            _reject(self.view, f"its condition has {opaque[0].sql}")
        return text


def _name(view: ViewState) -> str:
    return f"{view.schema_name}.{view.name}"


def _reject(view: ViewState, reason: str) -> NoReturn:
    raise UnsupportedFeatureError(
        f"cannot read view {_name(view)}: {reason}; only columns of one table or view with a condition are supported", view=_name(view)
    )
