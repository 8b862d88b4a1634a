"""Check data files, delete files, row ids, column mappings, inlined rows and the deletion schedule."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf

from ducklake_core.catalog.database.tables import inlined_data_name, inlined_owner, inlined_version
from ducklake_core.catalog.reading.file_rows import BY_NAME
from ducklake_core.errors import CorruptFileError, DuckLakeError
from ducklake_core.format.files.data_files import EncryptionKey
from ducklake_core.format.files.name_mapping import path_value
from ducklake_core.format.files.paths import file_key, has_writers_name, join, printable
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts, is_live
from ducklake_core.maintenance.check.repair import DropInlinedTable, ForgetInlinedDeletes, ForgetOrphans, Unschedule

_COLUMNS_CHANGE_UNKNOWN = {
    *("columns-missing", "column-twice", "columns-invalid", "columns-of-the-past"),
    *("lifetime-backwards", "snapshot-unknown", "table-twice"),
}
"""Faults of a table that make the times of its column changes unknown."""
TRANSIENT_ROW_IDS = 10**18
"""DuckDB assigns such ids to rows that one transaction inserts and updates; its next_row_id does not count them."""


def check_files(facts: Facts) -> None:
    """Check rows of ``ducklake_data_file`` and ``ducklake_delete_file``, partition values and row ids."""
    for row in facts.files.values():
        _one_file(facts, row, "data")
    for row in facts.every.rows("delete_file"):
        _one_file(facts, row, "delete")
        _delete_file(facts, row)
    _named_twice(facts)
    _two_delete_files(facts)
    _partitions(facts)
    check_mappings(facts)
    _schema_versions(facts)
    for table in facts.tables.values():
        known = [row for row in table.files.values() if row.partial_max is None]
        check_row_ids(facts, table, known)


def _one_file(facts: Facts, row: CatalogRow, kind: str) -> None:
    table, path = facts.table_of(row), facts.path_of(row)
    where = {"path": printable(path), "data_file_id": row.data_file_id}
    what = f"{kind} file {row[0]}"
    if table is None:
        facts.report("table-unknown", f"{what} belongs to table {row.table_id}", **where)
        return
    try:
        facts.info.checked_location(path, what)
    except DuckLakeError as error:
        facts.report("path-forbidden", error.message, table=table, **where)
    if kind == "data" and _is_before(facts, table, row.begin_snapshot):
        message = f"{what} begins at snapshot {row.begin_snapshot}, but its table at {table.lives[0][0]}"
        facts.report("lifetime-backwards", message, table=table, **where)
    numbers = {
        name: getattr(row, name) for name in ("record_count", "delete_count", "file_size_bytes", "row_id_start") if hasattr(row, name)
    }
    odd = [f"{name} {number}" for name, number in numbers.items() if number is not None and number < 0]
    if row.partial_max is not None and row.partial_max < row.begin_snapshot:
        odd.append(f"partial_max {row.partial_max} before begin_snapshot {row.begin_snapshot}")
    if row.partial_max is not None and row.partial_max > facts.newest:
        odd.append(f"partial_max {row.partial_max} after the newest snapshot {facts.newest}")
    if getattr(row, "file_format", None) is not None and row.file_format.lower() != "parquet":
        facts.report("file-format-unknown", f"{what} has the format {row.file_format!r}", table=table, **where)
    if odd:
        facts.report("file-numbers", f"{what} has {', '.join(odd)}", table=table, **where)
    if facts.info.encrypted:
        try:
            key = EncryptionKey(row.encryption_key).raw(what) if row.encryption_key else None
        except DuckLakeError:
            key = None
        if key is None:
            facts.report("encryption-key-missing", f"{what} has {'an invalid' if row.encryption_key else 'no'} key", table=table, **where)


def _is_before(facts: Facts, table: TableFacts, begin: int) -> bool:
    """Return whether a row exists at a snapshot before its table, and that snapshot has not expired."""
    return facts.first_between(begin, table.lives[0][0]) is not None


def _delete_file(facts: Facts, row: CatalogRow) -> None:
    table, data = facts.table_of(row), facts.files.get(row.data_file_id)
    if table is None:
        return
    where = {"path": printable(facts.path_of(row)), "data_file_id": row.data_file_id}
    what = f"delete file {row.delete_file_id} of data file {row.data_file_id}"
    if (row.format or "parquet").lower() not in ("parquet", "puffin"):
        facts.report("delete-format-unknown", f"{what} has the format {row.format!r}", table=table, **where)
    if data is None:
        if facts.knows_file(row.data_file_id):
            return
        facts.report("delete-file-orphaned", what, table=table, **where)
    elif data.table_id != row.table_id:
        facts.report(
            "delete-file-of-other-table",
            f"{what} belongs to table {row.table_id}, but the data file to {data.table_id}",
            table=table,
            **where,
        )
    elif row.begin_snapshot < data.begin_snapshot:
        message = f"{what} begins at snapshot {row.begin_snapshot}, but the data file at {data.begin_snapshot}"
        facts.report("lifetime-backwards", message, table=table, **where)
    elif row.delete_count > data.record_count or row.delete_count == 0:
        facts.report("delete-count", f"{what} deletes {row.delete_count} of {data.record_count} rows", table=table, **where)


def _named_twice(facts: Facts) -> None:
    paths: dict[str, list[CatalogRow]] = defaultdict(list)
    for row in facts.files.values():
        if is_live(row, facts.newest):
            paths[file_key(facts.path_of(row))].append(row)
    for rows in paths.values():
        if len(rows) > 1:
            path = facts.path_of(rows[0])
            code = "file-named-twice" if has_writers_name(path) and rows[0].mapping_id is None else "file-added-twice"
            ids = ", ".join(str(row.data_file_id) for row in rows)
            facts.report(
                code, f"data files {ids} have the same path", table=facts.table_of(rows[0]), path=printable(path), data_file_id=rows[1][0]
            )


def _two_delete_files(facts: Facts) -> None:
    deletes: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("delete_file"):
        if row.data_file_id in facts.files:
            deletes[row.data_file_id].append(row)
    for number, rows in deletes.items():
        found = _both_seen(facts, facts.files[number], rows)
        if found is None:
            continue
        one, other, snapshot_id = found
        code, what = "delete-files-two", f"delete files {one.delete_file_id} and {other.delete_file_id} of data file {number}"
        if snapshot_id is not None:
            code, what = "delete-files-of-the-past", f"{what} at snapshot {snapshot_id}"
        facts.report(code, what, table=facts.table_of(one), path=printable(facts.path_of(other)), data_file_id=number)


def _both_seen(facts: Facts, data: CatalogRow, deletes: list[CatalogRow]) -> tuple[CatalogRow, CatalogRow, int | None] | None:
    """Return two delete files of a data file that one snapshot reads: two live ones (None), or the first snapshot with two."""
    live = [row for row in deletes if is_live(row, facts.newest) and is_live(data, facts.newest)]
    if len(live) > 1:
        return live[0], live[1], None
    # In the order of their beginnings, only the file that lasts longest so far can meet the next one.
    lasting, *later = sorted(deletes, key=lambda row: (row.begin_snapshot, row.delete_file_id))
    for row in later:
        ends = [one.end_snapshot for one in (lasting, row, data) if one.end_snapshot is not None]
        snapshot_id = facts.first_between(max(row.begin_snapshot, data.begin_snapshot), min((*ends, facts.newest + 1)))
        if snapshot_id is not None:
            return lasting, row, snapshot_id
        if lasting.end_snapshot is not None and (row.end_snapshot is None or row.end_snapshot > lasting.end_snapshot):
            lasting = row
    return None


def _partitions(facts: Facts) -> None:
    specs: dict[int, int] = {row.partition_id: row.table_id for row in facts.every.rows("partition_info")}
    keys: dict[int, set[int]] = defaultdict(set)
    for row in facts.every.rows("partition_column"):
        keys[row.partition_id].add(row.partition_key_index)
    values: dict[int, list[int]] = defaultdict(list)
    lost = 0
    for row in facts.every.rows("file_partition_value"):
        if row.data_file_id in facts.files:
            values[row.data_file_id].append(row.partition_key_index)
        elif not facts.knows_file(row.data_file_id):
            lost += 1
    if lost:
        repair = ForgetOrphans("file_partition_value", "data_file", "data_file_id")
        facts.report("statistics-orphaned", f"{lost} rows of ducklake_file_partition_value", repair=repair)
    for row in facts.files.values():
        table = facts.table_of(row)
        where = {"table": table, "path": printable(facts.path_of(row)), "data_file_id": row.data_file_id}
        if row.partition_id is not None and specs.get(row.partition_id) != row.table_id:
            facts.report("partition-unknown", f"data file {row.data_file_id} has the partition keys {row.partition_id}", **where)
            continue
        wanted = sorted(keys.get(row.partition_id, ())) if row.partition_id is not None else []
        found = sorted(values.get(row.data_file_id, ()))
        if found != wanted:
            what = f"data file {row.data_file_id} has values of partition keys {found}, but {wanted} are expected"
            facts.report("partition-values-incomplete", what, **where)


def _schema_versions(facts: Facts) -> None:
    begun: dict[int, set[int]] = defaultdict(set)
    for row in facts.every.rows("schema_versions"):
        if row.table_id is not None and row.begin_snapshot is not None:
            begun[row.table_id].add(row.begin_snapshot)
    numbers = {row.snapshot_id: row.schema_version for row in facts.every.rows("snapshot")}
    for table in facts.tables.values():
        known = begun[table.id]
        # A migration from 0.2 records only the snapshots of that time. Current snapshots existed then, or were committed since.
        lost = [change for change in _changes_of_columns(table) if change in numbers and change not in known]
        if lost and not {code for code, _ in facts.codes_of(table)} & _COLUMNS_CHANGE_UNKNOWN:
            rows = ", ".join(f"({number}, {numbers[number]}, {table.id})" for number in lost)
            facts.report("schema-version-missing", f"ducklake_schema_versions has no {rows}", table=table)
            continue
        first = min((row.begin_snapshot for row in table.files.values() if is_live(row, facts.newest)), default=None)
        if first is not None and first < min(known, default=first + 1):
            message = f"a file begins at snapshot {first}, but the first schema version at {min(known, default=None)}"
            facts.report("schema-version-unknown", message, table=table)


def _changes_of_columns(table: TableFacts) -> list[int]:
    """Return snapshots at which its columns changed, including the first; the drop of a table, which ends its columns, does not count."""
    first = min((row.begin_snapshot for row, _ in table.history), default=0)
    seen = (change for change in table.changes if change >= first)
    return [change for change in seen if any(begin <= change and (end is None or change < end) for begin, end in table.lives)]


def check_inlined(facts: Facts) -> None:
    """Check tables of inlined rows and deletes."""
    there = facts.inlined
    _registrations(facts)
    for table_id, name in there.missing:
        facts.report("inlined-table-missing", name, table=facts.tables.get(table_id))
    for table_id, name in there.dead:
        if table_id in facts.lost_tables:
            # It may be the only copy of its rows.
            continue
        repair = DropInlinedTable(name, table_id) if table_id not in facts.tables else None
        message = "the catalog does not contain its table" if repair else "it is not registered"
        facts.report("inlined-table-dead", f"{name}: {message}", table=facts.tables.get(table_id), repair=repair)
    lives: dict[tuple[int, int], list[tuple[int, int | None]]] = defaultdict(list)
    for row in facts.inlined_rows:
        lives[row.table_id, row.row_id].append((row.begin_snapshot, row.end_snapshot))
    wrong: dict[str, Counter[int]] = defaultdict(Counter)
    for (table_id, row_id), spans in lives.items():
        spans.sort(key=lambda span: span[0])
        # An update ends a row and adds it under the same id, so an id may come back, but never while it is live.
        if any(one[1] is None or other[0] < one[1] for one, other in pairwise(spans)):
            wrong["inlined-row-twice"][table_id] += 1
        if row_id < TRANSIENT_ROW_IDS and row_id >= (facts.next_row_id(facts.tables[table_id]) or row_id + 1):
            wrong["row-id-beyond-next"][table_id] += 1
        if any(end is not None and end < begin for begin, end in spans) or _is_before(facts, facts.tables[table_id], spans[0][0]):
            wrong["lifetime-backwards"][table_id] += 1
        if any(max(begin, end or 0) > facts.newest for begin, end in spans):
            wrong["snapshot-unknown"][table_id] += 1
    for code, counts in wrong.items():
        for table_id, number in counts.items():
            facts.report(code, f"{counted(number, 'inlined row')}", table=facts.tables[table_id])
    _inlined_deletes(facts)


def _registrations(facts: Facts) -> None:
    rows = Counter((row.table_id, row.table_name, row.schema_version) for row in facts.every.rows("inlined_data_tables"))
    for (table_id, name, version), number in rows.items():
        table = facts.tables.get(table_id)
        if not _is_name_of(facts, name, table_id, version):
            facts.report("inlined-table-invalid", f"{name} is registered for table {table_id} and version {version}", table=table)
        elif number > 1:
            facts.report(
                "inlined-table-invalid", f"{name} is registered {number} times, so DuckDB reads its rows {number} times", table=table
            )


def _is_name_of(facts: Facts, name: str, table_id: int, version: int) -> bool:
    if name == inlined_data_name(table_id, version):
        return True
    # Where tables are made next to the commit, an attempt adds its own ending.
    return facts.every.abilities.commits_at_ddl and inlined_owner(name) == table_id and inlined_version(name) == version


def _inlined_deletes(facts: Facts) -> None:
    seen: set[tuple[int, int]] = set()
    counts: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for row in facts.inlined_deletes:
        data = facts.files.get(row.file_id)
        if data is None or data.table_id != row.table_id:
            if data is not None or not facts.knows_file(row.file_id):
                counts["inlined-delete-orphaned", row.table_id][row.file_id] += 1
        elif not 0 <= row.row_id < data.record_count:
            counts["inlined-delete-beyond", row.table_id][row.file_id] += 1
        elif (row.file_id, row.row_id) in seen:
            counts["inlined-delete-twice", row.table_id][row.file_id] += 1
        elif row.begin_snapshot < data.begin_snapshot:
            counts["lifetime-backwards", row.table_id][row.file_id] += 1
        elif row.begin_snapshot > facts.newest:
            counts["snapshot-unknown", row.table_id][row.file_id] += 1
        seen.add((row.file_id, row.row_id))
    for (code, table_id), files in counts.items():
        for number, count in files.items():
            what, repair = f"{counted(count, 'inlined delete')} of data file {number}", None
            if code == "inlined-delete-orphaned" and number in facts.files:
                # It is unknown which of the two is wrong: the table of the file, or the table of its deletes.
                what += f", which belongs to table {facts.files[number].table_id}"
            elif code == "inlined-delete-orphaned":
                repair = ForgetInlinedDeletes(table_id, number)
            facts.report(code, what, table=facts.tables[table_id], data_file_id=number, repair=repair)


def check_schedule(facts: Facts) -> None:
    """Check files that are scheduled for deletion."""
    needed = {file_key(facts.path_of(row)) for row in (*facts.files.values(), *facts.every.rows("delete_file"))}
    paths: Counter[str] = Counter()
    for row in facts.every.rows("files_scheduled_for_deletion"):
        path = join(facts.info.data_path, row.path, row.path_is_relative is not False)
        key = file_key(path)
        paths[key] += 1
        if key in needed and paths[key] == 1:
            repair = Unschedule(row.path, printable(path))
            facts.report("scheduled-live", "a data file or delete file of the catalog has this path", path=printable(path), repair=repair)
        elif key not in needed and paths[key] == 2:
            facts.report("scheduled-twice", f"scheduled as {row.path}", path=printable(path))


def live_files(facts: Facts, table: TableFacts) -> Sequence[CatalogRow]:
    """Return live data files of a table by id."""
    return [row for _, row in sorted(table.files.items()) if is_live(row, facts.newest)]


def check_row_ids(facts: Facts, table: TableFacts, files: Iterable[CatalogRow]) -> None:
    """Check row ids of the files of a table that count them from ``row_id_start`` on."""
    every = [row for row in files if row.row_id_start is not None and row.record_count > 0]
    for one, other in overlapping(every):
        what = (
            f"data files {one.data_file_id} and {other.data_file_id} begin at row ids {one.row_id_start} and {other.row_id_start}, but the "
            f"first has {counted(one.record_count, 'row')}"
        )
        facts.report("row-ids-overlap", what, table=table, path=printable(facts.path_of(other)), data_file_id=other.data_file_id)
    following = facts.next_row_id(table)
    live = [row for row in every if is_live(row, facts.newest)]
    beyond = [row for row in live if following is not None and _end(row) > following]
    for row in beyond:
        what = f"data file {row.data_file_id} ends at row id {_end(row) - 1}, but the table assigns {following} next"
        facts.report("row-id-beyond-next", what, table=table, path=printable(facts.path_of(row)), data_file_id=row.data_file_id)


def overlapping(files: Iterable[CatalogRow]) -> Iterator[tuple[CatalogRow, CatalogRow]]:
    """Yield pairs of files that share a row id at some snapshot: an earlier file, which begins at a lower row id, and the file.

    Makes one pass in the order of row ids. Each merge leaves a further file over the same row ids, for other snapshots; these files are not
    compared with each other.
    """
    taken = _TakenIds()
    for other in sorted(files, key=lambda row: (row.row_id_start, row.data_file_id)):
        one = taken.add(other)
        if one is not None:
            yield one, other


class _TakenIds:
    """For each snapshot, the added file with the highest row ids.

    Snapshots without changes in between form one range: it begins at ``_begins[n]``, ends where the next one begins, and has the file
    ``_files[n]``. Files are added in the order of their first row ids, so that a file overlaps another if it begins before its end.
    """

    def __init__(self) -> None:
        self._begins: list[float] = [-inf, inf]
        self._files: list[CatalogRow | None] = [None, None]

    def add(self, row: CatalogRow) -> CatalogRow | None:
        """Add a file. Return an earlier file that shares a row id with it at some snapshot, None if there is none."""
        begin, end = row.begin_snapshot, inf if row.end_snapshot is None else row.end_snapshot
        if end <= begin:
            return None
        first, after = self._cut(begin), self._cut(end)
        met = [one if one is not None and row.row_id_start < _end(one) else None for one in self._files[first:after]]
        one = next((one for one in met if one is not None), None)
        if one is None:
            # Without faults the ranges are merged, so that each is checked once.
            self._begins[first:after], self._files[first:after] = [begin], [row]
        else:
            self._files[first:after] = [row if other is None or _end(other) < _end(row) else other for other in met]
        return one

    def _cut(self, snapshot: float) -> int:
        """Return the index of the range that begins at a snapshot. The range around the snapshot is split there."""
        index = bisect_left(self._begins, snapshot)
        if self._begins[index] != snapshot:
            self._begins.insert(index, snapshot)
            self._files.insert(index, self._files[index - 1])
        return index


def _end(row: CatalogRow) -> int:
    """Return the row id after the last one of a file."""
    return int(row.row_id_start + row.record_count)


def check_mappings(facts: Facts) -> None:
    """Check the mappings of files."""
    known = {(row.mapping_id, row.table_id) for row in facts.every.rows("column_mapping")}
    for row in facts.files.values():
        if row.mapping_id is not None and (row.mapping_id, row.table_id) not in known:
            what = f"data file {row.data_file_id} has the mapping {row.mapping_id}"
            facts.report(
                "mapping-unknown", what, table=facts.table_of(row), path=printable(facts.path_of(row)), data_file_id=row.data_file_id
            )
    for (mapping_id, table_id), message in wrong_mappings(facts).items():
        facts.report("mapping-invalid", f"mapping {mapping_id} {message}", table=facts.tables[table_id])


def wrong_mappings(facts: Facts) -> dict[tuple[int, int], str]:
    """Return the faults of mappings of files, by the ids of mapping and table."""
    known = {(row.mapping_id, row.table_id): row for row in facts.every.rows("column_mapping")}
    columns = columns_of_mappings(facts)
    used = dict.fromkeys((row.mapping_id, row.table_id) for row in facts.files.values() if row.table_id in facts.tables)
    found = {key: _wrong(known[key], columns.get(key[0], []), facts.tables[key[1]].column_ids) for key in used if key in known}
    return {key: message for key, message in found.items() if message}


def columns_of_mappings(facts: Facts) -> dict[int, list[CatalogRow]]:
    """Return rows of ``ducklake_name_mapping`` by mapping."""
    found: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("name_mapping"):
        found[row.mapping_id].append(row)
    return found


def _wrong(mapping: CatalogRow, columns: list[CatalogRow], ids: set[int]) -> str:
    if mapping.type != BY_NAME:
        return f"has the type {mapping.type!r}; only {BY_NAME!r} is supported"
    if not columns:
        return "has no columns"
    unknown = sorted({row.target_field_id for row in columns} - ids, key=str)
    if unknown:
        return f"maps to column {unknown[0]}, which the table never had"
    around = {row.parent_column for row in columns if row.parent_column is not None} - {row.column_id for row in columns}
    if around:
        return f"has a child of column {min(around)}, which it lacks"
    twice = [number for number, count in Counter(row.target_field_id for row in columns).items() if count > 1]
    return f"maps to column {twice[0]} twice" if twice else ""


def misses_columns(columns: Iterable[CatalogRow], path: str, names: Iterable[str]) -> str:
    """Return a description of the first column of a mapping that a file lacks; empty if it has all.

    Args:
        columns: Rows of the mapping.
        path: The file's path, whose directories may hold values.
        names: Top-level columns of the file.
    """
    there = {folded(name) for name in names}
    for row in columns:
        if row.is_partition:
            try:
                path_value(path, row.source_name)
            except CorruptFileError:
                return f"the path has no directory {row.source_name}=..."
        elif row.parent_column is None and folded(row.source_name) not in there:
            return f"the file has no column {row.source_name!r}"
    return ""
