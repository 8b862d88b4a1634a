"""Edits of the catalog: what each does, and what a reader must say. Numbers are the rows of the table of gotchas that they come from."""

# ruff: noqa: E501 - one edit a line reads best

from __future__ import annotations

from dataclasses import dataclass

from ducklake_core.errors import DuckLakeError

E = DuckLakeError


@dataclass(frozen=True)
class Edit:
    """Statements on the catalog of the lake of ``spoiled.py``; without an error, every row must still come out right."""

    name: str
    statements: tuple[str, ...]
    error: type[DuckLakeError] | None = None
    says: str = ""


def _columns(values: str) -> str:
    names = "column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, column_type, nulls_allowed, parent_column"
    return f"INSERT INTO ducklake_column ({names}) VALUES ({values})"


def _delete_file(number: int, path: str = "path") -> str:
    return (
        f"INSERT INTO ducklake_delete_file SELECT {number}, table_id, begin_snapshot, end_snapshot, data_file_id, {path}, path_is_relative, "
        "format, delete_count, file_size_bytes, footer_size, encryption_key, partial_max FROM ducklake_delete_file WHERE delete_file_id = 4"
    )


_FILE_COPY = (
    "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, end_snapshot, path, path_is_relative, file_format, record_count, "
    "file_size_bytes, row_id_start) SELECT 88, table_id, {begin}, 2, path, path_is_relative, file_format, record_count, file_size_bytes, "
    "row_id_start FROM ducklake_data_file WHERE data_file_id = 1"
)


def _set(table: str, changes: str, where: str = "") -> str:
    return f"UPDATE ducklake_{table} SET {changes}{' WHERE ' + where if where else ''}"


# On every database.
EDITS = (
    Edit("2: unknown tables and keys", ("CREATE TABLE ducklake_news (x BIGINT)", "INSERT INTO ducklake_metadata VALUES ('k', 'v', NULL, NULL)")),
    Edit("3: unknown scope", ("INSERT INTO ducklake_metadata VALUES ('k', 'v', 'galaxy', 1)",)),
    Edit("4: unknown version", (_set("metadata", "value = '2.0'", "key = 'version'"),), E, "2.0"),
    Edit("4: a version that has other tables", (_set("metadata", "value = '1.1'", "key = 'version'"),), E, "parent_schema_id"),
    Edit("5: no table_stats", ("DELETE FROM ducklake_table_stats",)),
    Edit("6: NULL table_stats", (_set("table_stats", "record_count = NULL, file_size_bytes = NULL, next_row_id = NULL"),)),
    Edit("7: no table_column_stats", ("DELETE FROM ducklake_table_column_stats",)),
    Edit("7b: NULL table_column_stats", (_set("table_column_stats", "min_value = NULL, max_value = NULL"),)),
    Edit("8: garbage table_column_stats", (_set("table_column_stats", "min_value = 'x?', max_value = 'y?'"),)),
    Edit("9: narrow table_column_stats", (_set("table_column_stats", "min_value = '7', max_value = '7'"),)),
    Edit("10: no file_column_stats", ("DELETE FROM ducklake_file_column_stats",)),
    Edit("10: NULL bounds", (_set("file_column_stats", "min_value = NULL, max_value = NULL"),)),
    Edit("10: NULL value_count", (_set("file_column_stats", "value_count = NULL"),)),
    Edit("10: NULL null_count", (_set("file_column_stats", "null_count = NULL"),)),
    Edit("11: value_count 0", (_set("file_column_stats", "value_count = 0"),)),
    Edit("12: null_count 0", (_set("file_column_stats", "null_count = 0"),)),
    Edit("11: negative value_count", (_set("file_column_stats", "value_count = -1, null_count = 11"),)),
    Edit("12: negative null_count", (_set("file_column_stats", "value_count = 11, null_count = -1"),)),
    Edit("13: bounds that are no values", (_set("file_column_stats", "min_value = 'zz?', max_value = '!'", "column_id <> 2"),)),
    Edit("13: bounds that look like days", (_set("file_column_stats", "min_value = '9999-99-99', max_value = '0000-00-00'", "column_id = 6"),)),
    Edit("13: bounds that are empty", (_set("file_column_stats", "min_value = '', max_value = ''", "column_id <> 2"),)),
    Edit("13: bounds with a fraction", (_set("file_column_stats", "min_value = '1e3', max_value = '-1.5x'", "column_id IN (1, 5)"),)),
    Edit("13: swapped bounds", (_set("file_column_stats", "min_value = max_value, max_value = min_value"),)),
    Edit("13: swapped bounds of one file", (_set("file_column_stats", "min_value = max_value, max_value = min_value", "data_file_id = 1"),)),
    Edit("14: footer_size 0", (_set("data_file", "footer_size = 0"),)),
    Edit("14: footer_size 1", (_set("data_file", "footer_size = 1"),)),
    Edit("14: footer_size huge", (_set("data_file", "footer_size = 99999999999"),)),
    Edit("14: footer_size NULL", (_set("data_file", "footer_size = NULL"),)),
    Edit("15: file_size_bytes NULL", (_set("data_file", "file_size_bytes = NULL"),)),
    Edit("15: file_size_bytes 0", (_set("data_file", "file_size_bytes = 0"),)),
    Edit("15: file_size_bytes huge", (_set("data_file", "file_size_bytes = 9223372036854775807"),)),
    Edit("15: file_size_bytes negative", (_set("data_file", "file_size_bytes = -5"),)),
    Edit("16: record_count too small", (_set("data_file", "record_count = 5"),)),
    Edit("16: record_count too large", (_set("data_file", "record_count = 50"),)),
    Edit("16: record_count 0", (_set("data_file", "record_count = 0", "data_file_id = 1"),)),
    Edit("16: record_count 0 next to deletes", (_set("data_file", "record_count = 0", "data_file_id = 0"),), E, "counts 0 rows"),
    Edit("16: record_count negative", (_set("data_file", "record_count = -1", "data_file_id = 1"),)),
    Edit("16: record_count NULL", (_set("data_file", "record_count = NULL"),), E, "data file 0 of table main.t"),
    Edit("a data file without begin_snapshot", (_set("data_file", "begin_snapshot = NULL", "data_file_id = 1"),), E, "data file 1 of table main.t"),
    Edit("a file that ended without begin_snapshot", (_FILE_COPY.format(begin="NULL"),)),
    Edit("a delete file without begin_snapshot", (_set("delete_file", "begin_snapshot = NULL"),), E, "delete file 4 of data file 0 of table main.t"),
    Edit("inlined rows without begin_snapshot", ("UPDATE ducklake_inlined_data_1_1 SET begin_snapshot = NULL",), E, "ducklake_inlined_data_1_1"),
    Edit("17: delete_count wrong", (_set("delete_file", "delete_count = 7"),)),
    Edit("17: delete_count NULL", (_set("delete_file", "delete_count = NULL, file_size_bytes = NULL, footer_size = NULL"),)),
    Edit("18: row_id_start NULL", (_set("data_file", "row_id_start = NULL"),)),
    Edit("18: overlapping row ids", (_set("data_file", "row_id_start = 0"),)),
    Edit("19: two delete files", (_delete_file(77),)),
    Edit("19: a delete file that is gone", (_delete_file(77, "'gone.parquet'"),), E, "gone.parquet"),
    Edit("20: partial_max without snapshot ids", (_set("data_file", "partial_max = 99"),), E, "snapshot"),
    Edit("23: unknown file_format", (_set("data_file", "file_format = 'word'"),)),
    Edit("24: format NULL", (_set("delete_file", "format = NULL"),)),
    Edit("24: format PARQUET", (_set("delete_file", "format = 'PARQUET'"),)),
    Edit("24: unknown delete format", (_set("delete_file", "format = 'word'"),), E, "word"),
    Edit("28: no snapshot_changes", ("DELETE FROM ducklake_snapshot_changes",)),
    Edit("29: unknown change", (_set("snapshot_changes", "changes_made = 'danced:1'"),)),
    Edit("30: no schema_versions", ("DELETE FROM ducklake_schema_versions",)),
    Edit("30: schema_versions without a table", (_set("schema_versions", "table_id = NULL"),)),
    Edit("31: the table is dropped, its files live", (_set("table", "end_snapshot = 4", "table_id = 1"),), E, "no table main.t"),
    Edit("31: the schema is dropped, its table lives", (_set("schema", "end_snapshot = 4"),), E, "no table main.t"),
    Edit("32: no columns", (_set("column", "end_snapshot = 4", "table_id = 1"),), E, "main.t has no columns"),
    Edit("32: no columns of another table", (_set("column", "end_snapshot = 5", "table_id = 2"),)),
    Edit("33: unknown type", (_set("column", "column_type = 'tensor'", "column_id = 1 AND table_id = 1"),), E, "tensor"),
    Edit("33: unknown type in another table", (_set("column", "column_type = 'tensor'", "table_id = 2"),)),
    Edit("33: no type", (_set("column", "column_type = NULL", "column_id = 1 AND table_id = 1"),), E, "'a'"),
    Edit("34: default without its kind", (_set("column", "default_value = 'x', default_value_type = NULL"),)),
    Edit("35: nulls_allowed NULL", (_set("column", "nulls_allowed = NULL"),)),
    Edit("36: column_order NULL", (_set("column", "column_order = NULL"),)),
    Edit("36: column_order all the same", (_set("column", "column_order = 1"),)),
    Edit("37: uuid NULL", (_set("table", "table_uuid = NULL"), _set("schema", "schema_uuid = NULL"))),
    Edit("38: paths NULL", (_set("table", "path = NULL"),), E, "there is no file"),
    Edit("38: path of a file NULL", (_set("data_file", "path = NULL"),), E, "data file"),
    Edit("38: path of a file empty", (_set("data_file", "path = ''"),), E, "data file 0"),
    Edit("39: schema_version stands still", (_set("snapshot", "schema_version = 0, next_file_id = 0"),)),
    Edit("41: inlined table registered but missing", ("DROP TABLE ducklake_inlined_data_1_1",), E, "ducklake_inlined_data_1_1"),
    Edit("42: inlined table with a column less", ("ALTER TABLE ducklake_inlined_data_1_1 DROP COLUMN flag",), E, "ducklake_inlined_data_1_1"),
    Edit("42: inlined table registered twice", ("INSERT INTO ducklake_inlined_data_tables VALUES (1, 'ducklake_inlined_data_1_1', 1)",)),
    Edit("42: inlined table without a name", (_set("inlined_data_tables", "table_name = NULL", "table_id = 1"),), E, "inlined"),
    Edit("42: inlined table without a version", (_set("inlined_data_tables", "schema_version = NULL", "table_id = 1"),), E, "inlined"),
    Edit("43: garbage in an inlined struct", ("UPDATE ducklake_inlined_data_1_1 SET s = '{x: yes}'",), E, "'s'"),
    Edit("44: dangling partition id", (_set("data_file", "partition_id = 99"),)),
    Edit("44: partition value of no key", ("INSERT INTO ducklake_file_partition_value VALUES (0, 1, 0, '77')", _set("data_file", "partition_id = 99"))),
    Edit("44: partition spec without keys", ("INSERT INTO ducklake_partition_info VALUES (9, 1, 1, NULL)", _set("data_file", "partition_id = 9"))),
    Edit(
        "44: values of the wrong keys",
        (
            "INSERT INTO ducklake_partition_info VALUES (9, 1, 1, NULL)",
            "INSERT INTO ducklake_partition_column VALUES (9, 1, 0, 2, 'bucket(4)')",
            "INSERT INTO ducklake_file_partition_value VALUES (0, 1, 7, '0'), (1, 1, 7, '0')",
            _set("data_file", "partition_id = 9"),
        ),
    ),
    Edit("45: a lake that is not encrypted", (_set("metadata", "value = 'true'", "key = 'encrypted'"),), E, "main.t"),
    Edit("45: garbage keys", (_set("metadata", "value = 'true'", "key = 'encrypted'"), _set("data_file", "encryption_key = '?'")), E, "key"),
    Edit("45: a key without an encrypted lake", (_set("data_file", "encryption_key = '?'"),)),
    Edit("53: contains_null 0", (_set("table_column_stats", "contains_null = NULL"),)),
    Edit("dangling mapping", (_set("data_file", "mapping_id = 99"),), E, "main.t.*99"),
    Edit("statistics of unknown columns", ("INSERT INTO ducklake_file_column_stats VALUES (0, 1, 99, 1, 1, 1, 'a', 'b', NULL, NULL)",)),
    Edit("a parent of itself", (_set("column", "parent_column = 5", "column_id = 5 AND table_id = 1"),), E, "main.t"),
    Edit("parents in a circle", (_set("column", "parent_column = 5", "column_id = 4 AND table_id = 1"),), E, "main.t"),
    Edit("a child of itself besides", (_columns("4, 1, NULL, 1, 1, 's', 'struct', NULL, 4"),), E, "main.t"),
    Edit("a child without its parent", (_set("column", "parent_column = 99", "column_id = 5 AND table_id = 1"),), E, "main.t"),
    Edit("the same column twice", (_columns("1, 1, NULL, 1, 1, 'other', 'varchar', NULL, NULL"),), E, "main.t"),
    Edit("two columns of one name", (_columns("9, 1, NULL, 1, 9, 'A', 'varchar', NULL, NULL"),), E, "main.t"),
    Edit("a column without a name", (_set("column", "column_name = NULL", "column_id = 2 AND table_id = 1"),), E, "main.t"),
    Edit("two comments", ("INSERT INTO ducklake_column_tag VALUES (1, 1, 1, NULL, 'comment', 'x'), (1, 1, 1, NULL, 'comment', 'y')",)),
    Edit("two comments of the table", ("INSERT INTO ducklake_tag VALUES (1, 1, NULL, 'comment', 'x'), (1, 1, NULL, 'comment', 'y')",)),
    Edit("two tables of one name", (_set("table", "table_name = 'T'", "table_id = 2"),), E, "two tables"),
    Edit("two live rows of one table", ("INSERT INTO ducklake_table SELECT table_id, table_uuid, 2, NULL, schema_id, 't', 'o/', path_is_relative FROM ducklake_table WHERE table_id = 1",), E, "two tables"),
    Edit("gaps between snapshots", ("DELETE FROM ducklake_snapshot WHERE snapshot_id IN (2, 4)", "DELETE FROM ducklake_snapshot_changes")),
    Edit("no snapshots", ("DELETE FROM ducklake_snapshot",), E, "no snapshot"),
    Edit("no data path", ("DELETE FROM ducklake_metadata WHERE key = 'data_path'",), E, "data_path"),
    Edit("a file outside", (_set("data_file", "path = '../../../x.parquet'", "data_file_id = 1"),), E, "data file 1"),
)  # fmt: skip

# What only the untyped cells of SQLite can hold.
SQLITE_EDITS = (
    Edit("26: path_is_relative as text", (_set("data_file", "path_is_relative = 'true'"),)),
    Edit("26: path_is_relative is garbage", (_set("data_file", "path_is_relative = 'maybe'"),), E, "maybe"),
    Edit("27: snapshot_time as integer", (_set("snapshot", "snapshot_time = 17"),), E, "17"),
    Edit("27: snapshot_time without a zone", (_set("snapshot", "snapshot_time = '2024-01-01 00:00:00'"),)),
    Edit("27: snapshot_time of no calendar", (_set("snapshot", "snapshot_time = '2024-13-45 00:00:00'"),), E, "2024-13-45"),
    Edit("27: snapshot_time of no clock", (_set("snapshot", "snapshot_time = '2024-01-01 00:00:00+99'"),), E, "99"),
    Edit("27: snapshot_time before all time", (_set("snapshot", "snapshot_time = '0001-01-01 00:00:00+14'"),), E, "0001"),
    Edit("27: snapshot_time NULL", (_set("snapshot", "snapshot_time = NULL"),)),
    Edit("16: record_count is text", (_set("data_file", "record_count = 'many'"),), E, "data file"),
    Edit("15: file_size_bytes is text", (_set("data_file", "file_size_bytes = 'big'"),), E, "data file"),
    Edit("18: row_id_start is text", (_set("data_file", "row_id_start = 'x'"),), E, "data file"),
    Edit("11: value_count is text", (_set("file_column_stats", "value_count = 'x'"),)),
    Edit("12: null_count is text", (_set("file_column_stats", "null_count = 'x'"),)),
    Edit("11: value_count 0 and null_count text", (_set("file_column_stats", "value_count = 0, null_count = 'x'"),)),
    Edit("13: least values are blobs", (_set("file_column_stats", "min_value = CAST(min_value AS BLOB)"),)),
    Edit("13: greatest values are blobs", (_set("file_column_stats", "max_value = CAST(max_value AS BLOB)"),)),
    Edit("13: bounds are blobs", (_set("file_column_stats", "min_value = x'ff', max_value = x'00'"),)),
    Edit("13: bounds are swapped blobs", (_set("file_column_stats", "min_value = CAST(max_value AS BLOB), max_value = CAST(min_value AS BLOB)"),)),
    Edit("38: path of a file is a blob", (_set("data_file", "path = x'ff'", "data_file_id = 1"),), E, "data file 1"),
    Edit(
        "44: a partition value is a blob",
        (
            "INSERT INTO ducklake_partition_info VALUES (9, 1, 1, NULL)",
            "INSERT INTO ducklake_partition_column VALUES (9, 1, 0, 2, 'identity')",
            "INSERT INTO ducklake_file_partition_value VALUES (1, 1, 0, x'763035')",
            _set("data_file", "partition_id = 9", "data_file_id = 1"),
        ),
        E,
        "data file 1",
    ),
    Edit("36: column_order is text", (_set("column", "column_order = 'x'", "column_id = 2 AND table_id = 1"),), E, "main.t"),
    Edit("37: uuid is none", (_set("table", "table_uuid = 'x'"),)),
    Edit("garbage in an inlined integer", ("UPDATE ducklake_inlined_data_1_1 SET a = 'seven'",), E, "'a'"),
    Edit("a fraction in an inlined integer", ("UPDATE ducklake_inlined_data_1_1 SET a = 7.5",), E, "'a'"),
    Edit("an inlined integer out of range", ("UPDATE ducklake_inlined_data_1_1 SET a = 99999999999",), E, "'a'"),
    Edit("garbage in an inlined boolean", ("UPDATE ducklake_inlined_data_1_1 SET flag = 'maybe'",), E, "'flag'"),
    Edit("an inlined boolean of 7", ("UPDATE ducklake_inlined_data_1_1 SET flag = 7",), E, "'flag'"),
    Edit("garbage in an inlined date", ("UPDATE ducklake_inlined_data_1_1 SET day = '2024-13-01'",), E, "'day'"),
    Edit("an inlined text that is a blob", ("UPDATE ducklake_inlined_data_1_1 SET b = x'ff'",), E, "'b'"),
    Edit("an inlined row id that is text", ("UPDATE ducklake_inlined_data_1_1 SET row_id = 'x'",), E, "row_id"),
    Edit("an inlined delete that is text", ("CREATE TABLE ducklake_inlined_delete_1 (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)", "INSERT INTO ducklake_inlined_delete_1 VALUES (1, 'x', 2)"), E, "data file 1"),
    Edit("an inlined delete of NULL", ("CREATE TABLE ducklake_inlined_delete_1 (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)", "INSERT INTO ducklake_inlined_delete_1 VALUES (1, NULL, 2)"), E, "data file 1"),
    Edit("a data file whose begin_snapshot is text", (_set("data_file", "begin_snapshot = 'x'", "data_file_id = 1"),), E, "data file 1 of table main.t"),
    Edit("a data file whose end_snapshot is text", (_set("data_file", "end_snapshot = 'x'", "data_file_id = 1"),), E, "data file 1 of table main.t"),
    Edit("a delete file whose begin_snapshot is text", (_set("delete_file", "begin_snapshot = 'x'"),), E, "delete file 4 of data file 0"),
    Edit("inlined rows whose begin_snapshot is text", ("UPDATE ducklake_inlined_data_1_1 SET begin_snapshot = 'x'",), E, "ducklake_inlined_data_1_1"),
    Edit("an inlined struct that is no struct", ("UPDATE ducklake_inlined_data_1_1 SET s = '{''x'': '",), E, "'s'"),
    Edit("an inlined struct with garbage inside", ("UPDATE ducklake_inlined_data_1_1 SET s = '{''x'': seven}'",), E, "'s'"),
    Edit("an inlined struct of another field", ("UPDATE ducklake_inlined_data_1_1 SET s = '{''y'': 7}'",), E, "'s'"),
    Edit("an inlined struct that is a number", ("UPDATE ducklake_inlined_data_1_1 SET s = 7",), E, "'s'"),
    Edit("inlined schema_version is text", (_set("inlined_data_tables", "schema_version = 'x'", "table_id = 1"),), E, "inlined"),
)  # fmt: skip
