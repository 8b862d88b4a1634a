"""Bounds as keys that SQLite compares: only a cell that is surely an integer gets one."""

from __future__ import annotations

import pytest
from sqlalchemy import column, create_engine, text

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.reading.pruning import integer_key

_CELLS = {
    "'12'": 12,
    "'-7'": -7,
    "'0'": 0,
    "'9223372036854775807'": 2**63 - 1,
    **dict.fromkeys(["''", "' 12'", "'12 '", "'+5'", "'007'", "'-0'", "'12x'", "'1e3'", "'1.0'", "'-'", "'9223372036854775808'"]),
    **dict.fromkeys(["x'3132'", "12.5", "NULL", "'true'", "'99999999999999999999'"]),
}


@pytest.mark.parametrize("declared", ["VARCHAR", "TEXT", "BLOB"])
def test_only_canonical_integers_have_a_key(declared: str) -> None:
    engine = create_engine("sqlite://")
    key = integer_key(column("cell"), abilities_of(engine.dialect)).compile(engine, compile_kwargs={"literal_binds": True})
    with engine.connect() as connection:
        connection.execute(text(f"CREATE TABLE bounds (cell {declared})"))
        for cell in _CELLS:
            connection.exec_driver_sql(f"INSERT INTO bounds VALUES ({cell})")
        assert connection.exec_driver_sql(f"SELECT {key} FROM bounds").scalars().all() == list(_CELLS.values())
    engine.dispose()
