"""Read stored options and snapshot holds (specification: Configuration, ducklake_metadata)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.completeness import complete_rows
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.running_writes import OWN_PREFIX, has_prefix, is_option, parse_time
from ducklake_core.errors import CatalogCorruptError, CatalogError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.names import folded, join_name
from ducklake_core.format.types.text import shown

HOLD_PREFIX = f"{OWN_PREFIX}hold:"


def store_option(
    connection: Connection, tables: CatalogTables, key: str, value: str, scope: Literal["schema", "table"] | None, scope_id: int | None
) -> None:
    """Set an option in an open write transaction, without a snapshot.

    Args:
        connection: The write transaction.
        tables: The metadata tables.
        key: Name of the option in lower case.
        value: Value as stored.
        scope: ``schema`` or ``table``; None for the lake.
        scope_id: Id of the schema or table; None for the lake.
    """
    delete_option(connection, tables, key, scope, scope_id)
    connection.execute(insert(tables["metadata"]), {"key": key, "value": value, "scope": scope, "scope_id": scope_id})


def delete_option(
    connection: Connection, tables: CatalogTables, key: str, scope: Literal["schema", "table"] | None, scope_id: int | None
) -> bool:
    """Delete an option of one scope in an open write transaction, without a snapshot, and return whether it was set.

    Args:
        connection: The write transaction.
        tables: The metadata tables.
        key: Name of the option in lower case.
        scope: ``schema`` or ``table``; None for the lake.
        scope_id: Id of the schema or table; None for the lake.
    """
    condition = same_option(tables, key, scope, scope_id)
    was_set = connection.execute(select(tables["metadata"].c.key).where(condition)).first() is not None
    connection.execute(delete(tables["metadata"]).where(condition))
    return was_set


def same_option(tables: CatalogTables, key: str, scope: str | None, scope_id: int | None) -> ColumnElement[bool]:
    """Return the condition for the rows of an option in one scope; see :func:`delete_option` for the parameters."""
    metadata = tables["metadata"]
    return and_(
        # DuckDB reads keys without regard to case, and any client may have stored another spelling.
        func.lower(metadata.c.key) == key,
        metadata.c.scope.is_(None) if scope is None else metadata.c.scope == scope,
        metadata.c.scope_id.is_(None) if scope_id is None else metadata.c.scope_id == scope_id,
    )


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """All options of a lake as rows (key in lower case, value, scope, scope_id)."""

    rows: tuple[tuple[str, str, str | None, int | None], ...] = ()

    def is_same(self, other: StoredOptions) -> bool:
        """Return whether both contain the same options, in any order, because a database may return rows in another order each time."""
        return self.rows == other.rows or frozenset(self.rows) == frozenset(other.rows)

    def is_set(self, key: str, scope: str | None, scope_id: int | None) -> bool:
        """Return whether an option is set in one scope."""
        return any((other, *of) == (key, scope, scope_id) for other, _, *of in self.rows)

    def changed(self, key: str, value: str | None, scope: str | None, scope_id: int | None) -> StoredOptions:
        """Return the options with another value of one option in one scope; None removes it."""
        others = tuple(row for row in self.rows if (row[0], *row[2:]) != (key, scope, scope_id))
        return StoredOptions(others if value is None else (*others, (key, value, scope, scope_id)))

    def effective(self, schema_id: int | None = None, table_id: int | None = None) -> dict[str, str]:
        """Return the effective options of the lake, a schema or a table. The table overrides the schema, which overrides the lake.

        >>> stored = StoredOptions((("a", "1", None, None), ("a", "2", "table", 7), ("b", "3", "schema", 0)))
        >>> stored.effective(0, 7), stored.effective()
        ({'a': '2', 'b': '3'}, {'a': '1'})
        """
        found = {key: value for key, value, scope, _ in self.rows if scope is None}
        for wanted in (("schema", schema_id), ("table", table_id)):
            found |= {key: value for key, value, scope, scope_id in self.rows if scope_id is not None and (scope, scope_id) == wanted}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedOption:
    """One stored option.

    Attributes:
        name: Name in lower case.
        value: Value as stored; sizes in bytes.
        scope: ``global`` for the lake, else ``schema`` or ``table``.
        entry: Name of the schema, or ``schema.table``; None for the lake and for deleted objects.
    """

    name: str
    value: str
    scope: Literal["global", "schema", "table"]
    entry: str | None = None


def scoped_options(reader: CatalogReader, snapshot_id: int, options: StoredOptions | None = None) -> list[ScopedOption]:
    """Return every option with the name of its schema or table at a snapshot, by option name.

    Args:
        reader: The catalog.
        snapshot_id: The snapshot.
        options: The options. Default: those that are stored.
    """
    schemas = {schema.id: schema.name for schema in reader.schemas(snapshot_id)}
    tables = {table_id: join_name(*name) for table_id, name in reader.table_names(snapshot_id).items()}
    found: list[ScopedOption] = []
    options = options or stored_options(reader.connection, reader.catalog)
    for name, value, scope, scope_id in options.rows:
        match scope:
            case None:
                found.append(ScopedOption(name=name, value=value, scope="global"))
            case "schema":
                found.append(ScopedOption(name=name, value=value, scope="schema", entry=schemas.get(scope_id or 0)))
            case "table":
                found.append(ScopedOption(name=name, value=value, scope="table", entry=tables.get(scope_id or 0)))
            case _:
                continue
    return sorted(found, key=lambda option: (option.name, option.scope, option.entry or ""))


def stored_options(connection: Connection, tables: CatalogTables) -> StoredOptions:
    """Return all options of the lake, including its settings, which are in the same table, in one statement."""
    return options_of(connection.execute(tables.statement("stored options", lambda: stored_options_query(tables))))


def check_same_lake(info: LakeInfo, options: StoredOptions) -> None:
    """Reject a catalog that was re-created with other settings: new files would be in a wrong place or wrongly encrypted.

    Args:
        info: Settings of the lake when it was opened.
        options: Options that are stored now.

    Raises:
        CatalogError: The data path or the encryption changed since the lake was opened.
    """
    stored = options.effective()
    path, encrypted = stored.get("data_path"), stored.get("encrypted") == "true"
    if info.stored_data_path not in (None, path) or info.encrypted != encrypted:
        raise CatalogError(
            f"The catalog was replaced by another lake: its data path is {path!r}, and it is "
            f"{'' if encrypted else 'not '}encrypted. Open it again (DuckLake.connect(...))",
            stored=path,
            opened=info.stored_data_path,
        )


def stored_options_query(tables: CatalogTables) -> Select[Any]:
    """Return the query for :func:`options_of`."""
    metadata = tables["metadata"]
    return select(metadata.c.key, metadata.c.value, metadata.c.scope, metadata.c.scope_id).where(is_option(metadata))


def options_of(rows: Iterable[Any]) -> StoredOptions:
    """Return the options from the rows of :func:`stored_options_query`."""
    return StoredOptions(tuple((row.key.lower(), row.value, row.scope, row.scope_id) for row in rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A name on a snapshot that keeps it from expiring.

    Attributes:
        name: Name as it was given; compared without regard to case.
        snapshot_id: The snapshot.
        until: Time at which it ends, in UTC; None for a hold that stays until it is removed.
        has_ended: Whether it had ended when it was listed.
    """

    name: str
    snapshot_id: int
    until: datetime | None = None
    has_ended: bool = field(default=False, compare=False)

    def is_over(self, now: datetime) -> bool:
        """Return whether the hold has ended at a time."""
        return self.until is not None and self.until <= now

    @property
    def key(self) -> str:
        """Return the key of its row in ``ducklake_metadata``."""
        return HOLD_PREFIX + folded(self.name)

    @property
    def text(self) -> str:
        """Return the value of its row.

        >>> Hold(name="Q1", snapshot_id=7).text
        '{"name": "Q1", "snapshot": 7}'
        """
        until = {} if self.until is None else {"until": self.until.astimezone(UTC).isoformat()}
        return json.dumps({"name": self.name, "snapshot": self.snapshot_id, **until}, ensure_ascii=False)


def read_holds(connection: Connection, tables: CatalogTables) -> list[Hold]:
    """Return all holds, including ended ones, by name.

    Raises:
        CatalogCorruptError: A row cannot be read, so the snapshot that it keeps is unknown.
    """
    metadata = tables["metadata"]
    query = select(metadata.c.key, metadata.c.value).where(has_prefix(metadata, HOLD_PREFIX))
    rows = complete_rows(connection, query, "holds")
    return sorted((parse_hold(row.key, row.value) for row in rows), key=lambda hold: folded(hold.name))


def find_hold(connection: Connection, tables: CatalogTables, name: str) -> Hold | None:
    """Return the hold with a name, without regard to case; None if there is none."""
    return next((hold for hold in read_holds(connection, tables) if folded(hold.name) == folded(name)), None)


def resolve_bound(reader: CatalogReader, parameter: str, given: object) -> int | datetime:
    """Return an argument that names a snapshot: its id, a time in UTC, or for the name of a hold the id of its snapshot.

    Args:
        reader: The catalog.
        parameter: Name of the argument, for the error.
        given: Its value.

    Raises:
        UsageError: It is neither an id, a time nor the name of a hold.
    """
    try:
        return arguments.snapshot(parameter, given)
    except UsageError:
        if not isinstance(given, str):
            raise
    held = find_hold(reader.connection, reader.catalog, given)
    if held is None:
        raise UsageError(
            f"{parameter} is {shown(given)}, which is neither the name of a hold nor a time such as '2026-01-31 12:00:00'. List the holds "
            "with lake.holds.list(), or pass the id of a snapshot",
            parameter=parameter,
        )
    return held.snapshot_id


def store_hold(connection: Connection, tables: CatalogTables, hold: Hold) -> None:
    """Store a hold, replacing one with the same name."""
    metadata = tables["metadata"]
    connection.execute(delete(metadata).where(metadata.c.key == hold.key))
    connection.execute(insert(metadata), {"key": hold.key, "value": hold.text, "scope": None, "scope_id": None})


def delete_hold(connection: Connection, tables: CatalogTables, hold: Hold) -> None:
    """Delete a hold."""
    metadata = tables["metadata"]
    connection.execute(delete(metadata).where(metadata.c.key == hold.key))


def parse_hold(key: str, text: str) -> Hold:
    """Parse the row of a hold.

    Args:
        key: Key of the row.
        text: Value of the row.

    Raises:
        CatalogCorruptError: The value is not a hold.
    """
    try:
        value = json.loads(text)
        until = value.get("until")
        return Hold(name=str(value["name"]), snapshot_id=int(value["snapshot"]), until=None if until is None else parse_time(until))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise CatalogCorruptError(
            f"No snapshot was expired, because hold {key.removeprefix(HOLD_PREFIX)!r} cannot be read: its value in "
            f"ducklake_metadata is {text!r}. "
            "Delete that row, or write it again",
            hold=key.removeprefix(HOLD_PREFIX),
        ) from error
