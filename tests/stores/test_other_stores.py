"""Google Cloud Storage, by an emulator, and Azure, for which there is none here: how paths and options reach its package."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.locations import check_location, file_key
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_dagster.resources import AzureStorage
from tests.stores.work import change, found, maintain, table_of
from tests.support.gcs import gcs_server
from tests.support.oracle import LakeAddress

# Azure's own well-known key of its emulator.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.mark.slow
def test_google_cloud_storage(sqlite_address: LakeAddress) -> None:
    with gcs_server() as endpoint:
        options = {"gs": {"token": "anon", "endpoint_url": endpoint, "project": "test"}}
        lake = DuckLake.create(sqlite_address.url, data_path="gs://lake/files/", storage_options=options)
        lake.set_option("data_inlining_row_limit", 0)
        expected = change(lake, table_of, None)
        assert found(lake) == expected
        maintain(lake, expected, None)
        lake.close()
        lake = DuckLake.connect(sqlite_address.url, data_path="gcs://lake/files/", override_data_path=True, storage_options=options)
        assert found(lake) == expected
        lake.close()


@pytest.mark.parametrize(
    "path",
    [
        "abfs://files/main/t/a b%20ü.parquet",
        "abfss://files/main/t/a b%20ü.parquet",
        "az://files/main/t/a b%20ü.parquet",
        "abfss://files@account.dfs.core.windows.net/main/t/a b%20ü.parquet",
    ],
)
def test_azure(path: str) -> None:
    config = AzureStorage(data_path="abfs://files/", account_name="account", account_key=KEY)
    storage = Storage(options=StorageOptions(by_protocol=dict.fromkeys(config.protocols(), config.options())))
    filesystem, inside = storage.filesystem(path)
    assert (filesystem.account_name, filesystem.account_key) == ("account", KEY)
    assert inside == "files/main/t/a b%20ü.parquet"
    assert file_key(path) == "abfs:/files/main/t/a b%20ü.parquet"
    assert KEY not in repr(config) + repr(storage) + str(config)


def test_another_account_is_another_store() -> None:
    lake = "abfss://files@account.dfs.core.windows.net/lake/"
    check_location("az://files@account.dfs.core.windows.net/x", lake, what="data file 7")
    with pytest.raises(UnsupportedFeatureError, match="another kind of store"):
        check_location("abfss://files@other.dfs.core.windows.net/x", lake, what="data file 7")
