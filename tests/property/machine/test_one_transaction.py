"""Random sequences of writes, deletes, updates and alterations in one transaction: what it reads in between, and what is committed."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from tests.property.machine.one_table import Alter, OneTable, Rows, Step, steps
from tests.support.oracle import Oracle, attached, sqlite_lake
from tests.support.parameters import spread
from tests.support.postgres import PostgresServer

_QUIET = list(HealthCheck)
_PHASES = (Phase.explicit, Phase.generate)


def _read(table: Any) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.scan().to_arrow().to_pylist())


def _begun(lake: DuckLake) -> OneTable:
    """A table with rows in files and in the catalog, some of them deleted."""
    lake.set_option("data_inlining_row_limit", 10)
    rows = (*({1: key, 2: f"v{key}"} for key in range(20)), {1: 7, 2: None}, {1: 21, 2: "few"})
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())])
    with lake.transaction() as tx:
        tx.create_table("t", schema)
        tx.append("t", pa.Table.from_pylist([{"k": row[1], "v": row[2]} for row in rows[:20]], schema=schema))
    lake.table("t").append(pa.Table.from_pylist([{"k": row[1], "v": row[2]} for row in rows[20:]], schema=schema))
    lake.table("t").delete("k = 3")
    return OneTable(rows=tuple(row for row in rows if row[1] != 3))


def _agree(lake: DuckLake, duck: Oracle, table: OneTable) -> None:
    assert _read(lake.table(table.name)) == table.visible()
    assert sorted(map(repr, duck.rows(f"SELECT * FROM {table.name}"))) == table.visible()
    assert lake.table(table.name).scan().count() == len(table.rows)
    key = table.columns[0].name
    for low, high in ((0, 5), (6, 40)):
        expected = sum(low <= row[1] <= high for row in table.rows)
        assert duck.value(f'SELECT count(*) FROM {table.name} WHERE "{key}" BETWEEN {low} AND {high}') == expected
        assert lake.table(table.name).scan(where=f'"{key}" BETWEEN {low} AND {high}').count() == expected
    for column in table.columns[1:]:
        values = sorted({value for value in table.values(column) if value is not None})
        for value in values[:1] + values[-1:]:
            literal = repr(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
            expected = table.values(column).count(value)
            assert duck.value(f'SELECT count(*) FROM {table.name} WHERE "{column.name}" = {literal}') == expected
        nulls = table.values(column).count(None)
        assert duck.value(f'SELECT count(*) FROM {table.name} WHERE "{column.name}" IS NULL') == nulls
        assert lake.table(table.name).scan(where=f'"{column.name}" IS NULL').count() == nulls


def _run(data: st.DataObject, server: PostgresServer | None, *, meanwhile: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="one-transaction-") as folder:
        address = sqlite_lake(Path(folder)) if server is None else server.lake(Path(folder))
        with closing(DuckLake.create(address.url, data_path=address.data_path)) as lake:
            before = table = _begun(lake)
            taken: list[Step] = []
            keys: dict[str, int] = {}
            theirs = Rows(rows=({1: 5, 2: "theirs"}, {1: 29, 2: "theirs"}), given=(1, 2))
            with attached(address) as duck:
                with lake.transaction() as tx:
                    for _ in range(data.draw(st.integers(1, 9))):
                        step = steps(data.draw, table, set(keys.values()))
                        note(f"{step}")
                        if isinstance(step, Alter) and step.what == "set_not_null":
                            column = next(one for one in table.columns if one.number == step.number)
                            if None in table.values(column):
                                with pytest.raises(SchemaError, match="has NULL"):
                                    step.make(tx, table)
                                continue
                        if isinstance(step, Alter) and step.what.endswith(("partitioned_by", "sorted_by")):
                            keys[step.what.partition("_")[2]] = step.number
                        step.make(tx, table)
                        taken.append(step)
                        table = step.apply(table)
                        if not meanwhile:
                            seen = tx.table(table.name)
                            assert _read(seen) == table.visible()
                            assert seen.count() == len(table.rows)
                    if meanwhile:
                        duck.run("INSERT INTO t (k, v) VALUES (5, 'theirs'), (29, 'theirs')")
                if meanwhile:
                    # As if one had begun after the other: their rows come first, or last with what columns had at first.
                    first = theirs.apply(before)
                    last = before
                    for step in taken:
                        first, last = step.apply(first), step.apply(last)
                    last = OneTable(columns=last.columns, rows=(*last.rows, *theirs.rows), made=last.made, name=last.name)
                    found = _read(lake.table(table.name))
                    assert found in (first.visible(), last.visible())
                    table = first if found == first.visible() else last
                _agree(lake, duck, table)
                lake.merge_adjacent_files()
                _agree(lake, duck, table)
                # A column that comes later shows its default, whatever ids were used in between.
                duck.run(f"ALTER TABLE {table.name} ADD COLUMN later INTEGER DEFAULT 77")
                assert set(lake.table(table.name).scan(columns=["later"]).to_arrow()["later"].to_pylist()) <= {77}
                assert duck.value(f"SELECT count(*) FROM {table.name} WHERE later = 77") == len(table.rows)


def _many(backend: str, request: pytest.FixtureRequest, examples: int, *, meanwhile: bool) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres") if backend == "postgresql" else None

    @settings(deadline=None, suppress_health_check=_QUIET, database=None, derandomize=True, max_examples=examples, phases=_PHASES)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        _run(data, server, meanwhile=meanwhile)

    run()


@pytest.mark.parametrize("meanwhile", spread([False, True], 1))
def test_a_few(request: pytest.FixtureRequest, meanwhile: bool) -> None:
    _many("sqlite", request, 2, meanwhile=meanwhile)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_many(backend: str, request: pytest.FixtureRequest, meanwhile: bool) -> None:
    _many(backend, request, 60, meanwhile=meanwhile)
