"""Tags of schemas, tables, views and columns: the rows that DuckDB's COMMENT ON writes, and what DuckDB cannot write but reads past."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, NotFoundError, UnsupportedFeatureError, UsageError
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, attached, sqlite_lake


def test_the_catalog_is_that_of_comment_on(tmp_path: Path) -> None:
    dumps = []
    steps = [(None, "first"), ("a", "of a"), (None, "second"), ("a", None), (None, None)]
    for name in ("own", "duckdb"):
        (tmp_path / name).mkdir()
        address = sqlite_lake(tmp_path / name)
        with attached(address) as duck:
            duck.run("CREATE TABLE t (a INTEGER)", "CREATE VIEW w AS SELECT a FROM t")
            if name == "duckdb":
                for column, text in steps:
                    target = "TABLE t" if column is None else f"COLUMN t.{column}"
                    duck.run(f"COMMENT ON {target} IS " + ("NULL" if text is None else f"'{text}'"))
                duck.run("COMMENT ON VIEW w IS 'seen'", "COMMENT ON VIEW w IS NULL")
        if name == "own":
            lake = DuckLake.connect(address.url)
            for column, text in steps:
                lake.set_tag("t", "comment", text, column=column)
            lake.set_tag("w", "comment", "seen")
            lake.set_tag("w", "comment", None)
            lake.close()
        dumps.append(dump_catalog(address))
    for kind in ("tag", "column_tag", "snapshot_changes", "schema_versions", "table", "view"):
        assert dumps[0].get(kind) == dumps[1].get(kind), kind


def test_tags_of_everything(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.create_schema("s")
    lake.create_table("s.t", {"a": "int", "b": "struct(x int)"})
    lake.create_view("s.w", "SELECT a FROM t")
    with lake.transaction(message="tags") as tx:
        tx.set_tag("s.t", "owner", "it's ünï")
        tx.set_tag("s.t", "comment", "seen", column="a")
        tx.set_tag("s.t", "unit", "m")
        tx.set_tag("s.t", "comment", "a table")
        tx.set_tag("s.w", "owner", "views")
        tx.set_schema_comment("s", "a schema")
        tx.set_schema_tag("s", "team", "one")
        tx.create_table("s.new", {"a": "int"})
        tx.set_tag("s.new", "owner", "new")
        tx.set_tag("s.new", "k", "v")
        tx.create_schema("fresh")
        tx.set_schema_tag("fresh", "team", "two")
    first = lake.snapshot().id

    def check() -> None:
        table, new = lake.table("s.t", at=first), lake.table("s.new", at=first)
        assert table.tags() == {"owner": "it's ünï", "comment": "a table", "unit": "m"}
        assert (table.comment, dict(table.state.tags)) == ("a table", {"owner": "it's ünï", "unit": "m"})
        assert (table.column_comments, new.tags()) == ({"a": "seen"}, {"owner": "new", "k": "v"})
        assert lake.view("s.w", at=first).tags() == {"owner": "views"}
        schemas = {schema.name: (schema.comment, dict(schema.tags)) for schema in lake.schemas(at=first)}
        assert schemas == {"main": (None, {}), "s": ("a schema", {"team": "one"}), "fresh": (None, {"team": "two"})}

    check()
    # The same again is no change.
    assert lake.set_tag("s.t", "owner", "it's ünï") is None
    assert lake.set_schema_tag("s", "team", "one") is None
    assert lake.table("s.t").set_tag("unit", None) is not None
    assert lake.set_tag("s.t", "owner", None) is not None
    assert lake.set_schema_comment("s", None) is not None
    assert lake.set_tag("s.w", "owner", "other") is not None
    check()
    assert lake.table("s.t").tags() == {"comment": "a table"}
    assert {schema.name: schema.comment for schema in lake.schemas()} == {"main": None, "s": None, "fresh": None}
    with attached(lake_address) as duck:
        # DuckDB shows comments, keeps every other tag as it is, and writes on.
        assert duck.rows("SELECT comment FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = 't'") == [("a table",)]
        duck.run("COMMENT ON TABLE s.t IS 'duckdb'", "INSERT INTO s.t VALUES (1, {'x': 2})", "ALTER TABLE s.t ADD COLUMN c INTEGER")
        duck.run("DROP TABLE s.new", "DROP SCHEMA fresh", "ALTER VIEW s.w RENAME TO w2")
        assert duck.rows("FROM s.w2") == [(1,)]
        assert len(duck.rows("FROM ducklake_snapshots('lake')")) == lake.snapshot().id + 1
    assert lake.table("s.t").tags() == {"comment": "duckdb"}
    assert lake.table("s.t").column_comments == {"a": "seen"}
    assert lake.view("s.w2").tags() == {"owner": "other"}
    check()
    lake.drop_schema("s", cascade=True)
    tags = lake.database.tables["tag"]
    with lake.database.read() as connection:
        live = [row.object_id for row in connection.execute(tags.select()) if row.end_snapshot is None and row.value is not None]
    # DuckDB leaves the tags of a schema that it drops; nothing has that id again.
    assert len(live) == 1


def test_invalid_tags_raise(small: DuckLake) -> None:
    small.create_view("w", "SELECT 1 AS a")
    with pytest.raises(NotFoundError, match="no table or view nothing"):
        small.set_tag("nothing", "k", "v")
    with pytest.raises(UnsupportedFeatureError, match=r"Columns of view main.w cannot have comments, because lakes of version 1.0"):
        small.set_comment("w", "v", column="a")
    # DuckDB could not attach the lake any more.
    with pytest.raises(UnsupportedFeatureError, match="cannot have the tag 'k'"):
        small.set_tag("w", "k", "v", column="a")
    with pytest.raises(NotFoundError, match="no schema"):
        small.set_schema_comment("nothing", "c")
    with pytest.raises(UsageError, match="key is empty"):
        small.set_tag("w", "", "v")


def test_next_to_other_writers(small: DuckLake) -> None:
    small.create_schema("s")
    small.create_table("t", {"a": "int"})
    small.create_view("w", "SELECT a FROM t")
    tx = small.transaction()
    with tx:
        tx.set_schema_tag("s", "k", "own")
        tx.set_tag("w", "k", "own")
        small.set_schema_tag("s", "other", "duckdb")
        small.set_schema_tag("s", "k", "duckdb")
        small.set_tag("w", "other", "duckdb")
        small.table("t").append(pa.table({"a": pa.array([1], pa.int32())}))
    assert small.view("w").tags() == {"k": "own", "other": "duckdb"}
    found = next(schema for schema in small.schemas() if schema.name == "s")
    assert dict(found.tags) == {"k": "own", "other": "duckdb"}
    late = small.transaction().__enter__()
    late.set_schema_tag("s", "k", "late")
    small.drop_schema("s")
    with pytest.raises(CommitConflictError, match="dropped it"):
        late.__exit__(None, None, None)
