"""Timestamps with time zone so far in the future that DuckDB's own text of them is a millisecond off."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.format.types.data_types import TIMESTAMPTZ
from ducklake_core.format.values.value_text import to_cast_text
from tests.support.oracle import LakeAddress, attached

KIND = pa.timestamp("us", "UTC")
EXACT = 2**53 * 1000
"""Microseconds from which on milliseconds are no longer exact in a float of 64 bits: in the year 287396."""
VALUES = [EXACT - 1, EXACT + 999, EXACT + 1000, EXACT + 1001, EXACT + 3500, -EXACT - 1001, 2**63 - 2, 0, 2**63 - 1, 1 - 2**63, None]
NESTED = pa.struct([("l", pa.list_(KIND)), ("m", pa.map_(pa.string(), KIND)), ("z", KIND)])


def rows() -> pa.Table:
    nested = [None if value is None else {"l": [value, None], "m": [("it's, {k}", value)], "z": value} for value in VALUES]
    return pa.table(
        {
            "n": pa.array(range(len(VALUES)), pa.int64()),
            "z": pa.array(VALUES, pa.int64()).cast(KIND),
            "s": pa.array(nested, NESTED),
        }
    )


@pytest.mark.parametrize("lake_address", ["sqlite", "duckdb", "postgresql"], indirect=True)
def test_far_timestamps_are_read_as_they_were_written(lake_address: LakeAddress) -> None:
    data, address = rows(), lake_address
    with DuckLake.create(address.url, data_path=address.data_path) as lake:
        lake.write("files", data, inline=False)
        lake.write("inlined", data, inline=True)
        for name in ("files", "inlined"):
            assert lake.table(name).scan().to_arrow().sort_by("n").equals(data)
            literals = [to_cast_text(value, TIMESTAMPTZ) for value in VALUES if value is not None]
            found = [lake.table(name).scan(["n"], where=f"z = TIMESTAMPTZ '{one}'").to_arrow()["n"].to_pylist() for one in literals]
            assert found == [[number] for number in range(len(literals))]
    with attached(address) as duck:
        for name in ("files", "inlined"):
            assert duck.rows(f"SELECT epoch_us(z), epoch_us(s.z), epoch_us(s.l[1]) FROM {name} WHERE n < 8 ORDER BY n") == [
                (value, value, value) for value in VALUES[:8]
            ]
    with DuckLake.connect(address.url) as lake:
        lake.flush_inlined_data("inlined")
        assert lake.table("inlined").scan().to_arrow().sort_by("n").equals(data)


@pytest.mark.parametrize("lake_address", ["sqlite", "duckdb", "postgresql"], indirect=True)
def test_far_timestamps_that_duckdb_inlined_are_read(lake_address: LakeAddress) -> None:
    address = lake_address
    DuckLake.create(address.url, data_path=address.data_path).close()
    with attached(address) as duck:
        duck.run("CREATE TABLE t (z TIMESTAMPTZ, l TIMESTAMPTZ[])")
        duck.run(*(f"INSERT INTO t SELECT z, [z] FROM (SELECT make_timestamptz({value}) AS z)" for value in VALUES[:5]))
    with DuckLake.connect(address.url) as lake:
        found = lake.table("t").scan().to_arrow()
    assert found["z"].cast(pa.int64()).to_pylist() == VALUES[:5]
    assert found["l"].combine_chunks().flatten().cast(pa.int64()).to_pylist() == VALUES[:5]
