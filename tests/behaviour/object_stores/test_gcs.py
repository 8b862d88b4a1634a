"""Credentials of Google Cloud Storage that cannot be used: they are in no error, nor in the causes of one, and in no text."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import StorageError
from tests.behaviour.object_stores.secrets import chain
from tests.behaviour.object_stores.work import found, numbered, table_of
from tests.support.object_stores import gcs_store
from tests.support.oracle import LakeAddress

SECRET = "a-secret-token-of-test"
KEY_FILE = {
    "type": "service_account",
    "client_email": "me@project.iam.gserviceaccount.com",
    "token_uri": "http://127.0.0.1:9/token",
    "private_key_id": "1",
    "private_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("token", [SECRET, KEY_FILE, f"/nowhere/{SECRET}.json"], ids=["token", "key", "file"])
def test_tokens(
    sqlite_address: LakeAddress, gcs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, token: Any
) -> None:
    caplog.set_level(logging.INFO)
    # The scope of a token is requested from Google with a URL that contains it.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    store = gcs_store(gcs)
    address = store.lake(sqlite_address, "tokens")
    lake = store.create(address)
    lake.write("t", table_of(numbered(0, 10)))
    options = {"gcs": {**store.options["gs"], "token": token}}
    other = DuckLake.connect(address.url, storage_options=options)
    reported: list[object] = [lake, other, other.storage]
    for fails in (lambda: found(other), lambda: other.write("t", table_of(numbered(10, 20)))):
        with pytest.raises(StorageError, match="cannot reach the store") as caught:
            fails()
        reported += chain(caught.value)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    for text in (*(f"{one} {one!r}" for one in reported), caplog.text):
        assert SECRET not in text
    lake.close()
    other.close()
