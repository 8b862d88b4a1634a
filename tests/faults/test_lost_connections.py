"""The connection to the catalog is cut at COMMIT: the transaction is in the lake once, or the outcome is unknown."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database import server_connections
from ducklake_core.catalog.database.failures import RetryPolicy
from ducklake_core.errors import CommitOutcomeUnknownError
from tests.faults.checks import check, check_cut_line
from tests.faults.proxy import Cut, Proxy, proxy_to
from tests.faults.work import prepare, work
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread
from tests.support.postgres import PostgresServer


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    # Names of sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="line-") as folder, proxy_to(postgres, Path(folder)) as found:
        yield found


@pytest.mark.parametrize("inlining", spread([0, 10], 1), ids=["files", "inlined"])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_it_happens_once(address: LakeAddress, proxy: Proxy, cut: Cut, inlining: int) -> None:
    check_cut_line(address, proxy, cut, inlining)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_nothing_is_deleted_while_the_catalog_is_unreachable(
    address: LakeAddress, proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", lambda *_: 0.01)
    monkeypatch.setattr(server_connections, "_answers", lambda _error: False)
    model = prepare(address.url, address.data_path, 0)
    lake = DuckLake.connect(proxy.url(address))
    before = lake.snapshot().id
    proxy.cut, proxy.dead = cut, True
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        work(lake, model, commit_id="tonight")
    arrived = cut == "after"
    reachable = DuckLake.connect(address.url)
    assert reachable.snapshot().id == before + arrived
    assert (reachable.find_commit("tonight") is not None) == arrived
    assert "tonight" in str(caught.value)
    check(address, model.after() if arrived else model)
    # The step is run again with the id that it had, as Dagster runs it: then it has happened once.
    work(reachable, model, commit_id="tonight")
    check(address, model.after())
    assert reachable.snapshot().id == before + 1
