"""Arguments that all operations on tables share: commit messages, names and patterns of tables, and budgets."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, MaintenanceStep, Snapshot
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.maintenance import merge
from tests.behaviour.maintenance.lakes import FILES_ONLY, NOW, catalog_rows, copy_of, readings
from tests.support.oracle import LakeAddress, attached

_MESSAGES = {"author": "night", "message": "the round", "extra_info": {"run": 7}}


def fill(small: DuckLake, name: str, files: int = 3, rows: int = 20) -> None:
    """Small files, the last with a deleted row, and a row that is inlined."""
    for number in range(files):
        small.write(name, pa.table({"id": pa.array(range(number * rows, (number + 1) * rows), pa.int64())}), inline=False)
    small.set_option("data_inlining_row_limit", 0, table=name)
    small.table(name).delete(f"id = {files * rows - 1}")
    small.unset_option("data_inlining_row_limit", table=name)
    small.write(name, pa.table({"id": pa.array([-1], pa.int64())}))


def messages(small: DuckLake, since: int) -> list[tuple[str | None, str | None]]:
    return [(one.author, one.message) for one in small.snapshots() if one.id > since]


def touched(steps: tuple[MaintenanceStep, ...]) -> set[str]:
    return {step.target for step in steps if step.outcome in ("done", "planned")}


def test_every_snapshot_has_the_message_of_the_caller(lake: DuckLake, lake_address: LakeAddress) -> None:
    fill(lake, "a")
    fill(lake, "b")
    before = lake.snapshot().id
    made: list[Snapshot | None] = [one.snapshot for one in lake.flush_inlined_data(**_MESSAGES).tables]
    made += [one.snapshot for one in lake.merge_adjacent_files("a", **_MESSAGES).tables]
    made += [one.snapshot for one in lake.rewrite_data_files(delete_threshold=0, **_MESSAGES).tables]
    assert len(made) == 5
    assert None not in made
    assert messages(lake, before) == [("night", "the round")] * 5
    found = [json.loads(one.extra_info or "") for one in lake.snapshots() if one.id > before]
    assert all(one["run"] == 7 and one["commit_id"] for one in found)
    fill(lake, "c")
    before = lake.snapshot().id
    lake.checkpoint(author="ops")
    reported = messages(lake, before)
    assert {author for author, _ in reported} == {"ops"}
    assert any((text or "").startswith("flush_inlined_data: ") for _, text in reported), "the operation is the default message"
    lake.close()
    with attached(lake_address) as duck:
        rows = duck.rows("SELECT author, commit_message FROM ducklake_snapshots('lake') WHERE author IS NOT NULL")
    assert set(rows) >= {("night", "the round")}


def test_the_catalog_holds_it_as_duckdbs_commit_does(sqlite_address: LakeAddress, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (id INTEGER)", *(f"INSERT INTO t SELECT range FROM range({n}, {n} + 5)" for n in (0, 5, 10)))
    by_duckdb = copy_of(sqlite_address, request, tmp_path)
    small = DuckLake.connect(sqlite_address.url)
    small.merge_adjacent_files("t", author="night", message="the round", extra_info={"run": 7})
    small.close()
    with attached(by_duckdb, FILES_ONLY) as duck:
        duck.run(
            "BEGIN",
            "CALL lake.set_commit_message('night', 'the round', extra_info => '{\"run\": 7}')",
            "CALL ducklake_merge_adjacent_files('lake', 't')",
            "COMMIT",
        )
    own, expected = (
        catalog_rows(address, without=frozenset({"commit_extra_info", "changes_made"}))["snapshot_changes"]
        for address in (sqlite_address, by_duckdb)
    )
    assert own == expected
    assert ("night", "the round") in {(row[1], row[2]) for row in own}


def test_invalid_messages_raise_before_any_change(small: DuckLake) -> None:
    fill(small, "t")
    before = small.snapshot().id
    for operation in (small.flush_inlined_data, small.merge_adjacent_files, small.rewrite_data_files, small.checkpoint):
        for wrong, text in (
            ({"extra_info": {"commit_id": "x"}}, "commit_id"),
            ({"extra_info": {"a": {1, 2}}}, "JSON"),
            ({"commit_id": "x"}, "Unexpected argument 'commit_id'"),
            ({"mesage": "x"}, "mesage"),
            ({"author": 7}, "author"),
        ):
            with pytest.raises(UsageError, match=text):
                operation(**wrong)
    assert small.snapshot().id == before


def test_tables_by_names_and_patterns(small: DuckLake) -> None:
    for name in ("a", "Ab", 'main."a*"', "sales.a", "sales.b", '"we.ird"."t ä"'):
        fill(small, name)
    for tables, expected in (
        ("a", {"main.a"}),
        ("A*", {"main.a", "main.Ab", "main.a*"}),
        ('main."a*"', {"main.a*"}),
        (["?", "SALES.*"], {"main.a", "sales.a", "sales.b"}),
        ("*.a", {"main.a", "sales.a"}),
        (["*.*", "a"], {"main.a", "main.Ab", "main.a*", "sales.a", "sales.b", '"we.ird".t ä'}),
        ('"we.ird".*', {'"we.ird".t ä'}),
    ):
        for operation in (small.merge_adjacent_files, small.flush_inlined_data):
            assert touched(operation(tables=tables, dry_run=True).steps) == expected
        assert touched(small.rewrite_data_files(tables=tables, delete_threshold=0, dry_run=True).steps) == expected
    done = small.flush_inlined_data(tables=["sales.*", "nowhere.*"])
    assert touched(done.steps) == {"sales.a", "sales.b"}
    assert [(step.target, step.reason) for step in done.skipped_steps] == [("nowhere.*", "no table matches it")]
    nothing = small.merge_adjacent_files(tables="nothing_*")
    assert nothing.tables == ()
    assert nothing.unmatched == ("nothing_*",)
    assert "nothing_*: no table matches it" in str(nothing)
    round_ = small.checkpoint(tables=["main.a", "x*"], dry_run=True)
    assert {step.target for step in round_.steps if step.outcome == "planned"} == {"main.a"}
    assert [step.target for step in round_.skipped_steps].count("x*") == 3


def test_unknown_names_raise(small: DuckLake) -> None:
    fill(small, "sales.orders")
    for operation in (small.merge_adjacent_files, small.flush_inlined_data, small.rewrite_data_files, small.checkpoint):
        with pytest.raises(NotFoundError, match=r"did you mean 'sales.orders'"):
            operation(tables=["sales.*", "sales.order"])
        with pytest.raises(NotFoundError, match=r"did you mean 'sales.orders'"):
            operation(tables="orders")
        with pytest.raises(NotFoundError, match=r"there is no table a.b.c"):
            operation(tables="a.b.c")
        with pytest.raises(UsageError, match=r"cannot read the name 'a..c'"):
            operation(tables="a..c")
        with pytest.raises(UsageError, match="tables is an empty list"):
            operation(tables=[])
    with pytest.raises(UsageError, match="tables cannot be combined"):
        small.merge_adjacent_files("sales.orders", tables="sales.*")
    assert small.merge_adjacent_files("orders", schema="sales").files_merged == 3


def test_a_merge_within_a_budget_goes_on_where_the_last_one_ended(small: DuckLake, sqlite_address: LakeAddress) -> None:
    for name in ("a", "b"):
        for number in range(9):
            small.write(name, pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())}), inline=False)
    last = small.snapshot().id
    before = {name: rows for (snapshot, name), rows in readings(sqlite_address).items() if snapshot == last}
    plan = small.merge_adjacent_files(max_files=6, dry_run=True)
    done = small.merge_adjacent_files(max_files=6)
    for result in (plan, done):
        assert [(one.table, one.files_merged, one.left) for one in result.tables] == [
            ("main.a", 6, (("beyond max_files", 3),)),
            ("main.b", 0, (("beyond max_files", 9),)),
        ]
    runs = 1
    while done.files_merged:
        done = small.merge_adjacent_files(max_files=6)
        assert done.files_merged <= 6
        runs += 1
    assert [len(small.table(name).list_files()) for name in "ab"] == [1, 1]
    assert runs <= 7, "new files are not rewritten before older ones"
    size = max(file.file_size_bytes for file in small.table("a").list_files())
    fill(small, "c", files=6)
    sizes = [file.file_size_bytes for file in small.table("c").list_files()]
    limited = small.merge_adjacent_files("c", max_input_bytes=sum(sizes[:3]) + 1, dry_run=True)
    assert limited.files_merged == 3
    assert dict(limited.tables[0].left)["beyond max_input_bytes"] == 3
    tiny = small.merge_adjacent_files("c", max_input_bytes=size // 100)
    assert any("is too small for them" in step.reason for step in tiny.skipped_steps)
    assert any("is too small: 2 files are needed" in step.reason for step in small.merge_adjacent_files("c", max_files=1).skipped_steps)
    for wrong in ({"max_files": 0}, {"max_input_bytes": 0}, {"max_seconds": -1}):
        with pytest.raises(UsageError):
            small.merge_adjacent_files(**wrong)
    small.close()
    after = readings(sqlite_address)
    assert {name: after[last, name] for name in before} == before


def test_a_rewrite_and_a_flush_within_a_budget(small: DuckLake) -> None:
    for name in ("a", "b"):
        for number in range(3):
            small.write(name, pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())}), inline=False)
        small.table(name).delete("id % 10 = 0")
        small.write(name, pa.table({"id": pa.array([-1, -2], pa.int64())}))
    flushed = small.flush_inlined_data(max_rows=1)
    assert [(step.target, step.outcome, step.reason) for step in flushed.steps][1] == ("main.b", "skipped", "beyond max_rows")
    assert small.flush_inlined_data(max_rows=1).rows_flushed == 2
    plan = small.rewrite_data_files(delete_threshold=0, max_files=2, dry_run=True)
    done = small.rewrite_data_files(delete_threshold=0, max_files=2)
    for result in (plan, done):
        assert [(one.table, one.files_rewritten, one.left) for one in result.tables] == [
            ("main.a", 2, (("beyond max_files", 1),)),
            ("main.b", 0, (("beyond max_files", 3),)),
        ]
    assert [small.rewrite_data_files(delete_threshold=0, max_files=2).files_rewritten for _ in range(3)] == [2, 2, 0]
    assert sorted(small.table("b").scan().to_arrow()["id"].to_pylist()) == sorted({*range(30), -1, -2} - {0, 10, 20})


def test_groups_to_rewrite_are_limited_as_groups_to_merge_are(small: DuckLake) -> None:
    small.create_table("p", pa.schema({"id": pa.int64(), "part": pa.int64()}), partition_by=["part"])
    small.write("p", pa.table({"id": range(30), "part": [n % 3 for n in range(30)]}), inline=False)
    small.table("p").delete("id < 6")
    (one,) = small.rewrite_data_files(delete_threshold=0, max_compacted_files=2).tables
    assert (one.files_rewritten, one.left) == (2, (("beyond max_compacted_files", 1),))
    with pytest.raises(UsageError, match="max_compacted_files"):
        small.rewrite_data_files(max_compacted_files=0)


def test_a_deadline_ends_between_files(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    small.create_table("p", pa.schema({"id": pa.int64(), "part": pa.int64()}), partition_by=["part"])
    for _ in range(2):
        small.write("p", pa.table({"id": range(30), "part": [n % 3 for n in range(30)]}), inline=False)
    fill(small, "q")
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    real = merge.merge_files

    def slow(task: object) -> object:
        clock[0] += 6
        return real(task)  # type: ignore[arg-type]

    monkeypatch.setattr(merge, "merge_files", slow)
    done = small.merge_adjacent_files(max_seconds=10)
    monkeypatch.undo()
    assert [(one.table, one.files_merged, one.left) for one in done.tables] == [
        ("main.p", 4, (("beyond max_seconds", 2),)),
        ("main.q", 0, (("beyond max_seconds", 3),)),
    ]
    assert done.tables[0].snapshot is not None
    assert small.merge_adjacent_files().files_merged == 5
    for operation in (small.flush_inlined_data, small.merge_adjacent_files, small.rewrite_data_files, small.checkpoint):
        before = small.snapshot().id
        assert all(step.outcome == "skipped" for step in operation(max_seconds=0).steps)
        assert small.snapshot().id == before
    assert {step.reason for step in small.checkpoint(max_seconds=0).skipped_steps} >= {"beyond max_seconds"}


def test_everything_is_cleaned_up_when_nothing_runs(small: DuckLake) -> None:
    fill(small, "t")
    small.merge_adjacent_files()
    stray = Path(small.info.data_path) / "main" / "t" / "ducklake-0199b5a0-0000-7000-8000-000000000000.parquet"
    stray.write_bytes(b"")
    for operation in (small.cleanup_old_files, small.delete_orphaned_files):
        assert operation().files == ()
        with pytest.raises(UsageError, match="cleanup_all selects items younger"):
            operation(cleanup_all=True)
        with pytest.raises(UsageError, match="older_than and cleanup_all"):
            operation(cleanup_all=True, older_than="1 day", min_age=NOW)
    assert len(small.cleanup_old_files(cleanup_all=True, min_age=NOW).files) == 4
    assert [Path(file.path).name for file in small.delete_orphaned_files(cleanup_all=True, min_age=NOW).files] == [stray.name]
    assert not stray.exists()
