"""Bounds of row groups that came in several batches, of which Parquet's footer has only some."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core.format.options import Options
from ducklake_core.format.types.data_types import BLOB
from ducklake_core.format.types.schema import from_arrow_schema, with_ids
from ducklake_core.format.values.value_text import to_text
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_writer import FileWriter

SCHEMA = pa.schema({"s": pa.string(), "b": pa.binary(), "l": pa.list_(pa.string()), "o": pa.struct({"x": pa.string()})})
LONG = 5000


def text(dice: random.Random) -> str | None:
    letter = dice.choice("aäbyz€")
    return dice.choices([None, letter * LONG, letter, ""], [2, 1, 5, 1])[0]


def batches(dice: random.Random) -> Iterator[pa.RecordBatch]:
    for _ in range(dice.randint(1, 6)):
        rows = [text(dice) for _ in range(dice.randint(1, 3))]
        columns = [
            pa.array(rows),
            pa.array([None if one is None else one.encode() for one in rows], pa.binary()),
            pa.array([dice.choice([None, [], [one], [one, text(dice)]]) for one in rows], pa.list_(pa.string())),
            pa.array([dice.choice([None, {"x": one}]) for one in rows], pa.struct({"x": pa.string()})),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_are_those_of_all_batches(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    given = list(batches(dice))
    options = Options(parquet_row_group_size=dice.choice([2, 4, 100]))
    writer = FileWriter(Storage(), f"{tmp_path}/", "f.parquet", with_ids(from_arrow_schema(SCHEMA)), options=options)
    for batch in given:
        writer.write(batch)
    file = writer.close()
    rows = pa.Table.from_batches(given).to_pydict()
    leaves: list[list[Any]] = [
        [one for one in rows["s"] if one is not None],
        [one for one in rows["b"] if one is not None],
        [one for many in rows["l"] for one in many or () if one is not None],
        [one["x"] for one in rows["o"] if one is not None and one["x"] is not None],
    ]
    for values, found in zip(leaves, file.statistics, strict=True):
        assert found.value_count == len(values)
        cut = found.exact_min is not None
        known = (found.exact_min, found.exact_max) if cut else (found.min_value, found.max_value)
        least, greatest = (min(values), max(values)) if values else (None, None)
        assert known == ((to_text(least, BLOB), to_text(greatest, BLOB)) if isinstance(least, bytes) else (least, greatest))
