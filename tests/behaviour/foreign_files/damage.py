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
from tests.behaviour.foreign_files.generated import OTHER_WRITERS
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


UNSUPPORTED = ("carquet_plain", "carquet_version_2", "fastparquet_fixed_text", "rust_split")
"""Files of other writers that have no Arrow schema, or that DuckDB cannot read."""


class _KeepNothingError(Exception):
    """Ends a transaction whose changes are not wanted."""


def main(folder: Path, kind: str, first: int, last: int) -> Counter[str]:
    """Damage a file with each seed, add it and read it; return how many files had which outcome."""
    if kind == "writers":
        sources = [path for path in sorted(OTHER_WRITERS.glob("*.parquet")) if path.stem not in UNSUPPORTED]
    else:
        sources = [folder / f"{number}.parquet" for number in range(len(FORMS))]
        for source, form in zip(sources, FORMS, strict=True):
            pq.write_table(pa.table(COLUMNS), source, **form)
    contents = [source.read_bytes() for source in sources]
    path = folder / "damaged.parquet"
    lake = DuckLake.create(f"sqlite:///{folder}/lake.sqlite", data_path=f"{folder}/files/")
    tables = [f"t{number}" for number in range(len(sources))]
    for table, source, content in zip(tables, sources, contents, strict=True):
        lake.create_table(table, pq.read_schema(source))
        path.write_bytes(content)
        lake.add_data_files(table, path, allow_duplicates=True)
    outcomes: Counter[str] = Counter({"added": 0, "not added": 0, "read": 0, "not read": 0})
    for seed in range(first, last):
        (folder / "seed").write_text(str(seed))
        number = seed // 4 % len(contents)
        content, other, table = contents[number], contents[(number + 1) % len(contents)], tables[number]
        path.write_bytes(_damaged_pages(content, seed) if kind == "pages" else damaged(content, other, seed))
        where = f'"{lake.table(table).schema.names[0]}" IS NOT NULL' if kind == "writers" else FILTERS[seed % len(FILTERS)]
        outcomes["added" if _adds(lake, table, path) else "not added"] += 1
        outcomes["read" if _reads(lake, table, path, where) else "not read"] += 1
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


def _adds(lake: DuckLake, table: str, path: Path) -> bool:
    try:
        with lake.transaction() as tx:
            tx.add_data_files(table, path, allow_duplicates=True, allow_missing=True, ignore_extra_columns=True)
            raise _KeepNothingError
    except _KeepNothingError:
        return True
    except DuckLakeError as error:
        assert path.name in str(error), error
        return False


def _reads(lake: DuckLake, table: str, path: Path, where: str) -> bool:
    try:
        found = [lake.table(table).scan(where=where).to_arrow(), lake.table(table).scan().to_arrow()]
    except DuckLakeError as error:
        assert path.name in str(error), error
        return False
    for rows in found:
        # Damaged pages without a checksum hold other values, but strings are strings.
        rows.select([name for name in ("s", "n", "m") if name in rows.column_names]).validate(full=True)
    return True


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(found))
