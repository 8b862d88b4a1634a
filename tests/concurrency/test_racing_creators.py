"""Two writers that create the same object at once: a request for a new one raises, a write shares it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress
from tests.support.parameters import on_all_catalogs, spread

pytestmark = on_all_catalogs

COLUMNS = pa.schema([("x", pa.int64())])


@pytest.fixture
def lake(lake_address: LakeAddress) -> DuckLake:
    return DuckLake.create(lake_address.url, data_path=lake_address.data_path)


def before_commit(monkeypatch: pytest.MonkeyPatch, race: Callable[[], object]) -> None:
    """Let another writer commit while the next transaction is at its end."""
    leave = Transaction.__exit__

    def after_the_other(self: Transaction, *error: object) -> None:
        monkeypatch.setattr(Transaction, "__exit__", leave)
        race()
        leave(self, *error)  # type: ignore[arg-type]

    monkeypatch.setattr(Transaction, "__exit__", after_the_other)


@pytest.mark.parametrize("other_columns", spread([COLUMNS, pa.schema([("y", pa.string())])], 1))
def test_a_table_that_was_to_be_new(lake: DuckLake, monkeypatch: pytest.MonkeyPatch, other_columns: pa.Schema) -> None:
    before_commit(monkeypatch, lambda: lake.create_table("t", other_columns))
    with pytest.raises(AlreadyExistsError, match=r"main\.t already"):
        lake.create_table("t", COLUMNS)
    before_commit(monkeypatch, lambda: lake.create_table("u", COLUMNS))
    assert lake.create_table("u", COLUMNS, if_not_exists=True).snapshot_id == lake.snapshot().id == 2


def test_rows_for_a_table_that_was_to_be_new(lake: DuckLake) -> None:
    def race() -> None:
        with lake.transaction() as tx:
            tx.create_table("t", COLUMNS)
            tx.append("t", pa.table({"x": [1]}))
            lake.create_table("t", COLUMNS)

    with pytest.raises(AlreadyExistsError):
        race()
    assert list(Path(lake.info.data_path).rglob("*.parquet")) == []
    assert lake.table_info("t").row_count == 0


def test_a_schema_that_was_to_be_new(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    before_commit(monkeypatch, lambda: lake.create_schema("s"))
    with pytest.raises(AlreadyExistsError, match="'s' already"):
        lake.create_schema("s")
    before_commit(monkeypatch, lambda: lake.create_schema("r"))
    assert lake.create_schema("r", if_not_exists=True) is None


def test_a_write_shares_what_others_have_created(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.write("s.t", pa.table({"x": [1]}))
        lake.create_schema("s")
        lake.create_table("s.t", COLUMNS)
    assert not tx.result.writes[0].created_table
    assert lake.table("s.t").scan().to_arrow().to_pylist() == [{"x": 1}]
