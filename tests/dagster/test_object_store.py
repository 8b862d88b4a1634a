"""The resource and the IO manager on S3; credentials are in nothing that Dagster records."""

from __future__ import annotations

import logging

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import DuckLakeError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, S3Storage
from tests.stores.secrets import WRONG, assert_secretless, chain
from tests.stores.work import numbered, table_of
from tests.support.oracle import LakeAddress
from tests.support.s3 import KEY, SECRET, S3Server, s3_lake


def test_outputs_and_inputs_on_s3(
    sqlite_address: LakeAddress,
    s3: S3Server,
    instance: dg.DagsterInstance,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # This server answers a range with the checksum of the whole object.
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    caplog.set_level(logging.DEBUG, "ducklake_core")
    caplog.set_level(logging.DEBUG, "dagster")
    address = s3_lake(sqlite_address, "dagster")

    def resource(secret: str, url: str) -> DuckLakeResource:
        storage = S3Storage(
            data_path=address.data_path, access_key_id=KEY, secret_access_key=secret, endpoint_url=s3.endpoint, region="us-east-1"
        )
        return DuckLakeResource(catalog=url, storage=storage, create_if_missing=True)

    @dg.asset
    def numbers() -> pa.Table:
        return table_of(numbered(0, 100))

    @dg.asset
    def more(numbers: pa.Table) -> pa.Table:
        return numbers.slice(0, 50)

    told: list[object] = []
    for secret in (SECRET, WRONG):
        lake = resource(secret, address.url)
        told += [lake, lake.connect(), lake.connect().storage]
        run = dg.materialize(
            [numbers, more],
            resources={"io_manager": DuckLakeIOManager(lake=lake, default_frame="arrow")},
            instance=instance,
            raise_on_error=False,
        )
        assert run.success == (secret == SECRET)
        told += [str(entry) for entry in instance.all_logs(run.run_id)]
    assert resource(SECRET, address.url).connect().table("more").scan().to_arrow().num_rows == 50
    with pytest.raises(DuckLakeError) as caught:
        resource(WRONG, address.url).connect().table("more").scan().to_arrow()
    assert_secretless(*told, *chain(caught.value), caplog.text)
