"""Tables and views of other clients as assets, and runs of the assets that depend on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.code_pointer import FileCodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import initialize_repository_def_from_pointer, reconstruct_repository_def_from_pointer

from ducklake_core import DuckLake
from ducklake_core.errors import NotALakeError, UnsupportedFeatureError, UsageError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, DuckLakeTranslator, LakeTable, build_commit_sensor, load_table_specs
from ducklake_dagster.assets.translator import read_lake_tables
from tests.support.oracle import LakeAddress, attached
from tests.support.statements import noted_statements

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning")


@pytest.fixture
def lake(lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> DuckLakeResource:
    """A partitioned table, a plain one, and views by DuckDB."""
    lake_resource.connect()
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE SCHEMA raw",
            "CREATE TABLE raw.events (day DATE NOT NULL, n BIGINT)",
            "COMMENT ON TABLE raw.events IS 'what happened'",
            "COMMENT ON COLUMN raw.events.n IS 'how often'",
            "ALTER TABLE raw.events SET PARTITIONED BY (year(day), month(day))",
            "INSERT INTO raw.events VALUES (DATE '2026-03-28', 1), (DATE '2026-04-02', 2)",
            "CREATE TABLE plain (a INTEGER)",
            "CREATE VIEW raw.daily AS WITH plain AS (SELECT day, n FROM raw.events) SELECT day, sum(n) AS n FROM plain GROUP BY day",
            "CREATE VIEW top AS SELECT n, day FROM raw.daily WHERE n > 1",
        )
    return lake_resource


def by_key(specs: list[dg.AssetSpec]) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in specs}


def test_tables_views_columns_and_comments(lake: DuckLakeResource) -> None:
    specs = by_key(load_table_specs(lake))
    assert set(specs) == {"raw/events", "raw/daily", "main/plain", "main/top"}
    events, daily = specs["raw/events"], specs["raw/daily"]
    assert events.description == "what happened"
    assert events.kinds == {"ducklake"}
    assert not events.is_virtual
    assert events.partitions_def is None
    schema = events.metadata["dagster/column_schema"]
    assert [(column.name, column.type, column.description) for column in schema.columns] == [
        ("day", "date", None),
        ("n", "int64", "how often"),
    ]
    assert schema.columns[0].constraints.nullable is False
    assert schema.constraints.other == ["partitioned by year(day), month(day)"]
    assert daily.is_virtual
    assert [dep.asset_key.to_user_string() for dep in daily.deps] == ["raw/events"]
    assert [dep.asset_key.to_user_string() for dep in specs["main/top"].deps] == ["raw/daily"]
    assert [column.name for column in daily.metadata["dagster/column_schema"].columns] == ["day", "n"]
    dg.Definitions.validate_loadable(dg.Definitions(assets=list(specs.values())))


def test_names_and_patterns(lake: DuckLakeResource) -> None:
    assert set(by_key(load_table_specs(lake, include="RAW.*", exclude="raw.daily"))) == {"raw/events"}
    assert set(by_key(load_table_specs(lake.connect(), include=["plain", "raw.events"]))) == {"main/plain", "raw/events"}
    with pytest.raises(UsageError, match=r"include has main\.missing"):
        load_table_specs(lake, include="missing")
    with pytest.warns(UserWarning, match="matches main.missing"):
        assert load_table_specs(lake, include="missing*") == []


def test_partitions_follow_the_layout(lake: DuckLakeResource) -> None:
    spec = by_key(load_table_specs(lake, translator=DuckLakeTranslator(partitions=True, timezone="Europe/Berlin")))["raw/events"]
    assert spec.metadata["partition_expr"] == "day"
    assert isinstance(spec.partitions_def, dg.TimeWindowPartitionsDefinition)
    keys = spec.partitions_def.get_partition_keys()
    assert keys[:2] == ["2026-03-01", "2026-04-01"]
    assert str(spec.partitions_def.timezone) == "Europe/Berlin"


class Prefixed(DuckLakeTranslator):
    def get_asset_key(self, table: LakeTable) -> dg.AssetKey:
        return dg.AssetKey(["lake", table.name])


def test_a_translator_decides_on_both_sides_of_a_dependency(lake: DuckLakeResource) -> None:
    specs = by_key(load_table_specs(lake, include="raw.daily", translator=Prefixed()))
    assert [dep.asset_key.to_user_string() for dep in specs["lake/daily"].deps] == ["lake/events"]
    assert specs["lake/daily"].metadata["dagster/table_name"] == "raw.daily"
    with lake.connect().transaction() as tx:
        tx.create_schema("other")
        tx.write("other.plain", pa.table({"a": [1]}))
    with pytest.raises(UsageError, match=r"main\.plain and other\.plain would both have the asset key lake/plain"):
        load_table_specs(lake, translator=Prefixed())


def test_a_view_without_translation_raises(lake: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE VIEW odd AS SELECT * FROM range(3)", "CREATE VIEW gone AS SELECT * FROM plain", "DROP TABLE plain")
    specs = by_key(load_table_specs(lake))
    assert specs["main/odd"].deps == []
    assert "odd" in specs["main/odd"].metadata["ducklake/problem"]
    assert "'plain' is not a table of the lake" in specs["main/gone"].metadata["ducklake/problem"]
    with pytest.raises(UnsupportedFeatureError):
        _ = lake.connect().view("gone").references


def test_views_are_inputs(lake: DuckLakeResource, run: Callable[..., dg.ExecuteInProcessResult]) -> None:
    lake.connect().create_view("simple", "SELECT day AS d, n FROM raw.events WHERE n > 1")
    specs = load_table_specs(lake)
    seen = []

    @dg.asset(ins={"rows": dg.AssetIn(dg.AssetKey(["main", "simple"]))})
    def reader(rows: pa.Table) -> None:
        seen.extend(rows.to_pylist())

    run([*specs, reader], selection=[reader])
    assert seen == [{"d": date(2026, 4, 2), "n": 2}]

    @dg.asset(ins={"rows": dg.AssetIn(dg.AssetKey(["main", "simple"]), metadata={"columns": ["d"]})})
    def narrow(rows: pa.Table) -> None: ...

    with pytest.raises(dg.Failure, match="is a view, and views are read as a whole"):
        run([*specs, narrow], selection=[narrow])


def test_a_foreign_commit_requests_runs_of_exactly_the_partitions_that_read_it(
    lake: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    specs = load_table_specs(lake, translator=DuckLakeTranslator(partitions=True))
    months = by_key(specs)["raw/events"].partitions_def

    @dg.asset(partitions_def=months, deps=[dg.AssetKey(["raw", "events"])])
    def monthly() -> None: ...

    @dg.asset(deps=[dg.AssetKey(["main", "top"])])
    def through_views() -> None: ...

    @dg.asset(deps=[monthly])
    def later() -> None: ...

    sensor = build_commit_sensor(assets=specs, request_runs=dg.AssetSelection.assets(monthly, through_views, later))
    defs = dg.Definitions(
        assets=[*specs, monthly, through_views, later], sensors=[sensor], resources={"io_manager": DuckLakeIOManager(lake=lake)}
    )
    cursor: str | None = None

    def tick() -> Any:
        nonlocal cursor
        context = dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake}, definitions=defs)
        found = sensor.evaluate_tick(context)
        cursor = found.cursor
        return found

    assert tick().run_requests == []
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("INSERT INTO raw.events VALUES (DATE '2026-04-03', 5)")
    before = cursor
    found = tick()
    requested = {request.partition_key: [key.to_user_string() for key in request.asset_selection or []] for request in found.run_requests}
    assert requested == {None: ["through_views"], "2026-04-01": ["monthly"]}
    assert [event.partition for event in found.asset_events] == ["2026-04-01"]
    keys = [request.run_key for request in found.run_requests]
    assert tick().run_requests == []
    # A tick without cursor requests the same runs, which Dagster launches once.
    cursor = before
    assert [request.run_key for request in tick().run_requests] == keys


def test_a_catalog_put_back_from_a_backup_requests_runs_again(
    lake: DuckLakeResource, instance: dg.DagsterInstance, sqlite_address: LakeAddress
) -> None:
    """A new commit has the id of a lost one, for which Dagster has launched a run already."""
    specs = load_table_specs(lake, include="plain")

    @dg.asset(deps=[dg.AssetKey(["main", "plain"])])
    def child() -> None: ...

    sensor = build_commit_sensor(assets=specs, request_runs=dg.AssetSelection.assets(child))
    defs = dg.Definitions(assets=[*specs, child], sensors=[sensor], resources={"lake": lake})
    path, cursor = Path(sqlite_address.url.removeprefix("sqlite:///")), None
    keys: list[str | None] = []
    lake.connect().close()
    backup = path.read_bytes()
    for _ in range(2):
        context = dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake}, definitions=defs)
        cursor = sensor.evaluate_tick(context).cursor
        lake.connect().write("plain", pa.table({"a": pa.array([1], pa.int32())}), mode="append")
        context = dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake}, definitions=defs)
        found = sensor.evaluate_tick(context)
        cursor = found.cursor
        keys += [request.run_key for request in found.run_requests or ()]
        lake.connect().close()
        path.write_bytes(backup)
    assert len(keys) == len(set(keys)) == 2


def test_requests_need_the_definitions(lake: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    specs = load_table_specs(lake, include="plain")
    sensor = build_commit_sensor(assets=specs, request_runs="child", report_history=True)
    with pytest.raises(UsageError, match="needs the project's definitions"):
        sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake}))


@pytest.mark.parametrize(
    ("method", "found"), [("get_kinds", None), ("get_kinds", ["a"]), ("get_asset_key", ["a", "b"]), ("get_description", None)]
)
def test_a_translator_may_return_what_dagster_takes(lake: DuckLakeResource, method: str, found: Any) -> None:
    translator = type("Mine", (DuckLakeTranslator,), {method: lambda *_, **__: found})()
    assert len(load_table_specs(lake, include="main.plain", translator=translator)) == 1


@pytest.mark.parametrize(
    ("method", "found", "message"),
    [
        ("get_asset_key", None, "get_asset_key must return an AssetKey, but returned None for main.plain"),
        ("get_kinds", "table", "get_kinds must return a set of strings, but returned 'table'"),
        ("get_metadata", None, "get_metadata must return a mapping"),
        ("get_metadata", {"table": "others", "schema": "main"}, "names table main.others. Keep 'schema' and 'table'"),
        ("get_asset_spec", None, "get_asset_spec must return an AssetSpec"),
    ],
)
def test_a_translator_that_returns_something_else(lake: DuckLakeResource, method: str, found: Any, message: str) -> None:
    translator = type("Mine", (DuckLakeTranslator,), {method: lambda *_, **__: found})()
    with pytest.raises(UsageError, match=message):
        load_table_specs(lake, include="main.plain", translator=translator)


def test_a_method_that_is_nearly_one_of_a_translator_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="get_assetkey is not called by DuckLakeTranslator: did you mean get_asset_key"):
        type("Mine", (DuckLakeTranslator,), {"get_assetkey": lambda *_: dg.AssetKey("x")})
    type("Mine", (DuckLakeTranslator,), {"_get_asset_keys": lambda *_: [], "get_asset_key": lambda *_: dg.AssetKey("x")})


def test_a_translator_that_cannot_be(lake_resource: DuckLakeResource) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"timezone": "Mars"}, "such as 'Europe/Berlin', not 'Mars'"),
        ({"timezone": 2}, "timezone must be a name"),
        ({"partitions": "day"}, "partitions must be True or False"),
    ]
    for settings, message in wrong:
        with pytest.raises(UsageError, match=message):
            DuckLakeTranslator(**settings)
    for translator in (DuckLakeTranslator, "mine", {"key": "x"}):
        with pytest.raises(UsageError, match="translator must be an instance of DuckLakeTranslator"):
            load_table_specs(lake_resource, translator=translator)  # type: ignore[arg-type]


def test_patterns_without_tables_warn(lake: DuckLakeResource) -> None:
    with pytest.warns(UserWarning, match=r"include: no table or view of the lake matches sales\.\*"):
        assert [spec.key.to_user_string() for spec in load_table_specs(lake, include=["sales.*", "main.plain"])] == ["main/plain"]
    with pytest.warns(UserWarning, match=r"exclude: no table or view of the lake matches raw\.evnts"):
        assert len(load_table_specs(lake, exclude="raw.evnts")) == 4


def test_the_number_of_statements_does_not_depend_on_the_number_of_tables(tmp_path: Path) -> None:
    counts = []
    for number in (2, 12):
        url, data = f"sqlite:///{tmp_path}/lake{number}.sqlite", str(tmp_path / f"files{number}")
        with DuckLake.create(url, data_path=data).transaction() as tx:
            for index in range(number):
                tx.create_table(f"t{index}", pa.schema([("day", pa.date32()), ("n", pa.int64())]), partition_by=["day"])
                tx.write(f"t{index}", pa.table({"day": [date(2026, 3, 1)], "n": [1]}))
                tx.create_view(f"v{index}", f"SELECT day, sum(n) AS n FROM t{index} GROUP BY day")
                tx.create_view(f"w{index}", f"SELECT day FROM v{index} WHERE n > 1")
        lake = DuckLake.connect(url)
        with noted_statements() as statements:
            specs = load_table_specs(lake, translator=DuckLakeTranslator(partitions=True))
        assert len(specs) == 3 * number
        assert sum(spec.partitions_def is not None for spec in specs) == number
        counts.append(len(statements))
    assert counts[0] == counts[1] < 40


def test_partitions_start_at_the_earliest_live_value(lake_resource: DuckLakeResource) -> None:
    lake = lake_resource.connect()
    schema = pa.schema([("day", pa.date32())])
    for name in ("mistaken", "inlined"):
        lake.create_table(name, schema, partition_by=["day"])
    table = lake.table("mistaken")
    table.append(pa.table({"day": [date(1026, 3, 1)]}, schema=schema))
    table.append(pa.table({"day": [date(2026, 3, 1)]}, schema=schema))
    lake.flush_inlined_data()
    lake.table("mistaken").delete("day < DATE '2000-01-01'")
    lake.table("inlined").append(pa.table({"day": [date(2026, 4, 1)]}, schema=schema))
    found = {table.name: table.time_column.first if table.time_column else None for table in read_lake_tables(lake)}
    assert found == {"mistaken": "2026-03-01", "inlined": "2026-04-01"}


def test_run_processes_do_not_read_the_catalog(lake: DuckLakeResource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefinitionsLoadContext, "_instance", None)
    project = tmp_path / "state_backed_project.py"
    project.write_text(
        "import dagster as dg\n"
        "from ducklake_dagster import DuckLakeResource, LocalStorage, load_table_specs\n"
        f"lake = DuckLakeResource(catalog={lake.shown_catalog()!r}, storage=LocalStorage())\n"
        "defs = dg.Definitions(assets=load_table_specs(lake, include='raw.*'))\n"
    )
    pointer = FileCodePointer(str(project), "defs", str(tmp_path))
    loaded = initialize_repository_def_from_pointer(pointer)
    expected = {key.to_user_string() for key in loaded.asset_graph.get_all_asset_keys()}
    assert expected == {"raw/events", "raw/daily"}

    def unreachable(_: object) -> None:
        raise AssertionError("the catalog was read")

    monkeypatch.setattr(DuckLakeResource, "connect_to_existing", unreachable)
    # A run process imports the module again.
    monkeypatch.delitem(sys.modules, project.stem)
    again = reconstruct_repository_def_from_pointer(pointer, loaded.repository_load_data)
    assert {key.to_user_string() for key in again.asset_graph.get_all_asset_keys()} == expected
    monkeypatch.delitem(sys.modules, project.stem)
    with pytest.raises(AssertionError, match="the catalog was read"):
        initialize_repository_def_from_pointer(pointer)


def test_definitions_do_not_create_a_lake(lake_resource: DuckLakeResource) -> None:
    assert lake_resource.create_if_missing
    with pytest.raises(NotALakeError, match="There is no catalog file"):
        load_table_specs(lake_resource)
    assert not Path(lake_resource.shown_catalog().removeprefix("sqlite:///")).exists()
