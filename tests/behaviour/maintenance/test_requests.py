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


def fill(lake: DuckLake, name: str, files: int = 3, rows: int = 20) -> None:
    """Small files, the last with a deleted row, and a row that is inlined."""
    for number in range(files):
        lake.write(name, pa.table({"id": pa.array(range(number * rows, (number + 1) * rows), pa.int64())}), inline=False)
    lake.set_option("data_inlining_row_limit", 0, table=name)
    lake.table(name).delete(f"id = {files * rows - 1}")
    lake.unset_option("data_inlining_row_limit", table=name)
    lake.write(name, pa.table({"id": pa.array([-1], pa.int64())}))


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)


def messages(lake: DuckLake, since: int) -> list[tuple[str | None, str | None]]:
    return [(one.author, one.message) for one in lake.snapshots() if one.id > since]


def touched(steps: tuple[MaintenanceStep, ...]) -> set[str]:
    return {step.target for step in steps if step.outcome in ("done", "planned")}


def test_every_snapshot_has_the_message_of_the_caller(lake_address: LakeAddress) -> None:
    lake = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
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
    lake = DuckLake.connect(sqlite_address.url)
    lake.merge_adjacent_files("t", author="night", message="the round", extra_info={"run": 7})
    lake.close()
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


def test_invalid_messages_raise_before_any_change(lake: DuckLake) -> None:
    fill(lake, "t")
    before = lake.snapshot().id
    for operation in (lake.flush_inlined_data, lake.merge_adjacent_files, lake.rewrite_data_files, lake.checkpoint):
        for wrong, text in (
            ({"extra_info": {"commit_id": "x"}}, "commit_id"),
            ({"extra_info": {"a": {1, 2}}}, "JSON"),
            ({"commit_id": "x"}, "Unexpected argument 'commit_id'"),
            ({"mesage": "x"}, "mesage"),
            ({"author": 7}, "author"),
        ):
            with pytest.raises(UsageError, match=text):
                operation(**wrong)
    assert lake.snapshot().id == before


def test_tables_by_names_and_patterns(lake: DuckLake) -> None:
    for name in ("a", "Ab", 'main."a*"', "sales.a", "sales.b", '"we.ird"."t ä"'):
        fill(lake, name)
    for tables, expected in (
        ("a", {"main.a"}),
        ("A*", {"main.a", "main.Ab", "main.a*"}),
        ('main."a*"', {"main.a*"}),
        (["?", "SALES.*"], {"main.a", "sales.a", "sales.b"}),
        ("*.a", {"main.a", "sales.a"}),
        (["*.*", "a"], {"main.a", "main.Ab", "main.a*", "sales.a", "sales.b", '"we.ird".t ä'}),
        ('"we.ird".*', {'"we.ird".t ä'}),
    ):
        for operation in (lake.merge_adjacent_files, lake.flush_inlined_data):
            assert touched(operation(tables=tables, dry_run=True).steps) == expected
        assert touched(lake.rewrite_data_files(tables=tables, delete_threshold=0, dry_run=True).steps) == expected
    done = lake.flush_inlined_data(tables=["sales.*", "nowhere.*"])
    assert touched(done.steps) == {"sales.a", "sales.b"}
    assert [(step.target, step.reason) for step in done.skipped_steps] == [("nowhere.*", "no table matches it")]
    nothing = lake.merge_adjacent_files(tables="nothing_*")
    assert nothing.tables == ()
    assert nothing.unmatched == ("nothing_*",)
    assert "nothing_*: no table matches it" in str(nothing)
    round_ = lake.checkpoint(tables=["main.a", "x*"], dry_run=True)
    assert {step.target for step in round_.steps if step.outcome == "planned"} == {"main.a"}
    assert [step.target for step in round_.skipped_steps].count("x*") == 3


def test_unknown_names_raise(lake: DuckLake) -> None:
    fill(lake, "sales.orders")
    for operation in (lake.merge_adjacent_files, lake.flush_inlined_data, lake.rewrite_data_files, lake.checkpoint):
        with pytest.raises(NotFoundError, match=r"did you mean 'sales.orders'"):
            operation(tables=["sales.*", "sales.order"])
        with pytest.raises(NotFoundError, match=r"did you mean 'sales.orders'"):
            operation(tables="orders")
        with pytest.raises(NotFoundError, match=r"there is no table a.b.c"):
            operation(tables="a.b.c")
        with pytest.raises(UsageError, match=r"cannot read the name 'a..c'"):
            operation(tables="a..c")
        with pytest.raises(UsageError, match="tables is empty"):
            operation(tables=[])
    with pytest.raises(UsageError, match="either tables, or table and schema"):
        lake.merge_adjacent_files("sales.orders", tables="sales.*")
    assert lake.merge_adjacent_files("orders", schema="sales").files_merged == 2


def test_a_merge_within_a_budget_goes_on_where_the_last_one_ended(lake: DuckLake, sqlite_address: LakeAddress) -> None:
    for name in ("a", "b"):
        for number in range(9):
            lake.write(name, pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())}), inline=False)
    last = lake.snapshot().id
    before = {name: rows for (snapshot, name), rows in readings(sqlite_address).items() if snapshot == last}
    plan = lake.merge_adjacent_files(max_files=6, dry_run=True)
    done = lake.merge_adjacent_files(max_files=6)
    for result in (plan, done):
        assert [(one.table, one.files_merged, one.left) for one in result.tables] == [
            ("main.a", 6, (("beyond max_files", 3),)),
            ("main.b", 0, (("beyond max_files", 9),)),
        ]
    runs = 1
    while done.files_merged:
        done = lake.merge_adjacent_files(max_files=6)
        assert done.files_merged <= 6
        runs += 1
    assert [len(lake.table(name).list_files()) for name in "ab"] == [1, 1]
    assert runs <= 7, "new files are not rewritten before older ones"
    size = max(file.file_size_bytes for file in lake.table("a").list_files())
    fill(lake, "c", files=6)
    sizes = [file.file_size_bytes for file in lake.table("c").list_files()]
    limited = lake.merge_adjacent_files("c", max_input_bytes=sum(sizes[:3]) + 1, dry_run=True)
    assert limited.files_merged == 3
    assert dict(limited.tables[0].left)["beyond max_input_bytes"] == 2
    tiny = lake.merge_adjacent_files("c", max_input_bytes=size // 100)
    assert any("too large for any run with max_input_bytes" in step.reason for step in tiny.skipped_steps)
    assert any("never takes" in step.reason for step in lake.merge_adjacent_files("c", max_files=1).skipped_steps)
    for wrong in ({"max_files": 0}, {"max_input_bytes": 0}, {"max_seconds": -1}):
        with pytest.raises(UsageError):
            lake.merge_adjacent_files(**wrong)
    lake.close()
    after = readings(sqlite_address)
    assert {name: after[last, name] for name in before} == before


def test_a_rewrite_and_a_flush_within_a_budget(lake: DuckLake) -> None:
    for name in ("a", "b"):
        for number in range(3):
            lake.write(name, pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())}), inline=False)
        lake.table(name).delete("id % 10 = 0")
        lake.write(name, pa.table({"id": pa.array([-1, -2], pa.int64())}))
    flushed = lake.flush_inlined_data(max_rows=1)
    assert [(step.target, step.outcome, step.reason) for step in flushed.steps][1] == ("main.b", "skipped", "beyond max_rows")
    assert lake.flush_inlined_data(max_rows=1).rows_flushed == 2
    plan = lake.rewrite_data_files(delete_threshold=0, max_files=2, dry_run=True)
    done = lake.rewrite_data_files(delete_threshold=0, max_files=2)
    for result in (plan, done):
        assert [(one.table, one.files_rewritten, one.left) for one in result.tables] == [
            ("main.a", 2, (("beyond max_files", 1),)),
            ("main.b", 0, (("beyond max_files", 3),)),
        ]
    assert [lake.rewrite_data_files(delete_threshold=0, max_files=2).files_rewritten for _ in range(3)] == [2, 2, 0]
    assert sorted(lake.table("b").scan().to_arrow()["id"].to_pylist()) == sorted({*range(30), -1, -2} - {0, 10, 20})


def test_groups_to_rewrite_are_limited_as_groups_to_merge_are(lake: DuckLake) -> None:
    lake.create_table("p", pa.schema({"id": pa.int64(), "part": pa.int64()}), partition_by=["part"])
    lake.write("p", pa.table({"id": range(30), "part": [n % 3 for n in range(30)]}), inline=False)
    lake.table("p").delete("id < 6")
    (one,) = lake.rewrite_data_files(delete_threshold=0, max_compacted_files=2).tables
    assert (one.files_rewritten, one.left) == (2, (("beyond max_compacted_files", 1),))
    with pytest.raises(UsageError, match="max_compacted_files"):
        lake.rewrite_data_files(max_compacted_files=0)


def test_a_deadline_ends_between_files(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table("p", pa.schema({"id": pa.int64(), "part": pa.int64()}), partition_by=["part"])
    for _ in range(2):
        lake.write("p", pa.table({"id": range(30), "part": [n % 3 for n in range(30)]}), inline=False)
    fill(lake, "q")
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    real = merge.merge_files

    def slow(task: object) -> object:
        clock[0] += 6
        return real(task)  # type: ignore[arg-type]

    monkeypatch.setattr(merge, "merge_files", slow)
    done = lake.merge_adjacent_files(max_seconds=10)
    monkeypatch.undo()
    assert [(one.table, one.files_merged, one.left) for one in done.tables] == [
        ("main.p", 4, (("beyond max_seconds", 2),)),
        ("main.q", 0, (("beyond max_seconds", 2), ("rows were deleted from it", 1))),
    ]
    assert done.tables[0].snapshot is not None
    assert lake.merge_adjacent_files().files_merged == 4
    for operation in (lake.flush_inlined_data, lake.merge_adjacent_files, lake.rewrite_data_files, lake.checkpoint):
        before = lake.snapshot().id
        assert all(step.outcome == "skipped" for step in operation(max_seconds=0).steps)
        assert lake.snapshot().id == before
    assert {step.reason for step in lake.checkpoint(max_seconds=0).skipped_steps} >= {"beyond max_seconds"}


def test_everything_is_cleaned_up_when_nothing_runs(lake: DuckLake) -> None:
    fill(lake, "t")
    lake.merge_adjacent_files()
    stray = Path(lake.info.data_path) / "main" / "t" / "ducklake-0199b5a0-0000-7000-8000-000000000000.parquet"
    stray.write_bytes(b"")
    for operation in (lake.cleanup_old_files, lake.delete_orphaned_files):
        assert operation().files == ()
        with pytest.raises(UsageError, match="cleanup_all would take what is younger"):
            operation(cleanup_all=True)
        with pytest.raises(UsageError, match="either older_than or cleanup_all"):
            operation(cleanup_all=True, older_than="1 day", min_age=NOW)
    assert len(lake.cleanup_old_files(cleanup_all=True, min_age=NOW).files) == 2
    assert [Path(file.path).name for file in lake.delete_orphaned_files(cleanup_all=True, min_age=NOW).files] == [stray.name]
    assert not stray.exists()
