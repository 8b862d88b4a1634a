"""Holds: names on snapshots that must not expire, as rows of ``ducklake_metadata`` that DuckDB lists among its options and leaves alone.

A hold is a row of global scope, because DuckDB cannot attach a lake that has a scope which it does not know. Its name stands in the value
as well: keys are compared without regard to case.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.complete import complete_rows
from ducklake_core.catalog.reading.own_rows import OWN_PREFIX, has_prefix, parse_time
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.types.names import folded

HOLD_PREFIX = f"{OWN_PREFIX}hold:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A name on a snapshot that keeps it from expiring.

    Attributes:
        name: The name as it was given; it is compared without regard to case.
        snapshot_id: The snapshot.
        until: When it ends, in UTC; None for a hold that stays until it is removed.
        has_ended: Whether it had ended when it was listed, so that it keeps nothing.
    """

    name: str
    snapshot_id: int
    until: datetime | None = None
    has_ended: bool = field(default=False, compare=False)

    def is_over(self, now: datetime) -> bool:
        """Whether it no longer holds anything at a time."""
        return self.until is not None and self.until <= now

    @property
    def key(self) -> str:
        """The row's key."""
        return HOLD_PREFIX + folded(self.name)

    @property
    def text(self) -> str:
        """The row's value.

        >>> Hold(name="Q1", snapshot_id=7).text
        '{"name": "Q1", "snapshot": 7}'
        """
        until = {} if self.until is None else {"until": self.until.astimezone(UTC).isoformat()}
        return json.dumps({"name": self.name, "snapshot": self.snapshot_id, **until}, ensure_ascii=False)


def read_holds(connection: Connection, tables: CatalogTables) -> list[Hold]:
    """All holds, those that are over included, by name.

    Raises:
        CatalogCorruptError: A row that is none, so that nobody can tell what it keeps.
    """
    metadata = tables["metadata"]
    query = select(metadata.c.key, metadata.c.value).where(has_prefix(metadata, HOLD_PREFIX))
    rows = complete_rows(connection, query, "holds")
    return sorted((parse_hold(row.key, row.value) for row in rows), key=lambda hold: folded(hold.name))


def store_hold(connection: Connection, tables: CatalogTables, hold: Hold) -> None:
    """Store a hold; one of its name is replaced."""
    metadata = tables["metadata"]
    connection.execute(delete(metadata).where(metadata.c.key == hold.key))
    connection.execute(insert(metadata), {"key": hold.key, "value": hold.text, "scope": None, "scope_id": None})


def delete_hold(connection: Connection, tables: CatalogTables, hold: Hold) -> None:
    """Forget a hold."""
    metadata = tables["metadata"]
    connection.execute(delete(metadata).where(metadata.c.key == hold.key))


def parse_hold(key: str, text: str) -> Hold:
    """The hold of a row.

    Raises:
        CatalogCorruptError: It is none.
    """
    try:
        value = json.loads(text)
        until = value.get("until")
        return Hold(name=str(value["name"]), snapshot_id=int(value["snapshot"]), until=None if until is None else parse_time(until))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise CatalogCorruptError(
            f"cannot read the hold {key.removeprefix(HOLD_PREFIX)!r}, so nothing is expired: its value in ducklake_metadata is {text!r}. "
            "Delete that row, or write it anew",
            hold=key.removeprefix(HOLD_PREFIX),
        ) from error
