"""Texts decoded as dictionaries and with wide offsets: rows are the same in whatever forms a file has them, and DuckDB's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import decoding, file_reader, text_forms
from tests.support.oracle import LakeAddress, attached

ROWS = 6000
ENCODINGS: dict[str, dict[str, Any]] = {
    "dictionaries": {},
    "dictionaries given up": {"dictionary_pagesize_limit": 500, "data_page_size": 1000},
    "no dictionaries": {"use_dictionary": False},
    "lengths apart": {"use_dictionary": False, "column_encoding": {"few": "DELTA_LENGTH_BYTE_ARRAY", "many": "DELTA_BYTE_ARRAY"}},
    "pages of version 2": {"data_page_version": "2.0", "max_rows_per_page": 700, "write_page_index": True},
    "types of Arrow stored": {"store_schema": True},
}
CONDITIONS = (
    None,
    "number = 4321",
    "few = 'value 7'",
    "few LIKE '%3' AND number % 5 = 0",
    "many >= 'text 59'",
    "nothing IS NULL AND number > 5000",
    "blob IS NOT NULL AND number % 3 = 1",
    "ratio < 20",
    "upper(few) = 'VALUE 9' OR few IS NULL",
)


def made_rows() -> pa.Table:
    """Texts of few values, of many, of none, blobs, texts inside of others, numbers beside NaN."""
    numbers = range(ROWS)
    return pa.table(
        {
            "number": np.arange(ROWS),
            "few": [None if n % 17 == 0 else f"value {n % 31}" for n in numbers],
            "many": [f"text {n * 7919 % ROWS} {'é' * (n % 5)}" for n in numbers],
            "nothing": pa.nulls(ROWS, pa.string()),
            "blob": pa.array([None if n % 5 == 0 else bytes([n % 11]) for n in numbers], pa.binary()),
            "words": [["a", None, f"w{n % 3}"][: n % 4] for n in numbers],
            "pair": [None if n % 9 == 0 else {"left": f"l{n % 7}", "right": n} for n in numbers],
            "ratio": [float("nan") if n % 13 == 0 else n / 40 for n in numbers],
        }
    )


@pytest.fixture(autouse=True)
def small_files_have_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "_FORMED_ROWS", 0)
    monkeypatch.setattr(decoding, "BATCH_ROWS", 640)


def _comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows of which NaN equals itself."""
    return [repr(tuple(bytes(value) if isinstance(value, bytearray | memoryview) else value for value in row)) for row in rows]


def _check(lake: DuckLake, address: LakeAddress, *more: str) -> None:
    names = ["rowid", *made_rows().column_names]
    with attached(address) as duck:
        for where in (*CONDITIONS, *more):
            expected = duck.rows(f"SELECT {', '.join(names)} FROM t WHERE {where or 'true'} ORDER BY rowid")
            found = lake.table("t").scan(columns=names, where=where).to_arrow().sort_by("rowid")
            assert _comparable([tuple(row.values()) for row in found.to_pylist()]) == _comparable(expected), where
            assert found.schema.field("few").type == pa.string()
            assert found.schema.field("blob").type == pa.binary()


@pytest.mark.takes_seconds
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_of_others(lake_address: LakeAddress, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "foreign.parquet"
    pq.write_table(made_rows(), path, row_group_size=2000, **{"store_schema": False, **ENCODINGS[encoding]})
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.connection.register("made", made_rows())
        duck.run("CREATE TABLE t AS FROM made LIMIT 0", f"CALL ducklake_add_data_files('lake', 't', '{path}')")
        duck.run("DELETE FROM t WHERE number % 7 = 3")
    _check(DuckLake.connect(lake_address.url), lake_address)


@pytest.mark.takes_seconds
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_files_of_both(lake_address: LakeAddress, encrypted: bool) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0" + (", ENCRYPTED" if encrypted else "")) as duck:
        duck.connection.register("made", made_rows())
        duck.run("CREATE TABLE t AS FROM made LIMIT 0", "CALL lake.set_option('parquet_row_group_size', '2048')", "INSERT INTO t FROM made")
        lake = DuckLake.connect(lake_address.url)
        lake.table("t").append(made_rows())
        duck.run("DELETE FROM t WHERE number % 7 = 3", "UPDATE t SET few = 'value 7' WHERE number % 1000 = 1")
    # Of files of others DuckDB believes bounds that leave NaN out.
    _check(lake, lake_address, "ratio > 100", "ratio >= 100", "ratio <> 3", "NOT ratio <= 100")


def _forms(path: Path, *columns: str) -> text_forms.TextForms:
    footer, schema = pq.read_metadata(path), pq.read_schema(path)
    places = [schema.names.index(name) for name in columns or schema.names]
    return text_forms.TextColumns(footer, schema, places).forms(range(footer.num_row_groups))


def test_which_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(made_rows(), path, row_group_size=2000)
    assert _forms(path, "number", "few", "many") == text_forms.TextForms(("few",), wide=True)
    # Texts inside of others would be wide, too.
    assert _forms(path, "few", "words") == text_forms.TextForms(("few",), wide=False)
    assert _forms(path, "number", "words") == text_forms.PLAIN
    pq.write_table(made_rows(), path, row_group_size=2000, **ENCODINGS["dictionaries given up"])
    assert _forms(path, "many") == text_forms.TextForms((), wide=True)
    pq.write_table(made_rows(), path, **ENCODINGS["lengths apart"])
    assert _forms(path, "few", "many") == text_forms.TextForms((), wide=True)


def test_texts_that_one_array_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are parted before texts are made plain, which a dictionary of long ones makes longer than Arrow's arrays can be."""
    monkeypatch.setattr(text_forms, "_MOST_BYTES", 1000)
    few = pa.array(["a" * 100, "b", None] * 10).dictionary_encode()
    batch = pa.record_batch({"few": few, "many": pa.array([f"{n}" * 20 for n in range(30)], pa.large_string()), "n": range(30)})
    parts = list(text_forms.fitting(batch))
    assert pa.Table.from_batches(parts).num_rows == 30
    assert max(part.num_rows for part in parts) * 100 <= 1000
    assert [value for part in parts for value in text_forms.plain(part.column("few"), pa.string()).to_pylist()] == few.to_pylist()
    assert list(text_forms.fitting(batch.slice(0, 0))) == [batch.slice(0, 0)]


def test_columns_side_by_side() -> None:
    first = pa.record_batch({"a": range(10)})
    second = pa.record_batch({"b": range(10), "c": range(10)})
    parts = [iter([first.slice(0, 3), first.slice(3)]), iter([second.slice(0, 7), second.slice(7, 0), second.slice(7)])]
    found = list(text_forms.side_by_side(parts, ["b", "a", "c"]))
    assert [batch.num_rows for batch in found] == [3, 4, 0, 3]
    assert pa.Table.from_batches(found).to_pydict() == {name: list(range(10)) for name in "bac"}
    short = list(text_forms.side_by_side([iter([first]), iter([second.slice(0, 4)])], ["a", "b", "c"]))
    assert [batch.num_rows for batch in short] == [4]
