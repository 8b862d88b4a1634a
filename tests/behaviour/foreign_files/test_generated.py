"""Random files of many writers: added with equal rows and right filters, or rejected for a reason that the page states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thrift.Thrift import TType

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.storage.encryption.compact import Items, Struct
from tests.behaviour.foreign_files.added import put
from tests.behaviour.foreign_files.examined import examine
from tests.behaviour.foreign_files.generated import LEAVES, OTHER_WRITERS, as_array, sample
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow
from tests.support.parquet_bytes import CONVERTED, SCHEMA, change_footer, chunks_of

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "adding-files.md"
REASONS = {
    "does not fit column": "whose type does not fit",
    "which DuckLake has no type for|cannot read the type|has an empty name": "no type of DuckLake",
    "^no table: (Integers|Decimal|UTF8|Logical|DECIMAL)|has columns of types that are not supported": "Arrow cannot read",
    "is nested in a form that is not supported": "Arrow reads as another structure",
    "added with DuckDB's ducklake_add_data_files only": "`variant` and `geometry` columns",
    "which no Parquet type stores exactly": "for `hugeint`",
    "bounds of column .* are not values|decimals of .* digits": "a footer that contradicts itself",
    "BYTE_STREAM_SPLIT": "`BYTE_STREAM_SPLIT`",
    "converted type": "without the converted type",
    "without the annotation LIST": "without the annotation LIST",
    "is a list of structs": "lists of structs in two levels",
    "is a list of maps": "lists of maps",
    "is a map of": "maps whose entries are not called",
}
"""Parts of errors, with words of the page on the reason."""


@pytest.mark.parametrize(
    "seeds", [range(25, 30), *(slow(range(start, start + 50)) for start in range(0, 500, 50))], ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}"
)
def test_random_files(sqlite_address: LakeAddress, tmp_path: Path, seeds: range) -> None:
    lake = lake_of_files(sqlite_address)
    wrong: list[str] = []
    outcomes: Counter[str] = Counter()
    with attached(sqlite_address) as duck:
        for seed in seeds:
            made = sample(seed, tmp_path)
            found = examine(lake, duck, f"t{seed}", made.path, by_arrow=seed % 3 != 0)
            outcomes[found.outcome] += 1
            if found.rejected and not any(re.search(part, found.rejected) for part in REASONS):
                wrong.append(f"{seed} {made.description}: rejected: {found.rejected}")
            wrong += [f"{seed} {made.description}: {one}" for one in found.wrong]
            wrong += [f"{seed} {made.description}: {one}" for one in found.wrong_in_duckdb if one.startswith("rows")]
    print(dict(outcomes))
    assert wrong == []
    assert outcomes["equal"] > 0


def test_the_page_states_every_reason() -> None:
    text = " ".join(PAGE.read_text().split())
    assert [phrase for phrase in REASONS.values() if phrase not in text] == []


@pytest.mark.parametrize("name", ["fastparquet_decimal", *(slow(path.stem) for path in sorted(OTHER_WRITERS.glob("*.parquet")))])
def test_files_of_writers_that_are_not_installed(sqlite_address: LakeAddress, name: str) -> None:
    """Both carquet's decimals and fastparquet's strings of fixed length have no type in Arrow."""
    lake = lake_of_files(sqlite_address)
    with attached(sqlite_address) as duck:
        found = examine(lake, duck, "t", OTHER_WRITERS / f"{name}.parquet", by_arrow=not name.startswith("carquet"))
    if name in ("fastparquet_fixed_text", "rust_split"):
        assert re.search("UTF8 can only annotate|BYTE_STREAM_SPLIT", found.rejected)
    else:
        assert (found.rejected, found.wrong) == ("", [])
        assert [one for one in found.wrong_in_duckdb if one.startswith("rows")] == []


@pytest.mark.parametrize("name", ["duration[us]", *(slow(str(data_type)) for data_type, _ in LEAVES)])
def test_every_arrow_type_by_the_schema_of_a_file(sqlite_address: LakeAddress, tmp_path: Path, name: str) -> None:
    data_type, values = next(one for one in LEAVES if str(one[0]) == name)
    path = tmp_path / "f.parquet"
    try:
        pq.write_table(pa.table({"a": as_array(data_type, [*values, None])}), path)
    except pa.ArrowNotImplementedError:
        assert pa.types.is_interval(data_type)
        return
    lake = lake_of_files(sqlite_address)
    with attached(sqlite_address) as duck:
        found = examine(lake, duck, "t", path, by_arrow=True)
    if pa.types.is_duration(data_type):
        assert "Parquet has no type for durations" in found.rejected
    elif data_type == pa.decimal256(60, 5):
        assert "DuckLake has no type for" in found.rejected
    else:
        assert (found.rejected, found.wrong) == ("", [])
        assert [one for one in found.wrong_in_duckdb if one.startswith("rows")] == []


def without_converted_types(tree: Struct) -> None:
    for element in tree.structs(SCHEMA):
        element.drop(CONVERTED)


def with_encoding(number: int) -> Callable[[Struct], None]:
    def change(tree: Struct) -> None:
        for chunk in chunks_of(tree, 0):
            chunk[2] = (TType.LIST, Items(TType.I32, [number]))

    return change


def with_codec(number: int) -> Callable[[Struct], None]:
    def change(tree: Struct) -> None:
        for chunk in chunks_of(tree, 0):
            chunk[4] = (TType.I32, number)

    return change


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["ä"]),
        pa.array([2**32 - 1], pa.uint32()),
        pa.array([1], pa.date32()),
        pa.array([1]).cast(pa.decimal128(20, 0)),
        pa.array([[1]]),
    ],
    ids=lambda column: str(column.type),
)
def test_logical_types_without_converted_types(sqlite_address: LakeAddress, tmp_path: Path, column: pa.Array) -> None:
    """DuckDB does not read such types: strings are blobs to it."""
    lake, path = lake_of_files(sqlite_address), put(tmp_path / "f.parquet", pa.table({"a": column}))
    change_footer(path, without_converted_types)
    lake.create_table("t", pq.read_schema(path))
    with pytest.raises(UnsupportedFeatureError, match=r"column 'a' of .*has a logical type without the converted type"):
        lake.add_data_files("t", path)
    lake.add_data_files("t", path, for_duckdb=False)
    assert lake.table("t").scan().to_arrow()["a"].to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    ("change", "message"),
    [(with_encoding(10), "has the encoding 10 of"), (with_codec(3), "has the compression LZO"), (with_codec(9), "has the compression 9")],
)
def test_pages_that_cannot_be_decoded(sqlite_address: LakeAddress, tmp_path: Path, change: Callable[[Struct], None], message: str) -> None:
    lake, path = lake_of_files(sqlite_address), put(tmp_path / "f.parquet", pa.table({"a": [1]}))
    lake.create_table("t", pq.read_schema(path))
    with pytest.raises(UnsupportedFeatureError, match=rf"column 'a' of .*f\.parquet {message}"):
        lake.add_data_files("t", change_footer(path, change), for_duckdb=False)


@pytest.mark.parametrize("compression", ["lz4_hadoop", "split"])
def test_pages_that_duckdb_cannot_decode(sqlite_address: LakeAddress, tmp_path: Path, compression: str) -> None:
    lake, path = lake_of_files(sqlite_address), tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path, use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT")
    if compression == "lz4_hadoop":
        change_footer(path, with_codec(5))
    lake.create_table("t", pq.read_schema(path))
    with pytest.raises(UnsupportedFeatureError, match=r"column 'a' of .*(BYTE_STREAM_SPLIT|LZ4).*for_duckdb=False"):
        lake.add_data_files("t", path)


def test_durations_are_rejected_with_a_way_out(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    lake, path = lake_of_files(sqlite_address), put(tmp_path / "f.parquet", pa.table({"a": pa.array([1], pa.duration("us"))}))
    lake.create_table("t", pq.read_schema(path))
    with pytest.raises(SchemaError, match=r"int64, as Parquet has no type for durations, and does not fit column 'a' .* of type interval"):
        lake.add_data_files("t", path)
    lake.write("t", pq.read_table(path))
    lake.create_table("n", {"a": "int64"})
    lake.add_data_files("n", path)
    assert lake.table("n").scan().to_arrow()["a"].to_pylist() == [1]


def test_nanoseconds_for_a_column_of_times(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    lake = lake_of_files(sqlite_address)
    path = put(tmp_path / "f.parquet", pa.table({"a": pa.array([5001, 86_399_000_000_999], pa.time64("ns"))}))
    lake.sql("CREATE TABLE t (a TIME)")
    lake.add_data_files("t", path)
    with attached(sqlite_address) as duck:
        rows = [(value,) for value in lake.table("t").scan().to_arrow()["a"].to_pylist()]
        assert rows == duck.rows("SELECT a FROM t")
        assert lake.table("t").scan(where="a = TIME '23:59:59.000000'").to_arrow().num_rows == 1
