"""Check snapshots, options, schemas, tables, views and macros against each other."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa
import sqlglot
from sqlglot.errors import SqlglotError

from ducklake_core.catalog.reading.definitions import COLUMN_ALIASES
from ducklake_core.catalog.reading.integrity_scan import BadCell
from ducklake_core.catalog.reading.options import HOLD_PREFIX, Hold, parse_hold
from ducklake_core.catalog.reading.running_writes import OWN_PREFIX, WRITE_PREFIX, parse_running_write
from ducklake_core.engines.duckdb.syntax import syntax_errors
from ducklake_core.errors import CatalogCorruptError, DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.changes import parse_changes
from ducklake_core.format.evolution.defaults import with_default
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec, parse_transform
from ducklake_core.format.layout.sorting import SortKey, sort_orders
from ducklake_core.format.layout.transforms import check_spec
from ducklake_core.format.options import check_option
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import dotted, folded, join_name
from ducklake_core.format.types.schema import NO_DEFAULT, ColumnRow, Schema, parse_leaf_type
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts, is_live
from ducklake_core.maintenance.check.repair import EndWithTable

_LIVES = (
    *("schema", "table", "view", "column", "data_file", "delete_file", "partition_info", "sort_info", "macro"),
    *("tag", "column_tag"),
)
_SETTINGS = ("version", "created_by", "data_path", "encrypted")

_DEFAULT_TYPES = (None, "", "literal", "expression")

_COMMENTS = {"tag": ("object_id", "key"), "column_tag": ("table_id", "column_id", "key")}
_OWN_ROWS: tuple[tuple[str, Callable[[str, str], object], str], ...] = (
    (HOLD_PREFIX, parse_hold, "hold-invalid"),
    (WRITE_PREFIX, parse_running_write, "running-write-invalid"),
)


def check_definitions(facts: Facts) -> None:
    """Check everything except files and statistics."""
    _snapshots(facts)
    _lifetimes(facts)
    _options(facts)
    _names(facts)
    _schemas_of_tables(facts)
    _tables(facts)
    _columns(facts)
    _partition_keys(facts)


def check_cells(facts: Facts, bad: Iterable[BadCell]) -> None:
    """Report cells that made a row unusable for all other checks."""
    for cell in bad:
        table = facts.tables.get(cell.table_id) if cell.table_id is not None else None
        place = cell.table if cell.table.startswith("ducklake_") else f"ducklake_{cell.table}"
        where = f"{place} ({cell.row}): {cell.problem}" if cell.row else f"{place}: {cell.problem}"
        facts.report("cell-missing" if cell.is_missing else "cell-invalid", where, table=table)


def _snapshots(facts: Facts) -> None:
    rows = facts.every.rows("snapshot")
    if not rows:
        facts.report("cell-missing", "ducklake_snapshot has no usable row: the lake has no snapshot")
        return
    newest = max(rows, key=lambda row: row.snapshot_id)
    catalog_ids = {
        name: max((getattr(row, key) for row in facts.every.rows(name) if getattr(row, key) is not None), default=-1)
        for name, key in (
            ("schema", "schema_id"), ("table", "table_id"), ("view", "view_id"), ("macro", "macro_id"),
            ("partition_info", "partition_id"), ("sort_info", "sort_id"),
        )
    }  # fmt: skip
    file_ids = {
        name: max((getattr(row, key) for row in facts.every.rows(name) if getattr(row, key) is not None), default=-1)
        for name, key in (("data_file", "data_file_id"), ("delete_file", "delete_file_id"), ("column_mapping", "mapping_id"))
    }
    for counter, ids in (("next_catalog_id", catalog_ids), ("next_file_id", file_ids)):
        number = getattr(newest, counter)
        for name, highest in ids.items():
            if highest >= number:
                facts.report(
                    "snapshot-counters", f"snapshot {newest.snapshot_id} has {counter} {number}, but ducklake_{name} contains {highest}"
                )
    versions = facts.every.rows("schema_versions")
    highest = max((row.schema_version for row in versions if row.schema_version is not None), default=-1)
    if highest > newest.schema_version:
        message = (
            f"snapshot {newest.snapshot_id} has schema_version {newest.schema_version}, but ducklake_schema_versions contains {highest}"
        )
        facts.report("snapshot-counters", message)
    late = [row.begin_snapshot for row in versions if row.begin_snapshot is not None and row.begin_snapshot > facts.newest]
    if late:
        message = f"ducklake_schema_versions contains versions of snapshot {max(late)}, but the newest snapshot is {facts.newest}"
        facts.report("snapshot-unknown", message)
    logged = {row.snapshot_id for row in facts.every.rows("snapshot_changes")}
    if logged and max(logged) > facts.newest:
        message = (
            f"ducklake_snapshot_changes contains snapshot {max(logged)}, but the newest is {facts.newest}: the commit of that "
            "snapshot will fail"
        )
        facts.report("snapshot-unknown", message)
    for number in facts.snapshot_ids:
        if number not in logged:
            facts.report("snapshot-changes", f"snapshot {number} has no row in ducklake_snapshot_changes")
    for row in facts.every.rows("snapshot_changes"):
        try:
            parse_changes(row.changes_made or "")
        except CatalogCorruptError as error:
            facts.report("snapshot-changes", f"snapshot {row.snapshot_id}: {error.message}")


def _lifetimes(facts: Facts) -> None:
    for name in _LIVES:
        for row in facts.every.rows(name):
            begin, end = row.begin_snapshot, row.end_snapshot
            table = facts.tables.get(row.table_id) if "table_id" in row._fields else None
            where = f"ducklake_{name} ({row._fields[0]} {row[0]})"
            if any(number is not None and number > facts.newest for number in (begin, end)):
                facts.report(
                    "snapshot-unknown",
                    f"{where} belongs to snapshots {begin} to {end}, but the newest snapshot is {facts.newest}",
                    table=table,
                )
            elif begin is not None and end is not None and end < begin:
                facts.report("lifetime-backwards", f"{where} begins at snapshot {begin} and ends at {end}", table=table)


def _options(facts: Facts) -> None:
    rows = facts.every.rows("metadata")
    for (key, scope, scope_id), number in Counter((row.key.lower(), row.scope, row.scope_id) for row in rows).items():
        if number > 1:
            facts.report(
                "setting-twice", f"{key!r} is set {number} times for {scope or 'the lake'} {'' if scope_id is None else scope_id}".rstrip()
            )
    for row in rows:
        if row.scope not in (None, "schema", "table") or (row.scope is not None and row.scope_id is None):
            facts.report("option-scope", f"{row.key!r} has the scope {row.scope!r}{'' if row.scope_id is not None else ' of nothing'}")
        elif row.key == "encrypted" and row.value not in ("true", "false"):
            facts.report("cell-invalid", f"ducklake_metadata: encrypted is {row.value!r}, where true or false is expected")
        elif row.key not in _SETTINGS and not row.key.startswith(OWN_PREFIX):
            try:
                check_option(row.key.lower(), row.value)
            except DuckLakeError as error:
                facts.report("option-invalid", error.message)


def _names(facts: Facts) -> None:
    def twice(kind: str, rows: Iterable[tuple[tuple[int, str], int, str]]) -> None:
        groups: dict[tuple[int, str], dict[int, str]] = {}
        for key, number, name in rows:
            groups.setdefault(key, {})[number] = name
        for group in groups.values():
            if len(group) > 1:
                facts.report(
                    "name-twice", f"{kind} {', '.join(f'{name} (id {number})' for number, name in sorted(group.items()))} have one name"
                )

    live = {name: [row for row in facts.every.rows(name) if is_live(row, facts.newest)] for name in ("schema", "table", "view")}
    paths = facts.schema_paths
    names = {row.schema_id: paths[row.schema_id] for row in live["schema"] if row.schema_id in paths}
    twice("schemas", (((0, folded(name)), number, name) for number, name in names.items()))
    for row in live["schema"]:
        around = getattr(row, "parent_schema_id", None)
        if around is not None and around not in names:
            facts.report_schema_missing(f"schema {row.schema_name} is in schema {around}, which does not exist", around)
    relations = [(row.schema_id, row.table_name, row.table_id) for row in live["table"]]
    relations += [(row.schema_id, row.view_name, row.view_id) for row in live["view"]]
    twice("tables or views", (((schema, folded(name)), number, name) for schema, name, number in relations))
    _names_of_macros(facts, twice)
    for schema, name, _ in relations:
        if schema not in names:
            facts.report_schema_missing(
                f"{join_name(paths.get(schema, dotted((str(schema),))), name)} is in schema {schema}, which does not exist", schema
            )


def _names_of_macros(facts: Facts, twice: Callable[[str, Iterable[tuple[tuple[int, str], int, str]]], None]) -> None:
    """Check names of macros: each kind (scalar, table) has a namespace of its own, apart from that of tables and views."""
    kinds = {row.macro_id: row.type for row in facts.every.rows("macro_impl")}
    live = [row for row in facts.every.rows("macro") if row.begin_snapshot is not None and is_live(row, facts.newest)]
    for kind in ("scalar", "table"):
        of_kind = [row for row in live if kinds.get(row.macro_id) == kind and row.macro_name is not None]
        twice(f"{kind} macros", (((row.schema_id, folded(row.macro_name)), row.macro_id, row.macro_name) for row in of_kind))


def _schemas_of_tables(facts: Facts) -> None:
    """Report tables that exist before their schema, at snapshots that have not expired."""
    first: dict[int, int] = {}
    for row in facts.every.rows("schema"):
        first[row.schema_id] = min(first.get(row.schema_id, row.begin_snapshot), row.begin_snapshot)
    for row in facts.every.rows("table"):
        seen = facts.first_between(row.begin_snapshot, first.get(row.schema_id, row.begin_snapshot))
        if seen is not None and (row.end_snapshot is None or row.end_snapshot > seen):
            message = f"at snapshot {seen} it is in schema {row.schema_id}, which begins at snapshot {first[row.schema_id]}"
            facts.report("schema-missing", message, table=facts.tables[row.table_id])


def _tables(facts: Facts) -> None:
    versions: dict[int, list[CatalogRow]] = {}
    for row in facts.every.rows("table"):
        versions.setdefault(row.table_id, []).append(row)
    for table_id, rows in versions.items():
        rows.sort(key=lambda row: (row.begin_snapshot, row.end_snapshot is None, row.end_snapshot or 0))
        if any(one.end_snapshot is None or other.begin_snapshot < one.end_snapshot for one, other in pairwise(rows)):
            facts.report("table-twice", f"{len(rows)} rows of ducklake_table (table_id {table_id}) overlap", table=facts.tables[table_id])
    unusable = {cell.key for cell in facts.every.bad if cell.table == "table"}
    for table_id in sorted(facts.lost_tables - unusable):
        facts.report("table-unknown", f"columns belong to table {table_id}, whose row is missing")
    dropped = {number: table for number, table in facts.tables.items() if not table.is_live}
    for name in ("data_file", "column"):
        alive = Counter(row.table_id for row in facts.every.rows(name) if row.table_id in dropped and row.end_snapshot is None)
        for table_id, number in alive.items():
            (_, ended) = dropped[table_id].lives[-1]
            repair = EndWithTable(name, table_id, ended) if ended is not None else None
            facts.report("dropped-table-alive", f"{number} rows of ducklake_{name} have no end", table=dropped[table_id], repair=repair)


def _columns(facts: Facts) -> None:
    for table in facts.tables.values():
        for snapshot_id in _column_eras(facts, table):
            found = _wrong_columns(table, snapshot_id)
            if found is not None:
                code, message = found
                if snapshot_id != facts.newest:
                    code, message = "columns-of-the-past", f"at snapshot {snapshot_id}: {message}"
                facts.report(code, message, table=table)
                break


def _column_eras(facts: Facts, table: TableFacts) -> Iterator[int]:
    """Yield one snapshot, if any has not expired, of each period without changes of a table's columns, the newest first."""
    # A period in which all snapshots have expired cannot be read, so its faults affect no reader.
    following = facts.newest + 1
    for change in reversed(table.changes):
        for begin, end in table.lives:
            last = following if end is None else min(following, end)
            place = bisect_left(facts.snapshot_ids, last) - 1
            if place >= 0 and facts.snapshot_ids[place] >= max(change, begin):
                yield facts.snapshot_ids[place]
                break
        following = min(following, change)


def _wrong_columns(table: TableFacts, snapshot_id: int) -> tuple[str, str] | None:
    """Return the code of a fault in the columns of a table at a snapshot, and its description."""
    live = table.columns_at(snapshot_id)
    if not live:
        return "columns-missing", "no column is live"
    ids = Counter(row.column_id for row in live)
    names = Counter((row.parent_column, folded(row.column_name)) for row in {row.column_id: row for row in live}.values())
    twice = [f"id {number}" for number, count in ids.items() if count > 1] + [repr(name) for (_, name), count in names.items() if count > 1]
    if twice:
        return "column-twice", f"two columns have the same {', '.join(twice)}"
    try:
        table.schema_at(snapshot_id)
    except UnsupportedFeatureError as error:
        return "type-unknown", error.message
    except CatalogCorruptError as error:
        return "columns-invalid", error.message
    return None


def _partition_keys(facts: Facts) -> None:
    for row in facts.every.rows("partition_column"):
        table = facts.table_of(row)
        if table is None:
            continue
        if row.column_id not in table.column_ids:
            facts.report("partition-key-invalid", f"partition keys {row.partition_id} name column {row.column_id}", table=table)
        try:
            parse_transform(row.transform)
        except DuckLakeError as error:
            facts.report("partition-key-invalid", f"partition keys {row.partition_id}: {error.message}", table=table)


def check_keys(facts: Facts) -> None:
    """Check partition keys and sort keys of all tables of the newest snapshot."""
    _partition_key_order(facts)
    _sort_orders(facts)
    _defaults(facts)


def _schema(facts: Facts, table: TableFacts) -> Schema | None:
    try:
        return table.schema_at(facts.newest)
    except (CatalogCorruptError, UnsupportedFeatureError):
        return None


def _partition_key_order(facts: Facts) -> None:
    keys: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("partition_column"):
        keys[row.partition_id].append(row)
    live: dict[int, list[int]] = defaultdict(list)
    for row in facts.every.rows("partition_info"):
        table = facts.table_of(row)
        if table is None:
            continue
        own = sorted(keys[row.partition_id], key=lambda key: key.partition_key_index)
        if [key.partition_key_index for key in own] != list(range(len(own))):
            places = ", ".join(str(key.partition_key_index) for key in own)
            facts.report("partition-key-invalid", f"partition keys {row.partition_id} have the indexes {places}", table=table)
        elif is_live(row, facts.newest) and table.is_live:
            live[table.id].append(row.partition_id)
            _keys_of(facts, table, row.partition_id, own)
    for table_id, ids in live.items():
        if len(ids) > 1:
            what = f"partition keys {', '.join(map(str, ids))} are live at once"
            facts.report("partition-key-invalid", what, table=facts.tables[table_id])


def _keys_of(facts: Facts, table: TableFacts, number: int, own: list[CatalogRow]) -> None:
    """Check that rows can be written by the effective keys; keys of no column and no transform are found elsewhere."""
    schema = _schema(facts, table)
    if schema is None or not own or any(key.column_id not in table.column_ids for key in own):
        return
    names = {column.id: column.name for column in schema}
    missing = [key.column_id for key in own if key.column_id not in names]
    try:
        if missing:
            facts.report("partition-key-invalid", f"partition keys {number} name column {missing[0]}, which was dropped", table=table)
            return
        parsed = [(key, *parse_transform(key.transform)) for key in own]
    except DuckLakeError:
        return
    fields = tuple(
        PartitionField(column_id=key.column_id, column=names[key.column_id], transform=name, buckets=count) for key, name, count in parsed
    )
    try:
        check_spec(PartitionSpec(id=number, fields=fields), schema)
    except DuckLakeError as error:
        facts.report("partition-key-invalid", f"partition keys {number}: {error.message}", table=table)


def _sort_orders(facts: Facts) -> None:
    keys: dict[tuple[int, int], list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("sort_expression"):
        keys[row.table_id, row.sort_id].append(row)
    live: dict[int, list[int]] = defaultdict(list)
    for row in facts.every.rows("sort_info"):
        table = facts.table_of(row)
        if row.begin_snapshot is None or not is_live(row, facts.newest):
            continue
        if table is None or not table.is_live:
            facts.report(
                "sort-order-invalid", f"sort order {row.sort_id} belongs to table {row.table_id}, which does not exist", table=table
            )
            continue
        live[table.id].append(row.sort_id)
        schema = _schema(facts, table)
        own = sorted(keys[table.id, row.sort_id], key=lambda key: key.sort_key_index or 0)
        if schema is not None:
            try:
                sort_orders([_sort_key(key) for key in own], schema, table.name)
            except UnsupportedFeatureError as error:
                facts.report("sort-order-invalid", error.message, table=table)
    for table_id, ids in live.items():
        if len(ids) > 1:
            what = f"sort orders {', '.join(map(str, ids))} are live at once"
            facts.report("sort-order-invalid", what, table=facts.tables[table_id])


def _sort_key(row: CatalogRow) -> SortKey:
    return SortKey(
        expression=row.expression or "", direction=row.sort_direction or "", null_order=row.null_order or "", dialect=row.dialect or ""
    )


def _defaults(facts: Facts) -> None:
    for table in facts.tables.values():
        schema = _schema(facts, table) if table.is_live else None
        fields = {} if schema is None else {leaf.id: leaf for leaf in schema.leaves()}
        for row in table.columns_at(facts.newest) if fields else ():
            message = _wrong_default(row, fields.get(row.column_id))
            if message is not None:
                facts.report("default-invalid", f"column {row.column_name!r} has {message}", table=table, column_id=row.column_id)


def _wrong_default(row: ColumnRow, leaf: Field | None) -> str | None:
    if row.default_value_type not in _DEFAULT_TYPES:
        return f"a default of the type {row.default_value_type!r}"
    if leaf is None:
        return None
    if row.initial_default is not None and not _is_value(row.initial_default, leaf):
        return f"the value {row.initial_default!r} in rows of files that lack it, which is not a value of type {leaf.type}"
    if row.default_value in (None, NO_DEFAULT):
        return None
    if row.default_value_type == "expression":
        return None if _is_expression(row.default_value or "") else f"the default {row.default_value!r}, which is not a valid expression"
    return (
        None
        if _is_default(row.default_value or "", leaf)
        else f"the default {row.default_value!r}, which is not a value of type {leaf.type}"
    )


def _is_value(text: str, leaf: Field) -> bool:
    try:
        constant_array(text, leaf, 1)
    except UnsupportedFeatureError:
        # Not known.
        return True
    except (DuckLakeError, ValueError, ArithmeticError, pa.ArrowException):
        return False
    return True


def _is_default(text: str, leaf: Field) -> bool:
    """Return whether values of the type can be read from a string, which is stored as it was written."""
    try:
        with_default(leaf, text)
    except UnsupportedFeatureError:
        return True
    except UsageError:
        return False
    return True


def _is_expression(text: str) -> bool:
    try:
        return len(sqlglot.parse(text, read="duckdb")) == 1
    except (SqlglotError, RecursionError):
        return False


def check_objects(facts: Facts) -> None:
    """Check views and macros, apart from names and lifetimes."""
    _own_rows(facts)
    _paths(facts)
    _comments(facts)
    _views(facts)
    check_macros(facts)


def _own_rows(facts: Facts) -> None:
    for row in facts.every.rows("metadata"):
        for prefix, parse, code in _OWN_ROWS:
            if row.key.startswith(prefix):
                try:
                    parse(row.key, row.value)
                except CatalogCorruptError as error:
                    facts.report(code, error.message)
    _holds_of_nothing(facts)


def _holds_of_nothing(facts: Facts) -> None:
    """Report holds that have not ended and whose snapshot is missing. Once a hold has ended, this library's expiry takes its snapshot."""
    held: list[Hold] = []
    for row in facts.every.rows("metadata"):
        if row.key.startswith(HOLD_PREFIX):
            with suppress(CatalogCorruptError):
                held.append(parse_hold(row.key, row.value))
    there = set(facts.snapshot_ids)
    missing = [hold for hold in held if hold.snapshot_id not in there]
    now = facts.now() if missing else None
    for hold in missing:
        if now is not None and not hold.is_over(now):
            why = "was never committed" if hold.snapshot_id > facts.newest else "no longer exists"
            facts.report("hold-of-no-snapshot", f"hold {hold.name!r} has no effect: snapshot {hold.snapshot_id} {why}")


def _paths(facts: Facts) -> None:
    for name in ("schema", "table"):
        for row in facts.every.rows(name):
            missing = [cell for cell in ("path", "path_is_relative") if getattr(row, cell) is None]
            if missing and is_live(row, facts.newest):
                table = facts.tables.get(row.table_id) if name == "table" else None
                facts.report("cell-missing", f"ducklake_{name} ({row._fields[0]} {row[0]}): no {' and no '.join(missing)}", table=table)


def _comments(facts: Facts) -> None:
    for name, key in _COMMENTS.items():
        live = (row for row in facts.every.rows(name) if row.begin_snapshot is not None and is_live(row, facts.newest))
        for one, number in Counter(tuple(getattr(row, cell) for cell in key) for row in live).items():
            if number > 1:
                what = ", ".join(f"{cell} {value!r}" for cell, value in zip(key, one, strict=True))
                facts.report("comment-twice", f"ducklake_{name} has {number} live rows of {what}")


def _views(facts: Facts) -> None:
    for row in _live(facts, "view"):
        if row.column_aliases and not COLUMN_ALIASES.fullmatch(row.column_aliases):
            facts.report("view-invalid", f"view {row.view_name!r} has the column names {row.column_aliases!r}")


def _live(facts: Facts, name: str) -> Iterable[CatalogRow]:
    return [row for row in facts.every.rows(name) if row.begin_snapshot is not None and is_live(row, facts.newest)]


def check_macros(facts: Facts) -> None:
    """Check schemas, definitions and parameters of macros; their names are checked with those of tables."""
    bodies, parameters = _by_macro(facts, "macro_impl"), _by_macro(facts, "macro_parameters")
    schemas = {row.schema_id for row in _live_rows(facts, "schema")}
    live = _live_rows(facts, "macro")
    unparsed = _unparsed([one for row in live for one in bodies[row.macro_id]])
    for row in live:
        own = bodies[row.macro_id]
        if row.schema_id not in schemas:
            facts.report_schema_missing(f"macro {row.macro_name!r} is in schema {row.schema_id}, which does not exist", row.schema_id)
        wrong = (
            ["no definition"] if not own else [f"a definition of type {one.type!r}" for one in own if one.type not in ("scalar", "table")]
        )
        wrong += ["a definition without SQL" for one in own if not one.sql]
        wrong += ["a definition without a dialect" for one in own if one.dialect is None]
        if {one.impl_id for one in parameters[row.macro_id]} - {one.impl_id for one in own} and own:
            wrong.append("parameters without a definition")
        wrong += ["a parameter without a name" for one in parameters[row.macro_id] if not one.parameter_name]
        wrong += [f"a parameter of type {one.parameter_type!r}" for one in parameters[row.macro_id] if not _is_type(one.parameter_type)]
        wrong += [
            f"a definition {one.sql!r}, which DuckDB cannot parse: {message}" for one, message in unparsed if one.macro_id == row.macro_id
        ]
        if wrong:
            facts.report("macro-invalid", f"macro {row.macro_name!r} has {', '.join(wrong)}")


def _unparsed(bodies: list[CatalogRow]) -> list[tuple[CatalogRow, str]]:
    """Return definitions that the installed DuckDB cannot parse, with its errors. It parses them whatever their dialect."""
    known = [one for one in bodies if one.sql and one.type in ("scalar", "table")]
    problems = syntax_errors([one.sql if one.type == "table" else f"SELECT {one.sql}" for one in known])
    return [(one, message) for one, message in zip(known, problems, strict=True) if message is not None]


def _by_macro(facts: Facts, name: str) -> dict[int, list[CatalogRow]]:
    found: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows(name):
        found[row.macro_id].append(row)
    return found


def _is_type(text: str | None) -> bool:
    """Return whether DuckDB accepts a string as the type of a parameter. Of nested types it stores only the outermost word."""
    if text in (None, "", "unknown", "list", "struct", "map"):
        return True
    try:
        parse_leaf_type(str(text))
    except UnsupportedFeatureError:
        return False
    return True


def _live_rows(facts: Facts, name: str) -> list[CatalogRow]:
    return [row for row in facts.every.rows(name) if row.begin_snapshot is not None and is_live(row, facts.newest)]
