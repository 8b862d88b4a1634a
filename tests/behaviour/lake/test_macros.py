"""Macros of ducklake_core: DuckDB calls them, and no definition that DuckDB cannot load is ever stored."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError, CommitConflictError, DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress, attached


def test_duckdb_calls_macros(lake: DuckLake, lake_address: LakeAddress) -> None:
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("t", {"a": "int32"})
        tx.create_macro("s.plus", {"a": "a", "a, b BIGINT := 5": "a + b -- the sum", "a, b, c": "a + b * c"})
        tx.create_macro("above", {"n": "SELECT a FROM main.t WHERE a > n ORDER BY a"}, kind="table")
        tx.create_macro("top", {"": "(SELECT max(a) FROM t)"})
        tx.create_macro("added", {"l": "list_transform(l, lambda x: x + 1)"})
        tx.create_macro(
            "constants",
            {
                "a TINYINT := 3, b DATE := '1969-12-31', c DOUBLE := 1.5, d JSON := '[1]', e BLOB := 'it', f TIME := TIME '10:00', "
                "g UUID := '00000000-0000-0000-0000-000000000001', h TIMESTAMPTZ := '2020-01-01 00:00:00+00', i BOOLEAN := false, "
                "j HUGEINT := 170141183460469231731687303715884105727, k := 'NULL'": "[typeof(a), b::VARCHAR, c::VARCHAR, d::VARCHAR, "
                "e::VARCHAR, f::VARCHAR, g::VARCHAR, typeof(h), i::VARCHAR, j::VARCHAR, k]"
            },
        )
    with attached(lake_address) as duck:
        duck.run("INSERT INTO t VALUES (1), (2), (3)")
        assert duck.rows("SELECT s.plus(1, 2, 3), s.plus(1, b := 3)") == [(7, 4)]
        assert duck.rows("FROM above(1)") == [(2,), (3,)]
        assert duck.rows("SELECT top(), added([1, 2])") == [(3, [2, 3])]
        assert duck.value("SELECT constants()") == [
            "TINYINT", "1969-12-31", "1.5", "[1]", "it", "10:00:00", "00000000-0000-0000-0000-000000000001",
            "TIMESTAMP WITH TIME ZONE", "false", "170141183460469231731687303715884105727", "NULL",
        ]  # fmt: skip
        duck.run("DROP MACRO TABLE above", "CREATE OR REPLACE MACRO top() AS 0")
    assert {macro.name: len(macro.implementations) for macro in lake.macros()} == {"plus": 3, "top": 1, "added": 1, "constants": 1}
    lake.create_macro("top", {"": "9"}, or_replace=True)
    lake.drop_macro("s.plus")
    with attached(lake_address) as duck:
        assert duck.value("SELECT top()") == 9


REJECTED: tuple[tuple[dict[str, str], type[DuckLakeError], str], ...] = (
    ({"x": "y + x"}, UsageError, "y in 'y . x' is no parameter"),
    ({"x": "x; DROP TABLE t"}, UsageError, "is one expression"),
    ({"x": "x, 2"}, UsageError, "is one expression"),
    ({"x": "x FROM t"}, UsageError, "is one expression"),
    ({"x": "x) --"}, UnsupportedFeatureError, "cannot parse"),
    ({"x": ""}, UsageError, "is one expression"),
    ({"x": "$1"}, UsageError, "must have named parameters"),
    ({}, UsageError, "needs definitions"),
    ({"x, X": "x"}, UsageError, "the same name"),
    ({"x := 1, y": "x"}, UsageError, "without a default"),
    ({"'x'": "1"}, UsageError, "is not a list of parameters"),
    ({"x,": "1"}, UsageError, "is not a list of parameters"),
    ({"a": "1", "b": "2"}, UsageError, "same number and types"),
    # DuckDB stores these, and can then no longer load the lake.
    ({"x := [1, 2]": "x"}, UnsupportedFeatureError, "must be a constant other than NULL"),
    ({"x := {'a': 1}": "x"}, UnsupportedFeatureError, "must be a constant other than NULL"),
    ({"x INTEGER := NULL": "x"}, UnsupportedFeatureError, "must be a constant other than NULL"),
    ({"x TINYINT := 300": "x"}, UsageError, "is not a value of type int8"),
    ({"x VARCHAR := 5": "x"}, UsageError, "is not a value of type varchar"),
    ({"x DATE := 'soon'": "x"}, UsageError, "soon"),
    ({"x INTEGER[]": "x"}, UnsupportedFeatureError, "a parameter cannot have the type"),
)


def test_invalid_definitions_raise(small: DuckLake) -> None:
    for definitions, error, text in REJECTED:
        with pytest.raises(error, match=text):
            small.create_macro("m", definitions)
    assert small.snapshot().id == 0


def test_names(small: DuckLake) -> None:
    small.create_macro("m", {"x": "x"})
    small.create_macro("m", {"x": "SELECT x"}, kind="table")
    with pytest.raises(AlreadyExistsError, match="scalar macro M already exists"):
        small.create_macro("M", {"x": "x"})
    with pytest.raises(NotFoundError, match="no schema"):
        small.create_macro("nowhere.m", {"x": "x"})
    with pytest.raises(UsageError, match="is one SELECT"):
        small.create_macro("n", {"x": "DROP TABLE t"}, kind="table")
    small.drop_macro("m", kind="table")
    with pytest.raises(NotFoundError, match="no table macro"):
        small.drop_macro("m", kind="table")
    assert small.drop_macro("m", kind="table", if_exists=True) is None
    assert small.create_macro("m", {"y": "y"}, if_not_exists=True) is None


def _meanwhile(small: DuckLake, change: Callable[[Transaction], object], other_change: Callable[[], object]) -> None:
    with small.transaction() as tx:
        change(tx)
        other_change()


def test_two_writers(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.create_schema("s")
    other = DuckLake.connect(sqlite_address.url)
    with pytest.raises(AlreadyExistsError, match="another writer has created it meanwhile"):
        _meanwhile(small, lambda tx: tx.create_macro("m", {"x": "x"}), lambda: other.create_macro("M", {"x": "x"}))
    _meanwhile(small, lambda tx: tx.create_macro("n", {"x": "x"}), lambda: other.create_macro("n", {"x": "SELECT x"}, kind="table"))
    with pytest.raises(CommitConflictError, match="dropped this schema"):
        _meanwhile(small, lambda tx: tx.create_macro("s.m", {"x": "x"}), lambda: other.drop_schema("s"))
    with pytest.raises(CommitConflictError):
        _meanwhile(small, lambda tx: tx.create_macro("m", {"y": "y"}, or_replace=True), lambda: other.drop_macro("m"))
    small.create_schema("u")
    with pytest.raises(CommitConflictError, match="created a macro in this schema"):
        _meanwhile(small, lambda tx: tx.drop_schema("u", cascade=True), lambda: other.create_macro("u.m", {"x": "x"}))
    with small.transaction() as tx:
        tx.create_macro("u.n", {"x": "x"})
        with pytest.raises(UsageError, match="contains m, n"):
            tx.drop_schema("u")
        tx.create_schema("w")
        tx.create_macro("w.n", {"x": "x"})
        tx.drop_schema("w", cascade=True)
        tx.drop_macro("u.n")
    assert [(macro.schema_name, macro.name, macro.kind) for macro in small.macros()] == [
        ("main", "n", "table"), ("main", "n", "scalar"), ("u", "m", "scalar"),
    ]  # fmt: skip
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT n(3), u.m(4)") == [(3, 4)]
    small.close()
    other.close()


def test_duckdb_cannot_load_defaults_of_null(small: DuckLake, sqlite_address: LakeAddress) -> None:
    """Defaults of NULL are rejected for this reason; when this test fails, they can be allowed."""
    small.close()

    def both() -> None:
        with attached(sqlite_address) as duck:
            duck.run("CREATE MACRO m(a := NULL::INTEGER) AS a")
        with attached(sqlite_address):
            pass

    with pytest.raises(duckdb.Error, match="Failed to cast value"):
        both()
