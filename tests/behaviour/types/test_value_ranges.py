"""Values at the edges of each type: stored and read back exactly by DuckDB too, or rejected before anything is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import write_state
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.schema import TYPE_KEY
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs

DAY = 86_400 * 10**6
LAST, FIRST = 2**63 - 2, -9223372022400 * 10**6
INSIDE: dict[str, tuple[pa.DataType, tuple[int, ...]]] = {
    "time": (pa.time64("us"), (0, 1, DAY - 1, DAY)),
    "date": (pa.date32(), (0, -(2**31) + 2, 2**31 - 2, 2**31 - 1, -(2**31) + 1)),
    "timestamp": (pa.timestamp("us"), (0, FIRST, LAST, 2**63 - 1, -(2**63) + 1)),
    "timestamptz": (pa.timestamp("us", "UTC"), (0, FIRST, LAST, 2**63 - 1, -(2**63) + 1)),
    "timestamp_ms": (pa.timestamp("ms"), (0, -9223372022400 * 1000, LAST // 1000, 2**63 - 1)),
    "timestamp_s": (pa.timestamp("s"), (0, -9223372022400, LAST // 10**6, 2**63 - 1)),
    "timestamp_ns": (pa.timestamp("ns"), (0, -9223286400 * 10**9, LAST, 2**63 - 1)),
}
OUTSIDE: dict[str, tuple[int, ...]] = {
    "time": (-1, DAY + 1, 25 * 3600 * 10**6),
    "date": (-(2**31),),
    "timestamp": (FIRST - 1, -(2**63), -(2**63) + 2),
    "timestamptz": (FIRST - 1, -(2**63)),
    "timestamp_ms": (-9223372022400 * 1000 - 1, LAST // 1000 + 1),
    "timestamp_s": (-9223372022401, LAST // 10**6 + 1),
    "timestamp_ns": (-9223286400 * 10**9 - 1, -(2**63)),
}


def _array(kind: str, values: list[int]) -> pa.Array[Any]:
    arrow, _ = INSIDE[kind]
    width = pa.int32() if arrow.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(arrow)


def _lake(address: LakeAddress, *kinds: str) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for kind in kinds:
        lake.create_table(kind, {"i": "int64", "v": kind, "l": f"{kind}[]"})
    return lake


def _frame(values: pa.Array[Any]) -> pa.Table:
    nested = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
    return pa.table({"i": pa.array(range(len(values)), pa.int64()), "v": values, "l": nested})


@on_all_catalogs
def test_inlined_values_at_the_edges_are_read_back(lake_address: LakeAddress) -> None:
    # DuckDB casts a timestamptz of the last milliseconds to text a millisecond late, so a DuckDB catalog cannot return it.
    late = "timestamptz" if lake_address.url.startswith("duckdb") else None
    _check_edges(
        lake_address, {kind: [value for value in INSIDE[kind][1] if kind != late or value != LAST] for kind in INSIDE}, inlined=True
    )


def test_values_at_the_edges_are_read_back_from_files(sqlite_address: LakeAddress) -> None:
    _check_edges(sqlite_address, {kind: list(values) for kind, (_, values) in INSIDE.items()}, inlined=False)


def _check_edges(address: LakeAddress, edges: dict[str, list[int]], *, inlined: bool) -> None:
    lake = _lake(address, *edges)
    for kind, numbers in edges.items():
        values = _array(kind, numbers)
        lake.table(kind).append(_frame(values), inline=inlined)
        found = lake.table(kind).scan(["v"]).to_arrow().column("v").combine_chunks()
        assert found.cast(values.type).equals(values), kind
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(address) as duck:
        for kind, values in edges.items():
            # ICU has no local time for the first and last instants.
            shown = "epoch_us(v)" if kind == "timestamptz" else "v::VARCHAR"
            assert len(duck.rows(f"SELECT {shown}, len(l) FROM lake.{kind}")) == len(values), kind
            assert duck.value(f"SELECT count(*) FROM lake.{kind} WHERE v IS NOT NULL") == len(values), kind


@pytest.mark.parametrize("inlined", [True, False])
def test_values_out_of_range_are_rejected(sqlite_address: LakeAddress, inlined: bool) -> None:
    lake = _lake(sqlite_address, *OUTSIDE)
    before = lake.snapshot().id
    for kind, value, column in ((kind, value, column) for kind, values in OUTSIDE.items() for value in values for column in ("v", "l")):
        frame = _frame(_array(kind, [0, value]))
        other = "l" if column == "v" else "v"
        frame = frame.set_column(frame.schema.get_field_index(other), other, pa.nulls(2, frame.schema.field(other).type))
        with pytest.raises(SchemaError, match=rf"main\.{kind}: row 1: column '{column}.*{value if kind != 'time' else ''}"):
            lake.table(kind).append(frame, inline=inlined)
        with pytest.raises(SchemaError, match=f"column '{column}"):
            lake.table(kind).upsert(frame, on="i")
    assert lake.snapshot().id == before
    assert all(lake.table(kind).count() == 0 for kind in OUTSIDE)


@pytest.mark.parametrize("inlined", [True, False])
def test_decimals_with_more_digits_than_their_type_are_rejected(small: DuckLake, inlined: bool) -> None:
    small.create_table("t", {"d": "decimal(5,2)"})
    raw = pa.array([b"\x01" + b"\x00" * 15, (10**9).to_bytes(16, "little")], pa.binary(16))
    wide = pa.Array.from_buffers(pa.decimal128(5, 2), 2, raw.buffers())
    with pytest.raises(SchemaError, match=r"row 1: column 'd': 10000000\.00 has more digits than decimal\(5,2\)"):
        small.table("t").append(pa.table({"d": wide}), inline=inlined)


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize(("keys", "message"), [(["a", "a"], "the key 'a' twice"), ([1, 1], "the key 1 twice")])
def test_maps_with_a_key_twice_are_rejected(small: DuckLake, inlined: bool, keys: list[Any], message: str) -> None:
    items = pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([keys[0], *keys]), pa.array([1, 2, 3]))
    single = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(keys[:1]), pa.array([1]))
    small.write("t", pa.table({"m": single}))
    with pytest.raises(SchemaError, match=rf"row 1: column 'm' has a map with {message}"):
        small.table("t").append(pa.table({"m": items}), inline=inlined)


def _unchecked(*_: object) -> None:
    """In place of the check: what earlier versions of this library wrote."""


@pytest.mark.parametrize(("kind", "value"), [("time", 25 * 3600 * 10**6), ("timestamp", FIRST - 1)])
def test_a_check_of_rows_finds_inlined_values_out_of_range(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, kind: str, value: int
) -> None:
    lake = _lake(sqlite_address, kind)
    monkeypatch.setattr("ducklake_core.engines.arrow.write_state.check_values", _unchecked)
    frame = _frame(_array(kind, [0, value])).select(["i", "v"])
    lake.table(kind).append(frame, inline=True, missing_columns="null")
    found = lake.check(level="rows").findings
    assert {finding.code for finding in found} & {"value-out-of-range", "rows-unreadable"}, found


def test_a_check_of_rows_finds_maps_with_a_key_twice(small: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    items = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["a", "a"]), pa.array([1, 2]))
    monkeypatch.setattr("ducklake_core.engines.arrow.write_state.check_values", _unchecked)
    small.write("t", pa.table({"m": items}), inline=False)
    (finding,) = small.check(level="rows").findings
    assert finding.code == "value-out-of-range"
    assert "key 'a' twice" in finding.what


INVALID_JSON = ("not json", "{", "", "01", "'a'", r'"\ud800"', "[1 2]", '{"a": 1} x')
VALID_JSON = ('{"a": [1, 2.50, null]}', " 1 ", "null", "NaN", r'"\ud83d\ude00"', "9" * 400)


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize("with_duckdb", [True, False], ids=["DuckDB", "Python"])
def test_strings_that_are_not_json_are_rejected(
    sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, inlined: bool, with_duckdb: bool
) -> None:
    if not with_duckdb:
        monkeypatch.setattr(write_state, "find_spec", lambda _: None)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.sql("CREATE TABLE t (j JSON, l STRUCT(j JSON[]))")
    for text in INVALID_JSON:
        for row, column in (({"j": text, "l": None}, "j"), ({"j": None, "l": {"j": ["1", text]}}, "l")):
            with pytest.raises(SchemaError, match=rf"main\.t: row 1: column '{column}': .* is not JSON"):
                lake.table("t").append([{"j": "1", "l": {"j": []}}, row], inline=inlined)
    with pytest.raises(SchemaError, match="column 'j': 'x' is not JSON"):
        lake.table("t").upsert([{"j": "x", "l": None}], on=["j"])
    assert lake.table("t").count() == 0
    rows = [{"j": text, "l": {"j": [text, None]}} for text in VALID_JSON]
    lake.table("t").append(rows, inline=inlined)
    assert lake.table("t").to_arrow().to_pylist() == rows
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT j FROM t ORDER BY rowid") == [(text,) for text in VALID_JSON]


@pytest.mark.parametrize("inlined", [True, False])
def test_a_check_of_rows_finds_strings_that_are_not_json(small: DuckLake, monkeypatch: pytest.MonkeyPatch, inlined: bool) -> None:
    small.sql("CREATE TABLE t (j JSON)")
    with monkeypatch.context() as patched:
        patched.setattr(write_state, "check_json", lambda values, column: None)
        small.table("t").append([{"j": "not json"}], inline=inlined)
    assert [(found.code, "is not JSON" in str(found)) for found in small.check(level="rows").findings] == [("value-out-of-range", True)]


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize(("kind", "value"), [("int128", 2**127), ("int128", -(2**127) - 1), ("uint128", -1)])
@pytest.mark.parametrize("declared", ["int128", "uint128"])
def test_integers_out_of_range_of_128_bits_are_rejected(small: DuckLake, inlined: bool, kind: str, value: int, declared: str) -> None:
    small.create_table("t", {"i": kind})
    wide = pa.array([1, value], pa.decimal256(39, 0))
    rows = pa.table([wide], schema=pa.schema([pa.field("i", wide.type, metadata={TYPE_KEY: declared.encode()})]))
    with pytest.raises(SchemaError, match="row 1: column 'i'"):
        small.table("t").append(rows, inline=inlined)
    assert small.table("t").count() == 0
