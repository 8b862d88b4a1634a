"""The resource and the IO manager on object stores; credentials are in nothing that Dagster records."""

from __future__ import annotations

import logging

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import DuckLakeError, StorageError
from ducklake_dagster import AzureStorage, DuckLakeIOManager, DuckLakeResource, S3Storage
from tests.behaviour.object_stores.secrets import WRONG, assert_secretless, chain
from tests.behaviour.object_stores.work import numbered, table_of
from tests.support.object_stores import ObjectStore, Options
from tests.support.oracle import LakeAddress
from tests.support.s3 import KEY


def storage_of(store: ObjectStore, data_path: str, options: Options) -> S3Storage | AzureStorage:
    if store.name == "azure":
        return AzureStorage(data_path=data_path, connection_string=options["abfs"]["connection_string"])
    given = options["s3"]
    # This server answers a range with the checksum of the whole object.
    relaxed = {"config_kwargs": {"response_checksum_validation": "when_required", "request_checksum_calculation": "when_required"}}
    return S3Storage(
        options=relaxed,
        data_path=data_path,
        access_key_id=KEY,
        secret_access_key=given["secret"],
        endpoint_url=given["endpoint_url"],
        region="us-east-1",
    )


@pytest.mark.parametrize("store", ["s3", "azure"], indirect=True)
def test_outputs_and_inputs(
    sqlite_address: LakeAddress, store: ObjectStore, instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ducklake_core")
    caplog.set_level(logging.DEBUG, "dagster")
    address = store.lake(sqlite_address, "dagster")
    assert store.wrong is not None

    def resource(options: Options) -> DuckLakeResource:
        return DuckLakeResource(catalog=address.url, storage=storage_of(store, address.data_path, options), create_if_missing=True)

    @dg.asset
    def numbers() -> pa.Table:
        return table_of(numbered(0, 100))

    @dg.asset
    def more(numbers: pa.Table) -> pa.Table:
        return numbers.slice(0, 50)

    recorded: list[object] = []
    for options in (store.options, store.wrong):
        lake = resource(options)
        recorded += [lake, lake.connect(), lake.connect().storage]
        run = dg.materialize(
            [numbers, more],
            resources={"io_manager": DuckLakeIOManager(lake=lake, default_frame="arrow")},
            instance=instance,
            raise_on_error=False,
        )
        assert run.success == (WRONG not in str(options))
        recorded += [str(entry) for entry in instance.all_logs(run.run_id)]
    assert resource(store.options).connect().table("more").scan().to_arrow().num_rows == 50
    with pytest.raises(DuckLakeError) as caught:
        resource(store.wrong).connect().table("more").scan().to_arrow()
    assert_secretless(store, *recorded, *chain(caught.value), caplog.text)


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_checksum_that_is_none_of_the_part_is_explained(sqlite_address: LakeAddress, store: ObjectStore) -> None:
    address = store.lake(sqlite_address, "checksums")
    given = store.options["s3"]
    plain = S3Storage(data_path=address.data_path, access_key_id=KEY, secret_access_key=given["secret"], endpoint_url=given["endpoint_url"])
    lake = DuckLakeResource(catalog=address.url, storage=plain, create_if_missing=True).connect()
    # Reads request parts of a file of this size.
    lake.write("numbers", pa.table({"n": range(2_000_000), "text": [str(number) for number in range(2_000_000)]}))
    with pytest.raises(StorageError, match="response_checksum_validation"):
        lake.table("numbers").scan(["n"], "n > 1999990").to_arrow()
