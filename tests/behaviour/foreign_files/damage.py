"""Reads damaged files in a process of its own, because a defect of a reader may end the process. Run as a module by test_damage."""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.support.parquet_bytes import damaged, footer_of

ROWS = 40
COLUMNS = {
    "i": pa.array(range(ROWS), pa.int32()),
    "s": pa.array([None if i % 7 == 0 else "text" * (i % 3) for i in range(ROWS)]),
    "f": pa.array([i / 3 for i in range(ROWS)]),
    "t": pa.array([dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(ROWS)]).cast(pa.timestamp("us")),
    "d": pa.array([Decimal(i).scaleb(-2) for i in range(ROWS)], pa.decimal128(25, 2)),
    "l": pa.array([[i, None] if i % 3 else None for i in range(ROWS)], pa.list_(pa.int64())),
    "n": pa.array([{"x": i, "y": [str(i)]} for i in range(ROWS)], pa.struct([("x", pa.int16()), ("y", pa.list_(pa.string()))])),
    "m": pa.array([[("k", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.float32())),
}
FORMS = (
    {},
    {"use_dictionary": False, "compression": "none", "row_group_size": 13},
    {"data_page_version": "2.0", "compression": "zstd", "row_group_size": 17},
    {"use_dictionary": False, "column_encoding": {"i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT"}},
    {"version": "1.0", "use_deprecated_int96_timestamps": True, "write_page_index": True},
)
FILTERS = ("i > 30", "s = 'text' OR d < 0.05", "t >= TIMESTAMP '2020-02-01'", "i IS NULL")


class _KeepNothingError(Exception):
    """Ends a transaction whose changes are not wanted."""


def main(folder: Path, kind: str, first: int, last: int) -> Counter[str]:
    """Damage a file with each seed, add it and read it; return how many files had which outcome."""
    table = pa.table(COLUMNS)
    contents = []
    for number, form in enumerate(FORMS):
        pq.write_table(table, folder / f"{number}.parquet", **form)
        contents.append((folder / f"{number}.parquet").read_bytes())
    path = folder / "damaged.parquet"
    path.write_bytes(contents[0])
    lake = DuckLake.create(f"sqlite:///{folder}/lake.sqlite", data_path=f"{folder}/files/")
    lake.create_table("t", table.schema)
    lake.add_data_files("t", path)
    outcomes: Counter[str] = Counter({"added": 0, "not added": 0, "read": 0, "not read": 0})
    for seed in range(first, last):
        (folder / "seed").write_text(str(seed))
        content, other = contents[seed // 4 % len(contents)], contents[(seed // 4 + 1) % len(contents)]
        path.write_bytes(damaged(content, other, seed) if kind == "footer" else _damaged_pages(content, seed))
        outcomes["added" if _adds(lake, path) else "not added"] += 1
        outcomes["read" if _reads(lake, path, FILTERS[seed % len(FILTERS)]) else "not read"] += 1
    return outcomes


def _damaged_pages(content: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    data = bytearray(content)
    end = len(content) - 8 - len(footer_of(content))
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(4, end)
        match chance.randrange(3):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case _:
                length = min(chance.randint(1, 30), end - place)
                data[place : place + length] = bytes(length)
    return bytes(data)


def _adds(lake: DuckLake, path: Path) -> bool:
    try:
        with lake.transaction() as tx:
            tx.add_data_files("t", path, allow_duplicates=True, allow_missing=True, ignore_extra_columns=True)
            raise _KeepNothingError
    except _KeepNothingError:
        return True
    except DuckLakeError as error:
        assert path.name in str(error), error
        return False


def _reads(lake: DuckLake, path: Path, where: str) -> bool:
    try:
        found = [lake.table("t").scan(where=where).to_arrow(), lake.table("t").scan().to_arrow()]
    except DuckLakeError as error:
        assert path.name in str(error), error
        return False
    for rows in found:
        # Damaged pages without a checksum hold other values, but strings are strings.
        rows.select(["s", "n", "m"]).validate(full=True)
    return True


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(found))
