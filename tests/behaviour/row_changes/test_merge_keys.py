"""Rows that readers leave out of a merge match nothing, whatever the type of the key, in small and in large files."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import merge
from ducklake_core.engines.arrow.merge import MergeSource, SourceIndex, merge_request, source_ids
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import write_table
from ducklake_core.engines.frame import columns_of
from ducklake_core.planning.planner import plan_scan
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached

NAN = float("nan")
IDS = [uuid.UUID(int=n).bytes for n in range(3)]
KEYS: list[tuple[str, str, pa.Array[Any]]] = [
    ("INTEGER", "range", pa.array([3, 3, 5, None, 4_000_000_000], pa.int64())),
    ("BIGINT", "range - 10", pa.array([-5, 7], pa.int8())),
    ("UBIGINT", "range", pa.array([Decimal(4), Decimal(31)], pa.decimal128(30, 0))),
    ("DECIMAL(9,2)", "range / 4", pa.array([Decimal("1.250"), Decimal("2.001")], pa.decimal128(12, 3))),
    ("DOUBLE", "CASE range WHEN 1 THEN 'nan'::DOUBLE WHEN 2 THEN -0.0 ELSE range END", pa.array([NAN, 0.0, 7.0, None])),
    ("VARCHAR", "'é' || range", pa.array(["é5", "É4", "e6", None])),
    ("DATE", "DATE '1969-12-20' + range::INTEGER", pa.array([-3, 4, None], pa.date32())),
    ("TIMESTAMP", "TIMESTAMP '1969-12-31' + to_hours(range)", pa.array([-3_600_000_000, 1], pa.timestamp("us"))),
    ("UUID", "('00000000-0000-0000-0000-0000000000' || printf('%02x', range))::UUID", pa.array(IDS, pa.uuid())),
    ("HUGEINT", "range", pa.array([3, 39, 40], pa.int64())),
    ("BOOLEAN", "range % 2 = 0", pa.array([True, None])),
    ("BLOB", "('x' || range)::BLOB", pa.array([b"x6", b"x"])),
]


def filtered(lake: DuckLake, source: pa.Table, on: list[str], where: str | None = None) -> tuple[list[int], list[int]]:
    """Numbers of the rows that are kept, and of those that match."""
    state = lake.table("t").state
    request = merge_request("main.t", state.schema, columns_of(source), on, [("matched", "delete", None, None)])
    held = MergeSource(schema=source_ids(columns_of(source)), rows=source)
    directory = f"{lake.info.data_path}source/"
    files = write_table(source, WriteState(table="s", directory=directory, schema=held.schema, storage=lake.storage))
    written = MergeSource(schema=held.schema, files=tuple(files), directory=directory)
    with lake.reader() as reader:
        plan = plan_scan(reader, state, None, where, virtual=("rowid", "file_row_number"))
    assert (held.narrowing(request) is None) == (source.column(0).type == pa.float64())
    assert written.narrowing(request) == held.narrowing(request)
    kept = []
    for one in (held, written):
        keys = one.keys(request)
        assert keys is not None
        matching = keys.load(lake.storage)
        batches = [batch for task in plan.tasks for batch in matching.rows(task, plan.shape, lake.storage)]
        kept.append(sorted(n for batch in batches for n in batch.column("n").to_pylist()))
    assert kept[0] == kept[1]
    parts = [(state.schema.columns[own], held.schema.columns[by_duckdb]) for own, by_duckdb in request.keys]
    index = SourceIndex(source.combine_chunks().to_batches()[0], parts)
    rows = lake.table("t").scan(where=where).to_arrow().combine_chunks().to_batches()
    return kept[0], sorted({batch.column("n")[int(place)].as_py() for batch in rows for place in index.pairs(batch, on)[0]})


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
def test_every_type(sqlite_address: LakeAddress, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(merge, "_WHOLE_BYTES", 0)
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        columns = ", ".join(f"k{place} {kind}" for place, (kind, *_) in enumerate(KEYS))
        values = ", ".join(f"CASE WHEN range = 20 THEN NULL ELSE {values} END" for _, values, _ in KEYS)
        duck.run(
            f"CREATE TABLE t (n INTEGER, c INTEGER, {columns})",
            f"INSERT INTO t SELECT range, range % 2, {values} FROM range(40)",
            "DELETE FROM t WHERE n IN (3, 30)",
        )
    lake = DuckLake.connect(sqlite_address.url)
    for place, (kind, _, keys) in enumerate(KEYS):
        source = pa.table({f"k{place}": keys})
        kept, matched = filtered(lake, source, [f"k{place}"])
        assert kept == matched, kind
        assert 0 < len(kept) < 38, kind
        kept, matched = filtered(lake, source, [f"k{place}"], "c = 1")
        assert kept == matched, kind
    lake.close()


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
def test_keys_of_two_columns(sqlite_address: LakeAddress, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is searched by itself: no matching row is left out, and few other rows are kept."""
    if not whole:
        monkeypatch.setattr(merge, "_WHOLE_BYTES", 0)
    lake = lake_of_files(sqlite_address)
    lake.write("t", pa.table({"n": list(range(100)), "a": [n % 10 for n in range(100)], "b": [str(n // 10) for n in range(100)]}))
    kept, matched = filtered(lake, pa.table({"a": [1, 2, None], "b": ["1", "2", "3"]}), ["a", "b"])
    assert matched == [11, 22]
    assert set(matched) <= set(kept)
    assert kept == [11, 12, 21, 22, 31, 32]
    lake.close()


def test_sources_whose_keys_are_not_sought() -> None:
    """All rows of the table matter, or the source is large."""
    source = MergeSource(schema=source_ids(columns_of(pa.schema([("k", pa.int64())]))), rows=pa.table({"k": range(300_000)}))
    target = columns_of(pa.schema([("k", pa.int64())]))
    small = MergeSource(schema=source.schema, rows=source.rows.slice(0, 10) if source.rows is not None else None)
    matched = merge_request("main.t", target, source.schema, ["k"], [("matched", "delete", None, None)])
    second = merge_request("main.t", target, source.schema, ["k"], [("not matched by source", "delete", None, None)])
    assert small.keys(matched) is not None
    assert small.keys(second) is None
    assert source.keys(matched) is None
