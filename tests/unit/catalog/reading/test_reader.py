"""Catalog reads compared with DuckDB's own answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.types.data_types import DATE, FLOAT64, INT32, INT64, VARCHAR, DecimalType, Field, ListType, MapType, StructType
from ducklake_core.format.types.schema import Schema
from tests.support.oracle import LakeAddress, attached
from tests.support.statements import noted_statements
from tests.unit.catalog.catalog_access import database_of, reading


def plain(schema: Schema) -> list[tuple[int, str, str]]:
    """Ids, names and types of all nodes, without defaults."""
    return [(node.id, node.name, str(node.type)) for node in schema.walk()]


SECOND = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""Times of snapshots by their ids, out of order as clocks of several writers may be."""
TIMES = {0: 0.0, 1: 1.5, 2: 1.25, 3: 9.0, 4: 2.0, 5: 2.000001, 6: 7.0, 7: 3.999999}


def snapshots_in_time() -> dict[float, int | None]:
    """The newest snapshot not after each of many times."""
    moments = sorted({time + shift for time in TIMES.values() for shift in (-1, -0.000001, 0, 0.000001, 0.3)})
    return {moment: max((i for i, time in TIMES.items() if time <= moment), default=None) for moment in moments}


def found_in_time(address: LakeAddress) -> dict[float, int | None]:
    """The same, as the lake answers."""
    answers: dict[float, int | None] = {}
    with reading(address) as reader:
        for moment in snapshots_in_time():
            try:
                answers[moment] = reader.snapshot(timestamp=SECOND + timedelta(seconds=moment)).id
            except NotFoundError:
                answers[moment] = None
    return answers


def test_times_out_of_order(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(*(f"CREATE TABLE t{n} (a INT)" for n in range(len(TIMES) - 1)))
    database = database_of(lake_address)
    snapshot = database.tables["snapshot"]
    with database.write() as connection:
        for number, time in TIMES.items():
            at = SECOND + timedelta(seconds=time)
            connection.execute(snapshot.update().where(snapshot.c.snapshot_id == number).values(snapshot_time=at))
    database.close()
    assert found_in_time(lake_address) == snapshots_in_time()


def test_unusual_spellings_of_times(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*(f"CREATE TABLE t{n} (a INT)" for n in range(len(TIMES))))
    forms = ("{0:%Y-%m-%dT%H:%M:%S.%f}Z", "{0:%Y-%m-%d %H:%M:%S.%f}", "{1:%Y-%m-%d %H:%M:%S.%f}+05:30", "{2:%Y-%m-%d %H:%M:%S.%f}-02")
    database = database_of(sqlite_address)
    with database.write() as connection:
        for number, time in TIMES.items():
            at = SECOND + timedelta(seconds=time)
            form = forms[number % len(forms)].format(at, at + timedelta(hours=5, minutes=30), at - timedelta(hours=2))
            values = {"time": form, "number": number}
            connection.execute(text("UPDATE ducklake_snapshot SET snapshot_time = :time WHERE snapshot_id = :number"), values)
        connection.execute(text("UPDATE ducklake_snapshot SET snapshot_time = NULL WHERE snapshot_id = :number"), {"number": len(TIMES)})
    database.close()
    assert found_in_time(sqlite_address) == snapshots_in_time()


def test_invalid_snapshots_raise(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "CREATE TABLE u (a INT)", "CALL ducklake_expire_snapshots('lake', versions => [1])")
    with reading(lake_address) as reader:
        for missing in (1, 3, -1):
            with pytest.raises(NotFoundError, match=f"snapshot {missing}"):
                reader.snapshot(version=missing)
        with pytest.raises(UsageError, match="zone"):
            reader.snapshot(timestamp=datetime(2024, 1, 1))  # noqa: DTZ001
        with pytest.raises(UsageError):
            reader.snapshot()
        with pytest.raises(UsageError):
            reader.snapshot(version=0, timestamp=datetime.now(UTC))


def test_schema_evolution_at_every_snapshot(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT NOT NULL, s STRUCT(x INT, y VARCHAR[]), m MAP(VARCHAR, DECIMAL(10, 2)))")
        duck.run("ALTER TABLE t ADD COLUMN d DATE DEFAULT '2024-01-01'", "ALTER TABLE t RENAME a TO b", "ALTER TABLE t ALTER b TYPE BIGINT")
        duck.run("ALTER TABLE t ADD COLUMN s.z DOUBLE", "ALTER TABLE t DROP COLUMN m", "ALTER TABLE t RENAME TO u")
        duck.run("COMMENT ON TABLE u IS 'all of it'", "COMMENT ON COLUMN u.b IS 'the key'")
    struct = StructType(
        fields=(Field(id=3, name="x", type=INT32), Field(id=4, name="y", type=ListType(element=Field(id=5, name="element", type=VARCHAR))))
    )
    numbers = MapType(key=Field(id=7, name="key", type=VARCHAR), value=Field(id=8, name="value", type=DecimalType(precision=10, scale=2)))
    first = Schema(columns=(Field(id=1, name="a", type=INT32), Field(id=2, name="s", type=struct), Field(id=6, name="m", type=numbers)))
    with reading(lake_address) as reader:
        state = reader.table("main", "T", 1)
        assert plain(state.schema) == plain(first)
        assert not state.schema.column("a").nullable
        assert (state.next_column_id, state.schema_version, state.id) == (11, 1, 1), "ids are never reused, not even in the past"
        added = reader.table("main", "t", 2).schema.column("D")
        assert (added.id, added.type, added.initial_default, added.default) == (9, DATE, "2024-01-01", "2024-01-01")
        assert reader.table("main", "t", 3).schema.names == ("b", "s", "m", "d")
        assert reader.table("main", "t", 4).schema.column("b").type == INT64
        nested = reader.table("main", "t", 5).schema.column("s")
        assert [(child.id, child.name, child.type) for child in nested.children if child.name == "z"] == [(10, "z", FLOAT64)]
        assert reader.table("main", "t", 6).schema.names == ("b", "s", "d")
        with pytest.raises(NotFoundError):
            reader.table("main", "t", 7)
        last = reader.table("Main", "u", 9)
        assert (last.id, last.qualified_name, last.comment, last.column_comments) == (1, "main.u", "all of it", {1: "the key"})
        assert reader.table("main", "u", 7).comment is None
        assert reader.table_by_id(1, 2).name == "t"
        assert reader.table_by_id(1, 9) == last
        assert last.next_column_id == 11
        history = reader.column_history(1)
        assert [(row.column_name, row.begin_snapshot, end) for row, end in history if row.column_id == 1] == [
            ("a", 1, 3),
            ("b", 3, 4),
            ("b", 4, None),
        ]


def test_a_table_takes_six_round_trips(postgres: Any, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    with attached(address) as duck:
        duck.run("CREATE TABLE t (a INT, s VARCHAR)", "ALTER TABLE t SET PARTITIONED BY (s)", "INSERT INTO t VALUES (1, 'x')")
    with reading(address) as reader, noted_statements() as statements:
        reader.table("main", "t", 3)
    assert len(statements) == 6, statements
