"""Pipelines of PostgreSQL that somebody interrupts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg._cursor_base
import pytest

from ducklake_core import DuckLake
from tests.support.postgres import PostgresServer


def test_ctrl_c_while_answers_are_waited_for(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = postgres.lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", [{"a": 1}])
    lake.table("t")
    original = psycopg._cursor_base.BaseCursor._select_current_result
    interrupted: list[int] = []

    def taking(self: Any, *arguments: Any, **how: Any) -> Any:
        # In the middle of a pipeline; the answers after it are still to come.
        if not interrupted and self._conn.pgconn.pipeline_status:
            interrupted.append(1)
            raise KeyboardInterrupt
        return original(self, *arguments, **how)

    monkeypatch.setattr(psycopg._cursor_base.BaseCursor, "_select_current_result", taking)
    with pytest.raises(KeyboardInterrupt):
        lake.table("t")
    assert interrupted
    assert lake.table("t").scan().count() == 1
    lake.close()
