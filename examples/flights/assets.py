"""Define the assets: raw tables with Arrow, flights and what is joined with them with Spark, and a small table with polars."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
from datetime import timedelta

import dagster as dg
import polars as pl
import pyarrow as pa
import pyarrow.csv
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark users know

from ducklake_dagster import ducklake_metadata
from examples.flights.places import raw_file

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2014-01-01", timezone="America/New_York")
ORIGINS = dg.StaticPartitionsDefinition(["EWR", "JFK", "LGA"])
DAYS_AND_ORIGINS = dg.MultiPartitionsDefinition({"day": DAYS, "origin": ORIGINS})
# One run, so one commit for each table, whatever number of days a backfill has.
ONE_RUN = dg.BackfillPolicy.single_run()

FLIGHT_COLUMNS = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, arr_delay INT,
    carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT, minute INT,
    time_hour TIMESTAMP
"""


def _read_raw(name: str) -> pa.Table:
    return pyarrow.csv.read_csv(
        raw_file(name), convert_options=pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    )


@dg.asset(group_name="reference", kinds={"ducklake"})
def airlines() -> pa.Table:
    """Carrier codes and names."""
    return _read_raw("airlines")


@dg.asset(group_name="reference", kinds={"ducklake"})
def airports() -> pa.Table:
    """Airports with their coordinates."""
    return _read_raw("airports")


@dg.asset(group_name="reference", kinds={"ducklake"})
def planes() -> pa.Table:
    """Planes by tail number."""
    return _read_raw("planes")


@dg.asset(group_name="reference", kinds={"ducklake"})
def weather() -> pa.Table:
    """Hourly weather at the three airports of New York."""
    return _read_raw("weather").drop_columns(["year", "month", "day", "hour"])


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    group_name="flights",
    kinds={"ducklake", "spark"},
    metadata=ducklake_metadata(partition_expr="day", partition_by=["month(day)"]),
)
def flights(context: dg.AssetExecutionContext, spark: LazyPySparkResource) -> DataFrame:
    """Every departure, by local day of the schedule."""
    window = context.partition_time_window
    first, last = window.start.date(), window.end.date() - timedelta(days=1)
    raw: DataFrame = spark.spark_session.read.csv(str(raw_file("flights")), header=True, schema=FLIGHT_COLUMNS, nullValue="NA")
    day = F.make_date("year", "month", "day")
    return raw.withColumn("day", day).drop("year", "month").where(F.col("day").between(F.lit(first), F.lit(last)))


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    group_name="flights",
    kinds={"ducklake", "spark"},
    metadata=ducklake_metadata(partition_expr="day", partition_by=["month(day)"]),
)
def carrier_delays(flights: DataFrame) -> DataFrame:
    """Delays by carrier and day."""
    return flights.groupBy("day", "carrier").agg(
        F.count("*").alias("departures"),
        F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
        F.avg("dep_delay").alias("mean_departure_delay"),
        F.max("dep_delay").alias("worst_departure_delay"),
    )


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    group_name="flights",
    kinds={"ducklake", "polars"},
    metadata=ducklake_metadata(partition_expr="day", partition_by=["month(day)"]),
)
def carrier_ranks(carrier_delays: pl.DataFrame) -> pl.DataFrame:
    """Carriers by mean delay, the most punctual of each day first."""
    punctual_first = pl.col("mean_departure_delay").rank("ordinal").over("day")
    return carrier_delays.select("day", "carrier", punctual_first.alias("rank")).drop_nulls("rank")


@dg.asset(
    partitions_def=DAYS,
    backfill_policy=ONE_RUN,
    group_name="flights",
    kinds={"ducklake", "spark"},
    metadata=ducklake_metadata(partition_expr="last_day", write_mode="upsert", upsert_keys=["origin", "dest"]),
)
def routes(flights: DataFrame) -> DataFrame:
    """Every route once, as it was on the last day that it was loaded for."""
    by_route = flights.groupBy("origin", "dest").agg(F.max("day").alias("last_day"), F.first("distance").alias("distance"))
    on_last_day = flights.groupBy("origin", "dest", F.col("day").alias("last_day")).agg(
        F.count("*").alias("flights"), F.array_sort(F.collect_set("carrier")).alias("carriers")
    )
    return by_route.join(on_last_day, ["origin", "dest", "last_day"])


@dg.asset(
    partitions_def=DAYS_AND_ORIGINS,
    backfill_policy=ONE_RUN,
    group_name="flights",
    kinds={"ducklake", "spark"},
    ins={"weather": dg.AssetIn(metadata={"columns": ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]})},
    metadata=ducklake_metadata(
        partition_expr={"day": "day", "origin": "origin"},
        partition_by=["origin"],
        # The flights of a day come for all origins; a run for some of them leaves the others out.
        out_of_slice="filter",
    ),
)
def flights_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Every departure with the weather of its hour and airport."""
    return flights.select("day", "origin", "dest", "carrier", "flight", "dep_delay", "time_hour").join(
        weather, ["origin", "time_hour"], "left"
    )
