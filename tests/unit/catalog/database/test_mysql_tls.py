"""How sessions of MySQL catalogs are encrypted, by their addresses alone: no server is asked."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from sqlalchemy import make_url

from ducklake_core import DuckLake
from ducklake_core.catalog.database.mysql_catalog import connect_arguments
from ducklake_core.errors import UsageError


@pytest.mark.parametrize(
    ("mode", "verified", "named"),
    [("required", ssl.CERT_NONE, False), ("verify_ca", ssl.CERT_REQUIRED, False), ("verify_identity", ssl.CERT_REQUIRED, True)],
)
def test_what_is_asked_of_the_certificate(mode: str, verified: ssl.VerifyMode, named: bool) -> None:
    context = connect_arguments(make_url(f"mysql://me@db/lake?ssl_mode={mode}"))["ssl"]
    assert (context.verify_mode, context.check_hostname) == (verified, named)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("ssl_ca={}/none.pem", "ssl_ca="),
        ("ssl_ca={}/no.pem", "ssl_ca="),
        ("ssl_ca=a%00b", "ssl_ca="),
        ("ssl_mode=required&ssl_cert={}/no.pem&ssl_key={}/no.pem", "ssl_cert=.*, ssl_key="),
        ("ssl_mode=required&ssl_key={}/no.pem", "give both"),
        ("ssl_mode=required&ssl_cipher=none", "ssl_cipher=none"),
    ],
)
def test_files_and_ciphers_that_tls_cannot_use(parameters: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=told) as caught:
        DuckLake.connect(f"mysql+pymysql://me:hush@127.0.0.1:1/lake?{parameters.replace('{}', str(tmp_path))}")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_names_that_no_host_can_have(host: str) -> None:
    with pytest.raises(UsageError, match="the address of the MySQL catalog cannot be used"):
        DuckLake.connect(f"mysql+pymysql://me:hush@{host}/lake")
