"""The servers that pages name by variables of the environment, as readers have to set them."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import DOCS
from tests.support.s3 import BUCKET, KEY, SECRET


def names(page: str) -> bool:
    """Return whether the code of a page takes addresses from the environment."""
    return re.search("S3_ACCESS_KEY_ID|PGHOST", (DOCS / page).read_text()) is not None


def set_variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the servers, and set the variables that the pages on PostgreSQL and S3 list."""
    postgres, s3 = request.getfixturevalue("postgres"), request.getfixturevalue("s3")
    variables = {
        "PGHOST": postgres.socket,
        "PGUSER": postgres.user,
        "PGPASSWORD": "not needed on a socket",
        "PGDATABASE": postgres.new_database(),
        "S3_BUCKET": BUCKET,
        "S3_ACCESS_KEY_ID": KEY,
        "S3_SECRET_ACCESS_KEY": SECRET,
        "S3_REGION": "us-east-1",
        "S3_ENDPOINT_URL": s3.endpoint,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
