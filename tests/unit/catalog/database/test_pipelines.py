"""Round trips to PostgreSQL, and interrupted pipelines."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import psycopg._cursor_base
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import dialect

from ducklake_core import DuckLake
from ducklake_core.catalog.database.statements import Changes, compiled_statement
from ducklake_core.format.cache import BoundedCache
from tests.support.postgres import PostgresServer


@pytest.fixture
def lake(postgres: PostgresServer, tmp_path: Path) -> DuckLake:
    address = postgres.lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", [{"a": 1, "b": "x", "c": 1.5}])
    return lake


@pytest.mark.parametrize("call", [lambda lake: lake.table("t"), lambda lake: lake.table("t").append([{"a": 1, "b": "x", "c": 1.5}])])
def test_ctrl_c_while_answers_are_waited_for(lake: DuckLake, call: Callable[[DuckLake], object], monkeypatch: pytest.MonkeyPatch) -> None:
    lake.table("t")
    original = psycopg._cursor_base.BaseCursor._select_current_result
    interrupted: list[int] = []

    def taking(self: Any, *arguments: Any, **how: Any) -> Any:
        # In the middle of a pipeline, where there is one; the answers after it are still to come.
        if not interrupted:
            interrupted.append(1)
            raise KeyboardInterrupt
        return original(self, *arguments, **how)

    monkeypatch.setattr(psycopg._cursor_base.BaseCursor, "_select_current_result", taking)
    with pytest.raises(KeyboardInterrupt):
        call(lake)
    assert interrupted
    assert lake.table("t").scan().count() == 1
    lake.close()


def test_opening_and_appending_take_few_round_trips(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    original = psycopg.Cursor.execute

    def saying(self: Any, query: Any, *arguments: Any, **how: Any) -> Any:
        sent.append(str(query).split(maxsplit=1)[0])
        return original(self, query, *arguments, **how)

    lake.table("t").append([{"a": 2, "b": "y", "c": 2.5}])
    monkeypatch.setattr(psycopg.Cursor, "execute", saying)
    table = lake.table("t")
    assert sent == ["SELECT"]
    sent.clear()
    table.append([{"a": 3, "b": None, "c": 3.5}])
    # The writer lease, the history, options and statistics; then the snapshot, and everything else at once.
    assert sent == ["BEGIN", "SELECT", "SELECT", "SELECT", "SELECT", "INSERT", "WITH", "COMMIT"]
    monkeypatch.undo()
    assert lake.table("t").scan().to_arrow().sort_by("a").to_pylist()[2] == {"a": 3, "b": None, "c": 3.5}
    summaries = lake.table("t").column_summaries()
    assert (lake.table("t").info().row_count, set(summaries)) == (3, {"a", "b", "c"})
    lake.close()


def test_changes_of_several_tables_are_one_statement() -> None:
    names = [sa.Table(name, sa.MetaData(), sa.Column("k", sa.BigInteger), sa.Column("v", sa.String)) for name in ("one", "a%(x)s")]
    one, other = names
    changes = Changes()
    known = BoundedCache[Hashable, Any](10)
    insert = compiled_statement(sa.insert(one).values(k=sa.bindparam("value_k"), v=None), dialect())
    update = compiled_statement(sa.update(other).where(other.c.k == sa.bindparam("key_k")).values(v=sa.bindparam("value_v")), dialect())
    changes.add("insert", insert, [{"value_k": 1}])
    assert not changes.can_take("one")
    assert changes.can_take("a%(x)s")
    changes.add("update", update, [{"key_k": 1, "value_v": "x"}, {"key_k": 2, "value_v": "y"}])
    text, values = changes.joined(known)
    assert text.startswith("WITH s0 AS (INSERT INTO one")
    assert ', s1 AS (UPDATE "a%%(x)s"' in text
    assert ') UPDATE "a%%(x)s"' in text
    assert {name: value for name, value in values.items() if value is not None} == {
        "s0_value_k": 1, "s1_key_k": 1, "s1_value_v": "x", "s2_key_k": 2, "s2_value_v": "y",
    }  # fmt: skip
    assert changes.joined(known)[0] is text
