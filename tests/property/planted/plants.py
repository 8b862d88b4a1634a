"""The faults: what is done to the catalog or the files, and the code that it must be found by."""

# ruff: noqa: E501 - one fault a line reads best

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.property.planted.lake import Planted


@dataclass(frozen=True)
class Plant:
    """A fault; ``also`` are codes that come with it because it is two faults in one."""

    code: str
    name: str
    statements: tuple[str, ...] = ()
    change: Callable[[Planted], object] | None = None
    also: tuple[str, ...] = ()
    level: str = "rows"

    def __str__(self) -> str:
        return f"{self.code}: {self.name}"


def _set(table: str, changes: str, where: str) -> str:
    return f"UPDATE ducklake_{table} SET {changes} WHERE {where}"


def _copied(table: str, **changes: str) -> Callable[[Planted], object]:
    """Insert the first row that matches ``where`` once more, with other values."""
    where = changes.pop("where")

    def copy(lake: Planted) -> None:
        names = [row[1] for row in lake.query(f"PRAGMA table_info(ducklake_{table})")]
        values = ", ".join(changes.get(name, f'"{name}"') for name in names)
        lake.edit(f"INSERT INTO ducklake_{table} SELECT {values} FROM ducklake_{table} WHERE {where} LIMIT 1")

    return copy


def _rewrite(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Planted], object]:
    return lambda lake: lake.rewrite(name, change)


def _replaced(table: pa.Table, column: str, value: object) -> pa.Table:
    """The table with another value in the first row of a column."""
    place, array = table.schema.get_field_index(column), table.column(column).combine_chunks()
    changed = pa.concat_arrays([pa.array([value], array.type), array.slice(1)])
    return table.set_column(place, table.schema.field(place), changed)


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Planted], object]:
    def spoil(lake: Planted) -> None:
        path = lake.path(name)
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _delete_positions(change: Callable[[pa.Table], pa.Table]) -> Callable[[Planted], object]:
    def spoil(lake: Planted) -> None:
        path = lake.path("del")
        table = change(pq.read_table(path))
        pq.write_table(table, path)
        size = int.from_bytes(path.read_bytes()[-8:-4], "little")
        lake.edit(
            f"UPDATE ducklake_delete_file SET file_size_bytes = {path.stat().st_size}, footer_size = {size}, delete_count = {table.num_rows}"
        )

    return spoil


def _new_file(name: str) -> Callable[[Planted], object]:
    def make(lake: Planted) -> None:
        pq.write_table(pa.table({"a": [1]}), f"{lake.address.data_path}main/t/{name}")

    return make


def _two_in_the_past(lake: Planted) -> None:
    lake.edit("UPDATE ducklake_delete_file SET end_snapshot = begin_snapshot + 2")
    _copied("delete_file", where="delete_file_id = {del}", delete_file_id="0", end_snapshot="NULL")(lake)


def _two_now_and_before(lake: Planted) -> None:
    """One that ended lies between the two live ones."""
    _copied("delete_file", where="delete_file_id = {del}", delete_file_id="0", begin_snapshot="begin_snapshot + 2")(lake)
    _copied(
        "delete_file",
        where="delete_file_id = {del}",
        delete_file_id="-1",
        begin_snapshot="begin_snapshot + 1",
        end_snapshot="begin_snapshot + 2",
    )(lake)


def _second_macro(lake: Planted) -> None:
    """DuckDB takes the one or the other; the ids between are those of what was dropped."""
    number = "(SELECT macro_id FROM ducklake_macro WHERE macro_name = 'mac')"
    _copied("macro", where="macro_name = 'mac'", macro_id="{gone}", macro_name="'MAC'")(lake)
    _copied("macro_impl", where=f"macro_id = {number}", macro_id="{gone}")(lake)
    _copied("macro_parameters", where=f"macro_id = {number}", macro_id="{gone}")(lake)


def _later(table: pa.Table) -> pa.Table:
    name = "_ducklake_internal_snapshot_id"
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), pc.add(table.column(name), 100).cast(pa.int64()))


_STATS = "data_file_id = {t1} AND column_id = 1"
_TSTATS = "table_id = {t} AND column_id = 1"

PLANTS = (
    # Rows of the catalog
    Plant("cell-invalid", "a count that is a text", (_set("data_file", "record_count = 'many'", "data_file_id = {f0}"),)),
    Plant("cell-missing", "a file without a size", (_set("data_file", "file_size_bytes = NULL", "data_file_id = {f0}"),)),
    Plant("cell-missing", "a snapshot without a counter", (_set("snapshot", "schema_version = NULL", "snapshot_id = 1"),)),
    Plant("snapshot-counters", "next_file_id falls", (_set("snapshot", "next_file_id = 2", "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"),)),
    Plant("snapshot-counters", "next_catalog_id falls", (_set("snapshot", "next_catalog_id = 1", "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"),)),
    Plant("snapshot-changes", "words of nobody", (_set("snapshot_changes", "changes_made = 'nonsense:\"x'", "snapshot_id = 2"),)),
    Plant("snapshot-unknown", "a file ends in the future", (_set("data_file", "end_snapshot = 900", "data_file_id = {f0}"),)),
    Plant("lifetime-backwards", "a column ends before it begins", (_set("column", "begin_snapshot = 18, end_snapshot = 3", "table_id = {gone}"),), also=("columns-of-the-past",)),
    Plant("setting-twice", "two data paths", ("INSERT INTO ducklake_metadata SELECT * FROM ducklake_metadata WHERE key = 'created_by'",)),
    Plant("option-scope", "options of a galaxy", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', '100', 'galaxy', 1)",)),
    Plant("option-scope", "an option of no table", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', '100', 'table', NULL)",)),
    Plant("cell-invalid", "encrypted or not", (_set("metadata", "value = 'maybe'", "key = 'encrypted'"),)),
    Plant("hold-invalid", "words of nobody", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.hold:x', 'garbage', NULL, NULL)",)),
    Plant("hold-of-no-snapshot", "on a snapshot that has expired", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.hold:x', '{{\"name\": \"X\", \"snapshot\": 2}}', NULL, NULL)", "DELETE FROM ducklake_snapshot WHERE snapshot_id = 2", "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 2")),
    Plant("hold-of-no-snapshot", "on a snapshot to come", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.hold:x', '{{\"name\": \"X\", \"snapshot\": 900, \"until\": \"2999-01-01T00:00:00+00:00\"}}', NULL, NULL)",)),
    Plant("running-write-invalid", "words of nobody", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.write:x', 'garbage', NULL, NULL)",)),
    Plant("snapshot-counters", "schema_version falls", (_set("snapshot", "schema_version = 1", "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"),)),
    Plant("snapshot-changes", "nobody says what changed", ("DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 3",)),
    Plant("snapshot-unknown", "a comment of the future", (_set("tag", "begin_snapshot = 900", "key = 'comment'"),)),
    Plant("snapshot-unknown", "a version of the future", ("INSERT INTO ducklake_schema_versions VALUES (900, 1, {t})",)),
    Plant("snapshot-unknown", "changes of the next snapshot", ("INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) SELECT max(snapshot_id) + 1, '' FROM ducklake_snapshot",)),
    Plant("cell-missing", "a schema version without a number", (_set("schema_versions", "schema_version = NULL", "table_id = {t}"),), also=("schema-version-missing",)),
    Plant("cell-missing", "a table without a path", (_set("table", "path_is_relative = NULL", "table_id = {t}"),)),
    Plant("cell-invalid", "inlined rows without ids", ("ALTER TABLE {inl} RENAME COLUMN row_id TO id",)),
    Plant("cell-invalid", "inlined deletes of no file", ("ALTER TABLE ducklake_inlined_delete_{t} RENAME COLUMN file_id TO id",)),
    Plant("cell-invalid", "a negative size", (_set("table_stats", "file_size_bytes = -1", "table_id = {t}"),)),
    Plant("comment-twice", "of a table", ("INSERT INTO ducklake_tag SELECT * FROM ducklake_tag",)),
    Plant("comment-twice", "of a column", ("INSERT INTO ducklake_column_tag SELECT * FROM ducklake_column_tag",)),
    Plant("view-invalid", "columns of a view", (_set("view", "column_aliases = '(('", "view_name = 'w'"),)),
    Plant("macro-invalid", "no definition", ("DELETE FROM ducklake_macro_impl",)),
    Plant("macro-invalid", "a definition of nobody", (_set("macro_impl", "type = 'dance'", "type = 'scalar'"),)),
    Plant("macro-invalid", "an expression that does not parse", (_set("macro_impl", "sql = '(q +'", "type = 'scalar'"),)),
    Plant("macro-invalid", "a query that does not parse", (_set("macro_impl", "sql = 'SELEC 1', type = 'table'", "type = 'scalar'"),)),
    Plant("macro-invalid", "a definition in no dialect", (_set("macro_impl", "dialect = NULL", "type = 'scalar'"),)),
    Plant("macro-invalid", "parameters of nothing", (_set("macro_parameters", "impl_id = 99", "impl_id IS NOT NULL"),)),
    Plant("macro-invalid", "no SQL", (_set("macro_impl", "sql = NULL", "type = 'scalar'"),)),
    Plant("macro-invalid", "a parameter without a name", (_set("macro_parameters", "parameter_name = NULL", "impl_id IS NOT NULL"),)),
    Plant("macro-invalid", "a parameter of a type of nobody", (_set("macro_parameters", "parameter_type = 'tensor'", "impl_id IS NOT NULL"),)),
    Plant("schema-missing", "a macro in no schema", (_set("macro", "schema_id = 77", "macro_name = 'mac'"),)),
    Plant("option-invalid", "a size that is none", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', 'big', 'table', {t})",)),
    # Schemas, tables, columns
    Plant("name-twice", "a table is called like a view", (_set("view", "view_name = 'F'", "view_name = 'w'"),)),
    Plant("name-twice", "two schemas of one name", change=_copied("schema", where="schema_name = 'main'", schema_id="1", schema_name="'MAIN'")),
    Plant("name-twice", "two macros of one name", change=_second_macro),
    Plant("table-twice", "two rows of one table", change=_copied("table", where="table_id = {m}", begin_snapshot="begin_snapshot + 1")),
    Plant("schema-missing", "a view in no schema", (_set("view", "schema_id = 77", "view_name = 'w'"),)),
    Plant("schema-missing", "tables before their schema", (_set("schema", "begin_snapshot = 3", "schema_name = 'main'"),)),
    Plant("lifetime-backwards", "files and inlined rows before their table", (_set("table", "begin_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)", "table_id = {t}"),)),
    Plant("lifetime-backwards", "an inlined row before its table", ("UPDATE {inl} SET begin_snapshot = 0 WHERE a = 200",)),
    Plant("columns-missing", "a table whose columns have ended", (_set("column", "end_snapshot = begin_snapshot + 1", "table_id = {n}"),)),
    Plant("column-twice", "two columns of one name", change=_copied("column", where="table_id = {n}", column_id="2", column_name="'A'")),
    Plant("column-twice", "one row twice", ("INSERT INTO ducklake_column SELECT * FROM ducklake_column WHERE table_id = {n}",)),
    Plant("columns-invalid", "a column below nothing", change=_copied("column", where="table_id = {n}", column_id="2", column_name="'q'", parent_column="77")),
    Plant("type-unknown", "a type of nobody", (_set("column", "column_type = 'tensor'", "table_id = {n}"),)),
    Plant("columns-of-the-past", "two names at an earlier snapshot", (_set("column", "end_snapshot = end_snapshot + 1", "table_id = {d} AND end_snapshot IS NOT NULL"),)),
    Plant("columns-of-the-past", "a type of nobody at an earlier snapshot", (_set("column", "column_type = 'tensor'", "table_id = {d} AND end_snapshot IS NOT NULL"),), level="catalog"),
    Plant("default-invalid", "no number for rows of before", (_set("column", "initial_default = 'x?'", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),), level="catalog"),
    Plant("default-invalid", "no number", (_set("column", "default_value = 'x?'", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),)),
    Plant("default-invalid", "a type of nobody", (_set("column", "default_value_type = 'magic'", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),)),
    Plant("default-invalid", "no expression", (_set("column", "default_value_type = 'expression', default_value = '(('", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),)),
    Plant("partition-key-invalid", "a key twice", ("INSERT INTO ducklake_partition_column SELECT * FROM ducklake_partition_column WHERE partition_key_index = 0",), level="catalog"),
    Plant("partition-key-invalid", "a year of a number", (_set("partition_column", "transform = 'year'", "partition_key_index = 0"),), level="catalog"),
    Plant("partition-key-invalid", "two at once", change=_copied("partition_info", where="table_id = {p}", partition_id="1")),
    Plant("sort-order-invalid", "by no column", (_set("sort_expression", "expression = 'zzz'", "sort_key_index = 1"),)),
    Plant("sort-order-invalid", "words of nobody", (_set("sort_expression", "expression = '(('", "sort_key_index = 1"),)),
    Plant("sort-order-invalid", "in no direction", (_set("sort_expression", "sort_direction = 'SIDEWAYS'", "sort_key_index = 0"),)),
    Plant("sort-order-invalid", "NULLs nowhere", (_set("sort_expression", "null_order = NULL", "sort_key_index = 0"),)),
    Plant("sort-order-invalid", "of no table", (_set("sort_info", "table_id = 888", "table_id = {s}"),)),
    Plant("sort-order-invalid", "two at once", change=_copied("sort_info", where="table_id = {s}", sort_id="1")),
    Plant("schema-missing", "a schema that ended before its tables", (_set("schema", "end_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)", "schema_name = 'main'"),), level="catalog"),
    Plant("dropped-table-alive", "columns outlive their table", (_set("column", "end_snapshot = NULL", "table_id = {gone}"),)),
    Plant("dropped-table-alive", "a file outlives its table", (_set("data_file", "end_snapshot = NULL", "table_id = {gone}"),)),
    Plant("partition-key-invalid", "a key of no column", (_set("partition_column", "column_id = 77", "partition_key_index = 0"),)),
    Plant("partition-key-invalid", "a transform of nobody", (_set("partition_column", "transform = 'moonphase'", "partition_key_index = 1"),)),
    Plant("schema-version-missing", "no version of a table", ("DELETE FROM ducklake_schema_versions WHERE table_id = {m}",)),
    Plant("schema-version-missing", "no version of added columns", ("DELETE FROM ducklake_schema_versions WHERE table_id = {d} AND begin_snapshot = (SELECT max(begin_snapshot) FROM ducklake_column WHERE table_id = {d})",)),
    Plant("schema-version-unknown", "no version of a table whose first snapshot has expired", ("DELETE FROM ducklake_schema_versions WHERE table_id = {m}", *(f"DELETE FROM ducklake_{table} WHERE snapshot_id = (SELECT begin_snapshot FROM ducklake_table WHERE table_id = {{m}})" for table in ("snapshot", "snapshot_changes")))),
    # Files as the catalog has them
    Plant("table-unknown", "a file of no table", change=_copied("data_file", where="data_file_id = {f0}", data_file_id="{free}", table_id="88", path="'nowhere.parquet'", mapping_id="NULL")),
    Plant("table-unknown", "columns and inlined rows of a table whose row was lost", ("DELETE FROM ducklake_data_file WHERE table_id = {t}", "DELETE FROM ducklake_delete_file", "DELETE FROM ducklake_file_column_stats WHERE table_id = {t}", "DELETE FROM ducklake_table WHERE table_id = {t}"), level="catalog"),
    Plant("file-numbers", "negative row ids", (_set("data_file", "row_id_start = -7", "data_file_id = {n0}"),)),
    Plant("file-numbers", "partial_max before the file", (_set("data_file", "partial_max = 1", "data_file_id = {f0}"),)),
    Plant("file-named-twice", "one file twice", change=_copied("data_file", where="data_file_id = {n0}", data_file_id="{free}"), also=("row-ids-overlap", "table-statistics-stale")),
    Plant("path-forbidden", "a path that leaves the lake", (_set("data_file", "path = '../../../../../etc/passwd'", "data_file_id = {n0}"),), also=("orphaned-file",)),
    Plant("file-format-unknown", "ORC", (_set("data_file", "file_format = 'orc'", "data_file_id = {n0}"),)),
    Plant("mapping-invalid", "to no column", (_set("name_mapping", "target_field_id = 77", "source_name = 'a'"),)),
    Plant("mapping-invalid", "from no column", (_set("name_mapping", "source_name = 'zz'", "source_name = 'a'"),)),
    Plant("mapping-invalid", "from no directory", (_set("name_mapping", "is_partition = 1", "source_name = 'a'"),)),
    Plant("mapping-invalid", "of no columns", ("DELETE FROM ducklake_name_mapping",)),
    Plant("mapping-invalid", "of a kind of nobody", (_set("column_mapping", "type = 'map_by_moon'", "type = 'map_by_name'"),)),
    Plant("mapping-unknown", "no such mapping", (_set("data_file", "mapping_id = 777", "data_file_id = {n0}"),)),
    Plant("mapping-missing", "of an added file", (_set("data_file", "mapping_id = NULL", "data_file_id = {f0}"),)),
    Plant("partition-unknown", "keys of nobody", (_set("data_file", "partition_id = 777", "data_file_id = {p0}"),)),
    Plant("partition-values-incomplete", "a value is lost", ("DELETE FROM ducklake_file_partition_value WHERE data_file_id = {p0} AND partition_key_index = 1",)),
    Plant("partition-values-wrong", "another value", (_set("file_partition_value", "partition_value = '7'", "data_file_id = {p0} AND partition_key_index = 0"),)),
    Plant("partition-values-wrong", "another year", (_set("file_partition_value", "partition_value = '1999'", "data_file_id = {p1} AND partition_key_index = 1"),)),
    Plant("partition-values-wrong", "a year that statistics do not tell", (_set("file_partition_value", "partition_value = '1999'", "data_file_id = {p1} AND partition_key_index = 1"), "DELETE FROM ducklake_file_column_stats WHERE data_file_id = {p1}")),
    Plant("row-ids-overlap", "two files from 0 on", (_set("data_file", "row_id_start = 0", "data_file_id = {t1}"),)),
    Plant("row-ids-overlap", "at an earlier snapshot", (_set("data_file", "row_id_start = 0, end_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)", "data_file_id = {t1}"),)),
    Plant("lifetime-backwards", "deletes before their file", (_set("delete_file", "begin_snapshot = 1", "delete_file_id = {del}"),)),
    Plant("lifetime-backwards", "inlined deletes before their file", ("UPDATE ducklake_inlined_delete_{t} SET begin_snapshot = 0",)),
    Plant("row-id-beyond-next", "ids that come again", (_set("table_stats", "next_row_id = 3", "table_id = {n}"),)),
    Plant("delete-files-two", "two for one file", change=_copied("delete_file", where="delete_file_id = {del}", delete_file_id="0")),
    Plant("delete-files-two", "and one that ended between them", change=_two_now_and_before),
    Plant("delete-files-of-the-past", "two at an earlier snapshot", change=_two_in_the_past),
    Plant("delete-file-orphaned", "of no data file", change=_copied("delete_file", where="delete_file_id = {del}", delete_file_id="0", data_file_id="888")),
    Plant("delete-file-of-other-table", "of a file of another table", (_set("delete_file", "table_id = {n}, path = '../t/' || path", "delete_file_id = {del}"),)),
    Plant("delete-format-unknown", "a format of nobody", (_set("delete_file", "format = 'word'", "delete_file_id = {del}"),)),
    Plant("delete-count", "more than there are", (_set("delete_file", "delete_count = 500", "delete_file_id = {del}"),)),
    Plant("delete-count", "fewer than there are", (_set("delete_file", "delete_count = 7", "delete_file_id = {del}"),)),
    # Statistics
    Plant("statistics-orphaned", "of no file", (_set("file_column_stats", "data_file_id = 888", "data_file_id = {f0}"),)),
    Plant("statistics-orphaned", "values of no file", change=_copied("file_partition_value", where="data_file_id = {p0}", data_file_id="888")),
    Plant("statistics-column-unknown", "of no column", (_set("file_column_stats", "column_id = 88", _STATS),)),
    Plant("statistics-table-wrong", "of another table", (_set("file_column_stats", "table_id = {n}", _STATS),)),
    Plant("statistics-narrow", "NaN is hidden", (_set("file_column_stats", "contains_nan = 0", "table_id = {e}"),)),
    Plant("statistics-twice", "two rows", change=_copied("file_column_stats", where=_STATS)),
    Plant("statistics-counts", "no values", (_set("file_column_stats", "value_count = 0", _STATS),)),
    Plant("statistics-counts", "a NULL that is hidden", (_set("file_column_stats", "value_count = 20, null_count = 0", "data_file_id = {n0}"),)),
    Plant("statistics-invalid", "a bound that is no number", (_set("file_column_stats", "min_value = 'x?'", _STATS),)),
    Plant("statistics-invalid", "bounds the wrong way round", (_set("file_column_stats", "min_value = max_value, max_value = min_value", _STATS),)),
    Plant("statistics-narrow", "a maximum that is too small", (_set("file_column_stats", "max_value = '120'", _STATS),)),
    Plant("statistics-narrow", "a minimum that is too great, of a text", (_set("file_column_stats", "min_value = 'v11'", "data_file_id = {t1} AND column_id = 2"),)),
    Plant("table-statistics-missing", "none", ("DELETE FROM ducklake_table_stats WHERE table_id = {n}",)),
    Plant("table-statistics-twice", "two", change=_copied("table_stats", where="table_id = {n}")),
    Plant("table-statistics-stale", "too few rows", (_set("table_stats", "record_count = 3", "table_id = {n}"),)),
    Plant("table-statistics-orphaned", "of no table", change=_copied("table_stats", where="table_id = {n}", table_id="888")),
    Plant("table-bounds-invalid", "no numbers", (_set("table_column_stats", "min_value = 'x?'", _TSTATS),)),
    Plant("table-bounds-invalid", "two rows", change=_copied("table_column_stats", where=_TSTATS)),
    Plant("table-bounds-narrow", "too small", (_set("table_column_stats", "max_value = '120'", _TSTATS),)),
    Plant("table-bounds-narrow", "no NULLs", (_set("table_column_stats", "contains_null = 0", "table_id = {n}"),)),
    Plant("table-bounds-narrow", "inlined rows", (_set("table_column_stats", "max_value = '160'", _TSTATS),)),
    Plant("table-bounds-unknown", "as if only NULLs", (_set("table_column_stats", "min_value = NULL, max_value = NULL", _TSTATS),)),
    # Rows in the catalog
    Plant("inlined-table-missing", "registered only", ("INSERT INTO ducklake_inlined_data_tables VALUES ({n}, 'ducklake_inlined_data_{n}_9', 9)",), level="catalog"),
    Plant("inlined-table-invalid", "registered twice", ("INSERT INTO ducklake_inlined_data_tables SELECT * FROM ducklake_inlined_data_tables WHERE table_id = {t}",)),
    Plant("inlined-table-invalid", "no table of rows", ("INSERT INTO ducklake_inlined_data_tables VALUES ({n}, 'ducklake_snapshot', 9)",), level="catalog"),
    Plant("inlined-table-invalid", "for another version", (_set("inlined_data_tables", "schema_version = 99", "table_id = {t}"),)),
    Plant("inlined-table-invalid", "an ending that names have on MySQL alone", ("ALTER TABLE {inl} RENAME TO {inl}_0123456789ab", _set("inlined_data_tables", "table_name = '{inl}_0123456789ab'", "table_name = '{inl}'"))),
    Plant("inlined-table-dead", "of no table", ("CREATE TABLE ducklake_inlined_data_888_1 (row_id BIGINT)",)),
    Plant("inlined-table-dead", "deletes of no table", ("CREATE TABLE ducklake_inlined_delete_888 (file_id BIGINT)",)),
    Plant("inlined-table-dead", "rows that nobody reads", ("DELETE FROM ducklake_inlined_data_tables WHERE table_name = '{inl}'",)),
    Plant("inlined-row-twice", "a row again", ("INSERT INTO {inl} SELECT * FROM {inl} WHERE a = 200",)),
    Plant("row-id-beyond-next", "an inlined id", ("UPDATE {inl} SET row_id = 5000 WHERE a = 200",)),
    Plant("inlined-delete-beyond", "a row that is not there", ("INSERT INTO ducklake_inlined_delete_{t} VALUES ({t0}, 5000, 5)",)),
    Plant("inlined-delete-orphaned", "a file that is not there", ("INSERT INTO ducklake_inlined_delete_{t} VALUES (888, 1, 5)",)),
    Plant("inlined-delete-orphaned", "a file of another table", ("INSERT INTO ducklake_inlined_delete_{t} VALUES ({n0}, 1, 5)",)),
    Plant("inlined-delete-twice", "a row again", ("INSERT INTO ducklake_inlined_delete_{t} SELECT * FROM ducklake_inlined_delete_{t}",)),
    Plant("inlined-delete-twice", "a row that a delete file deletes", ("INSERT INTO ducklake_inlined_delete_{t} VALUES ({t0}, 5, 6)",)),
    # Schedule and objects in the store
    Plant("scheduled-live", "a live file", ("INSERT INTO ducklake_files_scheduled_for_deletion SELECT data_file_id, 'main/n/' || path, 1, '2024-01-01 00:00:00+00' FROM ducklake_data_file WHERE data_file_id = {n0}",)),
    Plant("scheduled-twice", "a file twice", ("INSERT INTO ducklake_files_scheduled_for_deletion SELECT * FROM ducklake_files_scheduled_for_deletion LIMIT 1",)),
    Plant("orphaned-file", "of a killed writer", change=_new_file("ducklake-0198c1f2-0000-7000-8000-000000000000.parquet")),
    Plant("foreign-file", "of somebody", change=_new_file("notes.parquet")),
    # Footers
    Plant("file-missing", "a data file", change=lambda lake: lake.path("n0").unlink()),
    Plant("file-missing", "a delete file", change=lambda lake: lake.path("del").unlink()),
    Plant("file-size", "a byte more", (_set("data_file", "file_size_bytes = file_size_bytes + 1", "data_file_id = {n0}"),)),
    Plant("footer-unreadable", "cut in half", change=_bytes("n0", lambda raw: raw[: len(raw) // 2])),
    Plant("footer-size", "a byte more", (_set("data_file", "footer_size = footer_size + 1", "data_file_id = {n0}"),)),
    Plant("record-count", "another number of rows", (_set("data_file", "record_count = 21", "data_file_id = {n0}"), _set("file_column_stats", "value_count = 20", "data_file_id = {n0}"), _set("table_stats", "record_count = 99, next_row_id = 99", "table_id = {n}"))),
    Plant("row-ids-missing", "no first one", (_set("data_file", "row_id_start = NULL", "data_file_id = {n0}"),)),
    Plant("snapshot-ids-missing", "a file of several snapshots", (_set("data_file", "partial_max = begin_snapshot + 1", "data_file_id = {n0}"),)),
    # Rows
    Plant("rows-unreadable", "a page that is spoiled", change=_bytes("n0", lambda raw: raw[:20] + bytes([255]) * 40 + raw[60:])),
    Plant("rows-unreadable", "an inlined value that is none", ("UPDATE {inl} SET x = 'x?' WHERE a = 201",)),
    Plant("delete-file-invalid", "positions out of order", change=_delete_positions(lambda table: table.take(list(range(table.num_rows))[::-1]))),
    Plant("delete-file-invalid", "deletes of another file", change=_delete_positions(lambda table: table.set_column(0, "file_path", pa.array(["x/other.parquet"] * table.num_rows)))),
    Plant("null-not-allowed", "NULL where it must not be", (_set("column", "nulls_allowed = 0", "table_id = {n}"),)),
    Plant("file-differs", "a file with other rows", change=_rewrite("t1", lambda table: _replaced(table, "a", 149_000))),
    Plant("file-differs", "a file with other rows, all of which statistics enclose", change=_rewrite("t1", lambda table: _replaced(table, "b", "v123"))),
    Plant("file-differs", "a file with other numbers, all of which statistics enclose", change=_rewrite("t1", lambda table: _replaced(table, "x", 70.0))),
    Plant("row-id-twice", "an inlined row has the id of a row of a file", ("UPDATE {inl} SET row_id = 60 WHERE a = 200",)),
    Plant("snapshot-ids-wrong", "a row of a later snapshot", change=lambda lake: lake.rewrite("m0", _later)),
)  # fmt: skip
