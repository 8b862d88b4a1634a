"""Check statistics and partition values of files, and the totals of tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files.partitioning import EPOCH_TRANSFORMS, PartitionField, PartitionSpec, parse_transform
from ducklake_core.format.files.paths import printable
from ducklake_core.format.files.statistics import BOUND_BYTES
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.data_types import (
    BLOB,
    FLOATS,
    GEOMETRY,
    INT128,
    INTERVAL,
    JSON,
    TIMESTAMPTZ,
    TIMETZ,
    UINT128,
    VARCHAR,
    VARIANT,
    DataType,
    Field,
)
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.format.values.value_text import from_text, order_key, to_cast_text
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts, is_live
from ducklake_core.maintenance.check.files import columns_of_mappings, live_files, wrong_mappings
from ducklake_core.maintenance.check.repair import (
    ForgetFileStatistics,
    ForgetOrphans,
    ForgetTableBounds,
    RaiseRecordCount,
    WidenTableBounds,
)

WITHOUT_BOUNDS = (TIMETZ, INTERVAL, VARIANT, GEOMETRY, INT128, UINT128)
_UNCOUNTED = (TIMETZ, INTERVAL, VARIANT, GEOMETRY)
_STRING_TYPES = (VARCHAR, JSON, BLOB)


def check_statistics(facts: Facts) -> None:
    """Check all statistics of files, then those of tables, which must include them."""
    spans = _file_statistics(facts)
    _variant_statistics(facts)
    _table_statistics(facts)
    _table_bounds(facts, spans)


def bounds_of(low: str | None, high: str | None, data_type: DataType) -> tuple[Any, Any] | None:
    """Return both bounds as comparable values; None if one is unknown or they have no order.

    Raises:
        DuckLakeError: A string that is not a value of the type.
    """
    if low is None or high is None or data_type in WITHOUT_BOUNDS:
        return None
    return order_key(from_text(low, data_type)), order_key(from_text(high, data_type))


def is_cut(text: str | None, data_type: DataType) -> bool:
    """Return whether the bound of a file may be shortened, so that it is not a value of the file."""
    length = 2 * BOUND_BYTES if data_type == BLOB else BOUND_BYTES
    return data_type in _STRING_TYPES and text is not None and len(text.encode()) >= length - 8


@dataclass(slots=True)
class _Span:
    """Statistics of one column over all files of a table."""

    bounds: list[tuple[str, str]] = field(default_factory=list)
    files: int = 0
    has_values: bool = False
    has_null: bool = False
    has_nan: bool = False
    is_known: bool = True


def _file_statistics(facts: Facts) -> dict[tuple[int, int], _Span]:
    spans: dict[tuple[int, int], _Span] = defaultdict(_Span)
    values = PartitionValues(facts)
    mapped = {number: {row.target_field_id for row in columns} for number, columns in columns_of_mappings(facts).items()}
    known_wrong = wrong_mappings(facts)
    lost = 0
    # One file at a time: a large lake has more rows of statistics than fit into memory.
    for number, rows in _by_file(facts):
        data = facts.files.get(number)
        if data is None:
            lost += 0 if facts.knows_file(number) else len(rows)
            continue
        table = facts.tables.get(data.table_id)
        if table is None:
            continue
        twice = {column for column, count in Counter(row.column_id for row in rows).items() if count > 1}
        for column in twice:
            _report(facts, "statistics-twice", f"data file {number} has column {column} twice", table, data, column)
        sound: dict[int, tuple[CatalogRow, Field]] = {}
        unmapped = [row for row in rows if row.value_count and row.column_id not in mapped.get(data.mapping_id, {row.column_id})]
        if unmapped and (data.mapping_id, data.table_id) not in known_wrong:
            message = (
                f"mapping {data.mapping_id} lacks column {unmapped[0].column_id}, but the file has {unmapped[0].value_count:,} values of it"
            )
            path = printable(facts.path_of(data))
            facts.report("mapping-invalid", message, table=table, path=path, data_file_id=number)
            continue
        for row in rows:
            leaf = table.leaf(row.column_id, data.begin_snapshot)
            if row.table_id is not None and row.table_id != data.table_id:
                message = f"statistics of column {row.column_id} of data file {number} belong to table {row.table_id}"
                _report(facts, "statistics-table-wrong", message, table, data, row.column_id)
            elif leaf is None:
                if row.column_id not in table.column_ids:
                    _report(facts, "statistics-column-unknown", f"data file {number}, column {row.column_id}", table, data, row.column_id)
            elif row.column_id not in twice and _one(facts, table, data, row, leaf):
                sound[row.column_id] = (row, leaf)
                _add(spans[table.id, row.column_id], row, leaf)
        values.check(table, data, sound)
    if lost:
        repair = ForgetOrphans("file_column_stats", "data_file", "data_file_id")
        facts.report("statistics-orphaned", f"{lost} rows of ducklake_file_column_stats", repair=repair)
    return spans


def _by_file(facts: Facts) -> Iterator[tuple[int, list[CatalogRow]]]:
    number = -1
    rows: list[CatalogRow] = []
    for row in facts.every.stream("file_column_stats", ("data_file_id",)):
        if row.data_file_id != number and rows:
            yield number, rows
            rows = []
        number = row.data_file_id
        rows.append(row)
    if rows:
        yield number, rows


def _one(facts: Facts, table: TableFacts, data: CatalogRow, row: CatalogRow, leaf: Field) -> bool:
    """Return whether a row can be used for further checks."""
    what = f"column {leaf.name!r} of data file {data.data_file_id}"
    counts = [count for count in (row.value_count, row.null_count) if count is not None]
    wrong = any(count < 0 for count in counts)
    is_top = leaf.id in table.top_ids
    if len(counts) == 2 and is_top and leaf.type not in _UNCOUNTED and sum(counts) != data.record_count:
        wrong = True
    # DuckDB counts NULLs of leaves below lists and structs more than once.
    if is_top and row.value_count == 0 and row.min_value is not None and leaf.type not in _UNCOUNTED:
        wrong = True
    if wrong:
        message = f"{what}: {row.value_count} values and {row.null_count} NULLs, bounds {row.min_value!r}, in {data.record_count} rows"
        _report(facts, "statistics-counts", message, table, data, leaf.id)
        return False
    try:
        bounds = bounds_of(row.min_value, row.max_value, leaf.type)
    except (DuckLakeError, ValueError, ArithmeticError) as error:
        if leaf.type == BLOB:
            # DuckDB writes those of added files, from their paths, as another string; no reader filters by them.
            return False
        message = f"{what}: {row.min_value!r} to {row.max_value!r} of type {leaf.type}: {error}"
        _report(facts, "statistics-invalid", message, table, data, leaf.id)
        return False
    if bounds is not None and bounds[0] > bounds[1]:
        _report(
            facts,
            "statistics-invalid",
            f"{what}: the lower bound {row.min_value!r} is above the upper bound {row.max_value!r}",
            table,
            data,
            leaf.id,
        )
        return False
    return True


def _report(facts: Facts, code: str, what: str, table: TableFacts, data: CatalogRow, column_id: int) -> None:
    repair = ForgetFileStatistics(data.data_file_id, column_id)
    path = printable(facts.path_of(data))
    facts.report(code, what, table=table, path=path, data_file_id=data.data_file_id, column_id=column_id, repair=repair)


def _add(span: _Span, row: CatalogRow, leaf: Field) -> None:
    span.files += 1
    span.has_null |= bool(row.null_count)
    span.has_nan |= bool(row.contains_nan)
    if row.value_count is None or row.null_count is None:
        span.is_known = False
    if row.value_count == 0 and leaf.type not in _UNCOUNTED:
        return
    span.has_values = True
    if row.min_value is None or row.max_value is None or is_cut(row.min_value, leaf.type) or is_cut(row.max_value, leaf.type):
        span.is_known = False
    else:
        span.bounds.append((row.min_value, row.max_value))
        # Reduced regularly, so that memory does not grow with the number of files.
        if len(span.bounds) > 1000:
            span.bounds = [_united(span.bounds, leaf.type)] if _united(span.bounds, leaf.type) else span.bounds


def _united(bounds: list[tuple[str, str]], data_type: DataType) -> Any:
    """Return the widest of several bounds as strings; None if some are not values of the type."""
    try:
        low = min((low for low, _ in bounds), key=lambda text: order_key(from_text(text, data_type)))
        high = max((high for _, high in bounds), key=lambda text: order_key(from_text(text, data_type)))
    except (DuckLakeError, ValueError, ArithmeticError):
        return None
    return low, high


def exact_bounds(
    table_id: int,
    bounds: Iterable[CatalogRow],
    statistics: Iterable[CatalogRow],
    *,
    files: int,
    leaves: Mapping[int, Field],
    promoted: Collection[int],
) -> list[WidenTableBounds | ForgetTableBounds]:
    """Return the changes that reduce the bounds of a table to the values of its live files, for a table without inlined rows and deletes.

    Bounds that the files do not determine, such as shortened strings, are deleted.

    Args:
        table_id: The table.
        bounds: Its rows of ``table_column_stats``.
        statistics: Rows of ``file_column_stats`` of its live files.
        files: Number of live files.
        leaves: Present leaf columns by id.
        promoted: Ids of columns whose type has changed.
    """
    spans: dict[int, _Span] = defaultdict(_Span)
    for row in statistics:
        if row.column_id in leaves:
            _add(spans[row.column_id], row, leaves[row.column_id])
    found: list[WidenTableBounds | ForgetTableBounds] = []
    for row in bounds:
        leaf, span = leaves.get(row.column_id), spans[row.column_id]
        is_known = leaf is not None and leaf.type not in (*WITHOUT_BOUNDS, BLOB) and span.is_known and span.files == files
        if leaf is not None and leaf.type in FLOATS:
            is_known = is_known and row.contains_nan is False and leaf.id not in promoted
        united = _united(span.bounds, leaf.type) if leaf is not None and is_known and span.bounds else None
        if united is None and (row.min_value is not None or row.max_value is not None or row.extra_stats is not None):
            found.append(ForgetTableBounds(table_id, row.column_id))
        elif united is not None and united != (row.min_value, row.max_value):
            found.append(
                WidenTableBounds(
                    table_id=table_id,
                    column_id=row.column_id,
                    contains_null=row.contains_null,
                    contains_nan=row.contains_nan,
                    min_value=united[0],
                    max_value=united[1],
                )
            )
    return found


def _variant_statistics(facts: Facts) -> None:
    lost = sum(not facts.knows_file(row.data_file_id) for row in facts.every.stream("file_variant_stats"))
    if lost:
        repair = ForgetOrphans("file_variant_stats", "data_file", "data_file_id")
        facts.report("statistics-orphaned", f"{lost} rows of ducklake_file_variant_stats", repair=repair)


def _table_statistics(facts: Facts) -> None:
    known: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("table_stats"):
        known[row.table_id].append(row)
    broken = {cell.table_id for cell in facts.every.bad if cell.table == "table_stats"}
    for name in ("table_stats", "table_column_stats"):
        lost = {row.table_id for row in facts.every.rows(name)} - facts.tables.keys() - facts.lost_tables
        if lost:
            message = f"rows of ducklake_{name} of tables {', '.join(map(str, sorted(lost)))}"
            facts.report("table-statistics-orphaned", message, repair=ForgetOrphans(name, "table", "table_id"))
    deleted = _deleted(facts)
    for table in facts.tables.values():
        rows = known.get(table.id, [])
        if len(rows) > 1:
            facts.report("table-statistics-twice", f"{len(rows)} rows of ducklake_table_stats", table=table)
        elif not rows and (table.files or table.inlined) and table.is_live and table.id not in broken:
            facts.report(
                "table-statistics-missing", f"{counted(len(table.files), 'file')} and {counted(table.inlined, 'inlined row')}", table=table
            )
        elif rows and any(number < 0 for number in (rows[0].record_count, rows[0].next_row_id, rows[0].file_size_bytes)):
            message = f"{rows[0].record_count} rows, {rows[0].file_size_bytes} bytes, next row id {rows[0].next_row_id}"
            facts.report("cell-invalid", f"ducklake_table_stats: {message}, but none of them can be negative", table=table)
        elif rows and table.is_live:
            net = sum(row.record_count for row in live_files(facts, table)) - deleted[table.id] + table.inlined_live
            if rows[0].record_count < net:
                gross = sum(max(row.record_count, 0) for row in table.files.values()) + table.inlined
                message = f"the statistics count {counted(rows[0].record_count, 'row')}, but the table has {net:,}"
                facts.report("table-statistics-stale", message, table=table, repair=RaiseRecordCount(table.id, gross))


def _deleted(facts: Facts) -> Counter[int]:
    counts: Counter[int] = Counter()
    for row in facts.every.rows("delete_file"):
        data = facts.files.get(row.data_file_id)
        if data is not None and is_live(row, facts.newest) and is_live(data, facts.newest):
            counts[row.table_id] += row.delete_count
    for row in facts.inlined_deletes:
        data = facts.files.get(row.file_id)
        if data is not None and is_live(data, facts.newest):
            counts[row.table_id] += 1
    return counts


def _table_bounds(facts: Facts, spans: Mapping[tuple[int, int], _Span]) -> None:
    rows: dict[tuple[int, int], list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("table_column_stats"):
        if row.table_id in facts.tables:
            rows[row.table_id, row.column_id].append(row)
    for (table_id, column_id), found in rows.items():
        table = facts.tables[table_id]
        leaf = table.last_leaf(column_id)
        forget = ForgetTableBounds(table_id, column_id)
        if len(found) > 1 or column_id not in table.column_ids:
            what = (
                f"column {column_id} has {len(found)} rows of statistics" if len(found) > 1 else f"the table never had a column {column_id}"
            )
            facts.report("table-bounds-invalid", what, table=table, column_id=column_id, repair=forget)
        elif leaf is not None:
            _one_bound(facts, table, found[0], leaf, spans.get((table_id, column_id), _Span()))


def _one_bound(facts: Facts, table: TableFacts, row: CatalogRow, leaf: Field, span: _Span) -> None:
    what = f"column {leaf.name!r}: {row.min_value!r} to {row.max_value!r}"
    forget = ForgetTableBounds(table.id, leaf.id)
    try:
        bounds = bounds_of(row.min_value, row.max_value, leaf.type) if leaf.type != BLOB else None
    except (DuckLakeError, ValueError, ArithmeticError) as error:
        facts.report("table-bounds-invalid", f"{what} of type {leaf.type}: {error}", table=table, column_id=leaf.id, repair=forget)
        return
    if bounds is not None and bounds[0] > bounds[1]:
        facts.report(
            "table-bounds-invalid", f"{what}: the lower bound is above the upper bound", table=table, column_id=leaf.id, repair=forget
        )
        return
    narrow = [message for message, is_so in (("NULLs", row.contains_null is False and span.has_null),) if is_so]
    if leaf.type in FLOATS and row.contains_nan is False and span.has_nan:
        narrow.append("NaN")
    united = _united(span.bounds, leaf.type) if span.bounds and leaf.type not in WITHOUT_BOUNDS else None
    counts_nan = leaf.type in FLOATS and row.contains_nan is not False
    if bounds is not None and united is not None and not counts_nan:
        held = bounds_of(united[0], united[1], leaf.type)
        if held is not None and (held[0] < bounds[0] or held[1] > bounds[1]):
            narrow.append(f"{united[0]!r} to {united[1]!r}")
    if narrow:
        repair = _widened(table, row, leaf, span, united) or forget
        facts.report("table-bounds-narrow", f"{what}, but files contain {', '.join(narrow)}", table=table, column_id=leaf.id, repair=repair)
        gross = sum(max(one.record_count, 0) for one in table.files.values()) + table.inlined
        # Otherwise DuckDB uses bounds of deleted rows as the smallest and largest value.
        facts.repair(RaiseRecordCount(table.id, gross))
    elif (row.min_value is None or row.max_value is None) and united is not None and not counts_nan and leaf.type != BLOB:
        message = f"{what}, but files contain {united[0]!r} to {united[1]!r}"
        facts.report("table-bounds-unknown", message, table=table, column_id=leaf.id, repair=forget)


def _widened(table: TableFacts, row: CatalogRow, leaf: Field, span: _Span, united: Any) -> WidenTableBounds | None:
    """Return statistics that include all files, if those of every file are known and there are no inlined rows."""
    is_complete = span.is_known and span.files == len(table.files) and not table.inlined
    if not is_complete or row.min_value is None or row.max_value is None or leaf.type == BLOB:
        return None
    types = {one.column_type.lower() for one, _ in table.history if one.column_id == leaf.id}
    if leaf.type in FLOATS and len(types) > 1:
        # The short string of a FLOAT is not a bound of a DOUBLE: 1.1 excludes 1.10000002.
        return None
    low, high = row.min_value, row.max_value
    if united is not None:
        found = _united([(low, high), united], leaf.type)
        if found is None:
            return None
        low, high = found
    return WidenTableBounds(
        table_id=table.id,
        column_id=leaf.id,
        contains_null=None if row.contains_null is None else row.contains_null or span.has_null,
        contains_nan=None if row.contains_nan is None else row.contains_nan or span.has_nan,
        min_value=low,
        max_value=high,
    )


class PartitionValues:
    """The values of every file's partition keys.

    Args:
        facts: The catalog.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._keys: dict[int, list[CatalogRow]] = defaultdict(list)
        for row in facts.every.rows("partition_column"):
            self._keys[row.partition_id].append(row)
        self._values: dict[int, dict[int, str | None]] = defaultdict(dict)
        for row in facts.every.rows("file_partition_value"):
            self._values[row.data_file_id][row.partition_key_index] = row.partition_value

    def check(self, table: TableFacts, data: CatalogRow, statistics: Mapping[int, tuple[CatalogRow, Field]]) -> None:
        """Report partition keys of a file that contradict its statistics.

        Args:
            table: Its table.
            data: The file.
            statistics: Usable statistics of its columns by id, with the column as it was then.
        """
        for key in self._keys.get(data.partition_id, ()) if data.partition_id is not None else ():
            values = self._values.get(data.data_file_id, {})
            if key.partition_key_index in values and key.column_id in statistics:
                self._one(table, data, key, values[key.partition_key_index], *statistics[key.column_id])

    def _one(self, table: TableFacts, data: CatalogRow, key: CatalogRow, value: str | None, row: CatalogRow, leaf: Field) -> None:
        try:
            expected = expected_values(key.transform, leaf, row)
        except (DuckLakeError, ValueError, ArithmeticError, pa.ArrowException):
            return
        if expected is not None and value not in expected:
            wanted = " or ".join(map(repr, sorted(expected, key=str)))
            what = (
                f"data file {data.data_file_id} is in partition {key.transform} of {leaf.name!r} {value!r}, but its statistics "
                f"show {wanted}"
            )
            path = printable(self._facts.path_of(data))
            self._facts.report("partition-values-wrong", what, table=table, path=path, data_file_id=data.data_file_id, column_id=leaf.id)


def expected_values(transform: str, leaf: Field, row: CatalogRow) -> set[str | None] | None:
    """Return values that a partition key can have by the statistics of its column; None if they do not determine it."""
    name, buckets = parse_transform(transform)
    # DuckDB takes parts of the calendar in the zone of its session.
    if leaf.type in FLOATS or (name in ("year", "month", "day", "hour") and leaf.type == TIMESTAMPTZ):
        return None
    if row.value_count == 0 and row.null_count:
        return {None}
    if not row.value_count or row.min_value is None or row.max_value is None or len(row.min_value.encode()) >= BOUND_BYTES - 8:
        return None
    if row.null_count:
        # NULL and a value in one file: no single value is right, but it is unknown which one is wrong.
        return set()
    low, high = (transformed(name, buckets, leaf, text) for text in (row.min_value, row.max_value))
    if row.min_value == row.max_value or name == "year" or name in EPOCH_TRANSFORMS:
        return {low} if low == high else set()
    return set() if name == "identity" else None


def transformed(name: str, buckets: int | None, leaf: Field, text: str) -> str | None:
    """Return the value of a partition key for a value from statistics."""
    column = replace(leaf, nullable=True, name="c")
    key = PartitionField(column_id=leaf.id, column="c", transform=name, buckets=buckets)  # type: ignore[arg-type]
    value = constant_array(to_cast_text(from_text(text, leaf.type), leaf.type), column, 1)
    batch = pa.RecordBatch.from_arrays([value], names=["c"])
    found = partition_arrays(PartitionSpec(fields=(key,)), Schema(columns=(column,)), batch)[0][0].as_py()
    return found if found is None else str(found)
