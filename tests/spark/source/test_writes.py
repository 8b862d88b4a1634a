"""Batch writes, planned, carried out and committed as Spark does it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps
from pyspark.serializers import CloudPickleSerializer

from ducklake_core import DuckLake
from ducklake_core.commit.committer import Committer
from ducklake_core.errors import CommitConflictError, CommitError, CommitOutcomeUnknownError, NotFoundError, SchemaError, UsageError
from tests.spark.source.processes import data_source, on_an_executor, passed_on, schema_of, write_function
from tests.support.oracle import LakeAddress, attached

COLUMNS = schema_of("a bigint, b string")
pytestmark = pytest.mark.usefixtures("notes")


def new_lake(address: LakeAddress, **how: Any) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path, **how)
    lake.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    return lake


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": pa.array(values, pa.int64()), "b": [f"r{value}" for value in values]})


def files(address: LakeAddress) -> list[Path]:
    return sorted(Path(address.data_path).rglob("*.parquet"))


def test_tasks_write_files_and_the_driver_makes_one_snapshot(lake_address: LakeAddress, notes: Path, tmp_path: Path) -> None:
    lake = new_lake(lake_address)
    before = lake.snapshot().id
    writer = data_source(lake_address, author="me", message="it's done", commitId="job-7").writer(COLUMNS, False)
    function = write_function(writer)
    # Spark pickles the same writer for executors and for the process that commits.
    shipped, (note,) = dumps((function, writer)), notes.iterdir()
    for pickled in (shipped, note.read_bytes()):
        assert lake_address.url.encode() not in pickled
        assert b"sqlite" not in pickled
        assert b"postgres" not in pickled
    assert note.stat().st_mode & 0o077 == 0
    first, loaded = on_an_executor(function, [batch(1, 2), batch(3)], tmp_path)
    assert loaded == []
    messages = [first, passed_on(function)([batch(4)]), passed_on(function)([])]
    passed_on(writer).commit(passed_on(messages))
    snapshot = lake.snapshot()
    assert (snapshot.id, snapshot.author, snapshot.message) == (before + 1, "me", "it's done")
    with attached(lake_address) as duck:
        assert duck.rows("SELECT * FROM t ORDER BY a") == [(value, f"r{value}") for value in (1, 2, 3, 4)]
    assert list(notes.iterdir()) == []
    # The same job again, with its commit id: nothing comes twice, and nothing stays.
    written = files(lake_address)
    again = data_source(lake_address, commitId="job-7").writer(COLUMNS, False)
    passed_on(again).commit([passed_on(write_function(again))([batch(1)])])
    assert lake.snapshot().id == before + 1
    assert files(lake_address) == written


def test_overwriting_replaces_all_rows_in_one_snapshot(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address, encrypted=True)
    lake.write("t", pa.table({"a": [1, 2], "b": ["x", None]}))
    writer = data_source(sqlite_address).writer(COLUMNS, True)
    # Rows that another writer adds meanwhile were there before the overwrite is committed.
    lake.write("t", pa.table({"a": list(range(100)), "b": ["y"] * 100}))
    before = lake.snapshot().id
    passed_on(writer).commit([passed_on(write_function(writer))([batch(7)])])
    with attached(sqlite_address, "ENCRYPTED") as duck:
        assert duck.rows("SELECT * FROM t") == [(7, "r7")]
    assert lake.snapshot().id == before + 1
    assert lake.table("t", at=before).scan().to_arrow().num_rows == 102


def test_nothing_written_is_no_snapshot(sqlite_address: LakeAddress, notes: Path) -> None:
    lake = new_lake(sqlite_address)
    before = lake.snapshot().id
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    passed_on(writer).commit([passed_on(write_function(writer))([])])
    assert lake.snapshot().id == before
    assert list(notes.iterdir()) == []


def test_another_writer_adds_rows_meanwhile(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    message = passed_on(write_function(writer))([batch(1)])
    lake.write("t", pa.table({"a": [2], "b": ["x"]}))
    passed_on(writer).commit([message])
    assert sorted(lake.table("t").scan().to_arrow().column("a").to_pylist()) == [1, 2]


def test_another_writer_changes_the_columns_meanwhile(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    message = passed_on(write_function(writer))([batch(1)])
    lake.write("t", pa.table({"c": [2]}), schema_evolution="additive")
    with pytest.raises(CommitConflictError, match="changed while its rows were written"):
        passed_on(writer).commit([message])
    passed_on(writer).abort([message])
    assert files(sqlite_address) == []


def test_an_abort_leaves_no_file_of_any_task(sqlite_address: LakeAddress, notes: Path) -> None:
    lake = new_lake(sqlite_address)
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    passed_on(write_function(writer))([batch(1)])
    assert len(files(sqlite_address)) == 1
    # Spark lost the commit message of the task.
    passed_on(writer).abort([None])
    assert files(sqlite_address) == []
    assert list(notes.iterdir()) == []
    with pytest.raises(CommitError, match="its options were deleted"):
        passed_on(writer).commit([])
    assert lake.table("t").scan().count() == 0


def test_an_abort_waits_for_tasks_that_still_write(sqlite_address: LakeAddress, patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark aborts a cancelled write before it has ended its tasks."""
    new_lake(sqlite_address)
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    function, waited = write_function(writer), []

    def late(seconds: float) -> None:
        passed_on(function)([batch(1)])
        assert len(files(sqlite_address)) == 1
        waited.append(seconds)

    monkeypatch.setattr("ducklake_core.spark_source.writing.time", SimpleNamespace(sleep=late))
    passed_on(writer).abort([])
    assert waited == [patience]
    assert files(sqlite_address) == []


def test_an_abort_after_a_commit_of_unknown_outcome_deletes_nothing(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_lake(sqlite_address)
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    message = passed_on(write_function(writer))([batch(1)])
    commit = Committer.commit

    def cut(self: Committer, transaction: Any) -> Any:
        commit(self, transaction)
        raise CommitOutcomeUnknownError("the line was cut")

    monkeypatch.setattr(Committer, "commit", cut)
    with pytest.raises(CommitOutcomeUnknownError):
        passed_on(writer).commit([message])
    # Spark aborts every write that did not commit.
    passed_on(writer).abort([message])
    monkeypatch.undo()
    assert lake.table("t").scan().to_arrow().to_pydict() == {"a": [1], "b": ["r1"]}


def test_files_of_attempts_that_lost_are_deleted(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    passed_on(write_function(writer))([batch(1)])
    message = passed_on(write_function(writer))([batch(1)])
    retried = type(message)(plan=message.plan, files=message.files, attempt=1)
    passed_on(writer).commit([retried])
    assert len(files(sqlite_address)) == 1
    assert lake.table("t").scan().count() == 1


def test_rows_that_do_not_fit_raise_before_anything_is_written(sqlite_address: LakeAddress, notes: Path) -> None:
    new_lake(sqlite_address)
    for columns, sent in (("a bigint, c string", r"'c' is new.* lake\.write\(.*additive"), ("a string", "'a'")):
        with pytest.raises(SchemaError, match=sent):
            data_source(sqlite_address).writer(schema_of(columns), False)
    assert list(notes.iterdir()) == []


@pytest.mark.parametrize(("name", "overwrite"), [("made", True), ('"näme \'""; DROP"', False)])
def test_a_table_that_is_missing_is_made_with_its_rows(lake_address: LakeAddress, name: str, overwrite: bool) -> None:
    lake = new_lake(lake_address)
    before = lake.snapshot().id
    frame = schema_of("a bigint, b string, c date")
    writer = data_source(lake_address, name).writer(frame, overwrite)
    assert not lake.has_table(name)
    # The lake moves on meanwhile, and the options with it.
    lake.write("t", pa.table({"a": [1], "b": ["x"]}))
    passed_on(writer).commit([passed_on(write_function(writer))([batch(1, 2)])])
    assert lake.snapshot().id == before + 2
    with attached(lake_address) as duck:
        assert duck.rows(f"SELECT * FROM {name} ORDER BY a") == [(1, "r1", None), (2, "r2", None)]
    again = data_source(lake_address, name).writer(frame, False)
    passed_on(again).commit([passed_on(write_function(again))([batch(3)])])
    assert lake.table(name).scan().count() == 3
    # Another process makes it while rows are written.
    late = data_source(lake_address, "late").writer(frame, overwrite)
    message = passed_on(write_function(late))([batch(1)])
    lake.create_table("late", pa.schema([("z", pa.int32())]))
    written = files(lake_address)
    with pytest.raises(CommitConflictError, match="late"):
        passed_on(late).commit([message])
    assert len(files(lake_address)) == len(written) - 1
    # A write without rows makes the table, a write that fails does not.
    empty = data_source(lake_address, "empty").writer(frame, overwrite)
    passed_on(empty).commit([passed_on(write_function(empty))([])])
    assert lake.table("empty").scan().count() == 0
    data_source(lake_address, "failed").writer(frame, overwrite).abort([])
    assert not lake.has_table("failed")


def test_tables_that_are_not_made(sqlite_address: LakeAddress) -> None:
    new_lake(sqlite_address)
    with pytest.raises(NotFoundError, match=r"main\.nothing|nothing"):
        data_source(sqlite_address, "nothing", createTable="false").writer(COLUMNS, False)
    with pytest.raises(NotFoundError, match="away"):
        data_source(sqlite_address, "away.t").writer(COLUMNS, False)


def partitioned(address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", pa.table({"a": [1, 1, 2], "b": ["x", "y", "z"]}), partition_by=["a"])
    return lake


def test_an_overwrite_of_a_partitioned_table_requires_its_mode(sqlite_address: LakeAddress, notes: Path) -> None:
    """Spark does not pass on its setting of dynamic overwrites, so that neither meaning may be taken for granted."""
    lake = partitioned(sqlite_address)
    with pytest.raises(UsageError, match=r"main\.t is partitioned by a, .* Set the option to 'static' .* or to 'dynamic'"):
        data_source(sqlite_address).writer(COLUMNS, True)
    with pytest.raises(UsageError, match="Set it to one of static, dynamic"):
        data_source(sqlite_address, partitionOverwriteMode="some").writer(COLUMNS, True)
    assert list(notes.iterdir()) == []
    # Appends replace nothing, whatever the option is.
    for option, overwrite, expected in (
        ("dynamic", False, ["r1", "x", "y", "z"]),
        ("DYNAMIC", True, ["r1", "z"]),
        ("static", True, ["r1"]),
    ):
        writer = data_source(sqlite_address, partitionOverwriteMode=option).writer(COLUMNS, overwrite)
        passed_on(writer).commit([passed_on(write_function(writer))([batch(1)])])
        assert sorted(lake.table("t").scan().to_arrow().column("b").to_pylist()) == expected


def test_dynamic_overwrites_replace_the_partitions_of_their_rows(lake_address: LakeAddress) -> None:
    lake = partitioned(lake_address)
    writer = data_source(lake_address, partitionOverwriteMode="dynamic", commitId="once").writer(COLUMNS, True)
    # Rows of another writer in such a partition were there before the overwrite is committed.
    lake.write("t", pa.table({"a": [2, 3], "b": ["late", "late"]}))
    before = lake.snapshot().id
    for _ in range(2):
        passed_on(writer).commit([passed_on(write_function(writer))([batch(2)]), passed_on(write_function(writer))([batch(4)])])
        writer = data_source(lake_address, partitionOverwriteMode="dynamic", commitId="once").writer(COLUMNS, True)
    assert lake.snapshot().id == before + 1
    with attached(lake_address) as duck:
        assert duck.rows("FROM t ORDER BY ALL") == [(1, "x"), (1, "y"), (2, "r2"), (3, "late"), (4, "r4")]


def test_dynamic_overwrites_need_partitions(sqlite_address: LakeAddress) -> None:
    new_lake(sqlite_address)
    with pytest.raises(UsageError, match="has no partition keys"):
        data_source(sqlite_address, partitionOverwriteMode="dynamic").writer(COLUMNS, True)
    data_source(sqlite_address, "new", partitionOverwriteMode="dynamic").writer(COLUMNS, True)
    with pytest.raises(UsageError, match="no option 'partitionoverwritemode' for writeStream"):
        data_source(sqlite_address, partitionOverwriteMode="dynamic", streamId="s").streamWriter(COLUMNS, True)


def test_missing_columns_follow_the_rule_of_every_other_write(sqlite_address: LakeAddress, notes: Path) -> None:
    lake = new_lake(sqlite_address)
    lake.table("t").add_column("c", "int32", default=7)
    part = schema_of("a bigint")
    with pytest.raises(SchemaError, match=r"lacks column 'b' of main\.t, .* option\('missingColumns', 'null'\)"):
        data_source(sqlite_address).writer(part, False)
    with pytest.raises(UsageError, match="Set it to one of error, null"):
        data_source(sqlite_address, missingColumns="ignore").writer(part, False)
    assert list(notes.iterdir()) == []
    writer = data_source(sqlite_address, missingColumns="null").writer(part, False)
    passed_on(writer).commit([passed_on(write_function(writer))([batch(1).select(["a"])])])
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"a": 1, "b": None, "c": 7}]
    data_source(sqlite_address).writer(COLUMNS, False)


def test_errors_of_streams_are_themselves_where_spark_pickles(sqlite_address: LakeAddress) -> None:
    """Spark plans a micro-batch while it pickles the sink, and hides every error that is none of pickling."""
    new_lake(sqlite_address)
    for table, columns, error, message in (
        ("t", "a bigint, z string", SchemaError, "'z' is new"),
        ("t", "a bigint", SchemaError, r"option\('missingColumns', 'null'\)"),
        ("nothing", "a bigint, b string", NotFoundError, "there is no table main.nothing"),
    ):
        writer = data_source(sqlite_address, table, streamId="s").streamWriter(schema_of(columns), False)
        with pytest.raises(error, match=message) as caught:
            CloudPickleSerializer().dumps(writer)
        assert (caught.type.__name__, caught.type.__module__) == (error.__name__, "ducklake_core.errors")
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_errors_have_no_frames_of_the_library(sqlite_address: LakeAddress) -> None:
    """Spark shows its user the whole traceback."""
    new_lake(sqlite_address)
    with pytest.raises(SchemaError) as caught:
        data_source(sqlite_address).writer(schema_of("z string"), False)
    assert len(caught.traceback) == 2
    writer = data_source(sqlite_address).writer(COLUMNS, False)
    wrong = pa.RecordBatch.from_pydict({"a": ["no number"], "b": ["x"]})
    with pytest.raises(SchemaError) as caught:
        passed_on(writer).write(iter([wrong]))
    assert len(caught.traceback) == 2
