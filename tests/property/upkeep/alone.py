"""Histories without DuckDB, so on lakes of versions that it does not know, and by one object that is never closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.types.schema import to_arrow_schema
from tests.property.upkeep.keeping import Keeping
from tests.property.upkeep.verbs import Verb, draw_verb
from tests.property.upkeep.writing import change

if TYPE_CHECKING:
    from tests.support.oracle import LakeAddress

_KEYS: tuple[Sequence[str], ...] = ((), (), ("p",), ("bucket(3, k)",), ("year(d)", "p"), ("month(d)",), ("s",))
_ORDERS: tuple[Sequence[str], ...] = ((), (), ("k DESC",), ("n NULLS FIRST", "k"), ("s", "f DESC NULLS LAST"))
_TEXTS = ("", "ä", "it's", "a/b=c", "  x", "NULL", "\n", "%41", "z" * 100)
_NUMBERS = (float("nan"), float("inf"), -0.0, 0.0, 1.5, -1e300, 5e-324)
_BLOBS = (b"", b"\x00\xff", b"abc")
_LISTS: tuple[list[Any], ...] = ([], [None], [{"x": 1, "y": None}, {"x": None, "y": "'"}])
_NULLS = _EXTREMES = 0.1
_TYPES = {
    "k": pa.int64(),
    "p": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us", tz="UTC"),
    "n": pa.decimal128(20, 3),
    "f": pa.float64(),
    "s": pa.string(),
    "b": pa.binary(),
    "l": pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
}


@dataclass(kw_only=True)
class KeepingAlone(Keeping):
    """One lake that only we change, which ``lake.check`` has nothing to say of at any time."""

    version: Literal["1.0", "1.1"]
    encrypted: bool
    left_by_others: frozenset[str] = frozenset()
    tells_apart: bool = True

    def live(self, seeds: Sequence[int]) -> None:
        """A step for each seed: some changes, then some maintenance."""
        lake = DuckLake.create(self.address.url, data_path=self.address.data_path, version=self.version, encrypted=self.encrypted)
        try:
            self._make_tables(lake, Random(seeds[0]))
            for seed in seeds:
                draw = Random(seed)
                for _ in range(draw.randint(0, 4)):
                    act = draw.choice((change, change, change, _define, _write_many))
                    self.done.append(act(lake, draw))
                for _ in range(draw.randint(1, 2)):
                    for verb in _verbs(lake, draw):
                        self._keep(lake, draw, verb)
                        self.readings += len(self._ours_read)
        except BaseException as error:
            error.add_note("\n".join(self.done))
            raise
        finally:
            lake.close()

    def _make_tables(self, lake: DuckLake, draw: Random) -> None:
        for name in ("t", '"odd , ""name"""'):
            keys, order = draw.choice(_KEYS), draw.choice(_ORDERS)
            table = lake.create_table(name, pa.schema(list(_TYPES.items())), partition_by=keys)
            if order:
                table.set_sorted_by(order)
            for count in (3, 60, 200):
                table.append(_rows(draw, pa.schema(list(_TYPES.items())), count), inline=draw.choice((None, None, True)))
            self.done.append(f"created {name} by {keys}, sorted by {order}")


def make_keeping(address: LakeAddress, version: Literal["1.0", "1.1"], draw: Random) -> KeepingAlone:
    return KeepingAlone(address, "", version=version, encrypted=draw.random() < 0.25)


def _verbs(lake: DuckLake, draw: Random) -> list[Verb]:
    """Any verb; or a rewrite within a budget, which takes no small neighbours along, and a merge of what it made with these."""
    if draw.random() < 0.6:
        return [draw_verb(lake, draw)]
    rewrite = Verb("rewrite", lake.rewrite_data_files, {"delete_threshold": 0.0, "max_files": draw.randint(2, 6)})
    return [rewrite, Verb("merge", lake.merge_adjacent_files, {})]


def _rows(draw: Random, schema: pa.Schema, count: int) -> pa.Table:
    return pa.table({field.name: _values(draw, field.type, count) for field in schema}, schema=schema)


def _values(draw: Random, kind: pa.DataType, count: int) -> list[Any]:
    """Values of a column, with NULLs among them."""
    day = date(1969, 12, 31) + timedelta(days=draw.randint(-900, 900))
    return [None if draw.random() < _NULLS else _value(draw, kind, day + timedelta(days=draw.randrange(40))) for _ in range(count)]


def _value(draw: Random, kind: pa.DataType, day: date) -> Any:
    if pa.types.is_integer(kind):
        return draw.randint(-(2**31), 2**31 - 1) if draw.random() < _EXTREMES else draw.randrange(100)
    if pa.types.is_date(kind):
        return day
    if pa.types.is_timestamp(kind):
        return datetime(day.year, day.month, day.day, draw.randrange(24), 59, 59, 999999, tzinfo=UTC)
    if pa.types.is_decimal(kind):
        return Decimal(draw.randint(-(10**9), 10**9)) / 1000
    return draw.choice(
        _NUMBERS if pa.types.is_floating(kind) else _TEXTS if pa.types.is_string(kind) else _BLOBS if pa.types.is_binary(kind) else _LISTS
    )


def _write_many(lake: DuckLake, draw: Random) -> str:
    table = lake.table(draw.choice(lake.tables()).table)
    rows = _rows(draw, to_arrow_schema(table.schema), draw.choice((1, 8, 30, 120)))
    table.append(rows)
    return f"append {len(rows)} rows to {table.name}"


def _define(lake: DuckLake, draw: Random) -> str:
    """Columns come, go, are renamed and widened; keys and orders are others from now on."""
    table = lake.table(draw.choice(lake.tables()).table)
    column, number = draw.choice(table.schema.names), draw.randrange(1000)
    told, act = draw.choice(_definitions(column, number, draw))
    try:
        act(table)
    except DuckLakeError as refused:
        return f"{told} of {table.name}: {str(refused)[:80]}"
    return f"{told} of {table.name}"


def _definitions(column: str, number: int, draw: Random) -> tuple[tuple[str, Callable[[Any], object]], ...]:
    keys, order = draw.choice(_KEYS), draw.choice(_ORDERS)
    return (
        (f"new column c{number}", lambda table: table.add_column(f"c{number}", draw.choice(("int", "varchar")), default=None)),
        (f"new column d{number} with a default", lambda table: table.add_column(f"d{number}", "int", default=number)),
        (f"no more column {column}", lambda table: table.drop_column(column)),
        (f"column {column} renamed", lambda table: table.rename_column(column, f"r{number}")),
        (f"column {column} widened", lambda table: table.set_column_type(column, draw.choice(("bigint", "double")))),
        (f"keys {keys}", lambda table: table.set_partitioned_by(keys) if keys else table.reset_partitioned_by()),
        (f"order {order}", lambda table: table.set_sorted_by(order) if order else table.reset_sorted_by()),
    )
