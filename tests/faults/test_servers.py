"""PostgreSQL servers that are full, end idle transactions, or are behind a pooler."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import make_url

from ducklake_core import DuckLake
from ducklake_core.catalog.database import server_connections
from ducklake_core.commit import committer
from ducklake_core.errors import CatalogUnavailableError
from tests.faults.checks import check
from tests.faults.pooler import Pooler, pooler_to
from tests.faults.work import prepare, work
from tests.support.oracle import LakeAddress
from tests.support.postgres import PostgresServer


@pytest.fixture
def pooler(postgres: PostgresServer, address: LakeAddress) -> Iterator[Pooler]:
    # Names of sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, pooler_to(postgres, address, Path(folder)) as found:
        yield found


def session(postgres: PostgresServer, user: str | None = None) -> psycopg.Connection:
    return psycopg.connect(f"host={postgres.socket} user={user or postgres.user} dbname=postgres", autocommit=True)


def wait_for_a_free_session(postgres: PostgresServer, user: str | None) -> None:
    """Wait until the server has ended the sessions that the user has closed, which it does a moment later."""
    with session(postgres) as admin:
        while admin.execute("SELECT 1 FROM pg_stat_activity WHERE usename = %s", [user]).fetchone() is not None:
            time.sleep(0.01)


def test_behind_a_pooler_of_transactions(address: LakeAddress, pooler: Pooler) -> None:
    model = prepare(address.url, address.data_path, 10)
    lake = DuckLake.connect(pooler.url(address))
    for number in range(20):
        lake.write("many", pa.table({"i": [number]}))
        assert lake.table("many").scan().count() == number + 1
    work(lake, model)
    lake.close()
    check(address, model.after())
    assert pooler.transactions > 40


@pytest.fixture
def crowded(postgres: PostgresServer, address: LakeAddress) -> Iterator[str]:
    """The address of a lake for a user who may have one session."""
    DuckLake.create(address.url, data_path=address.data_path).close()
    user = f"only_one_{make_url(address.url).database}"
    with session(postgres) as admin:
        admin.execute(f"CREATE ROLE {user} LOGIN SUPERUSER")
        admin.execute(f"ALTER ROLE {user} NOSUPERUSER CONNECTION LIMIT 1")
        admin.execute(f"GRANT {postgres.user} TO {user}")
        yield make_url(address.url).set(username=user).render_as_string()
        wait_for_a_free_session(postgres, user)
        admin.execute(f"DROP ROLE {user}")


@pytest.mark.parametrize("known", [False, True], ids=["at first", "later"])
def test_a_server_that_is_full_for_a_moment(postgres: PostgresServer, crowded: str, *, known: bool) -> None:
    user = make_url(crowded).username
    lake = DuckLake.connect(crowded) if known else None
    if lake is not None:
        lake.database.close()
    wait_for_a_free_session(postgres, user)
    taken = session(postgres, user)
    started = time.monotonic()
    threading.Timer(1.0, taken.close).start()
    lake = lake or DuckLake.connect(crowded)
    assert lake.snapshot().id == 0
    assert time.monotonic() - started >= 1.0
    lake.close()


def test_a_server_that_stays_full(postgres: PostgresServer, crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connections, "UNKNOWN_SECONDS", 0.3)
    with session(postgres, make_url(crowded).username), pytest.raises(CatalogUnavailableError):
        DuckLake.connect(crowded)


def test_no_transaction_is_open_while_files_are_read_or_written(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may be slow, and servers end transactions that are idle (idle_in_transaction_session_timeout)."""
    model = prepare(address.url, address.data_path, 0)
    lake = DuckLake.connect(address.url)
    with lake.reader() as reader:
        pool = reader.connection.engine.pool
    storage, calls = type(lake.storage), []

    def watched(name: str) -> Callable[..., object]:
        real = getattr(storage, name)

        def call(*args: object, **kwargs: object) -> object:
            assert pool.checkedout() == 0, f"{name} with a connection in use"  # type: ignore[attr-defined]
            calls.append(name)
            return real(*args, **kwargs)

        return call

    for name in ("open_input", "open_output", "size", "exists", "delete"):
        monkeypatch.setattr(storage, name, watched(name))
    for _ in range(2):
        work(lake, model)
        model = model.after()
    lake.table("thinned").restore(at=lake.snapshots()[-2].id)
    lake.table("thinned").delete(f"k = {model.number - 1}")
    lake.table("thinned").set_not_null("k")
    lake.merge_adjacent_files()
    assert {"open_input", "open_output"} <= set(calls)
    lake.close()
    monkeypatch.undo()
    check(address, model)


def test_a_server_that_ends_idle_transactions_early(
    postgres: PostgresServer, address: LakeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit has a limit of its own, whatever the server's is."""
    model = prepare(address.url, address.data_path, 10)
    with session(postgres) as admin:
        admin.execute(f"ALTER DATABASE {make_url(address.url).database} SET idle_in_transaction_session_timeout = '2s'")
    lake, calls, real = DuckLake.connect(address.url), [], committer.resolve

    def slow(*arguments: Any) -> Any:
        calls.append(time.sleep(2.5))
        return real(*arguments)

    monkeypatch.setattr(committer, "resolve", slow)
    work(lake, model)
    lake.close()
    assert len(calls) == 1
    check(address, model.after())
