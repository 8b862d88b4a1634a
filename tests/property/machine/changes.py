"""One change of a table at a time: how we make it, how DuckDB does, and what it makes of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, assert_never

from hypothesis import strategies as st

from tests.property.machine.model import Row, TableModel, between, frame

if TYPE_CHECKING:
    from ducklake_core.transaction import Transaction

_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "it's", 'a "b", c', "ä\n", "NULL", "[x]"]))
_KEYS = st.integers(-5, 40)


@dataclass(frozen=True, kw_only=True)
class Append:
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Replace:
    """Overwrite low <= k < high; ``how`` is overwrite, delete or update, the latter two without rows."""

    how: str
    low: int
    high: int
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ByKey:
    """``how`` is upsert or merge; keys are unique."""

    how: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Define:
    """``what`` is "add n", "drop n", "partition" or "do not partition". Not by bucket: DuckDB then misses rows of older files."""

    what: str


Change: TypeAlias = Append | Replace | ByKey | Define


def _between(low: int, high: int) -> str:
    """``low <= k < high`` as no more than a few terms, or as very many."""
    if (low + high) % 3:
        return f"k >= {low} AND k < {high}"
    return " OR ".join(["k <> k", *(f"(k = {k} AND k < {high + n})" for k in range(low, high) for n in range(60))])


def appends() -> st.SearchStrategy[Append]:
    """Few rows, which go into the catalog, or many, which go to a file."""
    few = st.lists(st.tuples(_KEYS, _TEXTS, st.none()), max_size=4)
    many = st.integers(0, 5).map(lambda start: [(k, f"file {k}", None) for k in range(start, start + 14)])
    return st.one_of(few, many).map(lambda rows: Append(rows=tuple(rows)))


@st.composite
def replacements(draw: st.DrawFn) -> Replace:
    low = draw(_KEYS)
    high = low + draw(st.integers(0, 15))
    how = draw(st.sampled_from(["overwrite", "delete", "update"]))
    keys = draw(st.lists(st.integers(low, high - 1), max_size=12)) if how == "overwrite" and high > low else []
    return Replace(how=how, low=low, high=high, rows=tuple((k, draw(_TEXTS), None) for k in keys))


@st.composite
def by_key(draw: st.DrawFn) -> ByKey:
    keys = draw(st.lists(_KEYS, min_size=1, max_size=12, unique=True))
    return ByKey(how=draw(st.sampled_from(["upsert", "merge"])), rows=tuple((k, draw(_TEXTS), None) for k in keys))


def definitions() -> st.SearchStrategy[Define]:
    return st.sampled_from(["add n", "drop n", "partition", "do not partition"]).map(lambda what: Define(what=what))


def allowed(change: Change, table: TableModel) -> bool:
    """Whether the table's columns let it be made."""
    match change:
        case Define(what="add n"):
            return not table.has_n
        case Define(what="drop n"):
            return table.has_n
        case _:
            return True


def changed(change: Change, table: TableModel) -> TableModel:
    """The model afterwards."""
    match change:
        case Append(rows=rows):
            return table.append(rows)
        case Replace(how="overwrite", low=low, high=high, rows=rows):
            return table.delete(between(low, high)).append(rows)
        case Replace(how="delete", low=low, high=high):
            return table.delete(between(low, high))
        case Replace(low=low, high=high):
            return table.update(between(low, high))
        case ByKey(how="upsert", rows=rows):
            return table.upsert(rows)
        case ByKey(rows=rows):
            return table.merge(rows)
        case Define(what="add n"):
            return table.add_n()
        case Define(what="drop n"):
            return table.drop_n()
        case Define():
            return table
        case _:
            assert_never(change)


def make(change: Change, name: str, tx: Transaction, table: TableModel) -> None:
    """Make the change in a transaction of ours."""
    match change:
        case Append(rows=rows):
            tx.append(name, _frame(rows, table))
        case Replace(how="overwrite", low=low, high=high, rows=rows):
            tx.overwrite(name, _frame(rows, table), where=_between(low, high))
        case Replace(how="delete", low=low, high=high):
            tx.delete(name, _between(low, high))
        case Replace(low=low, high=high):
            tx.update(name, {"v": "v || '!'"}, where=_between(low, high))
        case ByKey(how="upsert", rows=rows):
            tx.upsert(name, _frame(rows, table), on=["k"])
        case ByKey(rows=rows):
            merge = tx.merge(name, frame(rows), on=["k"]).when_matched_update({"v": "s.v"})
            inserted = {"k": "s.k", "v": "s.v"} | ({"n": "7"} if table.has_n else {})
            merge.when_not_matched_insert(inserted).execute()
        case Define(what="add n"):
            tx.add_column(name, "n", "int32", default=7)
        case Define(what="drop n"):
            tx.drop_column(name, "n")
        case Define(what="partition"):
            tx.set_partitioned_by(name, ["v"])
        case Define():
            tx.reset_partitioned_by(name)
        case _:
            assert_never(change)


def statements(change: Change, name: str, table: TableModel) -> Sequence[str]:
    """The change as DuckDB makes it."""
    match change:
        case Append(rows=rows):
            return _inserts(name, rows)
        case Replace(how="update", low=low, high=high):
            return [f"UPDATE {name} SET v = v || '!' WHERE k >= {low} AND k < {high}"]
        case Replace(low=low, high=high, rows=rows):
            return [f"DELETE FROM {name} WHERE k >= {low} AND k < {high}", *_inserts(name, rows)]
        case ByKey(how="upsert", rows=rows):
            return [f"DELETE FROM {name} WHERE k IN ({', '.join(str(k) for k, _, _ in rows)})", *_inserts(name, rows)]
        case ByKey(rows=rows):
            listed = ", ".join(f"({k}::BIGINT, {_literal(v)}::VARCHAR)" for k, v, _ in rows)
            columns, values = ("(k, v, n)", "(s.k, s.v, 7)") if table.has_n else ("(k, v)", "(s.k, s.v)")
            matched = f"MERGE INTO {name} AS t USING (VALUES {listed}) AS s(k, v) ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v"
            return [f"{matched} WHEN NOT MATCHED THEN INSERT {columns} VALUES {values}"]
        case Define(what="add n"):
            return [f"ALTER TABLE {name} ADD COLUMN n INTEGER DEFAULT 7"]
        case Define(what="drop n"):
            return [f"ALTER TABLE {name} DROP COLUMN n"]
        case Define(what="partition"):
            return [f"ALTER TABLE {name} SET PARTITIONED BY (v)"]
        case Define():
            return [f"ALTER TABLE {name} RESET PARTITIONED BY"]
        case _:
            assert_never(change)


def _frame(rows: Sequence[Row], table: TableModel):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    plain = frame(rows)
    return plain.append_column("n", pa.array([7] * len(rows), pa.int32())) if table.has_n else plain


def _inserts(name: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    return [f"INSERT INTO {name} (k, v) VALUES {', '.join(f'({k}, {_literal(v)})' for k, v, _ in rows)}"]


def _literal(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
