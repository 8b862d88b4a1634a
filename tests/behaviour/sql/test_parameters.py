"""Values and frames that the caller passes with SQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.results import TransactionResult
from ducklake_core.sql.query import Query


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DuckLake]:
    with DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/") as made:
        made.write("t", pa.table({"a": range(10), "b": [f"s{number}" for number in range(10)]}))
        yield made


def rows(result: Query | TransactionResult) -> list[tuple[Any, ...]]:
    assert isinstance(result, Query)
    return [tuple(row.values()) for row in result.to_arrow().to_pylist()]


VALUES = [
    1, -1, 2**31, 1.5, -0.5, float("inf"), 1e300, True, False, None, "it's", "", "a\nb\\c $x ? -- \"", "😀", b"", b"\x00'\xff",
    date(1, 1, 1), date(2026, 2, 3), datetime(2026, 2, 3, 4, 5, 6, 7), time(1, 2, 3, 4),  # noqa: DTZ001 - naive values
    Decimal("1.250"), Decimal("-99999999999999999999.5"), [1, None, 3], [[1], [2]], ["a'", "b"], {"k": 1, "it's": "x"},
    pd.Timestamp("2026-01-01"), pd.NaT, np.datetime64("2026-01-01T00:00:00"),
    bytearray(b"\x00x"), np.array([1, 2], "int32"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_those_of_duckdb(lake: DuckLake, value: object) -> None:
    expected = duckdb.execute("SELECT ? AS v, typeof(?) AS t", [value, value]).fetchone()
    assert rows(lake.sql("SELECT ? AS v, typeof(?) AS t", [value, value])) == [expected]


def test_values_without_an_equal_form_in_duckdb(lake: DuckLake) -> None:
    own = uuid.uuid4()
    (found,) = rows(lake.sql("SELECT ?, typeof(?), ?, ?", [own, own, np.int8(3), datetime(2026, 2, 3, tzinfo=UTC)], timezone="UTC"))
    assert found == (str(own), "UUID", 3, datetime(2026, 2, 3, tzinfo=UTC))
    duration = timedelta(days=-1, seconds=3, microseconds=5)
    (expected,) = duckdb.execute("SELECT CAST(? AS VARCHAR)", [duration]).fetchall()
    assert rows(lake.sql("SELECT CAST(? AS VARCHAR)", [duration])) == [expected]


def test_values_that_a_constant_would_change(lake: DuckLake) -> None:
    assert repr(rows(lake.sql("SELECT ?", [-0.0]))) == "[(-0.0,)]"
    assert rows(lake.sql("SELECT ?", [np.array(["2026-01-01"], "datetime64[ns]")])) == [([datetime(2026, 1, 1)],)]  # noqa: DTZ001
    assert rows(lake.sql("SELECT ?, ?", [2**127, -(2**127)])) == [(2**127, -(2**127))]
    assert rows(lake.sql(f"SELECT {2**127}, {2**128 - 1:_}")) == [(2**127, 2**128 - 1)]
    with pytest.raises(UsageError, match="number 1 is an integer of more than 128 bits"):
        lake.sql("SELECT ?", [2**128])
    with pytest.raises(UsageError, match="number 2 has nanoseconds, but an interval keeps microseconds"):
        lake.sql("SELECT ?, ?", [1, pd.Timedelta(1, "ns")])


def test_forms_of_parameters(lake: DuckLake) -> None:
    assert rows(lake.sql("SELECT b FROM t WHERE a = ?", [7])) == [("s7",)]
    assert rows(lake.sql("SELECT b FROM t WHERE a = ?::BIGINT AND b = ?", (7, "s7"))) == [("s7",)]
    assert rows(lake.sql("SELECT a FROM t WHERE a = $1 OR a = $1 + $2 ORDER BY a", [2, 3])) == [(2,), (5,)]
    assert rows(lake.sql("SELECT a FROM t WHERE a BETWEEN $low AND $high ORDER BY a", {"low": 2, "high": 3})) == [(2,), (3,)]
    assert rows(lake.sql("SELECT a - ? FROM t WHERE a IN (SELECT unnest(?)) ORDER BY a", [-1, [1, 2]])) == [(2,), (3,)]
    assert rows(lake.sql("SELECT '?', \"b\" /* ? */ FROM t WHERE a = ? -- ? $x", [1])) == [("?", "s1")]
    assert rows(lake.sql("SELECT count(*) FROM t WHERE b = ?", ["s1' OR '1' = '1"])) == [(0,)]


def test_statements_take_parameters(lake: DuckLake) -> None:
    lake.sql("INSERT INTO t VALUES (?, ?), (?, ?)", [20, "it's", 21, None], message="two")
    lake.sql("UPDATE t SET b = $b WHERE a = $a", {"a": 21, "b": "?"})
    lake.sql("DELETE FROM t WHERE a < ?", [19])
    with lake.transaction() as tx:
        tx.sql("UPDATE t SET b = concat(b, ?) WHERE a = ?", ["!", 20])
        assert tx.sql("SELECT b FROM t WHERE a = ?", [20]).to_arrow()["b"].to_pylist() == ["it's!"]  # type: ignore[union-attr]
    assert rows(lake.sql("FROM t ORDER BY a")) == [(20, "it's!"), (21, "?")]


@pytest.mark.parametrize(
    ("sql", "parameters", "message"),
    [
        ("SELECT ?", None, "parameter number 1 without a value: no parameters were given"),
        ("SELECT ?, ?", [1], "parameter number 2 without a value"),
        ("SELECT ?", [1, 2], "no parameter number 2"),
        ("SELECT $x", {"y": 1}, r"parameter \$x without a value: the parameters are 'y'"),
        ("SELECT 1", {"y": 1}, r"no parameter \$y"),
        ("SELECT ?", "x", "must be a list of values, or a dict of values by name, not str"),
        ("SELECT ?", {1}, "must be a list of values, or a dict of values by name, not set"),
        ("SELECT ?", [object()], "parameter number 1 has no constant in SQL: object"),
    ],
)
def test_wrong_parameters_raise(lake: DuckLake, sql: str, parameters: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lake.sql(sql, parameters)


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"a": [1, 50], "b": ["x", None]}),
    "polars": lambda: pl.DataFrame({"a": [1, 50], "b": ["x", None]}),
    "arrow": lambda: pa.table({"a": [1, 50], "b": ["x", None]}),
    "reader": lambda: pa.table({"a": [1, 50], "b": ["x", None]}).to_reader(),
    "dicts": lambda: [{"a": 1, "b": "x"}, {"a": 50, "b": None}],
    "relation": lambda: duckdb.sql("FROM (VALUES (1, 'x'), (50, NULL)) AS r(a, b)"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_statements_name_frames(lake: DuckLake, kind: str) -> None:
    assert rows(lake.sql("SELECT t.b, n.b AS c FROM t JOIN n USING (a)", n=FRAMES[kind]())) == [("s1", "x")]
    lake.sql("INSERT INTO t SELECT a + 100, b FROM new_rows", new_rows=FRAMES[kind](), author="me")
    merge = """MERGE INTO t USING n ON t.a = n.a WHEN MATCHED THEN UPDATE SET b = n.b || ?
        WHEN NOT MATCHED THEN INSERT (a, b) VALUES (n.a, n.b)"""
    lake.sql(merge, ["!"], n=FRAMES[kind]())
    lake.sql("UPDATE t SET b = 'u' FROM n WHERE t.a = n.a AND n.b IS NULL", n=FRAMES[kind]())
    lake.sql("DELETE FROM t WHERE a BETWEEN 2 AND 9 AND a NOT IN (SELECT a FROM n)", n=FRAMES[kind]())
    assert rows(lake.sql("FROM t ORDER BY a")) == [(0, "s0"), (1, "x!"), (50, "u"), (101, "x"), (150, None)]
    with lake.transaction() as tx:
        tx.sql("CREATE TABLE c AS SELECT a FROM n", n=FRAMES[kind]())
        query = tx.sql("SELECT count(*) AS n FROM c JOIN other USING (a)", other=FRAMES[kind]())
        assert query is not None
        # Rows of a query can be read any number of times.
        assert [query.to_arrow().to_pylist() for _ in range(2)] == [[{"n": 2}]] * 2


@pytest.mark.parametrize("kind", FRAMES)
def test_several_statements_name_one_frame(lake: DuckLake, kind: str) -> None:
    script = "CREATE TABLE c AS SELECT a FROM n; CREATE TABLE d AS SELECT b FROM n; SELECT count(*) AS n FROM c, d, n"
    assert rows(lake.sql(script, n=FRAMES[kind]())) == [(8,)]


@pytest.mark.parametrize(
    ("sql", "given", "message"),
    [
        ("FROM t", {"t": [{"a": 1}]}, "the lake has a t of its own"),
        ("SELECT 1", {"n": [{"a": 1}]}, "Unexpected argument 'n'. The SQL does not name a table n"),
        ("SELECT 1", {"timezon": "UTC"}, "Unexpected argument 'timezon'. Commit options are author"),
    ],
)
def test_wrong_frames_raise(lake: DuckLake, sql: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rows(lake.sql(sql, **given))


def test_frames_and_a_spark_session_raise(lake: DuckLake) -> None:
    class Session:
        pass

    query = lake.sql("FROM n", n=[{"a": 1}])
    assert isinstance(query, Query)
    with pytest.raises(UnsupportedFeatureError, match="leave out spark"):
        query.to_spark(Session())  # type: ignore[arg-type]


def test_rows_of_frames_are_written_once_after_a_conflict(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits between the computation of a statement and its commit: it runs again, with the same frame."""
    from ducklake_core.commit.committer import Committer

    original = Committer.commit
    others = [lambda: lake.sql("INSERT INTO t VALUES (1, 'other')")]

    def commit(self: Committer, request: Any) -> Any:
        if others:
            others.pop()()
        return original(self, request)

    monkeypatch.setattr(Committer, "commit", commit)
    lake.sql("UPDATE t SET b = n.b FROM n WHERE t.a = n.a", n=pa.table({"a": [1], "b": ["x"]}).to_reader())
    assert rows(lake.sql("SELECT b FROM t WHERE a = 1")) == [("x",), ("x",)]


def test_errors_of_frames_name_the_column(lake: DuckLake) -> None:
    with pytest.raises(DuckLakeError, match="Unexpected argument 'n'"):
        lake.sql("FROM n", n=pd.DataFrame({"a": [object()]}))


def test_parameters_and_frames_of_explain_and_call(lake: DuckLake) -> None:
    """The tokenizer makes one token of everything behind these words."""
    new = pa.table({"k": [1, 2]})
    plan = str(lake.sql("/* SELECT ? */ EXPLAIN ANALYZE SELECT k FROM new WHERE k > ? AND k < $2", [0, 2], new=new))
    assert plan.startswith("1 row in ")
    lake.sql("CALL lake.set_option(?, $2)", ["target_file_size", "2MB"])
    assert lake.options()["target_file_size"] == "2000000"
    with pytest.raises(UsageError, match="does not name a table none"):
        lake.sql("EXPLAIN SELECT k FROM new", new=new, none=new)
