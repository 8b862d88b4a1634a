"""Statements that DuckDB only binds share an instance, which is replaced when DuckDB has given it up."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import duckdb
import pytest

from ducklake_core.engines import duckdb_instance
from ducklake_core.engines.duckdb_instance import scratch_connection, shared_connection


class GivenUp:
    """An instance after an internal error."""

    def cursor(self) -> GivenUp:
        return self

    def execute(self, _: str) -> NoReturn:
        raise duckdb.FatalException("FATAL Error: database has been invalidated because of a previous fatal error")


@pytest.mark.parametrize("lend", [shared_connection, scratch_connection])
def test_an_instance_that_duckdb_has_given_up_is_replaced(lend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_instance, "_instances", {(os.getpid(), False): GivenUp()})
    with lend() as connection:
        assert connection.execute("SELECT 42").fetchall() == [(42,)]


def test_nothing_is_left_of_what_statements_create() -> None:
    for _ in range(2):
        with scratch_connection() as connection:
            connection.execute("CREATE SCHEMA s")
            connection.execute("CREATE TABLE s.t (a INTEGER)")
            connection.execute("CREATE MACRO plus_one(a) AS a + 1")
            with pytest.raises(duckdb.BinderException):
                connection.execute("SELECT nope FROM s.t")
