"""Representations of objects: one readable line, trees, HTML without scripts, and never a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Schema
from ducklake_core.engines.arrow import read
from ducklake_core.format.types.data_types import FLOAT64, INT64, VARCHAR, Field, ListType, MapType, StructType

SECRET = "hush-hush-secret"
ODD = "<script>alert('x')</script>\n\x1b[31m"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DuckLake]:
    lake = DuckLake.create(
        f"sqlite:///{tmp_path}/l.sqlite",
        data_path=f"{tmp_path}/f/",
        encrypted=True,
        storage_options={"s3": {"key": "me", "secret": SECRET}},
    )
    yield lake
    lake.close()


def test_a_schema_is_a_line_and_a_tree() -> None:
    point = StructType(fields=(Field(name="x", type=FLOAT64), Field(name="y", type=FLOAT64)))
    route = ListType(element=Field(name="element", type=point))
    named = MapType(key=Field(name="key", type=VARCHAR), value=Field(name="value", type=route))
    schema = Schema(
        columns=(
            Field(name="id", type=INT64, nullable=False),
            Field(name="kind", type=VARCHAR, default="new"),
            Field(name="routes", type=named),
            Field(name="last", type=INT64),
        )
    )
    assert repr(schema) == (
        "Schema(id: int64 NOT NULL, kind: varchar DEFAULT new, routes: map<varchar, list<struct<x: float64, y: float64>>>, last: int64)"
    )
    assert str(schema).splitlines() == [
        "id: int64 NOT NULL", "kind: varchar DEFAULT new", "routes: map", "├── key: varchar", "└── value: list", "    └── element: struct",
        "        ├── x: float64", "        └── y: float64", "last: int64",
    ]  # fmt: skip


def test_results_show_what_happened(lake: DuckLake) -> None:
    written = lake.write("t", pa.table({"n": [1, 2, 3]}), inline=False)
    assert re.fullmatch(r"<WriteResult: main.t at snapshot 1: created, 3 rows added, 1 file added \([\d,]+ bytes\)>", repr(written))
    assert str(lake.table("t").delete("n > 5")) == "main.t at snapshot 1: nothing to change"
    assert repr(lake.table("t").info()).startswith("TableInfo(table='main.t', table_id=1, ")
    assert "inlined_row_count" not in repr(lake.table("t").info())
    assert re.fullmatch(r"<Snapshot 1 of [\d-]+ [\d:]+ UTC: created_table:.*>", repr(lake.snapshot()))
    with lake.transaction() as tx:
        assert repr(tx) == "<Transaction on snapshot 1, open: no table so far>"
        tx.append("t", pa.table({"n": [4]}))
        assert repr(tx) == "<Transaction on snapshot 1, open: main.t>"
    assert repr(tx).startswith("<Transaction that became snapshot 2; main.t at snapshot 2: 1 row added")
    assert repr(lake.transaction()) == "<Transaction that is not open>"
    assert repr(tx.result).startswith("<TransactionResult: snapshot 2; main.t at snapshot 2: 1 row added")


def test_scans_and_feeds_show_their_query(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": [1]}))
    table = lake.table("t")
    assert repr(table.scan()) == "<Scan of main.t at snapshot 1>"
    assert repr(table.scan(["n"], "n > 0", 5)) == "<Scan of main.t at snapshot 1: columns n; where n > 0; at most 5 rows>"
    assert repr(table.changes(0)) == "<ChangeFeed: changes of main.t from snapshot 0 to 1>"
    assert repr(table.insertions(0, where="n > 0").limit(5)) == (
        "<ChangeFeed: insertions of main.t from snapshot 0 to 1; where n > 0; at most 5 rows>"
    )


def test_nothing_is_read_for_a_repr(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write("t", pa.table({"n": [1]}), inline=False)
    table = lake.table("t")
    monkeypatch.setattr(read, "open_parquet", lambda *_: pytest.fail("a file was opened"))
    assert "1 rows, 1 files" in table._repr_html_()
    for one in (table, table.scan(), table.scan().limit(3), table.changes(0), table.schema):
        assert repr(one)
        assert getattr(one, "_repr_html_", lambda: "-")()


def test_an_unreadable_lake_raises_nothing_in_a_notebook(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": [1]}))
    table = lake.table("t")
    lake.write("t", pa.table({"n": [2]}))
    lake.expire_snapshots(versions=[table.snapshot_id], min_age="0 days")
    assert "size unknown: Snapshot 1" in table._repr_html_()
    assert "<td>n</td>" in table.scan(["nope"])._repr_html_()


def test_hostile_names_and_comments_are_escaped(lake: DuckLake) -> None:
    lake.write("t", pa.table({ODD: [1], "s": [{ODD: 2}]}))
    lake.set_comment("t", ODD)
    table = lake.table("t")
    for html in (table._repr_html_(), table.schema._repr_html_(), table.scan(where=f"s IS NOT NULL -- {ODD}")._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
    for text in (repr(table.schema), str(table.scan([ODD]).plan()), str(table.scan([ODD]).explain()), repr(table.scan([ODD]))):
        assert "\x1b" not in text
    assert len(str(table.schema).splitlines()) == 3


def test_no_repr_has_a_secret(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": range(100)}), inline=False)
    table = lake.table("t")
    key = table.list_files()[0].encryption_key
    assert key is not None
    with lake.transaction() as tx:
        tx.append("t", pa.table({"n": range(100)}), inline=False)
        shown = [tx, tx.table("t"), tx.table("t").scan(), tx.table("t").scan().explain(), tx.table("t").scan().plan()]
        shown_strings = [text for one in shown for text in (repr(one), str(one))]
    objects = [
        lake, lake.info, lake.settings(), table, table.scan(), table.scan().plan(), table.scan().plan().plan, table.scan().explain(),
        table.changes(0), table.changes(0).plan(), table.changes(0).plan().plan, table.list_files(), table.info(), table.state,
        tx, tx.result, lake.snapshots(), lake.tables(), lake.merge_adjacent_files(dry_run=True), lake.cleanup_old_files(dry_run=True),
    ]  # fmt: skip
    shown_strings += [text for one in objects for text in (repr(one), str(one), getattr(one, "_repr_html_", str)())]
    for text in shown_strings:
        assert SECRET not in text
        assert key.base64_text not in text
