"""Column rows, changes, paths and options as DuckDB writes them into a catalog."""

from __future__ import annotations

from urllib.parse import unquote

from ducklake_core.format.changes import Changes, QualifiedName, encode_changes, parse_changes
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.files.paths import directory_name, partition_directory
from ducklake_core.format.options import Options, normalize_option
from tests.support.oracle import LakeAddress, attached

META = "__ducklake_metadata_lake"


STATEMENTS = (
    'CREATE SCHEMA "s,1:""x"', "CREATE TABLE a (i INTEGER, v VARCHAR)", 'CREATE TABLE "s,1:""x"."t,""u" (i INTEGER)',
    "CREATE VIEW w AS SELECT 1 AS one", "CREATE MACRO plus(x) AS x + 1", "CREATE MACRO rows_of(x) AS TABLE SELECT x",
    "INSERT INTO a SELECT i, 'x' FROM range(1000) t(i)", "INSERT INTO a VALUES (1, 'inlined')", "DELETE FROM a WHERE i = 500",
    "UPDATE a SET v = 'y' WHERE i = 700", "ALTER TABLE a ADD COLUMN k INTEGER", "COMMENT ON VIEW w IS 'x'",
    "BEGIN; CREATE TABLE B AS SELECT 1 AS i; CREATE TABLE c AS SELECT 2 AS i; INSERT INTO a (i) SELECT i FROM range(50) t(i); COMMIT",
    "CALL ducklake_flush_inlined_data('lake')", "INSERT INTO c SELECT i FROM range(50) t(i)", "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)", "ALTER TABLE c RENAME TO cc", "DROP MACRO plus",
    "DROP MACRO TABLE rows_of", "DROP VIEW w", "DROP TABLE B", 'DROP SCHEMA "s,1:""x" CASCADE',
)  # fmt: skip


def test_changes_are_read_and_written_as_by_duckdb(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        for statement in STATEMENTS:
            duck.run(*statement.split("; "))
        entries = [str(row[0]) for row in duck.rows(f"SELECT changes_made FROM {META}.ducklake_snapshot_changes ORDER BY snapshot_id")]
    parsed = [parse_changes(text) for text in entries]
    assert [encode_changes(changes) for changes in parsed] == entries
    assert not any(changes.unknown for changes in parsed)
    seen = {kind for changes in parsed for kind in Changes.__slots__ if getattr(changes, kind)}
    assert seen == set(Changes.__slots__) - {"unknown"}
    assert parsed[3].created_table == (QualifiedName(schema='"s,1:""x"', name='t,"u'),)


def test_directories_of_schemas_tables_and_partitions(lake_address: LakeAddress) -> None:
    names = ["plain_Name-1", "näme", 'we"ird, x', "a.b", "with space"]
    values = ["a b", "ä/%=", "", None, "x~y.z-_", "2024"]
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        for name in names:
            quoted = '"' + name.replace('"', '""') + '"'
            duck.run(f"CREATE SCHEMA {quoted}", f"CREATE TABLE {quoted}.{quoted} (i INTEGER)")
        schemas = duck.rows(f"SELECT schema_name, CAST(schema_uuid AS VARCHAR), path FROM {META}.ducklake_schema")
        tables = duck.rows(f"SELECT table_name, CAST(table_uuid AS VARCHAR), path FROM {META}.ducklake_table")
        duck.run(
            'CREATE TABLE p ("A b" VARCHAR, ts TIMESTAMP, d DATE)',
            'ALTER TABLE p SET PARTITIONED BY ("A b", year(ts), year(d), bucket(4, d))',
        )
        for value in values:
            duck.rows("INSERT INTO p VALUES (?, '2013-05-01', '1999-01-01')", [value])
        files = duck.rows(f"SELECT path FROM {META}.ducklake_data_file ORDER BY data_file_id")
        buckets = duck.rows(f"SELECT partition_value FROM {META}.ducklake_file_partition_value WHERE partition_key_index = 3")
    for name, uuid, path in [*schemas, *tables]:
        assert path == directory_name(str(name), str(uuid))
    spec = PartitionSpec(
        fields=(
            PartitionField(column_id=1, column="A b", transform="identity"),
            PartitionField(column_id=2, column="ts", transform="year"),
            PartitionField(column_id=3, column="d", transform="year"),
            PartitionField(column_id=3, column="d", transform="bucket", buckets=4),
        )
    )
    expected = [partition_directory(spec, (value, "2013", "1999", str(buckets[0][0]))) for value in values]
    assert [str(path).rpartition("/")[0] + "/" for (path,) in files] == expected
    assert unquote(expected[1].split("/", maxsplit=1)[0]) == "A b=ä/%="


OPTION_VALUES = {
    "parquet_compression": "ZSTD", "parquet_version": "2", "parquet_compression_level": "7", "parquet_row_group_size": "5000",
    "parquet_row_group_size_bytes": "10MB", "target_file_size": "1MiB", "data_inlining_row_limit": "0", "require_commit_message": "true",
    "rewrite_delete_threshold": "0.5", "hive_file_pattern": "false", "delete_older_than": "7 days", "expire_older_than": "1 month",
    "auto_compact": "false", "per_thread_output": "true", "sort_on_insert": "false",
}  # fmt: skip


def test_options_are_stored_and_read_as_by_duckdb(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        for name, value in OPTION_VALUES.items():
            sql = value if value in ("true", "false") else f"'{value}'"
            duck.run(f"CALL lake.set_option('{name}', {sql})")
        stored = {str(key): str(value) for key, value in duck.rows(f"SELECT key, value FROM {META}.ducklake_metadata WHERE scope IS NULL")}
    assert {name: stored[name] for name in OPTION_VALUES} == dict(normalize_option(*item) for item in OPTION_VALUES.items())
    assert Options.from_mapping(stored) == Options(
        parquet_compression="zstd", parquet_version=2, parquet_compression_level=7, parquet_row_group_size=5000,
        parquet_row_group_size_bytes=10_000_000, target_file_size=2**20, data_inlining_row_limit=0, require_commit_message=True,
        rewrite_delete_threshold=0.5, hive_file_pattern=False, delete_older_than="7 days",
        expire_older_than="1 month", auto_compact=False, per_thread_output=True, sort_on_insert=False,
    )  # fmt: skip
