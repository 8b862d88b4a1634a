"""Resolve the tables, views and macros that a statement names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sqlglot import TokenType

from ducklake_core.catalog.reading.bulk_reader import ManyTablesReader
from ducklake_core.catalog.reading.definitions import Macro, ViewState, find_view, macros, views
from ducklake_core.engines.duckdb.query import MacroSource, Sources, ViewSource, name_in_instance, schema_in_instance
from ducklake_core.engines.duckdb.relations import ReadRows, TableSource
from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.names import DEFAULT_SCHEMA, dotted, folded, quoted_path, split_path
from ducklake_core.planning.table_info import row_counts
from ducklake_core.scan import Scan
from ducklake_core.sql.time_travel import TableAt, identifiers, is_name, keyword, tokens_of, without_time_travel
from ducklake_core.staging.arguments import resolve_at
from ducklake_core.view_sql.scopes import OTHER_SNAPSHOTS

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.catalog.reading.reader import CatalogReader
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.state import TableState
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.planning.explanation import Explanation
    from ducklake_core.staging.context import LakeContext


ScanTable: TypeAlias = "Callable[[Sequence[str], Predicate | str | None], Scan]"
"""Makes a scan of columns; rows for which the condition is not true are left out."""
RUN_STRINGS = {"query", "query_table"}
"""Functions that take names of tables as strings."""
_LISTS = {f"duckdb_{kind}" for kind in ("tables", "views", "columns", "schemas", "databases", "constraints", "indexes", "functions")}
_LISTS |= {"pragma_table_info", "pragma_show", "sqlite_master", "sqlite_schema"}
_LIST_SCHEMAS = {"information_schema", "pg_catalog"}

_BEFORE_TABLES = ("FROM", "JOIN", "INTO", "USING", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")
_BEFORE_OBJECTS = (*_BEFORE_TABLES, "UPDATE", "VIEW", "EXISTS", "SCHEMA", "MACRO", "FUNCTION", "COLUMN", "SHOW", "DESC", "COPY")


class NamedTable(NamedTuple):
    """A table by its name. A tuple, because a lake may have many thousands of tables.

    Attributes:
        open: Gives its columns, and what it can be read by.
        added_rows: How many rows it has that the catalog does not know of.
        staged: The table as a transaction has changed it; None for one that is as the catalog has it.
    """

    id: int
    schema_name: str
    name: str
    open: Callable[[], tuple[Schema, ScanTable]]
    added_rows: int = 0
    staged: TableState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Everything that can be named.

    Attributes:
        tables: The tables.
        views: The views, ``macros`` the macros.
        snapshot_id: The snapshot of all of them.
        schemas: Reads the paths of the schemas.
        frames: Frames of the caller.
    """

    tables: tuple[NamedTable, ...]
    views: tuple[ViewState, ...]
    macros: tuple[Macro, ...]
    snapshot_id: int
    schemas: Callable[[], Collection[str]]
    frames: tuple[TableSource, ...] = ()

    def objects(self) -> list[tuple[str, str]]:
        """Return the path of the schema and name of each of them."""
        of_tables = [(one.schema_name, one.name) for one in self.tables]
        of_views = [(one.schema_name, one.name) for one in self.views]
        return [*of_tables, *of_views, *((one.schema_name, one.name) for one in self.macros)]


def lake_names(lake: LakeContext, reader: CatalogReader, snapshot_id: int) -> Names:
    """Return the tables, views and macros of a snapshot, read with three statements.

    Args:
        lake: The lake.
        reader: Reads the catalog.
        snapshot_id: The snapshot.
    """
    return Names(
        tables=tuple(
            NamedTable(id=table_id, schema_name=schema, name=name, open=partial(_opened, lake, schema, name, snapshot_id))
            for table_id, (schema, name) in reader.table_names(snapshot_id).items()
        ),
        views=tuple(views(reader, snapshot_id)),
        macros=tuple(macros(reader, snapshot_id)),
        snapshot_id=snapshot_id,
        schemas=partial(_schemas, lake, snapshot_id),
    )


def _schemas(lake: LakeContext, snapshot_id: int) -> list[str]:
    with lake.reader() as reader:
        return [one.name for one in reader.schemas(snapshot_id)]


def _opened(lake: LakeContext, schema: str, name: str, snapshot_id: int) -> tuple[Schema, ScanTable]:
    with lake.reader() as reader:
        state = reader.table(schema, name, snapshot_id)
    return state.schema, lambda columns, where: scan_of(lake, state, columns, where)


def scan_of(lake: LakeContext, state: TableState, columns: Sequence[str], where: str | Predicate | None) -> Scan:
    """Return a scan of a table at its snapshot."""
    return Scan(table=state, columns=columns, where=where, reader=lake.reader, storage=lake.storage)


def sources(lake: LakeContext, names: Names, sql: str) -> tuple[str, Sources]:
    """Return a text as DuckDB runs it, and what it may name.

    Args:
        lake: The lake.
        names: What the text may name.
        sql: A query or statement in DuckDB's dialect.

    Raises:
        UsageError: The text cannot be read.
        NotFoundError: A table or snapshot of AT that does not exist.
        UnsupportedFeatureError: AT is used on a view.
    """
    text, then = without_time_travel(sql)
    objects = names.objects()
    _check_frames(names)
    paths = SchemaPaths(objects)
    mentioned = identifiers(text)
    # query('...') takes SQL in a string, in which every word may be a name.
    if mentioned & RUN_STRINGS:
        mentioned |= set(re.findall(r"[^\W\d]\w*", folded(text)))
    chosen: dict[tuple[str, str], ViewSource] = {}
    called: dict[int, MacroSource] = {}
    unreadable: dict[tuple[str, str], DuckLakeError] = {}
    tables_then = [_source_then(lake, one) for one in then]
    # Until nothing new is named: views and macros name further views, macros and tables. Every word that occurs counts as named, which
    # may offer DuckDB too much and never too little.
    while True:
        known = chosen.keys() | unreadable.keys()
        views_now = [view for view in names.views if folded(view.name) in mentioned and (view.schema_name, view.name) not in known]
        macros_now = [macro for macro in names.macros if folded(macro.name) in mentioned and macro.id not in called]
        if not views_now and not macros_now:
            break
        for view in views_now:
            try:
                body, inner = without_time_travel(_body(view), len(tables_then))
                tables_then += [_source_then(lake, one) for one in inner]
            except DuckLakeError as problem:
                # The word may be a column, for example, so that the query may not read the view.
                unreadable[view.schema_name, view.name] = problem
                continue
            mentioned |= identifiers(body)
            chosen[view.schema_name, view.name] = ViewSource(
                schema_name=view.schema_name, name=view.name, sql=paths.flattened(body), column_aliases=view.column_aliases
            )
        for macro in macros_now:
            mentioned |= {name for one in macro.implementations for name in identifiers(one.sql)}
            bodies = tuple(replace(one, sql=paths.flattened(one.sql)) for one in macro.implementations)
            called[macro.id] = MacroSource(schema_name=macro.schema_name, name=macro.name, implementations=bodies)
    named = [one for one in names.tables if folded(one.name) in mentioned]
    # Counts of rows cost a query, and DuckDB needs them only to order joins.
    is_joined = len(named) + len(tables_then) + len(names.frames) > 1 or bool(chosen) or any(_is_repeated(one.name, text) for one in named)
    return paths.flattened(text), Sources(
        tables=(*names.frames, *_sources_now(lake, names.snapshot_id, named, is_joined=is_joined), *tables_then),
        views=tuple(chosen.values()),
        macros=tuple(called.values()),
        unreadable=tuple((name, problem) for (_, name), problem in unreadable.items()),
        listed=_listed(names),
    )


def _check_frames(names: Names) -> None:
    taken = {folded(name) for schema, name in names.objects() if folded(schema) == DEFAULT_SCHEMA} if names.frames else set()
    for frame in names.frames:
        if folded(frame.name) in taken:
            raise UsageError(f"the lake has a {frame.name} of its own: pass the frame under another name", parameter=frame.name)


def is_about_definitions(sql: str, names: Names) -> bool:
    """Return whether a query lists tables, views, columns or schemas, or describes one table or view by its name."""
    tokens = tokens_of(sql)
    first = keyword(tokens[0])
    if first in ("SHOW", "PRAGMA"):
        return True
    if first in ("DESCRIBE", "DESC"):
        # Of the name of a table or view, and not of a query or frame.
        runs = list(name_runs(tokens[1:]))
        frames = {(frame.schema_name, folded(frame.name))[-len(one.parts) :] for frame in names.frames for one in runs}
        return [one.end for one in runs] == [len(tokens) - 1] and (*runs[0].parts[:-1], folded(runs[0].parts[-1])) not in frames
    mentioned = {folded(token.text) for token in tokens}
    if mentioned.isdisjoint(_LISTS | _LIST_SCHEMAS):
        # Reading all names is slow in a lake with many tables.
        return False
    schemas = {folded(split_path(schema)[0]) for schema, _ in names.objects()}
    views = _LISTS - {folded(name) for _, name in names.objects()}
    for place, token in enumerate(tokens):
        name, after = folded(token.text), tokens[place + 1].token_type if place + 1 < len(tokens) else None
        # Without brackets they are views.
        is_list = (name in _LISTS and after == TokenType.L_PAREN) or (name in views and is_before_table(tokens, place))
        if is_name(token) and (is_list or (name in _LIST_SCHEMAS - schemas and after == TokenType.DOT)):
            return True
    return False


def definitions(lake: LakeContext, names: Names) -> Sources:
    """Return all tables, views and macros, whose rows cannot be read."""
    paths = SchemaPaths(names.objects())
    committed = [one.id for one in names.tables if one.staged is None]
    with lake.reader() as reader:
        many = ManyTablesReader(reader.connection, reader.info, reader.catalog, committed)
        states = [one.staged or many.table_by_id(one.id, names.snapshot_id) for one in names.tables]
        counts = row_counts(reader, names.snapshot_id, [one.id for one in names.tables])
    tables = [
        TableSource(
            schema_name=state.schema_name,
            name=state.name,
            columns=state.schema,
            read=_unread,
            row_count=counts.get(named.id, 0) + named.added_rows,
        )
        for named, state in zip(names.tables, states, strict=True)
    ]
    shown = [
        ViewSource(schema_name=one.schema_name, name=one.name, sql=paths.flattened(one.sql), column_aliases=one.column_aliases)
        for one in names.views
        if one.dialect.lower() == "duckdb"
    ]
    called = [MacroSource(schema_name=one.schema_name, name=one.name, implementations=one.implementations) for one in names.macros]
    commented: list[TableState | ViewState] = [*states, *names.views]
    comments = [comment for one in commented for comment in _comments(one)]
    return Sources(
        tables=tuple(tables),
        views=tuple(shown),
        macros=tuple(called),
        comments=tuple(comments),
        schemas=tuple(names.schemas()),
        listed=_listed(names),
    )


def _listed(names: Names) -> tuple[tuple[str, str], ...]:
    every: list[NamedTable | ViewState | TableSource] = [*names.tables, *names.views, *names.frames]
    return tuple((one.schema_name, one.name) for one in every)


def _comments(one: TableState | ViewState) -> Iterator[tuple[str, str]]:
    """Yield the comments of a table, or of a view, and of its columns, with what they are about."""
    name = name_in_instance(one.schema_name, one.name)
    if one.comment is not None:
        yield f"{'VIEW' if isinstance(one, ViewState) else 'TABLE'} {name}", one.comment
    if not isinstance(one, ViewState):
        for column in one.schema:
            if column.id in one.column_comments:
                yield f"COLUMN {name}.{quoted_path((column.name,))}", one.column_comments[column.id]


def _unread(_columns: Sequence[str], _where: Predicate | None) -> pa.RecordBatchReader:
    raise AssertionError("queries of definitions read no rows")


def _body(view: ViewState) -> str:
    if view.dialect.lower() != "duckdb":
        raise UnsupportedFeatureError(f"cannot read view {view.schema_name}.{view.name}: its dialect is {view.dialect!r}", view=view.name)
    return view.sql


def _is_repeated(name: str, text: str) -> bool:
    return sum(is_name(token) and folded(token.text) == folded(name) for token in tokens_of(text)) > 1


def _sources_now(lake: LakeContext, snapshot_id: int, named: Sequence[NamedTable], *, is_joined: bool) -> Iterator[TableSource]:
    counts: dict[int, int] = {}
    if is_joined and named:
        with lake.reader() as reader:
            counts = row_counts(reader, snapshot_id, [one.id for one in named])
    for one in named:
        schema, scan = one.open()
        count = counts.get(one.id, 0) + one.added_rows if is_joined else None
        yield TableSource(
            schema_name=one.schema_name,
            name=one.name,
            columns=schema,
            read=reading(scan),
            row_count=count,
            explain=explaining(scan, schema),
        )


def reading(scan: ScanTable) -> ReadRows:
    """Return the function by which DuckDB reads a table, in the order of the columns that it requests."""
    return lambda columns, where: scan(columns, where).to_reader()


def explaining(scan: ScanTable, schema: Schema) -> Callable[[Sequence[str]], Explanation]:
    """Return the function that finds the files of a table that a scan under some conditions reads and skips."""

    def is_condition(text: str) -> bool:
        try:
            scan(schema.names, text).explain()
        except DuckLakeError:
            # DuckDB's text of a filter need not be a condition of this library; then it skips no file.
            return False
        return True

    def explain(filters: Sequence[str]) -> Explanation:
        usable = [f"({text})" for text in filters if is_condition(text)]
        return scan(schema.names, " AND ".join(usable) or None).explain()

    return explain


def _source_then(lake: LakeContext, wanted: TableAt) -> TableSource:
    schema, name = dotted(wanted.parts[:-1]) or DEFAULT_SCHEMA, wanted.parts[-1]
    with lake.reader() as reader:
        snapshot = resolve_at(reader, wanted.at)
        if find_view(reader, schema, name, snapshot.id) is not None:
            return _view_then(lake, wanted.key, quoted_path((*split_path(schema), name)), snapshot.id)
        state = table_then(reader, wanted)
        count = row_counts(reader, state.snapshot_id, [state.id]).get(state.id, 0)

    def scan(columns: Sequence[str], where: Predicate | str | None) -> Scan:
        return scan_of(lake, state, columns, where)

    return TableSource(
        schema_name=OTHER_SNAPSHOTS,
        name=wanted.key,
        columns=state.schema,
        read=reading(scan),
        row_count=count,
        explain=explaining(scan, state.schema),
    )


def _view_then(lake: LakeContext, key: str, path: str, snapshot_id: int) -> TableSource:
    """Return a view at another snapshot as a table: DuckDB computes its rows over the tables of that snapshot."""
    from ducklake_core.sql.query import columns_in_process, rows_in_process

    with lake.reader() as reader:
        names = lake_names(lake, reader, snapshot_id)
    columns = columns_in_process(lake, names, f"FROM {path}")

    def read(wanted: Sequence[str], _: Predicate | None) -> pa.RecordBatchReader:
        selected = ", ".join(quoted_path((one,)) for one in wanted)
        # The types of a table of these columns, which differ from those of a query where Arrow lacks a type.
        target = [(one, columns.column(one)) for one in wanted]
        return rows_in_process(lake, names, f"SELECT {selected} FROM {path}", target=target)  # noqa: S608

    return TableSource(schema_name=OTHER_SNAPSHOTS, name=key, columns=columns, read=read, is_frame=True)


def table_then(reader: CatalogReader, wanted: TableAt) -> TableState:
    """Return the table that AT names.

    Raises:
        NotFoundError: There is none then, or no such snapshot.
        UnsupportedFeatureError: It is a view.
    """
    schema, name = dotted(wanted.parts[:-1]) or DEFAULT_SCHEMA, wanted.parts[-1]
    snapshot = resolve_at(reader, wanted.at)
    try:
        return reader.table(schema, name, snapshot.id)
    except NotFoundError:
        if find_view(reader, schema, name, snapshot.id) is None:
            raise
    raise UnsupportedFeatureError(
        f"{schema}.{name} is a view, and AT is only supported for tables. Read the whole query at the snapshot with the argument at of "
        "lake.sql",
        parameter="at",
        view=f"{schema}.{name}",
    )


def all_then(reader: CatalogReader, wanted: Iterable[TableAt]) -> dict[str, TableState]:
    """Return the tables that AT names, by their generated names."""
    return {one.key: table_then(reader, one) for one in wanted}


@dataclass(frozen=True, slots=True)
class Run:
    """Names with dots between them: tokens from ``start`` to before ``end``."""

    start: int
    end: int
    parts: tuple[str, ...]


# DuckDB has one level of schemas. The path ``sales.europe`` becomes one schema of the instance, whose name is the whole path.
class SchemaPaths:
    """Schemas inside schemas, and what is in them.

    Args:
        objects: Path of the schema and name of every table, view and macro.
    """

    def __init__(self, objects: Collection[tuple[str, str]]) -> None:
        every = {path: split_path(path) for path in {path for path, _ in objects}}
        nested = {path: tuple(map(folded, parts)) for path, parts in every.items() if len(parts) > 1}
        self._schemas = set(nested.values())
        self._objects = {(nested[path], folded(name)) for path, name in objects if path in nested}

    def flattened(self, sql: str) -> str:
        """Return a text in which every name of two parts and more of a schema's path has one for it.

        >>> print(SchemaPaths([("sales.europe", "orders")]).flattened("SELECT orders.k FROM sales.europe.orders"))
        SELECT orders.k FROM \"\"\"sales\"\".\"\"europe\"\"\".orders
        """
        if not self._schemas:
            return sql
        tokens = tokens_of(sql)
        runs = list(name_runs(tokens))
        aliases = {folded(one.parts[0]) for one in runs if len(one.parts) == 1 and may_be_alias(tokens, one.start)}
        pieces: list[str] = []
        done = 0
        for one in runs:
            length = self._schema_length(one, tokens, aliases)
            if length:
                pieces += [sql[done : tokens[one.start].start], quoted_path((schema_in_instance(dotted(one.parts[:length])),))]
                done = tokens[one.start + 2 * length - 2].end + 1
        return "".join([*pieces, sql[done:]])

    def _schema_length(self, run: Run, tokens: Sequence[Any], aliases: Collection[str]) -> int:
        """Return the number of names that are a schema's path; 0 for a column, a field of structs, or a schema at the top."""
        names = tuple(map(folded, run.parts))
        # Behind the placeholder for the lake's name stands a table or a macro.
        is_table = is_before_table(tokens, run.start) or (run.start > 0 and tokens[run.start - 1].token_type == TokenType.DOT)
        if is_table and names[:-1] in self._schemas:
            return len(names) - 1
        if names[0] in aliases and not is_table:
            return 0
        # The longest path that has such an object: ``a.b.c`` is table c of schema a.b, or field c of table b in schema a.
        lengths = range(len(names) - 1, 1, -1)
        return next((length for length in lengths if (names[:length], names[length]) in self._objects), 0)


def name_runs(tokens: Sequence[Any]) -> Iterator[Run]:
    """Yield the names of a text."""
    place = 0
    while place < len(tokens):
        start = place
        place += 1
        if not is_name(tokens[start]):
            continue
        while place + 1 < len(tokens) and tokens[place].token_type == TokenType.DOT and is_name(tokens[place + 1]):
            place += 2
        yield Run(start, place, tuple(token.text for token in tokens[start:place:2]))


def is_before_table(tokens: Sequence[Any], place: int) -> bool:
    """Return whether a table, a view or a schema is named at a place, because of the keyword before it."""
    return place > 0 and keyword(tokens[place - 1]) in _BEFORE_OBJECTS


def has_alias(tokens: Sequence[Any], place: int) -> bool:
    """Return whether an alias stands at a place, behind a table."""
    return place < len(tokens) and tokens[place].token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)


def may_be_alias(tokens: Sequence[Any], place: int) -> bool:
    """Return whether a name that stands alone names a table in this query."""
    if not place:
        return False
    before = tokens[place - 1]
    return keyword(before) in (*_BEFORE_TABLES, "AS") or before.token_type in (TokenType.R_PAREN, TokenType.VAR, TokenType.IDENTIFIER)
