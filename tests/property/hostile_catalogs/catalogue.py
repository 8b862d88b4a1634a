"""The catalogue of damage: what is done to the catalog or the files, what a check finds, and what a read answers."""

# ruff: noqa: E501 - one kind of damage a line reads best

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core.errors import DuckLakeError
from tests.property.hostile_catalogs.lake import DamagedLake


@dataclass(frozen=True)
class Damage:
    """One kind of damage to the lake of ``lake.py``.

    Attributes:
        codes: Codes of the findings of a check, separated by spaces; empty for none, ``?`` where the catalog cannot be opened or checked.
        name: What is wrong.
        statements: SQL on the catalog. ``{t}`` is the id of table t, ``{t0}`` that of its first file, ``{del}`` that of its delete file,
            ``{inl}`` its table of inlined rows; ``{rdel}`` and ``{rinl}`` are those of table r.
        error: What a read of table r raises; without it every row must still come out right.
        message: Pattern of the error's message.
        change: What else is done.
        level: The deepest level at which a check finds these codes alone.
    """

    codes: str
    name: str
    statements: tuple[str, ...] = ()
    error: type[DuckLakeError] | None = None
    message: str = ""
    change: Callable[[DamagedLake], object] | None = None
    level: str = "rows"

    def __str__(self) -> str:
        return f"{self.codes.split()[0]}: {self.name}" if self.codes.strip("?") else self.name

    def do(self, lake: DamagedLake) -> DamagedLake:
        """Damage a lake."""
        lake.edit(*self.statements)
        if self.change is not None:
            self.change(lake)
        return lake


def _set(table: str, changes: str, where: str = "") -> str:
    return f"UPDATE ducklake_{table} SET {changes}{' WHERE ' + where if where else ''}"


def _copied(table: str, **changes: str) -> Callable[[DamagedLake], object]:
    """Insert the first row that matches ``where`` once more, with other values."""
    where = changes.pop("where")

    def copy(lake: DamagedLake) -> None:
        names = [row[1] for row in lake.query(f"PRAGMA table_info(ducklake_{table})")]
        values = ", ".join(changes.get(name, f'"{name}"') for name in names)
        lake.edit(f"INSERT INTO ducklake_{table} SELECT {values} FROM ducklake_{table} WHERE {where} LIMIT 1")

    return copy


def _rewrite(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[DamagedLake], object]:
    return lambda lake: lake.rewrite(name, change)


def _replaced(table: pa.Table, column: str, value: object) -> pa.Table:
    """The table with another value in the first row of a column."""
    index, array = table.schema.get_field_index(column), table.column(column).combine_chunks()
    changed = pa.concat_arrays([pa.array([value], array.type), array.slice(1)])
    return table.set_column(index, table.schema.field(index), changed)


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[DamagedLake], object]:
    def spoil(lake: DamagedLake) -> None:
        path = lake.path(name)
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _delete_positions(change: Callable[[pa.Table], pa.Table]) -> Callable[[DamagedLake], object]:
    def spoil(lake: DamagedLake) -> None:
        path = lake.path("del")
        table = change(pq.read_table(path))
        pq.write_table(table, path)
        size = int.from_bytes(path.read_bytes()[-8:-4], "little")
        changes = f"file_size_bytes = {path.stat().st_size}, footer_size = {size}, delete_count = {table.num_rows}"
        lake.edit(_set("delete_file", changes, "delete_file_id = {del}"))

    return spoil


def _new_file(name: str) -> Callable[[DamagedLake], object]:
    def make(lake: DamagedLake) -> None:
        pq.write_table(pa.table({"a": [1]}), f"{lake.address.data_path}main/t/{name}")

    return make


def _two_in_the_past(lake: DamagedLake) -> None:
    lake.edit(_set("delete_file", "end_snapshot = begin_snapshot + 2", "delete_file_id = {del}"))
    _copied("delete_file", where="delete_file_id = {del}", delete_file_id="0", end_snapshot="NULL")(lake)


def _two_now_and_before(lake: DamagedLake) -> None:
    """One that ended lies between the two live ones."""
    _copied("delete_file", where="delete_file_id = {del}", delete_file_id="0", begin_snapshot="begin_snapshot + 2")(lake)
    _copied(
        "delete_file",
        where="delete_file_id = {del}",
        delete_file_id="-1",
        begin_snapshot="begin_snapshot + 1",
        end_snapshot="begin_snapshot + 2",
    )(lake)


def _second_macro(lake: DamagedLake) -> None:
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


def _columns(values: str) -> str:
    names = "column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, column_type, nulls_allowed, parent_column"
    return f"INSERT INTO ducklake_column ({names}) VALUES ({values})"


def _delete_file(number: int, path: str = "path") -> str:
    return (
        f"INSERT INTO ducklake_delete_file SELECT {number}, table_id, begin_snapshot, end_snapshot, data_file_id, {path}, path_is_relative, "
        "format, delete_count, file_size_bytes, footer_size, encryption_key, partial_max FROM ducklake_delete_file WHERE delete_file_id = {rdel}"
    )


_copied_file = (
    "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, end_snapshot, path, path_is_relative, file_format, record_count, "
    "file_size_bytes, row_id_start) SELECT 88, table_id, NULL, 2, path, path_is_relative, file_format, record_count, file_size_bytes, "
    "row_id_start FROM ducklake_data_file WHERE data_file_id = {r1}"
)


READ = (
    Damage("", "unknown tables and keys", ("CREATE TABLE ducklake_news (x BIGINT)", "INSERT INTO ducklake_metadata VALUES ('k', 'v', NULL, NULL)")),
    Damage("option-scope", "unknown scope", ("INSERT INTO ducklake_metadata VALUES ('k', 'v', 'galaxy', 1)",)),
    Damage("?", "unknown version", (_set("metadata", "value = '2.0'", "key = 'version'"),), DuckLakeError, "2.0"),
    Damage("?", "a version that has other tables", (_set("metadata", "value = '1.1'", "key = 'version'"),), DuckLakeError, "parent_schema_id"),
    Damage("table-statistics-missing", "no table_stats", ("DELETE FROM ducklake_table_stats",)),
    Damage("cell-missing", "NULL table_stats", (_set("table_stats", "record_count = NULL, file_size_bytes = NULL, next_row_id = NULL"),)),
    Damage("", "no table_column_stats", ("DELETE FROM ducklake_table_column_stats",)),
    Damage("table-bounds-unknown", "NULL table_column_stats", (_set("table_column_stats", "min_value = NULL, max_value = NULL"),)),
    Damage("table-bounds-invalid table-bounds-narrow", "garbage table_column_stats", (_set("table_column_stats", "min_value = 'x?', max_value = 'y?'"),)),
    Damage("table-bounds-invalid table-bounds-narrow", "narrow table_column_stats", (_set("table_column_stats", "min_value = '7', max_value = '7'"),)),
    Damage("", "no file_column_stats", ("DELETE FROM ducklake_file_column_stats",)),
    Damage("", "NULL bounds", (_set("file_column_stats", "min_value = NULL, max_value = NULL"),)),
    Damage("", "NULL value_count", (_set("file_column_stats", "value_count = NULL"),)),
    Damage("", "NULL null_count", (_set("file_column_stats", "null_count = NULL"),)),
    Damage("statistics-counts", "value_count 0", (_set("file_column_stats", "value_count = 0"),)),
    Damage("statistics-counts", "null_count 0", (_set("file_column_stats", "null_count = 0"),)),
    Damage("statistics-counts", "negative value_count", (_set("file_column_stats", "value_count = -1, null_count = 11"),)),
    Damage("statistics-counts", "negative null_count", (_set("file_column_stats", "value_count = 11, null_count = -1"),)),
    Damage("statistics-invalid", "bounds that are no values", (_set("file_column_stats", "min_value = 'zz?', max_value = '!'", "column_id <> 2"),)),
    Damage("statistics-invalid", "bounds that look like days", (_set("file_column_stats", "min_value = '9999-99-99', max_value = '0000-00-00'", "column_id = 6"),)),
    Damage("statistics-invalid", "bounds that are empty", (_set("file_column_stats", "min_value = '', max_value = ''", "column_id <> 2"),)),
    Damage("statistics-invalid", "bounds with a fraction", (_set("file_column_stats", "min_value = '1e3', max_value = '-1.5x'", "column_id IN (1, 5)"),)),
    Damage("statistics-invalid", "swapped bounds", (_set("file_column_stats", "min_value = max_value, max_value = min_value"),)),
    Damage("statistics-invalid", "swapped bounds of one file", (_set("file_column_stats", "min_value = max_value, max_value = min_value", "data_file_id = {r1}"),)),
    Damage("footer-size", "footer_size 0", (_set("data_file", "footer_size = 0"),)),
    Damage("footer-size", "footer_size 1", (_set("data_file", "footer_size = 1"),)),
    Damage("footer-size", "footer_size huge", (_set("data_file", "footer_size = 99999999999"),)),
    Damage("", "footer_size NULL", (_set("data_file", "footer_size = NULL"),)),
    Damage("cell-missing", "file_size_bytes NULL", (_set("data_file", "file_size_bytes = NULL"),)),
    Damage("file-size", "file_size_bytes 0", (_set("data_file", "file_size_bytes = 0"),)),
    Damage("file-size", "file_size_bytes huge", (_set("data_file", "file_size_bytes = 9223372036854775807"),)),
    Damage("file-numbers file-size", "file_size_bytes negative", (_set("data_file", "file_size_bytes = -5"),)),
    Damage("delete-count inlined-delete-beyond record-count statistics-counts", "record_count too small", (_set("data_file", "record_count = 5"),)),
    Damage("record-count row-id-beyond-next row-ids-overlap statistics-counts table-statistics-stale", "record_count too large", (_set("data_file", "record_count = 50"),)),
    Damage("record-count statistics-counts", "record_count 0", (_set("data_file", "record_count = 0", "data_file_id = {r1}"),)),
    Damage("delete-count record-count statistics-counts", "record_count 0 next to deletes", (_set("data_file", "record_count = 0", "data_file_id = {r0}"),), DuckLakeError, "counts 0 rows"),
    Damage("file-numbers record-count statistics-counts", "record_count negative", (_set("data_file", "record_count = -1", "data_file_id = {r1}"),)),
    Damage("cell-missing", "record_count NULL", (_set("data_file", "record_count = NULL"),), DuckLakeError, "data file {r0} of table main.r"),
    Damage("cell-missing", "a data file without begin_snapshot", (_set("data_file", "begin_snapshot = NULL", "data_file_id = {r1}"),), DuckLakeError, "data file {r1} of table main.r"),
    Damage("cell-missing", "a file that ended without begin_snapshot", (_copied_file,)),
    Damage("cell-missing", "a delete file without begin_snapshot", (_set("delete_file", "begin_snapshot = NULL"),), DuckLakeError, "delete file {rdel} of data file {r0} of table main.r"),
    Damage("cell-invalid", "inlined rows without begin_snapshot", ("UPDATE {rinl} SET begin_snapshot = NULL",), DuckLakeError, "{rinl}"),
    Damage("delete-count", "delete_count wrong", (_set("delete_file", "delete_count = 7"),)),
    Damage("cell-missing", "delete_count NULL", (_set("delete_file", "delete_count = NULL, file_size_bytes = NULL, footer_size = NULL"),)),
    Damage("row-ids-missing", "row_id_start NULL", (_set("data_file", "row_id_start = NULL"),)),
    Damage("row-ids-overlap", "overlapping row ids", (_set("data_file", "row_id_start = 0"),)),
    Damage("delete-files-two snapshot-counters", "two delete files", (_delete_file(77),)),
    Damage("delete-files-two file-missing snapshot-counters", "a delete file that is gone", (_delete_file(77, "'gone.parquet'"),), DuckLakeError, "gone.parquet"),
    Damage("file-numbers snapshot-ids-missing", "partial_max without snapshot ids", (_set("data_file", "partial_max = 99"),), DuckLakeError, "snapshot"),
    Damage("file-format-unknown", "unknown file_format", (_set("data_file", "file_format = 'word'"),)),
    Damage("", "format NULL", (_set("delete_file", "format = NULL"),)),
    Damage("", "format PARQUET", (_set("delete_file", "format = 'PARQUET'"),)),
    Damage("delete-format-unknown", "unknown delete format", (_set("delete_file", "format = 'word'"),), DuckLakeError, "word"),
    Damage("snapshot-changes", "no snapshot_changes", ("DELETE FROM ducklake_snapshot_changes",)),
    Damage("", "unknown change", (_set("snapshot_changes", "changes_made = 'danced:1'"),)),
    Damage("schema-version-missing", "no schema_versions", ("DELETE FROM ducklake_schema_versions",)),
    Damage("schema-version-missing", "schema_versions without a table", (_set("schema_versions", "table_id = NULL"),)),
    Damage("dropped-table-alive", "the table is dropped, its files live", (_set("table", "end_snapshot = {last}", "table_id = {r}"),), DuckLakeError, "no table main.r"),
    Damage("rows-unreadable schema-missing", "the schema is dropped, its table lives", (_set("schema", "end_snapshot = {last}"),), DuckLakeError, "no table main.r"),
    Damage("columns-missing", "no columns", (_set("column", "end_snapshot = {last}", "table_id = {r}"),), DuckLakeError, "main.r has no columns"),
    Damage("columns-missing", "no columns of another table", (_set("column", "end_snapshot = {last}", "table_id = {n}"),)),
    Damage("type-unknown", "unknown type", (_set("column", "column_type = 'tensor'", "column_id = 1 AND table_id = {r}"),), DuckLakeError, "tensor"),
    Damage("type-unknown", "unknown type in another table", (_set("column", "column_type = 'tensor'", "table_id = {n}"),)),
    Damage("cell-missing statistics-column-unknown table-bounds-invalid", "no type", (_set("column", "column_type = NULL", "column_id = 1 AND table_id = {r}"),), DuckLakeError, "'a'"),
    Damage("default-invalid", "default without its kind", (_set("column", "default_value = 'x', default_value_type = NULL"),)),
    Damage("cell-missing columns-missing columns-of-the-past mapping-invalid partition-key-invalid sort-order-invalid statistics-column-unknown table-bounds-invalid", "nulls_allowed NULL", (_set("column", "nulls_allowed = NULL"),)),
    Damage("", "column_order NULL", (_set("column", "column_order = NULL"),)),
    Damage("", "column_order all the same", (_set("column", "column_order = 1"),)),
    Damage("", "uuid NULL", (_set("table", "table_uuid = NULL"), _set("schema", "schema_uuid = NULL"))),
    Damage("cell-missing file-missing", "paths NULL", (_set("table", "path = NULL"),), DuckLakeError, "there is no file"),
    Damage("cell-missing foreign-file orphaned-file", "path of a file NULL", (_set("data_file", "path = NULL"),), DuckLakeError, "data file"),
    Damage("file-added-twice file-unreachable foreign-file orphaned-file", "path of a file empty", (_set("data_file", "path = ''"),), DuckLakeError, "data file {r0}"),
    Damage("snapshot-counters", "schema_version stands still", (_set("snapshot", "schema_version = 0, next_file_id = 0"),)),
    Damage("inlined-table-missing", "inlined table registered but missing", ("DROP TABLE {rinl}",), DuckLakeError, "{rinl}"),
    Damage("rows-unreadable", "inlined table with a column less", ("ALTER TABLE {rinl} DROP COLUMN flag",), DuckLakeError, "{rinl}"),
    Damage("inlined-table-invalid", "inlined table registered twice", ("INSERT INTO ducklake_inlined_data_tables VALUES ({r}, '{rinl}', {version})",)),
    Damage("cell-missing inlined-table-dead inlined-table-missing", "inlined table without a name", (_set("inlined_data_tables", "table_name = NULL", "table_id = {r}"),), DuckLakeError, "inlined"),
    Damage("cell-missing", "inlined table without a version", (_set("inlined_data_tables", "schema_version = NULL", "table_id = {r}"),), DuckLakeError, "inlined"),
    Damage("rows-unreadable", "garbage in an inlined struct", ("UPDATE {rinl} SET s = '{{x: yes}}'",), DuckLakeError, "'s'"),
    Damage("partition-unknown", "dangling partition id", (_set("data_file", "partition_id = 99"),)),
    Damage("partition-unknown", "partition value of no key", ("INSERT INTO ducklake_file_partition_value VALUES ({r0}, {r}, 0, '77')", _set("data_file", "partition_id = 99"))),
    Damage("partition-unknown", "partition spec without keys", ("INSERT INTO ducklake_partition_info VALUES (9, {r}, 1, NULL)", _set("data_file", "partition_id = 9"))),
    Damage("partition-unknown partition-values-incomplete partition-values-wrong", "values of the wrong keys",
        (
            "INSERT INTO ducklake_partition_info VALUES (9, {r}, 1, NULL)",
            "INSERT INTO ducklake_partition_column VALUES (9, {r}, 0, 2, 'bucket(4)')",
            "INSERT INTO ducklake_file_partition_value VALUES ({r0}, {r}, 7, '0'), ({r1}, {r}, 7, '0')",
            _set("data_file", "partition_id = 9"),
        ),
    ),
    Damage("encryption-key-missing", "a lake that is not encrypted", (_set("metadata", "value = 'true'", "key = 'encrypted'"),), DuckLakeError, "main.r"),
    Damage("encryption-key-missing", "garbage keys", (_set("metadata", "value = 'true'", "key = 'encrypted'"), _set("data_file", "encryption_key = '?'")), DuckLakeError, "key"),
    Damage("", "a key without an encrypted lake", (_set("data_file", "encryption_key = '?'"),)),
    Damage("", "contains_null 0", (_set("table_column_stats", "contains_null = NULL"),)),
    Damage("mapping-unknown", "dangling mapping", (_set("data_file", "mapping_id = 99"),), DuckLakeError, "main.r.*99"),
    Damage("statistics-column-unknown", "statistics of unknown columns", ("INSERT INTO ducklake_file_column_stats VALUES ({r0}, {r}, 99, 1, 1, 1, 'a', 'b', NULL, NULL)",)),
    Damage("columns-invalid", "a parent of itself", (_set("column", "parent_column = 5", "column_id = 5 AND table_id = {r}"),), DuckLakeError, "main.r"),
    Damage("columns-invalid", "parents in a circle", (_set("column", "parent_column = 5", "column_id = 4 AND table_id = {r}"),), DuckLakeError, "main.r"),
    Damage("cell-missing", "a child of itself besides", (_columns("4, {begin}, NULL, {r}, 1, 's', 'struct', NULL, 4"),), DuckLakeError, "main.r"),
    Damage("columns-invalid", "a child without its parent", (_set("column", "parent_column = 99", "column_id = 5 AND table_id = {r}"),), DuckLakeError, "main.r"),
    Damage("cell-missing", "the same column twice", (_columns("1, {begin}, NULL, {r}, 1, 'other', 'varchar', NULL, NULL"),), DuckLakeError, "main.r"),
    Damage("cell-missing", "two columns of one name", (_columns("9, {begin}, NULL, {r}, 9, 'A', 'varchar', NULL, NULL"),), DuckLakeError, "main.r"),
    Damage("cell-missing statistics-column-unknown table-bounds-invalid", "a column without a name", (_set("column", "column_name = NULL", "column_id = 2 AND table_id = {r}"),), DuckLakeError, "main.r"),
    Damage("comment-twice", "two comments", ("INSERT INTO ducklake_column_tag VALUES ({r}, 1, 1, NULL, 'comment', 'x'), ({r}, 1, 1, NULL, 'comment', 'y')",)),
    Damage("comment-twice", "two comments of the table", ("INSERT INTO ducklake_tag VALUES ({r}, 1, NULL, 'comment', 'x'), ({r}, 1, NULL, 'comment', 'y')",)),
    Damage("name-twice", "two tables of one name", (_set("table", "table_name = 'R'", "table_id = {n}"),), DuckLakeError, "two tables"),
    Damage("file-missing table-twice", "two live rows of one table", ("INSERT INTO ducklake_table SELECT table_id, table_uuid, {last} - 1, NULL, schema_id, 'r', 'o/', path_is_relative FROM ducklake_table WHERE table_id = {r}",), DuckLakeError, "two tables"),
    Damage("snapshot-changes", "gaps between snapshots", ("DELETE FROM ducklake_snapshot WHERE snapshot_id IN (2, 4)", "DELETE FROM ducklake_snapshot_changes")),
    Damage("cell-missing dropped-table-alive file-numbers snapshot-unknown", "no snapshots", ("DELETE FROM ducklake_snapshot",), DuckLakeError, "no snapshot"),
    Damage("?", "no data path", ("DELETE FROM ducklake_metadata WHERE key = 'data_path'",), DuckLakeError, "data_path"),
    Damage("orphaned-file path-forbidden", "a file outside", (_set("data_file", "path = '../../../x.parquet'", "data_file_id = {r1}"),), DuckLakeError, "data file {r1}"),
)  # fmt: skip

READ_IN_SQLITE = (
    Damage("", "path_is_relative as text", (_set("data_file", "path_is_relative = 'true'"),)),
    Damage("cell-invalid", "path_is_relative is garbage", (_set("data_file", "path_is_relative = 'maybe'"),), DuckLakeError, "maybe"),
    Damage("cell-invalid", "snapshot_time as integer", (_set("snapshot", "snapshot_time = 17"),), DuckLakeError, "17"),
    Damage("", "snapshot_time without a zone", (_set("snapshot", "snapshot_time = '2024-01-01 00:00:00'"),)),
    Damage("cell-invalid", "snapshot_time of no calendar", (_set("snapshot", "snapshot_time = '2024-13-45 00:00:00'"),), DuckLakeError, "2024-13-45"),
    Damage("cell-invalid", "snapshot_time of no clock", (_set("snapshot", "snapshot_time = '2024-01-01 00:00:00+99'"),), DuckLakeError, "99"),
    Damage("cell-invalid", "snapshot_time before all time", (_set("snapshot", "snapshot_time = '0001-01-01 00:00:00+14'"),), DuckLakeError, "0001"),
    Damage("cell-missing dropped-table-alive file-numbers snapshot-unknown", "snapshot_time NULL", (_set("snapshot", "snapshot_time = NULL"),)),
    Damage("cell-invalid", "record_count is text", (_set("data_file", "record_count = 'many'"),), DuckLakeError, "data file"),
    Damage("cell-invalid", "file_size_bytes is text", (_set("data_file", "file_size_bytes = 'big'"),), DuckLakeError, "data file"),
    Damage("cell-invalid", "row_id_start is text", (_set("data_file", "row_id_start = 'x'"),), DuckLakeError, "data file"),
    Damage("cell-invalid", "value_count is text", (_set("file_column_stats", "value_count = 'x'"),)),
    Damage("cell-invalid", "null_count is text", (_set("file_column_stats", "null_count = 'x'"),)),
    Damage("cell-invalid", "value_count 0 and null_count text", (_set("file_column_stats", "value_count = 0, null_count = 'x'"),)),
    Damage("cell-invalid", "least values are blobs", (_set("file_column_stats", "min_value = CAST(min_value AS BLOB)"),)),
    Damage("cell-invalid", "greatest values are blobs", (_set("file_column_stats", "max_value = CAST(max_value AS BLOB)"),)),
    Damage("cell-invalid", "bounds are blobs", (_set("file_column_stats", "min_value = x'ff', max_value = x'00'"),)),
    Damage("cell-invalid", "bounds are swapped blobs", (_set("file_column_stats", "min_value = CAST(max_value AS BLOB), max_value = CAST(min_value AS BLOB)"),)),
    Damage("cell-invalid orphaned-file", "path of a file is a blob", (_set("data_file", "path = x'ff'", "data_file_id = {r1}"),), DuckLakeError, "data file {r1}"),
    Damage("cell-invalid partition-values-incomplete", "a partition value is a blob",
        (
            "INSERT INTO ducklake_partition_info VALUES (9, {r}, 1, NULL)",
            "INSERT INTO ducklake_partition_column VALUES (9, {r}, 0, 2, 'identity')",
            "INSERT INTO ducklake_file_partition_value VALUES ({r1}, {r}, 0, x'763035')",
            _set("data_file", "partition_id = 9", "data_file_id = {r1}"),
        ),
        DuckLakeError,
        "data file {r1}",
    ),
    Damage("cell-invalid statistics-column-unknown table-bounds-invalid", "column_order is text", (_set("column", "column_order = 'x'", "column_id = 2 AND table_id = {r}"),), DuckLakeError, "main.r"),
    Damage("", "uuid is none", (_set("table", "table_uuid = 'x'"),)),
    Damage("rows-unreadable", "garbage in an inlined integer", ("UPDATE {rinl} SET a = 'seven'",), DuckLakeError, "'a'"),
    Damage("rows-unreadable", "a fraction in an inlined integer", ("UPDATE {rinl} SET a = 7.5",), DuckLakeError, "'a'"),
    Damage("rows-unreadable", "an inlined integer out of range", ("UPDATE {rinl} SET a = 99999999999",), DuckLakeError, "'a'"),
    Damage("rows-unreadable", "garbage in an inlined boolean", ("UPDATE {rinl} SET flag = 'maybe'",), DuckLakeError, "'flag'"),
    Damage("rows-unreadable", "an inlined boolean of 7", ("UPDATE {rinl} SET flag = 7",), DuckLakeError, "'flag'"),
    Damage("rows-unreadable", "garbage in an inlined date", ("UPDATE {rinl} SET day = '2024-13-01'",), DuckLakeError, "'day'"),
    Damage("rows-unreadable", "an inlined text that is a blob", ("UPDATE {rinl} SET b = x'ff'",), DuckLakeError, "'b'"),
    Damage("cell-invalid", "an inlined row id that is text", ("UPDATE {rinl} SET row_id = 'x'",), DuckLakeError, "row_id"),
    Damage("cell-invalid", "an inlined delete that is text", ("CREATE TABLE ducklake_inlined_delete_{r} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)", "INSERT INTO ducklake_inlined_delete_{r} VALUES ({r1}, 'x', 2)"), DuckLakeError, "data file {r1}"),
    Damage("cell-invalid", "an inlined delete of NULL", ("CREATE TABLE ducklake_inlined_delete_{r} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)", "INSERT INTO ducklake_inlined_delete_{r} VALUES ({r1}, NULL, 2)"), DuckLakeError, "data file {r1}"),
    Damage("cell-invalid", "a data file whose begin_snapshot is text", (_set("data_file", "begin_snapshot = 'x'", "data_file_id = {r1}"),), DuckLakeError, "data file {r1} of table main.r"),
    Damage("cell-invalid", "a data file whose end_snapshot is text", (_set("data_file", "end_snapshot = 'x'", "data_file_id = {r1}"),), DuckLakeError, "data file {r1} of table main.r"),
    Damage("cell-invalid", "a delete file whose begin_snapshot is text", (_set("delete_file", "begin_snapshot = 'x'"),), DuckLakeError, "delete file {rdel} of data file {r0}"),
    Damage("cell-invalid", "inlined rows whose begin_snapshot is text", ("UPDATE {rinl} SET begin_snapshot = 'x'",), DuckLakeError, "{rinl}"),
    Damage("rows-unreadable", "an inlined struct that is no struct", ("UPDATE {rinl} SET s = '{{''x'': '",), DuckLakeError, "'s'"),
    Damage("rows-unreadable", "an inlined struct with garbage inside", ("UPDATE {rinl} SET s = '{{''x'': seven}}'",), DuckLakeError, "'s'"),
    Damage("rows-unreadable", "an inlined struct of another field", ("UPDATE {rinl} SET s = '{{''y'': 7}}'",), DuckLakeError, "'s'"),
    Damage("rows-unreadable", "an inlined struct that is a number", ("UPDATE {rinl} SET s = 7",), DuckLakeError, "'s'"),
    Damage("cell-invalid", "inlined schema_version is text", (_set("inlined_data_tables", "schema_version = 'x'", "table_id = {r}"),), DuckLakeError, "inlined"),
)  # fmt: skip

FOUND = (
    # Rows of the catalog
    Damage("cell-invalid", "a count that is a text", (_set("data_file", "record_count = 'many'", "data_file_id = {f0}"),)),
    Damage("cell-missing", "a file without a size", (_set("data_file", "file_size_bytes = NULL", "data_file_id = {f0}"),)),
    Damage("cell-missing", "a snapshot without a counter", (_set("snapshot", "schema_version = NULL", "snapshot_id = 1"),)),
    Damage("snapshot-counters", "next_file_id falls", (_set("snapshot", "next_file_id = 2", "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"),)),
    Damage("snapshot-counters", "next_catalog_id falls", (_set("snapshot", "next_catalog_id = 1", "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"),)),
    Damage("snapshot-changes", "unknown words", (_set("snapshot_changes", "changes_made = 'nonsense:\"x'", "snapshot_id = 2"),)),
    Damage("snapshot-unknown", "a file ends in the future", (_set("data_file", "end_snapshot = 900", "data_file_id = {f0}"),)),
    Damage("lifetime-backwards columns-of-the-past", "a column ends before it begins", (_set("column", "begin_snapshot = 18, end_snapshot = 3", "table_id = {gone}"),)),
    Damage("setting-twice", "two data paths", ("INSERT INTO ducklake_metadata SELECT * FROM ducklake_metadata WHERE key = 'created_by'",)),
    Damage("option-scope", "an option of no table", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', '100', 'table', NULL)",)),
    Damage("cell-invalid", "encrypted or not", (_set("metadata", "value = 'maybe'", "key = 'encrypted'"),)),
    Damage("hold-invalid", "unknown words", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.hold:x', 'garbage', NULL, NULL)",)),
    Damage("hold-of-no-snapshot", "on a snapshot that has expired", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.hold:x', '{{\"name\": \"X\", \"snapshot\": 2}}', NULL, NULL)", "DELETE FROM ducklake_snapshot WHERE snapshot_id = 2", "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 2")),
    Damage("hold-of-no-snapshot", "on a snapshot to come", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.hold:x', '{{\"name\": \"X\", \"snapshot\": 900, \"until\": \"2999-01-01T00:00:00+00:00\"}}', NULL, NULL)",)),
    Damage("running-write-invalid", "unknown words", ("INSERT INTO ducklake_metadata VALUES ('ducklake_core.write:x', 'garbage', NULL, NULL)",)),
    Damage("snapshot-counters", "schema_version falls", (_set("snapshot", "schema_version = 1", "snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot)"),)),
    Damage("snapshot-changes", "missing changes", ("DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 3",)),
    Damage("snapshot-unknown", "a comment of the future", (_set("tag", "begin_snapshot = 900", "key = 'comment'"),)),
    Damage("snapshot-unknown", "a version of the future", ("INSERT INTO ducklake_schema_versions VALUES (900, 1, {t})",)),
    Damage("snapshot-unknown", "changes of the next snapshot", ("INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) SELECT max(snapshot_id) + 1, '' FROM ducklake_snapshot",)),
    Damage("cell-missing schema-version-missing", "a schema version without a number", (_set("schema_versions", "schema_version = NULL", "table_id = {t}"),)),
    Damage("cell-missing", "a table without a path", (_set("table", "path_is_relative = NULL", "table_id = {t}"),)),
    Damage("cell-invalid", "inlined rows without ids", ("ALTER TABLE {inl} RENAME COLUMN row_id TO id",)),
    Damage("cell-invalid", "inlined deletes of no file", ("ALTER TABLE ducklake_inlined_delete_{t} RENAME COLUMN file_id TO id",)),
    Damage("cell-invalid", "a negative size", (_set("table_stats", "file_size_bytes = -1", "table_id = {t}"),)),
    Damage("view-invalid", "columns of a view", (_set("view", "column_aliases = '(('", "view_name = 'w'"),)),
    Damage("macro-invalid", "no definition", ("DELETE FROM ducklake_macro_impl",)),
    Damage("macro-invalid", "an unknown definition", (_set("macro_impl", "type = 'dance'", "type = 'scalar'"),)),
    Damage("macro-invalid", "an expression that does not parse", (_set("macro_impl", "sql = '(q +'", "type = 'scalar'"),)),
    Damage("macro-invalid", "a query that does not parse", (_set("macro_impl", "sql = 'SELEC 1', type = 'table'", "type = 'scalar'"),)),
    Damage("macro-invalid", "a definition in no dialect", (_set("macro_impl", "dialect = NULL", "type = 'scalar'"),)),
    Damage("macro-invalid", "parameters of nothing", (_set("macro_parameters", "impl_id = 99", "impl_id IS NOT NULL"),)),
    Damage("macro-invalid", "no SQL", (_set("macro_impl", "sql = NULL", "type = 'scalar'"),)),
    Damage("macro-invalid", "a parameter without a name", (_set("macro_parameters", "parameter_name = NULL", "impl_id IS NOT NULL"),)),
    Damage("macro-invalid", "a parameter of an unknown type", (_set("macro_parameters", "parameter_type = 'tensor'", "impl_id IS NOT NULL"),)),
    Damage("schema-missing", "a macro in no schema", (_set("macro", "schema_id = 77", "macro_name = 'mac'"),)),
    Damage("option-invalid", "a size that is none", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', 'big', 'table', {t})",)),
    # Schemas, tables, columns
    Damage("name-twice", "a table is called like a view", (_set("view", "view_name = 'F'", "view_name = 'w'"),)),
    Damage("name-twice", "two schemas of one name", change=_copied("schema", where="schema_name = 'main'", schema_id="1", schema_name="'MAIN'")),
    Damage("name-twice", "two macros of one name", change=_second_macro),
    Damage("schema-missing", "a view in no schema", (_set("view", "schema_id = 77", "view_name = 'w'"),)),
    Damage("schema-missing", "tables before their schema", (_set("schema", "begin_snapshot = 3", "schema_name = 'main'"),)),
    Damage("lifetime-backwards", "files and inlined rows before their table", (_set("table", "begin_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)", "table_id = {t}"),)),
    Damage("lifetime-backwards", "an inlined row before its table", ("UPDATE {inl} SET begin_snapshot = 0 WHERE a = 200",)),
    Damage("column-twice", "two columns of one name", change=_copied("column", where="table_id = {n}", column_id="2", column_name="'A'")),
    Damage("column-twice", "one row twice", ("INSERT INTO ducklake_column SELECT * FROM ducklake_column WHERE table_id = {n}",)),
    Damage("columns-invalid", "a column below nothing", change=_copied("column", where="table_id = {n}", column_id="2", column_name="'q'", parent_column="77")),
    Damage("columns-of-the-past", "two names at an earlier snapshot", (_set("column", "end_snapshot = end_snapshot + 1", "table_id = {d} AND end_snapshot IS NOT NULL"),)),
    Damage("columns-of-the-past", "an unknown type at an earlier snapshot", (_set("column", "column_type = 'tensor'", "table_id = {d} AND end_snapshot IS NOT NULL"),), level="catalog"),
    Damage("default-invalid", "no number for rows of before", (_set("column", "initial_default = 'x?'", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),), level="catalog"),
    Damage("default-invalid", "no number", (_set("column", "default_value = 'x?'", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),)),
    Damage("default-invalid", "an unknown type", (_set("column", "default_value_type = 'magic'", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),)),
    Damage("default-invalid", "no expression", (_set("column", "default_value_type = 'expression', default_value = '(('", "table_id = {d} AND column_id = 2 AND end_snapshot IS NULL"),)),
    Damage("partition-key-invalid", "a key twice", ("INSERT INTO ducklake_partition_column SELECT * FROM ducklake_partition_column WHERE partition_key_index = 0",), level="catalog"),
    Damage("partition-key-invalid", "a year of a number", (_set("partition_column", "transform = 'year'", "partition_key_index = 0"),), level="catalog"),
    Damage("partition-key-invalid", "two at once", change=_copied("partition_info", where="table_id = {p}", partition_id="1")),
    Damage("sort-order-invalid", "by no column", (_set("sort_expression", "expression = 'zzz'", "sort_key_index = 1"),)),
    Damage("sort-order-invalid", "unknown words", (_set("sort_expression", "expression = '(('", "sort_key_index = 1"),)),
    Damage("sort-order-invalid", "in no direction", (_set("sort_expression", "sort_direction = 'SIDEWAYS'", "sort_key_index = 0"),)),
    Damage("sort-order-invalid", "NULLs nowhere", (_set("sort_expression", "null_order = NULL", "sort_key_index = 0"),)),
    Damage("sort-order-invalid", "of no table", (_set("sort_info", "table_id = 888", "table_id = {s}"),)),
    Damage("sort-order-invalid", "two at once", change=_copied("sort_info", where="table_id = {s}", sort_id="1")),
    Damage("schema-missing", "a schema that ended before its tables", (_set("schema", "end_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)", "schema_name = 'main'"),), level="catalog"),
    Damage("dropped-table-alive", "columns outlive their table", (_set("column", "end_snapshot = NULL", "table_id = {gone}"),)),
    Damage("dropped-table-alive", "a file outlives its table", (_set("data_file", "end_snapshot = NULL", "table_id = {gone}"),)),
    Damage("partition-key-invalid", "a key of no column", (_set("partition_column", "column_id = 77", "partition_key_index = 0"),)),
    Damage("partition-key-invalid", "an unknown transform", (_set("partition_column", "transform = 'moonphase'", "partition_key_index = 1"),)),
    Damage("schema-version-missing", "no version of a table", ("DELETE FROM ducklake_schema_versions WHERE table_id = {m}",)),
    Damage("schema-version-missing", "no version of added columns", ("DELETE FROM ducklake_schema_versions WHERE table_id = {d} AND begin_snapshot = (SELECT max(begin_snapshot) FROM ducklake_column WHERE table_id = {d})",)),
    Damage("schema-version-unknown", "no version of a table whose first snapshot has expired", ("DELETE FROM ducklake_schema_versions WHERE table_id = {m}", *(f"DELETE FROM ducklake_{table} WHERE snapshot_id = (SELECT begin_snapshot FROM ducklake_table WHERE table_id = {{m}})" for table in ("snapshot", "snapshot_changes")))),
    # Files as the catalog has them
    Damage("table-unknown", "a file of no table", change=_copied("data_file", where="data_file_id = {f0}", data_file_id="{free}", table_id="88", path="'nowhere.parquet'", mapping_id="NULL")),
    Damage("table-unknown", "columns and inlined rows of a table whose row was lost", ("DELETE FROM ducklake_data_file WHERE table_id = {t}", "DELETE FROM ducklake_delete_file", "DELETE FROM ducklake_file_column_stats WHERE table_id = {t}", "DELETE FROM ducklake_table WHERE table_id = {t}"), level="catalog"),
    Damage("file-numbers", "negative row ids", (_set("data_file", "row_id_start = -7", "data_file_id = {n0}"),)),
    Damage("file-numbers", "partial_max before the file", (_set("data_file", "partial_max = 1", "data_file_id = {f0}"),)),
    Damage("file-named-twice row-ids-overlap table-statistics-stale", "one file twice", change=_copied("data_file", where="data_file_id = {n0}", data_file_id="{free}")),
    Damage("path-forbidden orphaned-file", "a path that leaves the lake", (_set("data_file", "path = '../../../../../etc/passwd'", "data_file_id = {n0}"),)),
    Damage("mapping-invalid", "to no column", (_set("name_mapping", "target_field_id = 77", "source_name = 'a'"),)),
    Damage("mapping-invalid", "from no column", (_set("name_mapping", "source_name = 'zz'", "source_name = 'a'"),)),
    Damage("mapping-invalid", "from no directory", (_set("name_mapping", "is_partition = 1", "source_name = 'a'"),)),
    Damage("mapping-invalid", "of no columns", ("DELETE FROM ducklake_name_mapping",)),
    Damage("mapping-invalid", "of an unknown kind", (_set("column_mapping", "type = 'map_by_moon'", "type = 'map_by_name'"),)),
    Damage("mapping-missing", "of an added file", (_set("data_file", "mapping_id = NULL", "data_file_id = {f0}"),)),
    Damage("partition-values-incomplete", "a value is lost", ("DELETE FROM ducklake_file_partition_value WHERE data_file_id = {p0} AND partition_key_index = 1",)),
    Damage("partition-values-wrong", "another value", (_set("file_partition_value", "partition_value = '7'", "data_file_id = {p0} AND partition_key_index = 0"),)),
    Damage("partition-values-wrong", "another year", (_set("file_partition_value", "partition_value = '1999'", "data_file_id = {p1} AND partition_key_index = 1"),)),
    Damage("partition-values-wrong", "a year that statistics do not tell", (_set("file_partition_value", "partition_value = '1999'", "data_file_id = {p1} AND partition_key_index = 1"), "DELETE FROM ducklake_file_column_stats WHERE data_file_id = {p1}")),
    Damage("row-ids-overlap", "two files from 0 on", (_set("data_file", "row_id_start = 0", "data_file_id = {t1}"),)),
    Damage("row-ids-overlap", "at an earlier snapshot", (_set("data_file", "row_id_start = 0, end_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)", "data_file_id = {t1}"),)),
    Damage("lifetime-backwards", "deletes before their file", (_set("delete_file", "begin_snapshot = 1", "delete_file_id = {del}"),)),
    Damage("lifetime-backwards", "inlined deletes before their file", ("UPDATE ducklake_inlined_delete_{t} SET begin_snapshot = 0",)),
    Damage("row-id-beyond-next", "ids that come again", (_set("table_stats", "next_row_id = 3", "table_id = {n}"),)),
    Damage("delete-files-two", "and one that ended between them", change=_two_now_and_before),
    Damage("delete-files-of-the-past", "two at an earlier snapshot", change=_two_in_the_past),
    Damage("delete-file-orphaned", "of no data file", change=_copied("delete_file", where="delete_file_id = {del}", delete_file_id="0", data_file_id="888")),
    Damage("delete-file-of-other-table", "of a file of another table", (_set("delete_file", "table_id = {n}, path = '../t/' || path", "delete_file_id = {del}"),)),
    Damage("delete-count", "more than there are", (_set("delete_file", "delete_count = 500", "delete_file_id = {del}"),)),
    # Statistics
    Damage("statistics-orphaned", "of no file", (_set("file_column_stats", "data_file_id = 888", "data_file_id = {f0}"),)),
    Damage("statistics-orphaned", "values of no file", change=_copied("file_partition_value", where="data_file_id = {p0}", data_file_id="888")),
    Damage("statistics-column-unknown", "of no column", (_set("file_column_stats", "column_id = 88", _STATS),)),
    Damage("statistics-table-wrong", "of another table", (_set("file_column_stats", "table_id = {n}", _STATS),)),
    Damage("statistics-narrow", "NaN is hidden", (_set("file_column_stats", "contains_nan = 0", "table_id = {e}"),)),
    Damage("statistics-twice", "two rows", change=_copied("file_column_stats", where=_STATS)),
    Damage("statistics-counts", "no values", (_set("file_column_stats", "value_count = 0", _STATS),)),
    Damage("statistics-counts", "a NULL that is hidden", (_set("file_column_stats", "value_count = 20, null_count = 0", "data_file_id = {n0}"),)),
    Damage("statistics-invalid", "a bound that is no number", (_set("file_column_stats", "min_value = 'x?'", _STATS),)),
    Damage("statistics-invalid", "bounds the wrong way round", (_set("file_column_stats", "min_value = max_value, max_value = min_value", _STATS),)),
    Damage("statistics-narrow", "a maximum that is too small", (_set("file_column_stats", "max_value = '120'", _STATS),)),
    Damage("statistics-narrow", "a minimum that is too great, of a text", (_set("file_column_stats", "min_value = 'v11'", "data_file_id = {t1} AND column_id = 2"),)),
    Damage("table-statistics-twice", "two", change=_copied("table_stats", where="table_id = {n}")),
    Damage("table-statistics-stale", "too few rows", (_set("table_stats", "record_count = 3", "table_id = {n}"),)),
    Damage("table-statistics-orphaned", "of no table", change=_copied("table_stats", where="table_id = {n}", table_id="888")),
    Damage("table-bounds-invalid", "no numbers", (_set("table_column_stats", "min_value = 'x?'", _TSTATS),)),
    Damage("table-bounds-invalid", "two rows", change=_copied("table_column_stats", where=_TSTATS)),
    Damage("table-bounds-narrow", "too small", (_set("table_column_stats", "max_value = '120'", _TSTATS),)),
    Damage("table-bounds-narrow", "no NULLs", (_set("table_column_stats", "contains_null = 0", "table_id = {n}"),)),
    Damage("table-bounds-narrow", "inlined rows", (_set("table_column_stats", "max_value = '160'", _TSTATS),)),
    Damage("table-bounds-unknown", "as if only NULLs", (_set("table_column_stats", "min_value = NULL, max_value = NULL", _TSTATS),)),
    # Rows in the catalog
    Damage("inlined-table-missing", "registered only", ("INSERT INTO ducklake_inlined_data_tables VALUES ({n}, 'ducklake_inlined_data_{n}_9', 9)",), level="catalog"),
    Damage("inlined-table-invalid", "no table of rows", ("INSERT INTO ducklake_inlined_data_tables VALUES ({n}, 'ducklake_snapshot', 9)",), level="catalog"),
    Damage("inlined-table-invalid", "for another version", (_set("inlined_data_tables", "schema_version = 99", "table_id = {t}"),)),
    Damage("inlined-table-invalid", "an ending that names have on MySQL alone", ("ALTER TABLE {inl} RENAME TO {inl}_0123456789ab", _set("inlined_data_tables", "table_name = '{inl}_0123456789ab'", "table_name = '{inl}'"))),
    Damage("inlined-table-dead", "of no table", ("CREATE TABLE ducklake_inlined_data_888_1 (row_id BIGINT)",)),
    Damage("inlined-table-dead", "deletes of no table", ("CREATE TABLE ducklake_inlined_delete_888 (file_id BIGINT)",)),
    Damage("inlined-table-dead", "rows without readers", ("DELETE FROM ducklake_inlined_data_tables WHERE table_name = '{inl}'",)),
    Damage("inlined-row-twice", "a row again", ("INSERT INTO {inl} SELECT * FROM {inl} WHERE a = 200",)),
    Damage("row-id-beyond-next", "an inlined id", ("UPDATE {inl} SET row_id = 5000 WHERE a = 200",)),
    Damage("inlined-delete-beyond", "a row that is not there", ("INSERT INTO ducklake_inlined_delete_{t} VALUES ({t0}, 5000, 5)",)),
    Damage("inlined-delete-orphaned", "a file that is not there", ("INSERT INTO ducklake_inlined_delete_{t} VALUES (888, 1, 5)",)),
    Damage("inlined-delete-orphaned", "a file of another table", ("INSERT INTO ducklake_inlined_delete_{t} VALUES ({n0}, 1, 5)",)),
    Damage("inlined-delete-twice", "a row again", ("INSERT INTO ducklake_inlined_delete_{t} SELECT * FROM ducklake_inlined_delete_{t}",)),
    Damage("inlined-delete-twice", "a row that a delete file deletes", ("INSERT INTO ducklake_inlined_delete_{t} VALUES ({t0}, 5, 6)",)),
    # Schedule and objects in the store
    Damage("scheduled-live", "a live file", ("INSERT INTO ducklake_files_scheduled_for_deletion SELECT data_file_id, 'main/n/' || path, 1, '2024-01-01 00:00:00+00' FROM ducklake_data_file WHERE data_file_id = {n0}",)),
    Damage("scheduled-twice", "a file twice", ("INSERT INTO ducklake_files_scheduled_for_deletion SELECT * FROM ducklake_files_scheduled_for_deletion LIMIT 1",)),
    Damage("orphaned-file", "of a killed writer", change=_new_file("ducklake-0198c1f2-0000-7000-8000-000000000000.parquet")),
    Damage("foreign-file", "of another program", change=_new_file("notes.parquet")),
    # Footers
    Damage("file-missing", "a data file", change=lambda lake: lake.path("n0").unlink()),
    Damage("file-missing", "a delete file", change=lambda lake: lake.path("del").unlink()),
    Damage("file-size", "a byte more", (_set("data_file", "file_size_bytes = file_size_bytes + 1", "data_file_id = {n0}"),)),
    Damage("footer-unreadable", "cut in half", change=_bytes("n0", lambda raw: raw[: len(raw) // 2])),
    Damage("footer-size", "a byte more", (_set("data_file", "footer_size = footer_size + 1", "data_file_id = {n0}"),)),
    Damage("record-count", "another number of rows", (_set("data_file", "record_count = 21", "data_file_id = {n0}"), _set("file_column_stats", "value_count = 20", "data_file_id = {n0}"), _set("table_stats", "record_count = 99, next_row_id = 99", "table_id = {n}"))),
    Damage("snapshot-ids-missing", "a file of several snapshots", (_set("data_file", "partial_max = begin_snapshot + 1", "data_file_id = {n0}"),)),
    # Rows
    Damage("rows-unreadable", "a page that is spoiled", change=_bytes("n0", lambda raw: raw[:20] + bytes([255]) * 40 + raw[60:])),
    Damage("rows-unreadable", "an inlined value that is none", ("UPDATE {inl} SET x = 'x?' WHERE a = 201",)),
    Damage("delete-file-invalid", "positions out of order", change=_delete_positions(lambda table: table.take(list(range(table.num_rows))[::-1]))),
    Damage("delete-file-invalid", "deletes of another file", change=_delete_positions(lambda table: table.set_column(0, "file_path", pa.array(["x/other.parquet"] * table.num_rows)))),
    Damage("null-not-allowed", "NULL where it must not be", (_set("column", "nulls_allowed = 0", "table_id = {n}"),)),
    Damage("file-differs", "a file with other rows", change=_rewrite("t1", lambda table: _replaced(table, "a", 149_000))),
    Damage("file-differs", "a file with other rows within the statistics", change=_rewrite("t1", lambda table: _replaced(table, "b", "v123"))),
    Damage("file-differs", "a file with other numbers within the statistics", change=_rewrite("t1", lambda table: _replaced(table, "x", 70.0))),
    Damage("row-id-twice", "an inlined row has the id of a row of a file", ("UPDATE {inl} SET row_id = 60 WHERE a = 200",)),
    Damage("snapshot-ids-wrong", "a row of a later snapshot", change=lambda lake: lake.rewrite("m0", _later)),
)  # fmt: skip

DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
_DEEP_IN_FORMAT = DEEP.replace("{", "{{").replace("}", "}}")
HOSTILE = (
    Damage("?", "deep extra_info", (f"UPDATE ducklake_snapshot_changes SET commit_extra_info = '{_DEEP_IN_FORMAT}'",)),
    Damage("?", "digits in extra_info", (f"UPDATE ducklake_snapshot_changes SET commit_extra_info = '{{{{\"a\": {'9' * 6000}}}}}'",)),
    Damage("?", "changes that are none", ("UPDATE ducklake_snapshot_changes SET changes_made = 'nonsense:\"x'",)),
    Damage("?", "changes of huge ids", (f"UPDATE ducklake_snapshot_changes SET changes_made = 'inserted_into_table:{'9' * 6000}'",)),
    Damage("?", "a huge age", ("INSERT INTO ducklake_metadata VALUES ('delete_older_than', '99999999999 years', NULL, NULL)",)),
    Damage("?", "an option that is none", ("INSERT INTO ducklake_metadata VALUES ('target_file_size', 'big', NULL, NULL)",)),
    Damage(
        "?", "a deep type", (f"UPDATE ducklake_column SET column_type = '{'decimal(' * 3000}' WHERE table_id = {{r}} AND column_id = 1",)
    ),
    Damage(
        "?",
        "a huge decimal",
        (f"UPDATE ducklake_column SET column_type = 'decimal({'9' * 6000},0)' WHERE table_id = {{r}} AND column_id = 1",),
    ),
    Damage("?", "names of nothing", ("UPDATE ducklake_table SET table_name = ''", "UPDATE ducklake_schema SET schema_name = ''")),
    Damage(
        "?",
        "a view of nonsense",
        ("INSERT INTO ducklake_view VALUES (50, '00000000-0000-0000-0000-000000000000', 1, NULL, 0, 'w', 'duckdb', 'SELECT ((((', NULL)",),
    ),
    Damage(
        "?",
        "a sort key of nonsense",
        (
            "INSERT INTO ducklake_sort_info VALUES (7, {r}, 1, NULL)",
            "INSERT INTO ducklake_sort_expression VALUES (7, {r}, 0, '((((', 'duckdb', 'ASC', 'NULLS_LAST')",
        ),
    ),
)
ALL = (*READ, *READ_IN_SQLITE, *FOUND, *HOSTILE)
