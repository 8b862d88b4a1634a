"""MySQL catalogs: streamed results and encrypted connections."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Connection, make_url, text

from ducklake_core import DuckLake
from ducklake_core.catalog.database.mysql_catalog import connect_arguments
from ducklake_core.errors import UsageError
from tests.support.mysql import MySQLServer

NUMBERS = text("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT a.i * 1000 + b.i FROM n AS a, n AS b")
STREAMED = {"yield_per": 1000}


@pytest.fixture
def lake(mysql: MySQLServer, tmp_path: Path) -> Iterator[DuckLake]:
    address = mysql.lake(tmp_path)
    with closing(DuckLake.create(address.url, data_path=address.data_path)) as made:
        yield made


@pytest.fixture
def connection(lake: DuckLake) -> Iterator[Connection]:
    with lake.reader() as reader:
        yield reader.connection


def test_rows_are_not_held(connection: Connection) -> None:
    with connection.execute(NUMBERS, execution_options=STREAMED) as rows:
        assert rows.fetchone() is not None
        assert not rows.cursor._kept
        assert len(rows.fetchmany(5000)) == 5000
        # Another statement does not lose them.
        assert connection.execute(text("SELECT 7")).scalar_one() == 7
        assert len(rows.cursor._kept) > 80_000
        assert sum(1 for _ in rows) == 90_000 - 5001


def test_several_at_once(connection: Connection) -> None:
    streams = [iter(connection.execute(text(f"{NUMBERS} LIMIT 5000"), execution_options=STREAMED)) for _ in range(3)]
    assert [len(set(stream)) for stream in reversed(streams)] == [5000] * 3
    for _ in range(3):
        with connection.execute(NUMBERS, execution_options=STREAMED) as rows:
            rows.fetchone()
        assert connection.execute(text("SELECT 8")).scalar_one() == 8


def test_rows_in_the_catalog_are_flushed(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": range(40_000)}), inline=True)
    lake.table("t").delete("n % 2 = 1")
    lake.flush_inlined_data("t")
    assert lake.table("t").scan().to_arrow().column("n").to_pylist() == list(range(0, 40_000, 2))
    assert lake.table("t").changes(0).count() == 60_000


@pytest.mark.parametrize(
    ("mode", "verified", "named"),
    [("required", ssl.CERT_NONE, False), ("verify_ca", ssl.CERT_REQUIRED, False), ("verify_identity", ssl.CERT_REQUIRED, True)],
)
def test_certificates_are_verified(mode: str, verified: ssl.VerifyMode, named: bool) -> None:
    context = connect_arguments(make_url(f"mysql://me@db/lake?ssl_mode={mode}"))["ssl"]
    assert (context.verify_mode, context.check_hostname) == (verified, named)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("ssl_ca={}/none.pem", "ssl_ca="),
        ("ssl_ca={}/no.pem", "ssl_ca="),
        ("ssl_ca=a%00b", "ssl_ca="),
        ("ssl_mode=required&ssl_cert={}/no.pem&ssl_key={}/no.pem", "ssl_cert=.*, ssl_key="),
        ("ssl_mode=required&ssl_key={}/no.pem", "Pass both"),
        ("ssl_mode=required&ssl_cipher=none", "ssl_cipher=none"),
    ],
)
def test_files_and_ciphers_that_tls_cannot_use(parameters: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=message) as caught:
        DuckLake.connect(f"mysql+pymysql://me:hush@127.0.0.1:1/lake?{parameters.replace('{}', str(tmp_path))}")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_names_that_no_host_can_have(host: str) -> None:
    with pytest.raises(UsageError, match="The address of the MySQL catalog is invalid"):
        DuckLake.connect(f"mysql+pymysql://me:hush@{host}/lake")
