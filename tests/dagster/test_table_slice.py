"""A slice selects exactly the rows of its partitions, by Dagster's own windows; evaluated by DuckDB, Spark and Arrow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeResource, build_commit_sensor
from ducklake_dagster.partitions.predicates import SlicePredicate, slice_predicate
from ducklake_dagster.partitions.slices import TableSlice, TimeConstraint, partition_boxes

BERLIN = "Europe/Berlin"
DAILY = dg.DailyPartitionsDefinition("2026-03-27", timezone=BERLIN, end_date="2026-04-01")
DAILY_BACK = dg.DailyPartitionsDefinition("2026-10-23", timezone=BERLIN, end_date="2026-10-28")
HOURLY = dg.HourlyPartitionsDefinition("2026-03-28-22:00", timezone=BERLIN, end_date="2026-03-29-06:00")
HOURLY_BACK = dg.HourlyPartitionsDefinition("2026-10-24-22:00", timezone=BERLIN, end_date="2026-10-25-06:00")
OVER_MIDNIGHT = dg.DailyPartitionsDefinition("2018-11-02", timezone="America/Sao_Paulo", end_date="2018-11-07")
ARROW_TYPES = {"timestamptz": pa.timestamp("us", tz="UTC"), "timestamp": pa.timestamp("us"), "date": pa.date32(), "varchar": pa.string()}


def predicate(definition: dg.PartitionsDefinition[str], keys: Sequence[str], expr: object, **types: str) -> SlicePredicate:
    boxes = partition_boxes(definition, keys, expr, subject="asset")
    found = slice_predicate(TableSlice(schema="main", table="t", boxes=boxes), lambda name: (name, types[name]) if name in types else None)
    assert found is not None
    return found


def instants(definition: dg.TimeWindowPartitionsDefinition) -> list[datetime]:
    """Every 15 minutes from half a day before the first partition to half a day after the last."""
    first = definition.get_first_partition_window().start.astimezone(UTC) - timedelta(hours=12)
    last = definition.get_last_partition_window().end.astimezone(UTC) + timedelta(hours=12)
    return [first + timedelta(minutes=15) * step for step in range(int((last - first) / timedelta(minutes=15)))]


def selected(table: pa.Table, found: SlicePredicate, engine: str, spark: Any = None) -> list[int]:
    """Row numbers that an engine selects."""
    if engine == "arrow":
        return found.matching_rows(table)["row"].to_pylist()
    if engine == "spark":
        frame = spark.createDataFrame(table)
        return sorted(row.row for row in frame.filter(found.to_sql("spark")).select("row").collect())
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute("SET TimeZone = 'America/New_York'")
        return [row for (row,) in connection.execute(f'SELECT "row" FROM t WHERE {found.to_sql()} ORDER BY 1').fetchall()]


def time_table(definition: dg.TimeWindowPartitionsDefinition, type_name: str) -> tuple[pa.Table, list[str | None]]:
    """A table of instants in a column of that type, and the partition key of every row."""
    zone = ZoneInfo(definition.timezone)
    moments = instants(definition)
    windows = [(key, definition.time_window_for_partition_key(key)) for key in definition.get_partition_keys()]
    keys = [
        next((key for key, window in windows if window.start.timestamp() <= moment.timestamp() < window.end.timestamp()), None)
        for moment in moments
    ]
    forms = {
        "timestamptz": moments,
        "timestamp": [moment.astimezone(zone).replace(tzinfo=None) for moment in moments],
        "date": [moment.astimezone(zone).date() for moment in moments],
        "varchar": keys,
    }
    return pa.table({"row": range(len(moments)), "at": pa.array(forms[type_name], ARROW_TYPES[type_name])}), keys


SELECTIONS = {"single": [1], "range": [1, 2, 3], "gap": [0, 2], "ends": [0, -1], "none": []}


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=list(SELECTIONS))
@pytest.mark.parametrize(
    ("definition", "type_name"),
    [
        *itertools.product([DAILY, DAILY_BACK, OVER_MIDNIGHT], ["timestamptz", "timestamp", "date", "varchar"]),
        *itertools.product([HOURLY], ["timestamptz", "timestamp", "varchar"]),
        *itertools.product([HOURLY_BACK], ["timestamptz", "varchar"]),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.schedule_type.value}-{value.start:%m-%d}",
)
def test_time_partitions_select_exactly_their_instants(
    definition: dg.TimeWindowPartitionsDefinition, type_name: str, selection: list[int]
) -> None:
    all_keys = definition.get_partition_keys()
    keys = [all_keys[index] for index in selection]
    table, key_of_row = time_table(definition, type_name)
    expected = [row for row, key in enumerate(key_of_row) if key in keys]
    found = predicate(definition, keys, "at", at=type_name)
    assert selected(table, found, "duckdb") == expected
    assert selected(table, found, "arrow") == expected


def test_spark_agrees_in_any_session_time_zone(spark: Any) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        for definition, type_name in [(DAILY, "date"), (DAILY_BACK, "timestamptz"), (HOURLY, "timestamp"), (HOURLY_BACK, "varchar")]:
            table, key_of_row = time_table(definition, type_name)
            keys = definition.get_partition_keys()[1:3]
            expected = [row for row, key in enumerate(key_of_row) if key in keys]
            assert selected(table, predicate(definition, keys, "at", at=type_name), "spark", spark) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_ambiguous_wall_times_raise_only_where_they_matter() -> None:
    keys = HOURLY_BACK.get_partition_keys()
    twice = [key for key in keys if key.startswith("2026-10-25-02:00")]
    assert len(twice) == 2
    for key in twice:
        with pytest.raises(UsageError, match=r"shows? twice.*'at'.*timestamptz"):
            predicate(HOURLY_BACK, [key], "at", at="timestamp")
    both = predicate(HOURLY_BACK, twice, "at", at="timestamp")
    assert both.to_sql() == """(("at" >= TIMESTAMP '2026-10-25 02:00:00' AND "at" < TIMESTAMP '2026-10-25 03:00:00'))"""


def test_adjacent_windows_are_one_interval() -> None:
    ((constraint,),) = partition_boxes(HOURLY_BACK, HOURLY_BACK.get_partition_keys(), "at", subject="asset")
    assert isinstance(constraint, TimeConstraint)
    assert len(constraint.windows) == 1


REGIONS = dg.StaticPartitionsDefinition(["eu", "us", "we'ird\\"])
MULTI = dg.MultiPartitionsDefinition({"day": DAILY, "region": REGIONS})


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("engine", ["duckdb", "arrow"])
def test_any_set_of_multi_keys_selects_exactly_its_points(seed: int, engine: str) -> None:
    import random

    every = [str(key) for key in MULTI.get_partition_keys()]
    chosen = random.Random(seed).sample(every, k=seed % len(every) + 1)
    days, regions = DAILY.get_partition_keys(), REGIONS.get_partition_keys()
    points = list(itertools.product(days, regions))
    table = pa.table({"row": range(len(points)), "day": [day for day, _ in points], "region": [region for _, region in points]})
    found = predicate(MULTI, chosen, {"day": "day", "region": "region"}, day="varchar", region="varchar")
    assert selected(table, found, engine) == [row for row, (day, region) in enumerate(points) if f"{day}|{region}" in chosen]


def test_quotes_in_keys_reach_every_engine(spark: Any) -> None:
    values = ["plain", "it's", "back\\slash", "\\'", 'dou"ble', "Łódź"]
    table = pa.table({"row": range(len(values)), 'odd "`name': values})
    for row, key in enumerate(values):
        found = predicate(dg.StaticPartitionsDefinition(values), [key], 'odd "`name', **{'odd "`name': "varchar"})
        assert [selected(table, found, engine, spark) for engine in ("duckdb", "arrow", "spark")] == [[row]] * 3


def test_static_keys_are_typed_by_the_column() -> None:
    years = dg.StaticPartitionsDefinition(["2013", "2014"])
    assert predicate(years, ["2014", "2013"], "year", year="int32").to_sql() == '("year" IN (2013, 2014))'
    assert (
        predicate(dg.StaticPartitionsDefinition(["2013-01-01"]), ["2013-01-01"], "d", d="date").to_sql() == """("d" = DATE '2013-01-01')"""
    )
    with pytest.raises(UsageError, match=r"'year'.*int32.*'x'"):
        predicate(dg.StaticPartitionsDefinition(["x"]), ["x"], "year", year="int32")


@pytest.mark.parametrize(
    ("definition", "expr", "types", "text"),
    [
        (DAILY, None, {}, "partition_expr"), (DAILY, {"day": "at"}, {}, "partition_expr"), (MULTI, "day", {}, "day, region"),
        (MULTI, {"day": "day"}, {}, "'region'"), (DAILY, "at", {}, "'at'"), (DAILY, "at", {"at": "int32"}, "'at' of main.t is int32"),
        (DAILY, "at", {"at": "time"}, "'at' of main.t is time"), (HOURLY, "at", {"at": "date"}, "not the start of a day"),
        (REGIONS, "at", {"at": "float64"}, "'at' of main.t is float64"),
    ],
)  # fmt: skip
def test_keys_that_match_no_column_raise(definition: Any, expr: object, types: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as failure:
        predicate(definition, definition.get_partition_keys()[:1], expr, **types)
    assert text in str(failure.value)


@pytest.mark.slow
def test_ten_thousand_single_hours_reach_one_commit(lake_resource: DuckLakeResource) -> None:
    hours = dg.HourlyPartitionsDefinition("2020-01-01-00:00", end_date="2023-01-01-00:00")
    starts = [datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(hours=2 * n) for n in range(10_000)]
    found = predicate(hours, [f"{start:%Y-%m-%d-%H:%M}" for start in starts], "at", at="timestamp")
    data = pa.table({"at": pa.array([start + timedelta(minutes=5) for start in starts], pa.timestamp("us")), "n": range(10_000)})
    between = pa.table({"at": pa.array([starts[0] + timedelta(minutes=90)], pa.timestamp("us")), "n": [-1]})
    assert found.matching_rows(pa.concat_tables([data, between.cast(data.schema)])).num_rows == 10_000
    lake = lake_resource.connect()
    lake.write("t", between.cast(data.schema))
    assert lake.write("t", data, mode="overwrite", where=found.to_condition()).rows_deleted == 0
    again = lake.write("t", data, mode="overwrite", where=found.to_condition())
    assert (again.rows_added, again.rows_deleted) == (10_000, 10_000)
    assert lake.table("t").scan().count() == 10_001
    assert lake.table("t").scan(where=found.to_condition()).to_arrow().num_rows == 10_000
    assert len(found.shown()) <= 10_000
    with duckdb.connect() as connection:
        connection.register("t", lake.table("t").scan().to_arrow())
        (row,) = connection.execute(f"SELECT count(*) FROM t WHERE {found.to_sql()}").fetchall()
    assert row == (10_000,)


UUIDS = ("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000001")
KEY_COLUMNS: dict[str, tuple[list[str], pa.Array]] = {
    "uuid": (list(UUIDS), pa.array([UUID(one).bytes for one in UUIDS], pa.binary(16)).cast(pa.uuid())),
    "boolean": (["true", "False"], pa.array([True, False])),
    "decimal(5,2)": (["1.5", "-2"], pa.array([Decimal("1.50"), Decimal("-2.00")])),
    "timestamp": (["2026-03-01", "2026-03-01T12:30"], pa.array([1772323200, 1772368200], pa.timestamp("s")).cast(pa.timestamp("us"))),
    "timestamptz": (
        ["2026-03-01T00:00:00+01:00", "2026-03-01T00:00:00+00:00"],
        pa.array([datetime(2026, 2, 28, 23, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
    ),
}


@pytest.mark.parametrize("type_name", KEY_COLUMNS)
def test_static_keys_of_any_type(type_name: str) -> None:
    keys, column = KEY_COLUMNS[type_name]
    definition = dg.StaticPartitionsDefinition(keys)
    for row, key in enumerate(keys):
        found = predicate(definition, [key], '"k"', k=type_name)
        for engine in ("duckdb", "arrow"):
            assert selected(pa.table({"row": [0, 1], "k": column}), found, engine) == [row]
    with pytest.raises(UsageError, match="are not all valid as"):
        predicate(dg.StaticPartitionsDefinition(["?"]), ["?"], "k", k=type_name)


@pytest.mark.parametrize(
    ("definition", "expr", "type_name", "form"),
    [
        (DAILY, "strptime(at::VARCHAR, '%Y%m%d')", "int32", "%Y%m%d"),
        (DAILY, "strptime(CAST(at AS VARCHAR), '%Y%m%d')::DATE", "varchar", "%Y%m%d"),
        (HOURLY_BACK, "to_timestamp(at)", "int64", None),
    ],
)
def test_times_in_other_forms(definition: dg.TimeWindowPartitionsDefinition, expr: str, type_name: str, form: str | None) -> None:
    moments, keys = instants(definition), definition.get_partition_keys()
    zone = ZoneInfo(definition.timezone)
    stored: list[Any] = [int(one.timestamp()) if form is None else one.astimezone(zone).strftime(form) for one in moments]
    values = pa.array(stored if type_name == "varchar" else [int(one) for one in stored])
    windows = [definition.time_window_for_partition_key(key) for key in (keys[1], keys[2], keys[-1])]
    expected = [row for row, one in enumerate(moments) if any(w.start.timestamp() <= one.timestamp() < w.end.timestamp() for w in windows)]
    found = predicate(definition, [keys[1], keys[2], keys[-1]], expr, at=type_name)
    for engine in ("duckdb", "arrow"):
        assert selected(pa.table({"row": range(len(moments)), "at": values}), found, engine) == expected


@pytest.mark.parametrize(
    ("definition", "expr", "type_name", "text"),
    [
        (HOURLY, "strptime(at, '%Y%m%d')", "varchar", "has no value in column 'at'.*larger steps"),
        (DAILY, "strptime(at, '%d.%m.%Y')", "varchar", "Use a format whose units descend from the year"),
        (DAILY, "strptime(at, '%Y-%m-%d')", "int32", "Use a column of type varchar"),
        (DAILY, "to_timestamp(at)", "timestamp", "Use a column of type int64"),
        (DAILY, "at", "int32", r"set partition_expr to strptime\(at, '%Y%m%d'\)"),
        (REGIONS, "to_timestamp(at)", "int64", "needs time partitions"),
    ],
)
def test_forms_that_do_not_determine_the_partition_raise(definition: Any, expr: str, type_name: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        predicate(definition, definition.get_partition_keys()[:1], expr, at=type_name)


def test_keys_of_digits_are_values_of_integers() -> None:
    definition = dg.DailyPartitionsDefinition("20260327", end_date="20260330", fmt="%Y%m%d")
    found = predicate(definition, ["20260328"], "day", day="int32")
    assert selected(pa.table({"row": [0, 1], "day": [20260327, 20260328]}), found, "arrow") == [1]


def test_commits_of_others_are_found_by_keys_in_other_forms(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    lake = lake_resource.connect()
    cases: dict[str, tuple[Any, Any, str]] = {
        "ids": (dg.StaticPartitionsDefinition(list(UUIDS)), KEY_COLUMNS["uuid"][1].slice(0, 1), "k"),
        "flags": (dg.StaticPartitionsDefinition(["true", "false"]), pa.array([True]), "k"),
        "days": (DAILY, pa.array([20260328]), "strptime(k, '%Y%m%d')"),
        "seconds": (HOURLY, pa.array([int(datetime(2026, 3, 28, 21, 30, tzinfo=UTC).timestamp())]), "to_timestamp(k)"),
        "millis": (HOURLY, pa.array([1000 * int(datetime(2026, 3, 28, 21, 30, tzinfo=UTC).timestamp())]), "epoch_ms(k)"),
    }
    assets = [dg.AssetSpec(name, partitions_def=one[0], metadata={"partition_expr": one[2]}) for name, one in cases.items()]
    for name, (_, column, _) in cases.items():
        lake.write(name, pa.table({"k": column}))
    sensor = build_commit_sensor(assets=assets, report_history=True)
    result: Any = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"lake": lake_resource}))
    assert {event.asset_key.to_user_string(): event.partition for event in result.asset_events} == {
        "ids": UUIDS[0], "flags": "true", "days": "2026-03-28", "seconds": "2026-03-28-22:00", "millis": "2026-03-28-22:00",
    }  # fmt: skip
