"""Branches: read production, write somewhere else, by one setting."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._config.pythonic_config.resource import ConfigurableResourceFactory

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import (
    ColumnBounds,
    DuckLakeIOManager,
    DuckLakeResource,
    LocalStorage,
    PostgresCatalog,
    Reference,
    RowCount,
    SqliteCatalog,
    UniqueKey,
    build_lake_checks,
    ducklake_input,
    ducklake_metadata,
    io_manager,
    with_table_metadata,
)
from ducklake_dagster.io import read_points
from ducklake_dagster.io.read_points import lake_identity
from tests.support.oracle import LakeAddress, attached

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-06-01")
DAY = "dagster/partition"
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dg.asset
def source(context) -> pa.Table:
    return pa.table({"n": [int(context.run.tags["n"])]})


@dg.asset
def doubled(source: pa.Table) -> pa.Table:
    return pa.table({"n": [2 * n for n in source["n"].to_pylist()]})


@dg.asset(partitions_def=DAYS, metadata=ducklake_metadata(partition_expr="day"))
def daily(context) -> pa.Table:
    days = [date.fromisoformat(key) for key in context.partition_keys]
    return pa.table({"day": pa.array(days, pa.date32()), "n": [int(context.run.tags["n"])] * len(days)})


@dg.asset(partitions_def=DAYS, metadata=ducklake_metadata(partition_expr="day"))
def copied(daily: pa.Table) -> pa.Table:
    return daily


def numbers(lake: DuckLakeResource, table: str) -> list[int]:
    return sorted(lake.connect().table(table).scan().to_arrow()["n"].to_pylist())


def test_a_branch_reads_production_until_it_has_its_own(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    branch = {"branch": "feature/x"}
    run([source, doubled], tags={"n": "1"})
    (event,) = run([source, doubled], selection=[doubled], io=branch).get_asset_materialization_events()
    assert event.materialization.metadata["ducklake/branch"].value == "feature/x"
    assert event.materialization.metadata["dagster/table_name"].value == "main__feature/x.doubled"
    run([source, doubled], selection=[source], io=branch, tags={"n": "5"})
    run([source, doubled], selection=[doubled], io=branch)
    with attached(sqlite_address) as duck:
        assert duck.rows('SELECT n FROM lake."main__feature/x".doubled') == [(10,)]
        assert duck.rows("SELECT s.n, d.n FROM lake.source s, lake.doubled d") == [(1, 2)]

    @dg.asset(ins={"source": dg.AssetIn(metadata=ducklake_input(production=True))})
    def from_production(source: pa.Table) -> pa.Table:
        return source

    run([source, from_production], selection=[from_production], io=branch)
    assert numbers(lake_resource, '"main__feature/x".from_production') == [1]
    # An empty name, such as that of an environment variable in production, is none.
    run([source], io={"branch": ""}, tags={"n": "3"})
    assert numbers(lake_resource, "source") == [3]


def test_a_branch_in_a_lake_of_its_own(run: Run, lake_resource: DuckLakeResource, tmp_path: Path) -> None:
    own = DuckLakeResource(
        catalog=SqliteCatalog(path=str(tmp_path / "branch.sqlite")),
        storage=LocalStorage(data_path=f"{tmp_path}/branch_files/"),
        create_if_missing=True,
    )
    run([source, doubled], tags={"n": "1"})
    before = lake_resource.connect().snapshot().id
    run([source, doubled], selection=[doubled], io={"branch": "dev", "branch_lake": own})
    assert numbers(own, "doubled") == [2]
    run([source, doubled], io={"branch": "dev", "branch_lake": own}, tags={"n": "4"})
    assert numbers(own, "doubled") == [8]
    assert lake_resource.connect().snapshot().id == before
    # Without a name the lake of the branch is not used.
    run([source], io={"branch_lake": own}, tags={"n": "6"})
    assert numbers(lake_resource, "source") == [6]


def test_partitions_come_from_where_they_were_written(run: Run, lake_resource: DuckLakeResource) -> None:
    branch = {"branch": "dev"}
    run([daily], tags={"n": "1", RANGE[0]: "2026-03-01", RANGE[1]: "2026-05-30"})
    # More partitions than a commit of production names.
    run([daily], tags={"n": "2", RANGE[0]: "2026-03-01", RANGE[1]: "2026-04-30"}, io=branch)
    run([daily, copied], selection=[copied], partition_key="2026-04-15", io=branch)
    run([daily, copied], selection=[copied], partition_key="2026-05-15", io=branch)
    assert numbers(lake_resource, "main__dev.copied") == [1, 2]
    with pytest.raises(dg.Failure, match=r"the branch has some of the partitions, but not 2026-05-01, 2026-05-02. Materialise them"):
        run([daily, copied], selection=[copied], tags={RANGE[0]: "2026-04-29", RANGE[1]: "2026-05-02"}, io=branch)
    assert not lake_resource.connect().has_table("copied")


def test_a_branch_with_an_expired_first_snapshot_raises(run: Run, lake_resource: DuckLakeResource) -> None:
    branch = {"branch": "dev"}
    run([daily], tags={"n": "1", RANGE[0]: "2026-03-01", RANGE[1]: "2026-03-03"})
    for day in ("2026-03-01", "2026-03-02"):
        run([daily], partition_key=day, tags={"n": "2"}, io=branch)
    lake = lake_resource.connect()
    lake.expire_snapshots(keep_last=1, older_than="0 seconds", min_age="0 seconds")
    with pytest.raises(dg.Failure, match=r"it is unknown whether the branch has partitions 2026-03-03"):
        run([daily, copied], selection=[copied], partition_key="2026-03-03", io=branch)
    run([daily, copied], selection=[copied], partition_key="2026-03-02", io=branch)
    assert numbers(lake_resource, "main__dev.copied") == [2]


def test_a_recreated_table_has_only_later_partitions(run: Run, lake_resource: DuckLakeResource) -> None:
    branch = {"branch": "dev"}
    run([daily], tags={"n": "1", RANGE[0]: "2026-03-01", RANGE[1]: "2026-03-02"})
    run([daily], partition_key="2026-03-01", tags={"n": "2"}, io=branch)
    lake_resource.connect().drop_table("main__dev.daily")
    run([daily], partition_key="2026-03-02", tags={"n": "3"}, io=branch)
    for day in ("2026-03-01", "2026-03-02"):
        run([daily, copied], selection=[copied], partition_key=day, io=branch)
    assert numbers(lake_resource, "main__dev.copied") == [1, 3]


@pytest.fixture
def own_lake(tmp_path: Path) -> DuckLakeResource:
    """A lake of a branch, whose snapshots and tables have numbers of production's, which mean nothing there."""
    return DuckLakeResource(
        catalog=SqliteCatalog(path=str(tmp_path / "own.sqlite")), storage=LocalStorage(data_path=f"{tmp_path}/own/"), create_if_missing=True
    )


def test_results_of_a_run_are_read_where_it_wrote_them(run: Run, own_lake: DuckLakeResource) -> None:
    branch = {"branch": "dev", "branch_lake": own_lake}
    production = run([source], tags={"n": "1"}).run_id
    in_branch = [run([source], tags={"n": str(n)}, io=branch).run_id for n in (2, 3)]
    seen: list[Any] = []

    def reading(run_id: str, **how: Any) -> list[Any]:
        @dg.asset(ins={"source": dg.AssetIn(metadata=ducklake_input(run_id=run_id, **how))})
        def read(source: pa.Table) -> None:
            seen.append(source["n"].to_pylist())

        return [source, read]

    run(reading(in_branch[0]), selection=["read"], io=branch)
    run(reading(production, production=True), selection=["read"], io=branch)
    assert seen == [[2], [1]]
    with pytest.raises(dg.Failure, match=f"{production} did not materialise source in branch dev"):
        run(reading(production), selection=["read"], io=branch)
    with pytest.raises(dg.Failure, match=f"{in_branch[0]} did not materialise source in a lake"):
        run(reading(in_branch[0]), selection=["read"])


def test_a_run_reads_the_snapshot_of_production_that_it_pinned(
    run: Run, lake_resource: DuckLakeResource, own_lake: DuckLakeResource
) -> None:
    branch = {"branch": "dev", "branch_lake": own_lake, "pin_reads": True}
    run([source], tags={"n": "1"})
    for _ in range(3):
        own_lake.connect().write("more", pa.table({"n": [0]}))
    seen: list[Any] = []

    @dg.asset(ins={"old": dg.AssetIn("source", metadata=ducklake_input(production=True))})
    def read(old: pa.Table) -> None:
        seen.append(old["n"].to_pylist())

    run([source, read], tags={"n": "2"}, io=branch)
    assert seen == [[1]]


def test_a_branch_has_read_nothing_of_what_production_read(
    run: Run, lake_resource: DuckLakeResource, own_lake: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = {"branch": "dev", "branch_lake": own_lake}
    seen: list[Any] = []

    @dg.asset(ins={"source": dg.AssetIn(metadata=ducklake_input(changes="last_materialization", columns="n"))})
    def read(source: pa.Table) -> None:
        seen.append(sorted(zip(source["change_type"].to_pylist(), source["n"].to_pylist(), strict=True)))

    run([source, read], tags={"n": "1"})
    monkeypatch.setattr(read_points, "_EVENTS_AT_ONCE", 1)
    run([source, read], selection=[read], io=branch)
    run([source, read], selection=[read], io=branch)
    run([source, read], selection=[read])
    assert seen == [[("insert", 1)], [("insert", 1)], [], []]
    # The branch gets a table of its own, which happens to have the number of production's.
    run([source], tags={"n": "2"}, io=branch)
    assert own_lake.connect().table("source").state.id == lake_resource.connect().table("source").state.id
    with pytest.raises(dg.Failure, match="was last read from another lake"):
        run([source, read], selection=[read], io=branch)


ROW_CHECKS = [RowCount(minimum=2), UniqueKey(key="n"), Reference(key="n", table="known", max_rows=100)]


@dg.asset
def known() -> pa.Table:
    return pa.table({"n": [1, 2, 3]})


@dg.asset
def counted(context) -> pa.Table:
    return pa.table({"n": [int(text) for text in context.run.tags["n"].split()]})


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


@pytest.mark.parametrize("own", [False, True], ids=["schemas", "own lake"])
def test_checks_judge_what_the_run_wrote(run: Run, own_lake: DuckLakeResource, *, own: bool) -> None:
    branch: dict[str, Any] = {"branch": "dev"} | ({"branch_lake": own_lake} if own else {})
    checks = build_lake_checks(assets=[known, counted], checks=ROW_CHECKS)
    mine = [*checks, known, counted]
    of_counted = dg.AssetSelection.checks_for_assets(counted)
    run(mine, tags={"n": "1 2"})
    # The branch has bad rows, production good ones; then the other way round.
    result = run(mine, selection=dg.AssetSelection.assets(counted), io=branch, tags={"n": "7"})
    result = run(mine, selection=of_counted, io=branch)
    assert verdicts(result) == {"row_count": False, "unique_key": True, "reference": False}
    (found, *_) = result.get_asset_check_evaluations()
    assert found.metadata["ducklake/branch"].value == "dev"
    assert verdicts(run(mine, selection=of_counted)) == {"row_count": True, "unique_key": True, "reference": True}
    run(mine, selection=dg.AssetSelection.assets(counted), tags={"n": "9"})
    assert verdicts(run(mine, selection=of_counted)) == {"row_count": False, "unique_key": True, "reference": False}
    run(mine, selection=dg.AssetSelection.assets(counted), io=branch, tags={"n": "2 3"})
    assert verdicts(run(mine, selection=of_counted, io=branch)) == {"row_count": True, "unique_key": True, "reference": True}
    # What the branch has not written it reads from production, and that is judged.
    assert verdicts(run(mine, selection=dg.AssetSelection.checks_for_assets(known), io=branch))["row_count"]


def test_checks_of_partitions_judge_them_where_they_were_written(run: Run) -> None:
    branch = {"branch": "dev"}
    checks = build_lake_checks(assets=[daily], checks=[ColumnBounds(bounds={"n": (0, 9)})])
    mine = [daily, *checks]
    run([daily], tags={"n": "1", RANGE[0]: "2026-03-01", RANGE[1]: "2026-03-03"})
    run([daily], tags={"n": "99"}, partition_key="2026-03-02", io=branch)
    only = dg.AssetSelection.checks_for_assets(daily)
    assert verdicts(run(mine, selection=only, tags={DAY: "2026-03-02"}, io=branch)) == {"bounds": False}
    assert verdicts(run(mine, selection=only, tags={DAY: "2026-03-01"}, io=branch)) == {"bounds": True}
    (found,) = run(mine, selection=only, tags={RANGE[0]: "2026-03-01", RANGE[1]: "2026-03-02"}, io=branch).get_asset_check_evaluations()
    assert not found.passed
    assert "the branch has some of the partitions, but not 2026-03-01" in str(found.description)


def test_a_branch_does_not_overwrite_production(run: Run, lake_resource: DuckLakeResource) -> None:
    run([source], tags={"n": "1"})
    same = DuckLakeResource(catalog=lake_resource.catalog, storage=LocalStorage())
    for branch_lake in (lake_resource, same):
        with pytest.raises(dg.Failure, match="branch_lake of branch pr-17 is the lake of production"):
            run([source], io={"branch": "pr-17", "branch_lake": branch_lake}, tags={"n": "2"})
    assert numbers(lake_resource, "source") == [1]


def test_invalid_resources_raise_at_definition(lake_resource: DuckLakeResource) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"lake": "sqlite:///lake.sqlite"}, "lake must be a DuckLakeResource, not str"),
        ({"lake": SqliteCatalog(path="lake.sqlite")}, "lake must be a DuckLakeResource, not SqliteCatalog"),
        ({"lake": lake_resource, "branch": "x", "branch_lake": "sqlite:///b"}, "branch_lake must be a DuckLakeResource"),
        ({"lake": lake_resource, "spark": "local[2]"}, "spark must be a resource with a spark_session"),
    ]
    for settings, message in wrong:
        with pytest.raises(UsageError, match=message):
            DuckLakeIOManager(**settings)
    with pytest.raises(dg.Failure, match=r"DuckLakeIOManager has no lake\. Set lake=DuckLakeResource"):
        dg.materialize([source], resources={"io_manager": DuckLakeIOManager()}, tags={"n": "1"})


class LakeOf(ConfigurableResourceFactory[DuckLakeResource]):
    """A resource factory of a lake."""

    folder: str

    def create_resource(self, context: dg.InitResourceContext) -> DuckLakeResource:
        catalog = SqliteCatalog(path=f"{self.folder}/made.sqlite")
        return DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path=f"{self.folder}/made/"), create_if_missing=True)


def test_a_factory_may_make_the_lake(tmp_path: Path) -> None:
    manager = DuckLakeIOManager(lake=LakeOf(folder=str(tmp_path)))  # type: ignore[arg-type]
    defs = with_table_metadata(dg.Definitions(assets=[source], resources={"io_manager": manager}))
    assert defs.resolve_asset_graph().get(dg.AssetKey("source")).metadata["dagster/table_name"] == "main.source"
    assert dg.materialize([source], resources={"io_manager": manager}, tags={"n": "1"}).success
    assert DuckLake.connect(f"sqlite:///{tmp_path}/made.sqlite").table("source").scan().count() == 1


def test_production_is_known_by_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    lakes = [
        DuckLakeResource(
            catalog=SqliteCatalog(path=f"{tmp_path}/{path}"), storage=LocalStorage(data_path=f"{tmp_path}/f/"), create_if_missing=True
        )
        for path in ("lake.sqlite", "x/../lake.sqlite")
    ]
    manager = DuckLakeIOManager(lake=lakes[0], branch="dev", branch_lake=lakes[1])
    for _ in range(2):
        with pytest.raises(dg.Failure, match="branch_lake of branch dev is the lake of production"):
            dg.materialize([source], resources={"io_manager": manager}, tags={"n": "1"})


def test_a_missing_production_is_not_made(own_lake: DuckLakeResource, tmp_path: Path) -> None:
    catalog = SqliteCatalog(path=f"{tmp_path}/none.sqlite")
    production = DuckLakeResource(catalog=catalog, storage=LocalStorage(data_path=f"{tmp_path}/none/"), create_if_missing=True)
    manager = DuckLakeIOManager(lake=production, branch="dev", branch_lake=own_lake)
    assert dg.materialize([source], resources={"io_manager": manager}, tags={"n": "1"}).success
    assert numbers(own_lake, "source") == [1]
    assert not Path(catalog.path).exists()


def test_lakes_of_a_branch_are_compared_once(
    run: Run, lake_resource: DuckLakeResource, own_lake: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[DuckLake] = []
    monkeypatch.setattr(io_manager, "lake_identity", lambda lake: compared.append(lake) or lake_identity(lake))
    for number in range(2):
        run([source], io={"branch": "dev", "branch_lake": own_lake}, tags={"n": str(number)})
    assert len(compared) == 2
    assert numbers(own_lake, "source") == [1]
    assert not lake_resource.connect().has_table("source")


def test_each_production_lake_is_compared_with_the_branch(
    lake_resource: DuckLakeResource, own_lake: DuckLakeResource, tmp_path: Path
) -> None:
    """Production was taken for another lake because one that was not open yet was known to be another one."""
    copy(lake_resource).connect()
    assert io_manager.writing_lake(DuckLakeIOManager(lake=lake_resource, branch="dev", branch_lake=own_lake)) is own_lake
    (tmp_path / "x").mkdir()
    same = DuckLakeResource(catalog=SqliteCatalog(path=f"{tmp_path}/x/../own.sqlite"), storage=own_lake.storage)
    with pytest.raises(UsageError, match="branch_lake of branch dev is the lake of production"):
        io_manager.writing_lake(DuckLakeIOManager(lake=same, branch="dev", branch_lake=own_lake))


def test_definitions_of_a_branch_open_no_connection() -> None:
    catalogs = [PostgresCatalog(host="nowhere.invalid", database=name, password=dg.EnvVar("NOT_SET")) for name in ("lake", "dev")]
    lakes = [DuckLakeResource(catalog=one, storage=LocalStorage(data_path=f"/{one.database}/")) for one in catalogs]
    manager = DuckLakeIOManager(lake=lakes[0], branch="dev", branch_lake=lakes[1])
    defs = with_table_metadata(dg.Definitions(assets=[source], resources={"io_manager": manager}))
    assert defs.resolve_asset_graph().get(dg.AssetKey("source")).metadata["dagster/uri"] == "/dev/main/source/"
