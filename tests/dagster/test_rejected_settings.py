"""Differences between the settings of an asset and its table raise, are reported, or change the table."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ducklake_core.errors import NotALakeError
from ducklake_dagster import DuckDBCatalog, DuckLakeResource, LocalStorage, SqliteCatalog, ducklake_metadata
from tests.dagster.test_io_manager import cause
from tests.support.oracle import attached
from tests.support.parameters import slow

Run = Callable[..., dg.ExecuteInProcessResult]
TWO = dg.StaticPartitionsDefinition(["1", "2"])
ROWS = pa.table({"n": [1, 1], "b": ["x", "y"]})


def asset(frame: Any, partitions: dg.PartitionsDefinition[str] | None = None, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name="things", partitions_def=partitions, metadata=metadata)
    def build() -> Any:
        return frame

    return build


def facts(result: dg.ExecuteInProcessResult, name: str = "things") -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node(name)
    return {key: value.value for key, value in event.metadata.items()}


@pytest.mark.parametrize("metadata", [{"partition_by": ["b"]}, {"partition_by": "bucket(4, n)"}])
def test_other_partition_keys_become_the_tables_in_the_same_commit(
    run: Run, lake_resource: DuckLakeResource, sqlite_address: Any, metadata: dict[str, Any]
) -> None:
    run([asset(ROWS)])
    wanted = asset(ROWS, **metadata)
    shown = facts(run([wanted]))
    lake = lake_resource.connect()
    keys = [metadata["partition_by"]] if isinstance(metadata["partition_by"], str) else metadata["partition_by"]
    assert list(lake.table_info("things").partition_by) == keys
    assert shown["ducklake/layout_change"].startswith(f"partitioned by {', '.join(keys)}, was by nothing")
    assert shown["ducklake/snapshot_id"] == lake.snapshot().id == 2, "one commit"
    assert "ducklake/layout_change" not in facts(run([wanted]))
    assert list(lake.table_info("things").partition_by) == keys
    run([asset(ROWS)])
    assert list(lake.table_info("things").partition_by) == keys, "an asset that names no keys leaves them alone"
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT n, b FROM lake.things ORDER BY b") == [(1, "x"), (1, "y")]


def test_a_retried_step_whose_commit_changed_the_layout_commits_once(
    run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ducklake_dagster import io_manager

    real, failures = io_manager.commit_metadata, iter([True])

    def lose_the_process_after_the_commit(*args: Any, **kwargs: Any) -> dict[str, Any]:
        if next(failures, False):
            lake_resource.connect().table("things").reset_partitioned_by()
            raise ConnectionError("lost after the commit")
        return real(*args, **kwargs)

    run([asset(ROWS)])
    monkeypatch.setattr(io_manager, "commit_metadata", lose_the_process_after_the_commit)

    @dg.asset(metadata={"partition_by": ["b"], "write_mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def things() -> Any:
        """Described."""
        return ROWS

    assert facts(run([things]))["ducklake/repeated"] is True
    assert lake_resource.connect().table_info("things").row_count == 4


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("ducklake/write_mod", "(did you mean 'write_mode'?)"),
        ("ducklake/partition_by", "'partition_by'"),
        ("Ducklake/zzz", "Keys of DuckLakeIOManager are"),
    ],
)
def test_unknown_keys_of_an_asset_raise(run: Run, lake_resource: DuckLakeResource, key: str, near: str) -> None:
    text = cause(run([asset(ROWS, **{key: "append"})], raise_on_error=False))
    assert f"asset things: unknown metadata key {key!r}" in text
    assert near in text
    assert not lake_resource.connect().has_table("things")


def test_settings_of_a_run_have_no_prefix(run: Run, lake_resource: DuckLakeResource) -> None:
    @dg.asset(name="things")
    def build(context) -> Any:
        context.add_output_metadata({"ducklake/write_mode": "append"})
        return ROWS

    assert "'ducklake/write_mode' to its output metadata, but settings have no prefix. Use 'write_mode'" in cause(
        run([build], raise_on_error=False)
    )
    assert not lake_resource.connect().has_table("things")


@pytest.mark.parametrize(
    ("key", "near"), [("ducklake/moment", "Keys of DuckLakeIOManager are columns, ducklake/where"), ("ducklake/were", "'ducklake/where'")]
)
def test_unknown_keys_of_an_input_raise(run: Run, key: str, near: str) -> None:
    @dg.asset(ins={"things": dg.AssetIn(metadata={key: "n > 1"})})
    def reader(things: pa.Table) -> None: ...

    text = cause(run([asset(ROWS, mine="left alone"), reader], raise_on_error=False))
    assert f"input things: unknown metadata key {key!r}" in text
    assert near in text


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("mode", "append", "write_mode"), ("writeMode", "append", "write_mode"), ("write-mode", "append", "write_mode"),
        ("write_modes", "append", "write_mode"), ("root_name", "orders", "table"), ("schema_mode", "merge", "schema_evolution"),
        ("upsert_options", {"join_cols": ["n"]}, "upsert_keys"), ("merge_config", {"merge_type": "upsert"}, "merge_keys"),
        ("partition_exp", "n", "partition_expr"),
    ],
)  # fmt: skip
def test_misspelled_settings_raise(run: Run, lake_resource: DuckLakeResource, key: str, value: Any, meant: str) -> None:
    with pytest.raises(dg.Failure, match=f"does not read metadata key '{key}'.*'{meant}'"):
        run([asset(ROWS, **{key: value})])

    @dg.asset(name="things")
    def build(context) -> Any:
        context.add_output_metadata({key: value})
        return ROWS

    assert f"does not read metadata key '{key}'" in cause(run([build], raise_on_error=False))
    assert not lake_resource.connect().has_table("things")


@pytest.mark.filterwarnings("ignore:Support for arbitrary metadata values:DeprecationWarning")
def test_keys_of_the_user_are_left_alone(run: Run) -> None:
    own = {"mode": "batch", "tables": "a, b", "team/write_mode": "append", "owner": "x", "partition_key": "y", "sorted": True}
    for value in ("batch", ["append"], np.array(["append", "merge"])):
        shown = facts(run([asset(ROWS, **{**own, "mode": value})]))
        assert shown["dagster/row_count"] == 2


@pytest.mark.parametrize(("key", "meant"), [("where", "ducklake/where"), ("snapshot", "ducklake/snapshot"), ("column", "columns")])
def test_keys_of_an_input_need_their_prefix(run: Run, key: str, meant: str) -> None:
    @dg.asset(ins={"things": dg.AssetIn(metadata={key: "n > 5"})})
    def reader(things: Any) -> Any:
        return things

    with pytest.raises(dg.Failure, match=f"does not read metadata key '{key}'.*'{meant}'"):
        run([asset(ROWS), reader])


@pytest.mark.parametrize("mode", ["append", *(slow(mode) for mode in ("overwrite", "upsert"))])
def test_columns_that_the_frame_lacks_fail_the_step_or_are_reported(
    run: Run, lake_resource: DuckLakeResource, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    def lacking(**how: Any) -> dg.AssetsDefinition:
        return asset(pa.table({"n": [7]}), **how, write_mode=mode, upsert_keys=["n"])

    run([asset(pa.table({"n": [1], "b": ["x"], "c": [True]}))])
    text = cause(run([lacking()], raise_on_error=False))
    assert "the data for main.things lacks columns b, c of the table, which have no default" in text
    assert "set missing_columns to 'null'" in text
    assert "lacks columns" in cause(run([lacking(missing_columns="auto")], io={"missing_columns": "null"}, raise_on_error=False))
    additive = lacking(missing_columns="error", schema_evolution="additive")
    assert "lacks columns" in cause(run([additive], raise_on_error=False))
    assert lake_resource.connect().snapshot().id == 1
    with caplog.at_level(logging.WARNING, logger="dagster"):
        shown = facts(run([lacking()], io={"missing_columns": "null"}))
    assert shown["ducklake/missing_columns"] == "b, c"
    rows = lake_resource.connect().table("things").scan(where="n = 7").to_arrow().to_pylist()
    assert rows == [{"n": 7, "b": None, "c": None}]
    assert facts(run([lacking(missing_columns="null")]))["ducklake/missing_columns"] == "b, c"
    assert facts(run([lacking(schema_evolution="additive")]))["ducklake/missing_columns"] == "b, c"
    assert "ducklake/missing_columns" not in facts(run([asset(pa.table({"n": [1], "B": ["x"], "c": [True]}))]))


def test_rows_without_columns_empty_nothing(run: Run, lake_resource: DuckLakeResource) -> None:
    run([asset(ROWS)])
    for frame, kind in ((ROWS.select([]), "pyarrow Table"), (pd.DataFrame(index=[0, 1]), "pandas DataFrame")):
        assert f"cannot write a {kind} without columns" in cause(run([asset(frame)], raise_on_error=False))
    assert lake_resource.connect().table_info("things").row_count == 2


@pytest.mark.parametrize(
    ("frame", "metadata", "expected"),
    [
        (pa.table({"n": ["x"], "b": ["x"]}), {}, ["column 'n' is int64 in the table and varchar in the data"]),
        (pa.table({"n": [1], "b": ["x"], "c": [1]}), {}, ["column 'c' is new"]),
        (ROWS, {"write_mode": "upsert", "upsert_keys": ["n"]}, ["key (n = "]),
        (pa.table({"n": [1, 3], "b": ["x", "y"]}), {"partition_expr": "n"}, ["asset things returned the row with n = 3", "out_of_slice"]),
        (pa.table({"n": [1, 3], "b": ["x", "y"]}), {"partition_expr": "n", "write_mode": "append"}, ["1 of 2 rows", "out_of_slice"]),
    ],
)  # fmt: skip
def test_errors_name_the_table_and_the_setting(run: Run, frame: pa.Table, metadata: dict[str, Any], expected: list[str]) -> None:
    partitions = TWO if "partition_expr" in metadata else None
    run([asset(ROWS)])
    how = {"partition_key": "1"} if partitions else {}
    result = run([asset(frame, partitions, **metadata)], raise_on_error=False, **how)
    (event,) = [event for event in result.all_events if event.is_step_failure]
    text = event.step_failure_data.user_failure_data.description
    assert "things" in text
    assert event.step_failure_data.user_failure_data.metadata["table"].value == "main.things"
    for part in expected:
        assert part in text


@pytest.mark.parametrize("catalog", [SqliteCatalog, DuckDBCatalog])
@pytest.mark.parametrize("made", [False, True])
def test_a_missing_lake_recommends_what_the_resource_has(tmp_path: Path, catalog: Any, made: bool) -> None:
    file = tmp_path / "lake.db"
    if made and catalog is SqliteCatalog:
        import sqlite3

        sqlite3.connect(file).execute("CREATE TABLE other (n)").connection.close()
    elif made:
        import duckdb

        duckdb.connect(str(file)).close()
    lake = DuckLakeResource(catalog=catalog(path=str(file)), storage=LocalStorage(data_path=f"{tmp_path}/files/"))
    with pytest.raises(NotALakeError) as failure:
        lake.connect()
    assert "create_if_missing=True on the resource" in str(failure.value)
    assert "DuckLake." not in str(failure.value)


def test_descriptions_become_comments_in_the_same_commit_when_they_change(run: Run, lake_resource: DuckLakeResource) -> None:
    schema = dg.TableSchema(columns=[dg.TableColumn("B", description="the letter"), dg.TableColumn("zzz", description="no column")])

    def described(text: str | None, **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name="things", description=text, metadata={**ducklake_metadata(), **metadata})
        def build() -> Any:
            return ROWS

        return build

    def seen() -> tuple[str | None, dict[str, str], int]:
        table = lake_resource.connect().table("things")
        return table.comment, table.column_comments, lake_resource.connect().snapshot().id

    shown = facts(run([described("first", **{"dagster/column_schema": schema})]))
    assert seen() == ("first", {"b": "the letter"}, 1)
    assert [column.description for column in shown["dagster/column_schema"].columns] == [None, "the letter"]
    run([described("first", **{"dagster/column_schema": schema})])
    assert seen() == ("first", {"b": "the letter"}, 2)
    changes = lake_resource.connect().snapshot().changes
    assert "altered" not in changes
    run([described(None)])
    assert seen()[:2] == ("first", {"b": "the letter"}), "what a definition does not say is left alone"
    run([described("second")])
    assert seen()[:2] == ("second", {"b": "the letter"})
    lake_resource.connect().set_comment("things", "by hand")
    run([described("second")], io={"comments": False})
    assert seen()[0] == "by hand"
