"""Read views, macros and definitions that changed between two snapshots (specification: ducklake_view, ducklake_macro)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Dialect,
    Row,
    Select,
    String,
    Subquery,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    union,
    union_all,
)

from ducklake_core.catalog.database.bootstrap import existing_query
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.options import StoredOptions
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.running_writes import is_option
from ducklake_core.catalog.reading.snapshots import snapshot_of, snapshot_query
from ducklake_core.catalog.reading.table_rows import COMMENT, inlined_tables_of, tags_of
from ducklake_core.catalog.reading.visibility import live, may_be_named, same_name
from ducklake_core.errors import CatalogCorruptError, NotFoundError
from ducklake_core.format.changes import QualifiedName, parse_changes
from ducklake_core.format.macro_definitions import MacroImplementation, MacroKind, MacroParameter
from ducklake_core.format.state import InlinedTable, Snapshot, TableState
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, join_name, similar_entries

NOTHING = -1
"""An id that no snapshot and no table has; a parameter that matches nothing."""

# Metadata tables that define a table, with the column of its id.
_OF_TABLES = {
    "table": "table_id",
    "column": "table_id",
    "partition_info": "table_id",
    "sort_info": "table_id",
    "column_tag": "table_id",
    "tag": "object_id",
}

COLUMN_ALIASES = re.compile(r'"(?:[^"]|"")*"(?:,"(?:[^"]|"")*")*')

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The present state of the catalog, for a caller that checks whether its own state is still valid.

    Attributes:
        snapshot: The newest snapshot.
        known: The snapshot that has the known id now; None if there is none, or none any more.
        options: All options of the lake.
        inlined_tables: Tables of inlined rows of the table, by schema version.
        has_inlined_deletes: Whether the table of inlined deletes exists.
    """

    snapshot: Snapshot
    known: Snapshot | None
    options: StoredOptions
    inlined_tables: tuple[InlinedTable, ...]
    has_inlined_deletes: bool


def read_current(database: Database, known: int = NOTHING, table_id: int = NOTHING) -> Current:
    """Read the present state in one statement, which takes one round trip on a server.

    Args:
        database: The catalog.
        known: Id of a snapshot that was read before; default none.
        table_id: Table whose tables of inlined rows to read; default none.

    Raises:
        CatalogCorruptError: The lake has no snapshot, or a table of inlined rows is registered without a name or version, or for two.
        CatalogVersionError: The catalog was migrated since it was opened.
    """
    tables, dialect = database.tables, database.dialect
    parameters = {"known": known, "table_id": table_id, "name": inlined_delete_name(table_id)}
    (rows,) = database.answers(("current", lambda: _changed_query(tables, dialect), parameters))
    found: dict[str, list[Any]] = {"snapshot": [], "option": [], "inlined": [], "deletes": []}
    for row in rows:
        found[row.kind].append(row)
    if not found["snapshot"]:
        raise CatalogCorruptError("the catalog holds no snapshot")
    newest = max(found["snapshot"], key=lambda row: row.snapshot_id)
    database.check_version(newest.version)
    return Current(
        snapshot=snapshot_of(newest),
        known=next((snapshot_of(row) for row in found["snapshot"] if row.snapshot_id == known), None),
        options=StoredOptions(tuple(_option(row) for row in found["option"])),
        inlined_tables=inlined_tables_of(((row.changes_made, _text(row.schema_version)) for row in found["inlined"]), table_id),
        has_inlined_deletes=bool(found["deletes"]),
    )


def _changed_query(tables: CatalogTables, dialect: Dialect) -> CompoundSelect[Any]:
    """Return one statement for rows of several kinds, under the columns of a snapshot, matched by type.

    A single statement sees one state of the catalog without a transaction around it.

    ::

        kind       snapshot_id  ...  schema_version  next_file_id  changes_made  author  commit_message  ...
        snapshot   7                 3               12            inserted...   me      why
        option                                       scope_id      key           value   scope
        inlined                      schema_version                table_name
        deletes                                                    table_name
    """
    number, registered, metadata = tables["snapshot"].c.snapshot_id, tables["inlined_data_tables"], tables["metadata"]
    newest = select(func.max(number)).scalar_subquery()
    history = snapshot_query(tables).add_columns(literal_column("'snapshot'").label("kind"))
    names = history.selected_columns.keys()

    def like_history(kind: str, **cells: ColumnElement[Any]) -> list[ColumnElement[Any]]:
        given = cells | {"kind": literal_column(f"'{kind}'")}
        return [given.get(name, null()).label(name) for name in names]

    option = like_history(
        "option", changes_made=metadata.c.key, author=metadata.c.value, commit_message=metadata.c.scope, next_file_id=metadata.c.scope_id
    )
    inlined = like_history("inlined", changes_made=registered.c.table_name, schema_version=registered.c.schema_version)
    deletes = existing_query(tables, dialect)
    return union_all(
        history.where(or_(number == newest, number == bindparam("known"))),
        select(*option).where(is_option(metadata)),
        select(*inlined).where(registered.c.table_id == bindparam("table_id")),
        deletes.with_only_columns(*like_history("deletes", changes_made=deletes.selected_columns[0])),
    )


def _text(number: object) -> str | None:
    return None if number is None else str(number)


def _option(row: Any) -> tuple[str, str, str | None, int | None]:
    return row.changes_made.lower(), row.author, row.commit_message, row.next_file_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerTable:
    """A dropped table under its last name.

    Attributes:
        begin: First snapshot under that name.
        end: Snapshot that dropped the table.
        last: Newest surviving snapshot with the table; None when all were expired.
    """

    id: int
    begin: int
    end: int
    last: int | None


def changed_definitions(reader: CatalogReader, after: int) -> set[int]:
    """Return the ids of tables, and other objects with tags, whose definition changed after a snapshot, in one statement."""
    queries = []
    for name, column in _OF_TABLES.items():
        source = reader.catalog[name]
        queries.append(select(source.c[column].label("id")).where(or_(source.c.begin_snapshot > after, source.c.end_snapshot > after)))
    return set(reader.connection.execute(union(*queries)).scalars())


def former_tables(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> list[FormerTable]:
    """Return the dropped tables that had a name when they were dropped, the last dropped first.

    Args:
        reader: Reader of the catalog.
        schema: Schema of the table.
        name: Name of the table.
        snapshot_id: Newest snapshot to consider.
    """
    table, owner = reader.catalog["table"], reader.catalog.schemas
    query = (
        select(table.c.table_id, table.c.table_name, table.c.begin_snapshot, table.c.end_snapshot, owner.c.schema_name)
        .select_from(table.join(owner, owner.c.schema_id == table.c.schema_id))
        .where(table.c.end_snapshot.is_not(None), may_be_named(table.c.table_name, name))
        .order_by(table.c.end_snapshot.desc(), table.c.begin_snapshot.desc())
    )
    rows = [row for row in reader.connection.execute(query) if same_name(row.table_name, name) and same_name(row.schema_name, schema)]
    ids = {row.table_id for row in rows}
    versions = (
        reader.connection.execute(select(table.c.table_id, table.c.end_snapshot).where(table.c.table_id.in_(ids))).all() if ids else []
    )
    # A row that ended by a rename is not a drop: the table is live, or was dropped under its other name.
    last = {number: [row.end_snapshot for row in versions if row.table_id == number] for number in ids}
    dropped = [row for row in dict.fromkeys(rows) if None not in last[row.table_id] and row.end_snapshot == max(last[row.table_id])]
    kept = [snapshot.id for snapshot in reader.snapshots(until=snapshot_id)] if dropped else []
    return [
        FormerTable(
            id=row.table_id,
            begin=row.begin_snapshot,
            end=row.end_snapshot,
            last=max((number for number in kept if row.begin_snapshot <= number < row.end_snapshot), default=None),
        )
        for row in dropped
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """A view at one snapshot, as stored.

    Attributes:
        id: ``view_id``.
        dialect: Language of ``sql``; DuckDB writes ``duckdb``.
        sql: The query; ``{DUCKLAKE_CATALOG}`` stands for the name under which a reader has attached the lake.
        column_aliases: Names of the first columns, instead of those of the query; empty without any.
        comment: Its ``comment`` tag.
        tags: Its other tags by key.
        column_comments: Comments of its columns, by their names in the query (format 1.1).
        snapshot_id: Id of the snapshot.
    """

    id: int
    uuid: str
    name: str
    schema_id: int
    schema_name: str
    dialect: str
    sql: str
    column_aliases: tuple[str, ...]
    comment: str | None
    snapshot_id: int
    tags: Mapping[str, str] = field(default_factory=dict)
    column_comments: Mapping[str, str] = field(default_factory=dict)

    def commented_column(self, name: str) -> str:
        """Return the name under which the comment of a column is stored, which may differ in case."""
        return next((one for one in self.column_comments if same_name(one, name)), name)


def views(reader: CatalogReader, snapshot_id: int) -> list[ViewState]:
    """Return all views at a snapshot, by schema and name."""
    return list(_views_by_name(reader, snapshot_id).values())


def _views_by_name(reader: CatalogReader, snapshot_id: int) -> dict[tuple[str, str], ViewState]:
    def read() -> dict[tuple[str, str], ViewState]:
        found: dict[int, list[Row[Any]]] = {}
        for row in reader.connection.execute(_query(reader.catalog, snapshot_id)):
            found.setdefault(row.view_id, []).append(row)
        states = sorted((_state(rows, snapshot_id) for rows in found.values()), key=lambda view: (view.schema_name, view.name))
        return {(folded(one.schema_name), folded(one.name)): one for one in states}

    return reader.once(("views", snapshot_id), read)


def find_view(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> ViewState | None:
    """Return a view by its case-insensitive name, None when it does not exist at the snapshot."""
    if reader.holds_many:
        return _views_by_name(reader, snapshot_id).get((folded(schema), folded(name)))
    tables = reader.catalog
    query = _query(tables, snapshot_id).where(
        may_be_named(tables["view"].c.view_name, name), may_be_named(tables.schemas.c.schema_name, schema)
    )
    rows = [row for row in reader.connection.execute(query) if same_name(row.view_name, name) and same_name(row.schema_name, schema)]
    return _state([row for row in rows if row.view_id == rows[0].view_id], snapshot_id) if rows else None


def find_relations(reader: CatalogReader, schema: str | None, name: str, own_schema: str, snapshot_id: int) -> list[TableState | ViewState]:
    """Return the tables and views that a name in a view's query may mean.

    Args:
        reader: The catalog.
        schema: The schema that the query names; None for that of the view and ``main``.
        name: Name of the table or view.
        own_schema: The schema of the view.
        snapshot_id: The snapshot to read at.
    """
    found: list[TableState | ViewState] = []
    for one in [schema] if schema else list({folded(one): one for one in (own_schema, DEFAULT_SCHEMA)}.values()):
        try:
            found.append(reader.table(one, name, snapshot_id))
        except NotFoundError:
            state = find_view(reader, one, name, snapshot_id)
            found += [state] if state is not None else []
    return found


def missing_view(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> NotFoundError:
    """Return the error for a view that does not exist; it states whether a table has the name, or which views have similar names."""
    full = join_name(schema, name)
    if any(same_name(owner, schema) and same_name(one, name) for owner, one in reader.table_names(snapshot_id).values()):
        return NotFoundError(
            f"{full} is a table, not a view (snapshot {snapshot_id}). Open it with lake.table(...)", view=full, snapshot_id=snapshot_id
        )
    near = similar_entries(schema, name, [(one.schema_name, one.name) for one in views(reader, snapshot_id)])
    return NotFoundError(f"there is no view {full} at snapshot {snapshot_id}{near}", view=full, snapshot_id=snapshot_id)


def view(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> ViewState:
    """Return a view by its case-insensitive name.

    Raises:
        NotFoundError: It does not exist at that snapshot.
    """
    found = find_view(reader, schema, name, snapshot_id)
    if found is None:
        raise missing_view(reader, schema, name, snapshot_id)
    return found


def _query(tables: CatalogTables, snapshot_id: int) -> Select[Any]:
    view, schema, tag = tables["view"], tables.schemas, _tags(tables, snapshot_id)
    is_tag = tag.c.object_id == view.c.view_id
    labels = (tag.c.column_name.label("tag_column"), tag.c.key.label("tag_key"), tag.c.value.label("tag_value"))
    return (
        select(view, schema.c.schema_name, *labels)
        .select_from(view.join(schema, schema.c.schema_id == view.c.schema_id).outerjoin(tag, is_tag))
        .where(live(view, snapshot_id), live(schema, snapshot_id))
    )


def _tags(tables: CatalogTables, snapshot_id: int) -> Subquery:
    """Return the tags of views and, if the version has them, of their columns."""
    tag = tables["tag"]
    own = select(tag.c.object_id, cast(null(), String).label("column_name"), tag.c.key, tag.c.value).where(live(tag, snapshot_id))
    if "view_column_tag" not in tables:
        return own.subquery("tags")
    column_tag = tables["view_column_tag"]
    columns = (column_tag.c.view_id, column_tag.c.column_name, column_tag.c.key, column_tag.c.value)
    return own.union_all(select(*columns).where(live(column_tag, snapshot_id))).subquery("tags")


def _state(rows: Sequence[Row[Any]], snapshot_id: int) -> ViewState:
    row, tags = rows[0], tags_of(one for one in rows if one.tag_column is None)
    comments = {one.tag_column: one.tag_value for one in rows if one.tag_column is not None and one.tag_key == COMMENT}
    return ViewState(
        id=row.view_id,
        uuid=row.view_uuid or "",
        name=row.view_name,
        schema_id=row.schema_id,
        schema_name=row.schema_name,
        dialect=row.dialect or "duckdb",
        sql=row.sql or "",
        column_aliases=tuple(_aliases(row)),
        comment=tags.pop(COMMENT, None),
        snapshot_id=snapshot_id,
        tags=tags,
        column_comments={name: text for name, text in sorted(comments.items()) if text is not None},
    )


def _aliases(row: Row[Any]) -> Iterator[str]:
    text = row.column_aliases or ""
    if text and not COLUMN_ALIASES.fullmatch(text):
        where = f"{row.schema_name}.{row.view_name}"
        raise CatalogCorruptError(
            f"The column names {text!r} of view {where} cannot be parsed. Drop the view, and create it again", view=where
        )
    for quoted in re.findall(r'"((?:[^"]|"")*)"', text):
        yield quoted.replace('""', '"')


def without_macro_calls(given: Given, known_macros: Callable[[], Sequence[Macro]]) -> Given | str:
    """Return a condition or expression with calls of scalar macros of the schema ``main`` expanded.

    Args:
        given: The condition or expression; anything but a string is returned unchanged.
        known_macros: Returns the macros of the lake; called only if the SQL calls a function that DuckDB does not have.

    Raises:
        UsageError: No definition of a macro accepts the arguments.
        UnsupportedFeatureError: A macro cannot be expanded.
    """
    if not isinstance(given, str):
        return given
    from ducklake_core.format.macros import called_functions, with_macros

    names = called_functions(given)
    if not names:
        return given
    found = known_macros()
    known = {
        folded(macro.name): tuple(one for one in macro.implementations if one.kind == "scalar" and one.dialect.lower() == "duckdb")
        for macro in found
        if folded(macro.name) in names and folded(macro.schema_name) == DEFAULT_SCHEMA and macro.kind == "scalar"
    }
    if not known:
        return given
    # Macros of any schema, because the expanded macros may call them.
    every = {folded(macro.name): macro.implementations for macro in found if macro.kind == "scalar"}
    return with_macros(given, every | known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """A macro at one snapshot."""

    id: int
    schema_id: int
    schema_name: str
    name: str
    implementations: tuple[MacroImplementation, ...]

    @property
    def kind(self) -> MacroKind:
        """Return the kind, which all of its definitions share: scalar macros return values, table macros return rows."""
        return self.implementations[0].kind if self.implementations else "scalar"


def macros(reader: CatalogReader, snapshot_id: int) -> list[Macro]:
    """Return all macros at a snapshot, by schema, name and id, in two statements."""
    return reader.once(("macros", snapshot_id), lambda: _macros(reader, snapshot_id))


def _macros(reader: CatalogReader, snapshot_id: int) -> list[Macro]:
    found: dict[int, Macro] = {}
    parameters = _parameters(reader, snapshot_id)
    macro, schema, implementation = reader.catalog["macro"], reader.catalog.schemas, reader.catalog["macro_impl"]
    query = (
        select(macro.c.macro_id, macro.c.macro_name, schema.c.schema_id, schema.c.schema_name, implementation)
        .select_from(
            macro.join(schema, schema.c.schema_id == macro.c.schema_id).outerjoin(
                implementation, implementation.c.macro_id == macro.c.macro_id
            )
        )
        .where(live(macro, snapshot_id), live(schema, snapshot_id))
        .order_by(schema.c.schema_name, macro.c.macro_name, macro.c.macro_id, implementation.c.impl_id)
    )
    for row in reader.connection.execute(query):
        before = found.get(row.macro_id)
        own: tuple[MacroImplementation, ...] = ()
        if row.impl_id is not None:
            if row.type not in ("scalar", "table"):
                where = f"{row.schema_name}.{row.macro_name}"
                raise CatalogCorruptError(
                    f"Macro {where} has the type {row.type!r}, but must be scalar or table. Drop it, and create it again", macro=where
                )
            of_it = parameters.get((row.macro_id, row.impl_id), ())
            own = (MacroImplementation(kind=row.type, dialect=row.dialect or "duckdb", sql=row.sql or "", parameters=tuple(of_it)),)
        found[row.macro_id] = Macro(
            id=row.macro_id,
            schema_id=row.schema_id,
            schema_name=row.schema_name,
            name=row.macro_name,
            implementations=(*(before.implementations if before else ()), *own),
        )
    return list(found.values())


def _parameters(reader: CatalogReader, snapshot_id: int) -> dict[tuple[int, int], list[MacroParameter]]:
    macro, parameter = reader.catalog["macro"], reader.catalog["macro_parameters"]
    query = (
        select(parameter)
        .join(macro, and_(macro.c.macro_id == parameter.c.macro_id, live(macro, snapshot_id)))
        .order_by(parameter.c.macro_id, parameter.c.impl_id, parameter.c.column_id)
    )
    found: dict[tuple[int, int], list[MacroParameter]] = {}
    for row in reader.connection.execute(query):
        # DuckDB stores a missing default as the text NULL with the type unknown. A default of NULL has another type.
        has_default = row.default_value_type not in (None, "", "unknown")
        found.setdefault((row.macro_id, row.impl_id), []).append(
            MacroParameter(
                name=row.parameter_name,
                type=None if row.parameter_type in (None, "", "unknown") else row.parameter_type,
                default=row.default_value if has_default else None,
                default_type=row.default_value_type if has_default else None,
            )
        )
    return found


_WORDS = {
    "created_schema": ("created schema", "schema"),
    "created_table": ("created table", "table"),
    "created_view": ("created view", "view"),
    "created_scalar_macro": ("created macro", "macro"),
    "created_table_macro": ("created table macro", "macro"),
    "altered_table": ("altered table", "table"),
    "altered_view": ("altered view", "view"),
    "inserted_into_table": ("inserted into", "table"),
    "inlined_insert": ("inserted into", "table"),
    "deleted_from_table": ("deleted from", "table"),
    "inlined_delete": ("deleted from", "table"),
    "inline_flush": ("flushed inlined rows of", "table"),
    "merge_adjacent": ("merged files of", "table"),
    "rewrite_delete": ("rewrote files of", "table"),
    "dropped_table": ("dropped table", "table"),
    "dropped_view": ("dropped view", "view"),
    "dropped_scalar_macro": ("dropped macro", "macro"),
    "dropped_table_macro": ("dropped table macro", "macro"),
    "dropped_schema": ("dropped schema", "schema"),
}


def named_changes(reader: CatalogReader, snapshots: Iterable[Snapshot]) -> list[list[str]]:
    """Return the changes of each snapshot in words, such as ``altered table main.orders``. Takes four queries for any number of snapshots.

    An object whose definition has expired is described by its id: ``dropped table 53``.
    """
    names = _Names(reader)
    return [names.described(snapshot) for snapshot in snapshots]


@dataclass(frozen=True, slots=True)
class _Version:
    """A definition of an object, visible from ``begin`` (inclusive) to ``end`` (exclusive)."""

    name: str
    begin: int
    end: int | None


class _Names:
    """The names that objects of each kind had, by id, and the former names of renamed tables by snapshot and new name."""

    def __init__(self, reader: CatalogReader) -> None:
        self._versions: dict[str, dict[int, list[_Version]]] = {"schema": {}, "table": {}, "view": {}, "macro": {}}
        paths: dict[int, str] = {}
        for row in reader.connection.execute(select(reader.catalog.schemas)):
            paths[row.schema_id] = row.schema_name
            self._add("schema", row.schema_id, row.schema_name, row.begin_snapshot, row.end_snapshot)
        for kind in ("table", "view", "macro"):
            source = reader.catalog[kind]
            columns = (source.c[f"{kind}_id"], source.c.schema_id, source.c[f"{kind}_name"], source.c.begin_snapshot, source.c.end_snapshot)
            for number, schema_id, name, begin, end in reader.connection.execute(select(*columns)):
                self._add(kind, number, join_name(paths[schema_id], name) if schema_id in paths else str(name), begin, end)
        self._renamed: dict[tuple[int, str], str] = {}
        for versions in self._versions["table"].values():
            for old in versions:
                for new in versions:
                    if old.end == new.begin and old.name != new.name:
                        self._renamed[new.begin, new.name] = old.name

    def _add(self, kind: str, number: int, name: str, begin: object, end: object) -> None:
        # SQLite stores values of any type in damaged catalogs.
        if isinstance(begin, int) and isinstance(end, int | None):
            self._versions[kind].setdefault(number, []).append(_Version(name, begin, end))

    def described(self, snapshot: Snapshot) -> list[str]:
        """Return a phrase for each change, each once: an insert of files and of inlined rows is one insert."""
        try:
            changes = parse_changes(snapshot.changes)
        except CatalogCorruptError:
            return [snapshot.changes]
        found: dict[str, None] = {}
        for entry, (words, kind) in _WORDS.items():
            for value in getattr(changes, entry):
                name = self._name(kind, value, snapshot.id, is_dropped=entry.startswith("dropped_"))
                old = self._renamed.get((snapshot.id, name)) if entry == "created_table" else None
                found[f"renamed table {old} to {name}" if old else f"{words} {name}"] = None
        return [*found, *changes.unknown]

    def _name(self, kind: str, value: int | str | QualifiedName, snapshot_id: int, *, is_dropped: bool) -> str:
        if isinstance(value, QualifiedName):
            return join_name(value.schema, value.name)
        if isinstance(value, str):
            return value
        for version in self._versions[kind].get(value, ()):
            is_there = version.begin <= snapshot_id and (version.end is None or version.end > snapshot_id)
            if version.end == snapshot_id if is_dropped else is_there:
                return version.name
        return str(value)
