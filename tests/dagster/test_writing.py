"""Merges, replaced columns, sort orders and partition expressions, each in the one commit of its output."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from sqlalchemy import Engine, event

from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeResource, ducklake_metadata, validate
from ducklake_dagster.assets.settings import WriteSettings, resolve_settings
from ducklake_dagster.statistics.commit_metadata import commit_metadata
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-04-03")
KEYS = DAYS.get_partition_keys()
NOON = datetime.fromisoformat("2026-03-27T12:00:00")


def asset_of(frames: list[Any], partitions_def: Any = None, **settings: Any) -> dg.AssetsDefinition:
    """An asset ``t`` that returns the first of the frames, then the next, and so on."""

    @dg.asset(name="t", partitions_def=partitions_def, metadata=ducklake_metadata(**settings))
    def build() -> pa.Table:
        return frames.pop(0)

    return build


def content(lake: DuckLakeResource, order: str = "id") -> list[dict[str, Any]]:
    return lake.connect().table("t").scan().to_arrow().sort_by(order).to_pylist()


def failure_of(run: Run, asset: dg.AssetsDefinition, text: str, **how: Any) -> None:
    result = run([asset], raise_on_error=False, **how)
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    found = failure.step_failure_data
    message = f"{found.error.cause.message if found.error.cause else found.error.message} {found.user_failure_data}"
    assert text in message, message


class TestMerge:
    def test_every_branch_in_one_commit(self, run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
        first = pa.table({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"], "op": ["I", "I", "I", "D"]})
        second = pa.table({"id": [2, 3, 5, 6], "v": ["B", "x", "e", "f"], "op": ["U", "D", None, "D"]})
        asset = asset_of([first, second], write_mode="merge", merge_keys="id", delete_when="s.op = 'D'")
        run([asset])
        assert content(lake_resource) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}], "a flag is no column"
        before = lake_resource.connect().snapshot().id
        result = run([asset])
        with attached(sqlite_address) as duck:
            assert duck.rows("SELECT * FROM lake.t ORDER BY id") == [(1, "a"), (2, "B"), (5, "e")]
        assert lake_resource.connect().snapshot().id == before + 1
        (event,) = result.get_asset_materialization_events()
        numbers = {key: value.value for key, value in event.materialization.metadata.items()}
        assert (numbers["ducklake/rows_added"], numbers["ducklake/rows_updated"], numbers["ducklake/rows_deleted"]) == (1, 1, 1)
        assert numbers["ducklake/write_mode"] == "merge"

    @pytest.mark.parametrize("flag", ["op", "op code", 'say "go"'])
    def test_flags_are_columns_not_strings_of_a_condition(self, run: Run, lake_resource: DuckLakeResource, flag: str) -> None:
        quoted = flag.replace('"', '""')
        rows = pa.table({"id": [1, 2], "gone": [7, 8], "lower": [True, True], flag: ["kept", "GONE"]})
        run([asset_of([rows], write_mode="merge", merge_keys="id", delete_when=f"lower(s.\"{quoted}\") = 'gone'")])
        assert content(lake_resource) == [{"id": 1, "gone": 7, "lower": True}]

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"when_matched": "ignore"}, {1: "a", 2: "b", 3: "C"}),
            ({"when_not_matched": "ignore"}, {1: "a", 2: "B"}),
            ({"when_matched": "delete"}, {1: "a", 3: "C"}),
            ({"when_not_matched_by_source": "delete"}, {2: "B", 3: "C"}),
        ],
    )
    def test_branches(self, run: Run, lake_resource: DuckLakeResource, settings: dict[str, Any], expected: dict[int, str]) -> None:
        lake_resource.connect().write("t", pa.table({"id": [1, 2], "v": ["a", "b"]}))
        source = pa.table({"id": [2, 3], "v": ["B", "C"]})
        run([asset_of([source], write_mode="merge", merge_keys=["id"], shared=True, **settings)])
        assert {row["id"]: row["v"] for row in content(lake_resource)} == expected

    def test_rows_missing_in_the_source_are_deleted_from_the_slice_alone(self, run: Run, lake_resource: DuckLakeResource) -> None:
        def rows(key: str, ids: list[int]) -> pa.Table:
            return pa.table({"day": pa.array([date.fromisoformat(key)] * len(ids), pa.date32()), "id": ids})

        how = {"write_mode": "merge", "merge_keys": ["id"], "when_not_matched_by_source": "delete", "partition_expr": "day"}
        asset = asset_of(
            [rows(KEYS[0], [1, 2]), rows(KEYS[1], [3]), rows(KEYS[0], [2]), rows(KEYS[2], [9])], DAYS, partition_by="day", **how
        )
        for key in (KEYS[0], KEYS[1], KEYS[0]):
            run([asset], partition_key=key)
        assert [row["id"] for row in content(lake_resource)] == [2, 3]
        assert lake_resource.connect().table_info("t").partition_by == ("day",)
        failure_of(run, asset, "outside the partitions of this run", partition_key=KEYS[0])

    def test_new_columns_follow_the_schema_evolution(self, run: Run, lake_resource: DuckLakeResource) -> None:
        lake_resource.connect().write("t", pa.table({"id": pa.array([1, 2], pa.int32())}))
        wider = pa.table({"id": pa.array([2, 2**40]), "w": [1, 2]})
        failure_of(run, asset_of([wider], write_mode="merge", merge_keys="id"), "the data has columns w (int64) that main.t does not have")
        run([asset_of([wider], write_mode="merge", merge_keys="id", schema_evolution="additive")])
        assert content(lake_resource) == [{"id": 1, "w": None}, {"id": 2, "w": 1}, {"id": 2**40, "w": 2}]

    def test_a_repeated_step_merges_once(self, run: Run, lake_resource: DuckLakeResource) -> None:
        attempts = []

        @dg.asset(name="t", retry_policy=dg.RetryPolicy(max_retries=1), metadata=ducklake_metadata(write_mode="merge", merge_keys="id"))
        def build() -> pa.Table:
            attempts.append(1)
            return pa.table({"id": [len(attempts)]})

        class LostError(Exception):
            pass

        from ducklake_dagster import io_manager

        original, calls = io_manager.commit_metadata, []

        def lost_once(*args: Any, **how: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise LostError
            return original(*args, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(io_manager, "commit_metadata", lost_once)
            run([build])
        assert content(lake_resource) == [{"id": 1}]

    def test_conditions_and_values_of_branches(self, run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
        first = pa.table({"id": [1, 2, 3], "seen": [10, 10, 10], "n": [1, 2, 3]})
        second = pa.table({"id": [1, 2, 4, 5], "seen": [5, 20, 20, 20], "n": [10, 20, 40, 50], "op": ["U", "U", "I", "X"]})
        how: dict[str, Any] = {
            "write_mode": "merge",
            "merge_on": "t.id = s.id",
            "when_matched": {"action": "update", "where": "s.seen > t.seen", "set": {"n": "t.n + s.n", "seen": "s.seen"}},
            "when_not_matched": [{"action": "ignore", "where": "s.op = 'X'"}, {"action": "insert", "set": {"id": "s.id", "n": "s.n"}}],
            "when_not_matched_by_source": {"action": "update", "where": "t.n < 10", "set": {"n": "-t.n"}},
        }
        lake_resource.connect().write("t", first)
        run([asset_of([second], **how)])
        with attached(sqlite_address) as duck:
            assert duck.rows("FROM lake.t ORDER BY id") == [(1, 10, 1), (2, 20, 22), (3, 10, -3), (4, None, 40)]
            duck.run(
                "CREATE TEMP TABLE d AS SELECT * FROM (VALUES (1, 10, 1), (2, 10, 2), (3, 10, 3)) AS v(id, seen, n)",
                "CREATE TEMP TABLE s AS SELECT * FROM (VALUES (1, 5, 10, 'U'), (2, 20, 20, 'U'), (4, 20, 40, 'I'), (5, 20, 50, 'X')) "
                "AS v(id, seen, n, op)",
                "MERGE INTO d AS t USING s ON t.id = s.id WHEN MATCHED AND s.seen > t.seen "
                "THEN UPDATE SET n = t.n + s.n, seen = s.seen "
                "WHEN NOT MATCHED AND s.op <> 'X' THEN INSERT (id, n) VALUES (s.id, s.n) "
                "WHEN NOT MATCHED BY SOURCE AND t.n < 10 THEN UPDATE SET n = -t.n",
            )
            assert duck.rows("FROM d ORDER BY id") == duck.rows("FROM lake.t ORDER BY id")

    def test_the_first_merge_creates_the_table(self, run: Run, lake_resource: DuckLakeResource) -> None:
        frame = pa.table({"id": [1], "at": [1], "op": ["I"]})
        how = {"action": "update", "where": "s.at > t.at AND s.op = 'U'"}
        run([asset_of([frame], write_mode="merge", merge_on="t.id = s.id", when_matched=how)])
        assert content(lake_resource) == [{"id": 1, "at": 1}], "op is only part of a condition"

    def test_a_later_branch_does_not_see_ignored_rows(self, run: Run, lake_resource: DuckLakeResource) -> None:
        lake_resource.connect().write("t", pa.table({"id": [1, 2, 3], "n": [1, 2, None]}))
        branches = [{"action": "ignore", "where": "t.n > 1"}, {"action": "delete"}]
        run([asset_of([pa.table({"id": [1, 2, 3], "n": [0, 0, 0]})], write_mode="merge", merge_keys="id", when_matched=branches)])
        assert content(lake_resource) == [{"id": 2, "n": 2}]

    def test_rows_of_another_asset_are_not_deleted(self, run: Run, lake_resource: DuckLakeResource) -> None:
        @dg.asset(metadata={"table": "t"})
        def other() -> pa.Table:
            return pa.table({"id": [1]})

        run([other])
        how: dict[str, Any] = {"write_mode": "merge", "merge_keys": "id"}
        failure_of(run, asset_of([pa.table({"id": [2]})], when_not_matched_by_source="delete", **how), "other")
        run([asset_of([pa.table({"id": [2]})], **how)])
        assert [row["id"] for row in content(lake_resource)] == [1, 2]

    @pytest.mark.parametrize(
        ("metadata", "text"),
        [
            ({"write_mode": "merge"}, "Set merge_keys"),
            ({"when_matched": "update"}, "need write_mode 'merge'"),
            ({"write_mode": "merge", "merge_keys": "id", "when_matched": "upsert"}, "when_matched must be one of update, ignore, delete"),
            ({"write_mode": "merge", "merge_keys": "id", "when_matched": "ignore", "when_not_matched": "ignore"}, "would change nothing"),
            ({"write_mode": "merge", "merge_keys": "id", "delete_when": 1}, "delete_when must be a SQL condition"),
            ({"write_mode": "merge", "merge_keys": "id", "merge_on": "t.id = s.id"}, "Set only one of them"),
            ({"write_mode": "merge", "merge_on": 1}, "merge_on must be a SQL condition"),
            (
                {"write_mode": "merge", "merge_keys": "id", "when_matched": {"if": "s.x"}},
                "unknown key 'if'. Its keys are action, where and set",
            ),
            (
                {"write_mode": "merge", "merge_keys": "id", "when_matched": {"where": "s.x"}},
                "must be one of update, ignore, delete, not None",
            ),
            ({"write_mode": "merge", "merge_keys": "id", "when_matched": {"action": "delete", "set": {"a": "1"}}}, "for action update or"),
            ({"write_mode": "merge", "merge_keys": "id", "when_not_matched_by_source": {"action": "update"}}, "needs set"),
            ({"write_mode": "append", "schema_evolution": "replace"}, "needs write_mode 'overwrite'"),
        ],
    )
    def test_invalid_settings_raise(self, metadata: dict[str, Any], text: str) -> None:
        with pytest.raises(UsageError, match=text):
            resolve_settings(WriteSettings(), metadata, subject="a")

    def test_another_mode_at_run_time_wins(self) -> None:
        definition = {"write_mode": "merge", "merge_keys": "id"}
        found = resolve_settings(WriteSettings(), definition, {"write_mode": "overwrite"}, subject="a")
        assert (found.write_mode, found.merge) == ("overwrite", None)


class TestAbsence:
    def test_error_writes_only_what_does_not_exist(self, run: Run, lake_resource: DuckLakeResource) -> None:
        first, second = pa.table({"id": [1]}), pa.table({"id": [2]})
        asset = asset_of([first, second], write_mode="error")
        run([asset])
        failure_of(run, asset, "asset t has write_mode 'error', and table main.t exists. Nothing was written")
        assert content(lake_resource) == [{"id": 1}]

    def test_ignore_writes_only_the_partitions_without_rows(self, run: Run, lake_resource: DuckLakeResource) -> None:
        parts = dg.StaticPartitionsDefinition(["a", "b", "c"])
        tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
        first, *frames = [
            pa.table({"k": keys, "id": ids}) for keys, ids in ((["a"], [1]), (["a", "b"], [2, 3]), (["a"], [4]), (["a", "z"], [5, 6]))
        ]
        how: dict[str, Any] = {"write_mode": "ignore", "partition_expr": "k"}
        asset = asset_of([first, *frames], parts, **how)
        run([asset], partition_key="a")
        run([asset], tags=tags)
        assert content(lake_resource) == [{"k": "a", "id": 1}, {"k": "b", "id": 3}]
        before = lake_resource.connect().snapshot().id
        (event,) = run([asset], partition_key="a").get_asset_materialization_events()
        assert "it has rows of partition a" in str(event.materialization.metadata["ducklake/skipped"].value)
        assert lake_resource.connect().snapshot().id == before
        failure_of(run, asset, "outside the partitions of this run", tags={**tags, "dagster/asset_partition_range_end": "c"})
        failure_of(run, asset_of([first], parts, write_mode="error", partition_expr="k"), "has rows of partition a", partition_key="a")

    def test_many_new_partitions_take_as_many_statements_as_two(self, run: Run, lake_resource: DuckLakeResource) -> None:
        parts = dg.StaticPartitionsDefinition([f"p{number:02}" for number in range(40)])
        frames = [pa.table({"k": [key], "id": [1]}) for key in ("p00", "p01", "p03")]
        asset = asset_of(frames, parts, write_mode="error", partition_expr="k")
        run([asset], partition_key="p00")
        counts: list[int] = []

        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            # Dagster stores events of each partition in a database of its own.
            counts[-1] += "ducklake_" in statement and "event_logs" not in statement

        event.listen(Engine, "before_cursor_execute", note)
        try:
            for first, last in (("p01", "p02"), ("p03", "p39")):
                counts.append(0)
                tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
                run([asset], tags=tags)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert counts[1] <= counts[0] + 5

    def test_a_retry_finds_its_own_commit(self, run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch) -> None:
        from ducklake_dagster import io_manager

        original, calls = io_manager.commit_metadata, []

        def fail_once(*args: Any, **how: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise OSError("lost")
            return original(*args, **how)

        monkeypatch.setattr(io_manager, "commit_metadata", fail_once)

        @dg.asset(name="t", retry_policy=dg.RetryPolicy(max_retries=1), metadata=ducklake_metadata(write_mode="error"))
        def build() -> pa.Table:
            return pa.table({"id": [1]})

        run([build])
        assert (len(calls), content(lake_resource)) == (2, [{"id": 1}])


class TestReplacedColumns:
    def test_types_change_in_the_commit_of_the_rows(self, run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
        first = pa.table({"id": [1, 2], "v": ["1", "2"], "gone": [0, 0], "s": [{"a": 1}, None]})
        second = pa.table({"id": ["x"], "v": [1.5], "new": [date(2026, 3, 27)], "s": [{"a": "b", "c": 1}]})
        asset = asset_of([first, second, second], schema_evolution="replace", partition_by="id", sort_by=["v DESC"])
        run([asset])
        lake = lake_resource.connect()
        lake.set_option("parquet_compression", "zstd", table="t")
        table_id, before = lake.table("t").state.id, lake.snapshot().id
        result = run([asset])
        opened = lake.table("t")
        assert (opened.state.id, opened.snapshot_id) == (table_id, before + 1)
        assert {column.name: str(column.type) for column in opened.schema} == {
            "id": "varchar",
            "v": "float64",
            "new": "date",
            "s": "struct<a: varchar, c: int64>",
        }
        with attached(sqlite_address) as duck:
            assert duck.rows("SELECT id, v, new, s.a FROM lake.t") == [("x", 1.5, date(2026, 3, 27), "b")]
            assert duck.rows(f"SELECT id, v, gone FROM lake.t AT (VERSION => {before}) ORDER BY id") == [(1, "1", 0), (2, "2", 0)]
        assert opened.info().partition_by == ("id",)
        assert [(key.expression, key.direction) for key in opened.sort_keys] == [("v", "DESC")]
        assert lake.options("t")["parquet_compression"] == "zstd", "the table is the same one"
        (event,) = result.get_asset_materialization_events()
        assert event.materialization.metadata["ducklake/replaced_columns"].value.splitlines() == [
            "column 'id' became varchar, was int64",
            "column 'v' became float64, was varchar",
            "column 'gone' (int64) was dropped",
            "column 's' became struct<a: varchar, c: int64>, was struct<a: int64>",
        ]
        run([asset])
        assert lake.snapshot().id == before + 2

    def test_every_column_may_be_replaced(self, run: Run, lake_resource: DuckLakeResource) -> None:
        frames = [pa.table({"id": [1], "id_replaced": [2]}), pa.table({"id": ["a"]}), pa.table({"other": [1.5]})]
        asset = asset_of(frames, schema_evolution="replace")
        for _ in range(3):
            run([asset])
        assert content(lake_resource, "other") == [{"other": 1.5}]

    def test_comments_stay_with_columns_of_other_types(self, run: Run, lake_resource: DuckLakeResource) -> None:
        frames = [pa.table({"id": [1], "v": [1]}), pa.table({"ID": ["a"], "v": ["b"]})]
        columns = dg.TableSchema(columns=[dg.TableColumn("id", "int", description="whose it is")])

        @dg.asset(metadata={**ducklake_metadata(schema_evolution="replace"), "dagster/column_schema": columns})
        def t() -> pa.Table:
            return frames.pop(0)

        run([t])
        lake = lake_resource.connect()
        lake.table("t").set_comment("by hand", column="v")
        run([t])
        assert lake.table("t").column_comments == {"ID": "whose it is", "v": "by hand"}

    def test_partitioned_assets_raise(self, run: Run) -> None:
        asset = asset_of([pa.table({"day": [1]})], DAYS, partition_expr="day", schema_evolution="replace")
        failure_of(run, asset, "is partitioned, so schema_evolution 'replace'", partition_key=KEYS[0])
        from ducklake_dagster import DuckLakeIOManager, LocalStorage, SqliteCatalog

        lake = DuckLakeResource(catalog=SqliteCatalog(path="x.sqlite"), storage=LocalStorage(data_path="x/"))
        with pytest.raises(UsageError, match="schema_evolution 'replace'"):
            validate(dg.Definitions(assets=[asset], resources={"io_manager": DuckLakeIOManager(lake=lake)}))


def test_files_are_sorted_and_the_order_changes_with_the_asset(run: Run, lake_resource: DuckLakeResource) -> None:
    lake_resource.connect().set_option("data_inlining_row_limit", 0)
    rows = pa.table({"id": [2, 3, 1], "v": ["b", "a", "c"]})
    run([asset_of([rows], sort_by="id")])
    lake = lake_resource.connect()
    assert lake.table("t").scan(["id"]).to_arrow().column("id").to_pylist() == [1, 2, 3]
    result = run([asset_of([rows], sort_by=["v desc nulls last"])])
    assert lake.table("t").scan(["v"]).to_arrow().column("v").to_pylist() == ["c", "b", "a"]
    (event,) = result.get_asset_materialization_events()
    layout = event.materialization.metadata["ducklake/layout_change"].value
    assert layout == "sorted by v desc nulls last, was by id ASC NULLS LAST; existing files keep their layout"
    before = lake.snapshot()
    (event,) = run([asset_of([rows], sort_by=['"V" DESC'])]).get_asset_materialization_events()
    assert "ducklake/layout_change" not in event.materialization.metadata
    assert lake.snapshot().schema_version == before.schema_version
    failure_of(run, asset_of([rows], sort_by=["gone"]), "gone")


class TestPartitionExpressions:
    @pytest.mark.parametrize("expression", spread(["CAST(at AS DATE)", "date_trunc('day', \"At\")", "at::date"], 1))
    @pytest.mark.parametrize("zone", [None, "UTC"])
    def test_the_day_of_a_time(self, run: Run, lake_resource: DuckLakeResource, expression: str, zone: str | None) -> None:
        def rows(key: str, hours: list[float]) -> pa.Table:
            start = datetime.fromisoformat(key).replace(tzinfo=UTC if zone else None)
            return pa.table({"At": pa.array([start + timedelta(hours=hour) for hour in hours], pa.timestamp("us", zone)), "id": hours})

        taken: list[int] = []

        @dg.asset(name="after", partitions_def=DAYS)
        def after(t: pa.Table) -> None:
            taken.append(t.num_rows)

        frames = [rows(KEYS[0], [0, 12, 23.99]), rows(KEYS[1], [0, 1]), rows(KEYS[0], [3]), rows(KEYS[0], [24])]
        asset = asset_of(frames, DAYS, partition_expr=expression)
        for key in (KEYS[0], KEYS[1], KEYS[0]):
            run([asset, after], partition_key=key)
        assert taken == [3, 2, 1]
        assert len(content(lake_resource)) == 3
        failure_of(run, asset, "outside", partition_key=KEYS[0])

    def test_static_days(self, run: Run, lake_resource: DuckLakeResource) -> None:
        keys = ["1969-12-31", "2026-03-27"]
        static = dg.StaticPartitionsDefinition(list(reversed(keys)))
        frames = [pa.table({"at": [datetime.fromisoformat(key) + timedelta(hours=23)], "id": [1]}) for key in keys]
        asset = asset_of(frames, static, partition_expr="CAST(at AS DATE)", partition_by="day(at)")
        for key in keys:
            run([asset], partition_key=key)
        assert len(content(lake_resource)) == 2
        from ducklake_dagster import CompletePartitions, RowCount
        from ducklake_dagster.assets.tables import asset_tables
        from ducklake_dagster.checks.builders import Judge, read_lake

        (table,) = asset_tables([asset], None)
        with dg.DagsterInstance.ephemeral() as instance:
            checks = [RowCount(minimum=1, maximum=1), CompletePartitions()]
            judge = Judge(read_lake(lake_resource.connect(), [table], checks), instance)
            assert all(judge.verdict(table, check, [key]).passed for check in checks for key in keys)

    @pytest.mark.parametrize(
        ("definition", "expression", "column", "text"),
        [
            (dg.HourlyPartitionsDefinition("2026-03-27-00:00"), "CAST(at AS DATE)", NOON, "is not the start of a day"),
            (DAYS, "date_trunc('month', at)", NOON, "is not the start of a month"),
            (DAYS, "CAST(at AS DATE)", "2026-03-27", "which does not support"),
            (DAYS, "lower(at)", "2026-03-27", "is not supported, because files cannot be filtered by it"),
            (DAYS, "date_trunc('era', at)", NOON, "unknown unit 'era'"),
            (dg.StaticPartitionsDefinition(["a"]), "CAST(at AS DATE)", NOON, "must be days"),
        ],
    )
    def test_expressions_that_do_not_separate_partitions_raise(
        self, run: Run, definition: Any, expression: str, column: Any, text: str
    ) -> None:
        asset = asset_of([pa.table({"at": [column]})], definition, partition_expr=expression)
        failure_of(run, asset, text, partition_key=definition.get_partition_keys()[1 if definition is DAYS else 0])


@pytest.mark.parametrize("change", ["layout", "columns"])
def test_a_repeated_commit_reports_its_changes(
    run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The first attempt commits and is lost: the only event, of the second, reports the changes of the first."""
    lost: list[int] = []

    def lose(*args: Any, **named: Any) -> dict[str, Any]:
        if not lost:
            lost.append(1)
            raise RuntimeError("lost after the commit")
        return commit_metadata(*args, **named)

    lake_resource.connect().write("t", pa.table({"id": ["1"] if change == "columns" else [1]}))
    how: dict[str, Any] = {"schema_evolution": "replace"} if change == "columns" else {"partition_by": "id"}

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1), metadata=ducklake_metadata(**how))
    def t() -> pa.Table:
        return pa.table({"id": [1]})

    monkeypatch.setattr("ducklake_dagster.io_manager.commit_metadata", lose)
    (event,) = run([t]).get_asset_materialization_events()
    shown = event.materialization.metadata
    assert shown["ducklake/repeated"].value is True
    if change == "columns":
        assert shown["ducklake/replaced_columns"].value == "column 'id' became int64, was varchar"
    else:
        assert str(shown["ducklake/layout_change"].value).startswith("partitioned by id, was by nothing")
