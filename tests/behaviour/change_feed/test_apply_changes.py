"""Changes of one table are applied to another: both have the same rows afterwards."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ducklake_core import DuckLake, Table
from ducklake_core.errors import NotFoundError, UsageError

COLUMNS = {"id": "int64", "part": "varchar", "amount": "double"}


@pytest.fixture
def tables(tmp_path: Path) -> tuple[DuckLake, Table]:
    """The lake of the source, and the target in another lake."""
    source, target = (DuckLake.create(tmp_path / f"{name}.sqlite", data_path=tmp_path / name) for name in ("source", "target"))
    for lake in (source, target):
        lake.create_table("t", COLUMNS)
    return source, target.table("t")


def _rows(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize("seed", range(2))
def test_random_changes_lead_to_the_same_rows(tables: tuple[DuckLake, Table], seed: int) -> None:
    source, target = tables
    chosen, since = random.Random(seed), 0
    for _ in range(4):
        for _ in range(chosen.randint(1, 4)):
            key = chosen.randint(1, 9)
            rows = [{"id": number, "part": "ab"[number % 2], "amount": chosen.random()} for number in range(key, key + 3)]
            table = source.table("t")
            match chosen.randint(0, 3):
                case 0:
                    table.delete(f"id < {key}")
                case 1:
                    table.update({"amount": "amount + 1"}, where=f"id > {key}")
                case _:
                    table.upsert(rows, on=["id", "part"], inline=chosen.choice([None, False]))
        until = source.snapshot().id
        target.apply_changes(source.table("t").changes(since + 1, until), on=["id", "part"])
        assert _rows(target) == _rows(source.table("t"))
        since = until
    assert target.apply_changes(source.table("t").changes(0), on=["id", "part"]).rows_deleted == 0
    assert _rows(target) == _rows(source.table("t")), "changes may be applied again"


def test_the_same_changes_are_applied_once(tables: tuple[DuckLake, Table]) -> None:
    source, target = tables
    source.write("t", [{"id": 1, "part": "a", "amount": 1.0}])
    changes = source.table("t").changes(0)
    assert target.apply_changes(changes, on="id").rows_inserted == 1
    target.delete(None)
    assert target.apply_changes(changes, on=["id"]).repeated
    assert target.apply_changes(changes, on="id", commit_id="again").rows_inserted == 1
    only = source.table("t").changes(0, columns=["id", "amount"])
    source.table("t").update({"amount": 5, "part": "'z'"})
    assert target.apply_changes(only, on="id").rows_updated == 1
    assert _rows(target) == [(1, "a", 1.0)], "the feed ends at the snapshot of its table"


def test_what_is_no_change_feed_or_key_raises(tables: tuple[DuckLake, Table]) -> None:
    source, target = tables
    source.write("t", [{"id": 1, "part": "a", "amount": 1.0}, {"id": 1, "part": None, "amount": 1.0}])
    feed = source.table("t").changes(0)
    for wrong in (source.table("t").insertions(0), feed.limit(5), [{"id": 1}]):
        with pytest.raises(UsageError, match="must be a change feed"):
            target.apply_changes(wrong, on="id")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="several rows with id = 1"):
        target.apply_changes(feed, on="id")
    with pytest.raises(UsageError, match="'part' of the changes has NULLs"):
        target.apply_changes(feed, on=["id", "part"])
    with pytest.raises(NotFoundError, match="nope"):
        target.apply_changes(feed, on="nope")
    source.table("t").delete("part IS NULL")
    since = source.table("t").add_column("more", "int32")
    assert since is not None
    source.table("t").update({"more": 1})
    with pytest.raises(NotFoundError, match="more"):
        target.apply_changes(source.table("t").changes(since.id), on="id")
    assert target.count() == 0
