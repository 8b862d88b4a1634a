"""A guarded table: a transaction commits only on the state that it has read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, NotFoundError
from tests.support.oracle import LakeAddress, attached

ONE = pa.table({"n": pa.array([1], pa.int64())})


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.write("t", ONE)
    made.write("other", ONE)
    return made


CHANGES: dict[str, Callable[[DuckLake], Any]] = {
    "append": lambda lake: lake.write("t", ONE),
    "append to a file": lambda lake: lake.write("t", ONE, inline=False),
    "delete": lambda lake: lake.table("t").delete("n = 1"),
    "new column": lambda lake: lake.table("t").add_column("m", "int64"),
    "drop": lambda lake: lake.drop_table("t"),
    "rename": lambda lake: lake.rename_table("t", "u"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inline", [None, False])
def test_concurrent_changes_are_conflicts(lake: DuckLake, change: str, inline: bool | None) -> None:
    def look_and_append() -> None:
        with lake.transaction() as tx:
            tx.append("t", ONE, inline=inline)
            tx.guard("t")
            assert tx.table("t").scan().count() == 2
            CHANGES[change](lake)

    with pytest.raises(CommitConflictError):
        look_and_append()
    assert lake.snapshot().id == 3


def test_other_tables_and_files_that_only_move_do_not_matter(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", ONE, inline=False)
    with lake.transaction() as tx:
        tx.append("t", ONE)
        tx.guard("t")
        lake.write("other", ONE)
    assert lake.table("t").scan().count() == 3
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM lake.t") == 3


def test_a_guard_alone_commits_nothing(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.guard("t")
    assert tx.result.snapshot is None

    def look() -> None:
        with lake.transaction() as tx:
            tx.guard("t")
            lake.write("t", ONE)

    with pytest.raises(CommitConflictError):
        look()
    with pytest.raises(NotFoundError), lake.transaction() as tx:
        tx.guard("missing")


def test_a_guarded_transaction_commits_once(lake: DuckLake) -> None:
    for _ in range(2):
        with lake.transaction(commit_id="once") as tx:
            tx.append("t", ONE)
            tx.guard("t")
    assert tx.repeated is not None
    assert lake.table("t").scan().count() == 2
