"""What every verb about tables is told, whatever it does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ducklake_core.catalog.reading.many_tables import SharedReading
from ducklake_core.catalog.reading.reader import CatalogReader, similar_entries
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.commit.request import CommitMessage, new_commit_id, stored_extra_info
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.types.name_patterns import TablePattern
from ducklake_core.format.types.names import join_name, schema_path, schemas_meant, split_name
from ducklake_core.maintenance.budget import BudgetMeter
from ducklake_core.maintenance.progress import ProgressMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScope:
    """The tables that a verb is about: all, one, those of a schema, or those of names with wildcards.

    Attributes:
        table: ``table`` or ``schema.table``; with ``schema``, the name of a table in it.
        schema: Name of a schema.
        tables: Names and patterns (:class:`TablePattern`).
    """

    table: str | None = None
    schema: str | None = None
    tables: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.tables is None:
            return
        if self.table is not None or self.schema is not None:
            raise UsageError("give either tables, or table and schema; tables=['sales.*'] is all of a schema", parameter="tables")
        if not self.tables:
            raise UsageError("tables is empty: name a table, or leave it out for all tables", parameter="tables")

    def select(self, reader: CatalogReader, snapshot_id: int) -> SelectedTables:
        """The tables at a snapshot.

        Raises:
            NotFoundError: There is no schema or table of a name without wildcards.
        """
        names = reader.table_names(snapshot_id)
        if self.tables is not None:
            return _matching([TablePattern.parse(text) for text in self.tables], names, snapshot_id)
        if self.table is not None:
            schema, name = split_name(self.table)
            for owner in (schema,) if self.schema is None else schemas_meant(self.schema):
                found = {number: one for number, one in names.items() if same_name(one[0], owner) and same_name(one[1], name)}
                if found:
                    return SelectedTables(_joined(found))
            _missing((schema if self.schema is None else schema_path(self.schema), name), names, snapshot_id)
        if self.schema is not None:
            schema = reader.schema(*schemas_meant(self.schema), snapshot_id=snapshot_id).name
            names = {number: one for number, one in names.items() if same_name(one[0], schema)}
        return SelectedTables(_joined(names))


@dataclass(frozen=True, slots=True)
class SelectedTables:
    """Tables by their ids, each with its name, and the patterns that no table matches."""

    names: dict[int, str]
    unmatched: tuple[str, ...] = ()


def _matching(patterns: Sequence[TablePattern], names: dict[int, tuple[str, str]], snapshot_id: int) -> SelectedTables:
    chosen: set[int] = set()
    unmatched: list[str] = []
    for pattern in patterns:
        found = {number for number, (schema, table) in names.items() if pattern.matches(schema, table)}
        if not found and not pattern.has_wildcards:
            _missing(pattern.name, names, snapshot_id)
        if not found:
            unmatched.append(pattern.text)
        chosen |= found
    return SelectedTables(_joined({number: name for number, name in names.items() if number in chosen}), tuple(dict.fromkeys(unmatched)))


def _missing(name: tuple[str, str], names: dict[int, tuple[str, str]], snapshot_id: int) -> NoReturn:
    near = similar_entries(*name, names.values())
    text = ".".join(name)
    raise NotFoundError(f"there is no table {text} at snapshot {snapshot_id}{near}", table=text, snapshot_id=snapshot_id)


def _joined(names: dict[int, tuple[str, str]]) -> dict[int, str]:
    return {number: join_name(*name) for number, name in names.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """A call of a verb about tables.

    Attributes:
        scope: Which tables.
        meter: How much may be done.
        commit: What is said about the snapshots that it makes.
        progress: Who is told how far it is.
        dry_run: Whether to plan alone.
        reading: What is read of the tables, for several verbs that plan one after the other; each reads by itself when None.
    """

    scope: TableScope = field(default_factory=TableScope)
    meter: BudgetMeter = field(default_factory=BudgetMeter)
    commit: CommitMessage = field(default_factory=CommitMessage)
    progress: ProgressMeter = field(default_factory=ProgressMeter)
    dry_run: bool = False
    reading: SharedReading | None = None

    def __post_init__(self) -> None:
        # Before anything is done: every snapshot would be refused for it.
        stored_extra_info(new_commit_id(), self.commit.get("extra_info"))
