"""Definitions are looked through before anything runs."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._config.pythonic_config.resource import ConfigurableResourceFactory

from ducklake_core.errors import UsageError
from ducklake_dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    LocalStorage,
    SqliteCatalog,
    ducklake_metadata,
    validate,
    with_table_metadata,
)

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["a"])})


def lake(name: str = "lake") -> DuckLakeResource:
    return DuckLakeResource(catalog=SqliteCatalog(path=f"/nowhere/{name}.sqlite"), storage=LocalStorage(data_path="/nowhere/files/"))


def asset(key: str, partitions: dg.PartitionsDefinition[str] | None = None, io: str = "io_manager", **metadata: Any) -> Any:
    @dg.asset(key=key.split("/"), partitions_def=partitions, metadata=metadata, io_manager_key=io)
    def build() -> pa.Table:
        return pa.table({"n": [1]})

    return build


@dg.asset(key=["c", "same"])
def stores_itself() -> None: ...


@dg.multi_asset(outs={"one": dg.AssetOut(key=["d", "same"]), "two": dg.AssetOut(key=["e", "same"])})
def two() -> tuple[pa.Table, pa.Table]:
    return pa.table({"n": [1]}), pa.table({"n": [1]})


@dg.asset(ins={"up": dg.AssetIn(["a", "same"], metadata={"ducklake/moment": "x"})})
def reader(up: pa.Table) -> pa.Table:
    return up


def found(*assets: Any, schema: str | None = None, **how: Any) -> tuple[str, ...]:
    resources = {
        "io_manager": DuckLakeIOManager(lake=lake(), schema=schema, **how),
        "same_lake": DuckLakeIOManager(lake=lake(), schema="s"),
        "other_lake": DuckLakeIOManager(lake=lake("other"), schema="s"),
        "files": dg.FilesystemIOManager(),
    }
    try:
        validate(dg.Definitions(assets=[*assets], resources=resources))
    except UsageError as error:
        faults = error.details["faults"]
        assert isinstance(faults, tuple)
        assert all(fault in str(error) for fault in faults)
        return faults
    return ()


A, B = asset("a/same"), asset("b/same")


@pytest.mark.parametrize(
    ("assets", "how", "expected"),
    [
        ([A, B], {}, []),
        ([A, B], {"schema": "s"}, ["a/same would overwrite table s.same, which b/same writes too", "b/same would overwrite table s.same"]),
        ([A, asset("b/same", shared=True)], {"schema": "s"}, ["a/same would overwrite"]),
        ([A, asset("b/same", write_mode="append")], {"schema": "s"}, ["a/same would overwrite"]),
        ([A, B], {"schema": "s", "write_mode": "append"}, []),
        ([asset("x", table="T", schema="s"), asset("y", table="t", schema="s")], {}, ["x would overwrite", "y would overwrite"]),
        ([A, asset("b/same", io="same_lake")], {"schema": "s"}, ["a/same would", "b/same would"]),
        ([A, asset("b/same", io="other_lake"), asset("q/same", io="files"), stores_itself], {"schema": "s"}, []),
        ([two], {"schema": "s"}, ["d/same would", "e/same would"]),
        ([A, dg.AssetSpec(["z", "same"])], {"schema": "s"}, []),
        ([A, reader], {}, ["input up of reader: unknown metadata key 'ducklake/moment'"]),
        ([asset("x", **{"ducklake/write_mode": "append"})], {}, ["did you mean 'write_mode'?"]),
        ([asset("x", write_mode="replace")], {}, ["must be one of overwrite, append, upsert"]),
        ([asset("x", DAYS)], {}, ["asset x is partitioned, but its metadata does not name the partition column"]),
        ([asset("x", BOTH, **ducklake_metadata(partition_expr={"day": "d"}))], {}, ["asset x is partitioned by day, region"]),
        ([asset("x", BOTH, **ducklake_metadata(partition_expr={"day": "d", "region": "r"}))], {}, []),
    ],
)  # fmt: skip
def test_errors_of_a_run_are_found_before_it(assets: list[Any], how: dict[str, Any], expected: list[str]) -> None:
    faults = sorted(found(*assets, **how))
    assert len(faults) == len(expected)
    for fault, part in zip(faults, expected, strict=True):
        assert part in fault


@pytest.mark.parametrize("how", [{}, {"branch_lake": lake("branch")}])
def test_tables_of_a_branch_differ_from_those_of_production(how: dict[str, Any]) -> None:
    assets = [asset("a/same", io="same_lake"), asset("b/same")]
    assert found(*assets, schema="s", branch="dev", **how) == ()
    assert "would overwrite table s.same" in found(*assets, schema="s", branch="", **how)[0]
    assert "would overwrite table s.same" in found(*(asset(f"{key}/same") for key in "ab"), schema="s", branch="dev", **how)[0]


class MakesALake(ConfigurableResourceFactory[DuckLakeResource]):
    def create_resource(self, context: dg.InitResourceContext) -> DuckLakeResource:
        return lake()


@pytest.mark.filterwarnings("ignore:The `__fields__` attribute is deprecated")
def test_managers_without_a_lake_and_with_one_that_only_a_run_has() -> None:
    with pytest.raises(UsageError, match=r"DuckLakeIOManager has no lake\. Set lake="):
        validate(dg.Definitions(assets=[asset("a"), asset("b")], resources={"io_manager": DuckLakeIOManager()}))
    made = {"io_manager": DuckLakeIOManager(lake=MakesALake())}
    validate(dg.Definitions(assets=[asset("a"), asset("b")], resources=made))
    with pytest.raises(UsageError, match=r"asset b would overwrite table main\.a"):
        validate(dg.Definitions(assets=[asset("a"), asset("b", table="a")], resources=made))


def test_every_asset_shows_its_table() -> None:
    plain, own = asset("sales/orders", partition_expr="n"), asset("other", **{"dagster/table_name": "mine", "table": "t"})
    resources = {"io_manager": DuckLakeIOManager(lake=lake(), schema="s"), "files": dg.FilesystemIOManager()}
    defs = with_table_metadata(dg.Definitions(assets=[plain, own, asset("f", io="files"), stores_itself], resources=resources))
    found = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    table_metadata = {"dagster/table_name": "s.orders", "dagster/uri": "/nowhere/files/s/orders/", "dagster/storage_kind": "ducklake"}
    assert {key: found["sales/orders"].metadata[key] for key in table_metadata} == table_metadata
    assert found["sales/orders"].metadata["partition_expr"] == "n"
    assert found["sales/orders"].kinds == {"ducklake"}
    assert found["other"].metadata["dagster/table_name"] == "mine"
    assert "dagster/table_name" not in found["f"].metadata
    assert "dagster/table_name" not in found["c/same"].metadata
    variable = DuckLakeResource(catalog=SqliteCatalog(path="l"), storage=LocalStorage(data_path=dg.EnvVar("LAKE_FILES")))
    (spec,) = with_table_metadata(
        dg.Definitions(assets=[plain], resources={"io_manager": DuckLakeIOManager(lake=variable)})
    ).resolve_all_asset_specs()
    assert "dagster/uri" not in spec.metadata


@pytest.mark.parametrize(
    ("settings", "table_metadata"),
    [
        ({"branch": "dev"}, {"dagster/table_name": "main__dev.o", "dagster/uri": "/nowhere/files/main__dev/o/"}),
        ({"branch": "dev", "branch_lake": lake("branch")}, {"dagster/table_name": "main.o", "dagster/uri": "/nowhere/files/main/o/"}),
        ({"branch": dg.EnvVar("LAKE_BRANCH")}, {}),
        ({"schema": dg.EnvVar("LAKE_SCHEMA")}, {}),
    ],
)
def test_the_table_is_that_which_a_run_writes(settings: dict[str, Any], table_metadata: dict[str, str]) -> None:
    manager = DuckLakeIOManager(lake=lake(), **settings)
    (spec,) = with_table_metadata(dg.Definitions(assets=[asset("o")], resources={"io_manager": manager})).resolve_all_asset_specs()
    assert {key: text for key, text in spec.metadata.items() if key in ("dagster/table_name", "dagster/uri")} == table_metadata
    assert spec.metadata["dagster/storage_kind"] == "ducklake"


def test_a_table_or_a_schema_alone_is_not_the_whole_name() -> None:
    with pytest.raises(UsageError, match=r"^ducklake_metadata: write_mode must be one of overwrite, append"):
        ducklake_metadata(write_mode="appnd")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^ducklake_metadata: when_matched must be one of"):
        ducklake_metadata(when_matched="upsert")
    assert "dagster/table_name" not in ducklake_metadata(table="o")
    assert "dagster/table_name" not in ducklake_metadata(schema="s")
    assert "dagster/table_name" not in ducklake_metadata(table="o", schema="raw_{key_prefix}")
    assert ducklake_metadata(table="o", schema="s")["dagster/table_name"] == "s.o"
    manager = DuckLakeIOManager(lake=lake())
    defs = dg.Definitions(assets=[asset("sales/orders", **ducklake_metadata(table="o"))], resources={"io_manager": manager})
    (spec,) = with_table_metadata(defs).resolve_all_asset_specs()
    assert spec.metadata["dagster/table_name"] == "sales.o"
