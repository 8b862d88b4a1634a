"""One table in plain Python, columns by identity, and random steps of one transaction on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from ducklake_core.transaction import Transaction

_ARROW = {"int32": pa.int32(), "int64": pa.int64(), "varchar": pa.string()}
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "it's", 'a "b", c', "NULL", "[x]"]))
_VALUES = {
    "int32": st.one_of(st.none(), st.integers(-9, 9)),
    "int64": st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    "varchar": _TEXTS,
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """``first`` is what rows have that were there before the column, ``default`` what rows have that leave it out."""

    number: int
    name: str
    kind: str
    first: Any = None
    default: Any = None
    nullable: bool = True


@dataclass(frozen=True, kw_only=True)
class OneTable:
    """Rows map the numbers of columns to values; a number that is missing stands for what the column had at first."""

    columns: tuple[Column, ...] = (Column(number=1, name="k", kind="int32", nullable=False), Column(number=2, name="v", kind="varchar"))
    rows: tuple[dict[int, Any], ...] = ()
    made: int = field(default=2)
    name: str = "t"

    def visible(self) -> list[str]:
        return sorted(repr(tuple(row.get(column.number, column.first) for column in self.columns)) for row in self.rows)

    def having(self, column: Column, **changes: Any) -> OneTable:
        return replace(self, columns=tuple(replace(one, **changes) if one == column else one for one in self.columns))

    def values(self, column: Column) -> list[Any]:
        return [row.get(column.number, column.first) for row in self.rows]


def _defaults(kind: str) -> st.SearchStrategy[Any]:
    # The text NULL stands for no default in the catalog.
    return _VALUES[kind].filter(lambda value: value != "NULL")


class Step:
    """What it does to the model, and to a transaction of ours; the model is the table before it."""

    def apply(self, table: OneTable) -> OneTable:
        raise NotImplementedError

    def make(self, tx: Transaction, table: OneTable) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Rows(Step):
    """Append rows, or put them in the place of those with low <= k <= high; columns without a value are left out of the frame."""

    rows: tuple[dict[int, Any], ...]
    given: tuple[int, ...]
    span: tuple[int, int] | None = None

    def apply(self, table: OneTable) -> OneTable:
        left = table.rows if self.span is None else tuple(row for row in table.rows if not self.span[0] <= row[1] <= self.span[1])
        defaults = {column.number: column.default for column in table.columns}
        return replace(table, rows=(*left, *(defaults | row for row in self.rows)))

    def make(self, tx: Transaction, table: OneTable) -> None:
        chosen = [column for column in table.columns if column.number in self.given]
        arrays = [pa.array([row[column.number] for row in self.rows], _ARROW[column.kind]) for column in chosen]
        data = pa.Table.from_arrays(arrays, names=[column.name for column in chosen])
        if self.span is None:
            tx.append(table.name, data)
        else:
            tx.overwrite(table.name, data, where=f'"{table.columns[0].name}" BETWEEN {self.span[0]} AND {self.span[1]}')


@dataclass(frozen=True)
class Change(Step):
    """Delete rows with low <= k <= high, or give a column of them a value."""

    span: tuple[int, int]
    number: int | None = None
    value: Any = None

    def apply(self, table: OneTable) -> OneTable:
        low, high = self.span
        if self.number is None:
            return replace(table, rows=tuple(row for row in table.rows if not low <= row[1] <= high))
        return replace(table, rows=tuple(row | {self.number: self.value} if low <= row[1] <= high else row for row in table.rows))

    def make(self, tx: Transaction, table: OneTable) -> None:
        where = f'"{table.columns[0].name}" BETWEEN {self.span[0]} AND {self.span[1]}'
        if self.number is None:
            tx.delete(table.name, where)
        else:
            name = next(column.name for column in table.columns if column.number == self.number)
            text = "'" + self.value.replace("'", "''") + "'" if isinstance(self.value, str) else self.value
            tx.update(table.name, {name: text}, where=where)


@dataclass(frozen=True)
class Alter(Step):
    """``what`` is a verb of a transaction; ``number`` its column, ``given`` what else it takes."""

    what: str
    number: int = 0
    given: Any = None

    def apply(self, table: OneTable) -> OneTable:
        column = next((one for one in table.columns if one.number == self.number), None)
        match self.what:
            case "add_column":
                kind, default = self.given
                new = Column(number=table.made + 1, name=f"c{table.made + 1}", kind=kind, first=default, default=default)
                return replace(table, columns=(*table.columns, new), made=table.made + 1)
            case "rename_table":
                return replace(table, name=self.given)
            case "drop_column":
                return replace(table, columns=tuple(one for one in table.columns if one != column))
            case "rename_column":
                return table.having(column, name=self.given)
            case "set_column_type":
                return table.having(column, kind="int64")
            case "set_default":
                return table.having(column, default=self.given)
            case "set_not_null" | "drop_not_null":
                return table.having(column, nullable=self.what == "drop_not_null")
            case _:
                return table

    def make(self, tx: Transaction, table: OneTable) -> None:
        column = next((one for one in table.columns if one.number == self.number), None)
        match self.what:
            case "add_column":
                kind, default = self.given
                tx.add_column(table.name, f"c{table.made + 1}", kind, default=default)
            case "rename_table" | "reset_partitioned_by":
                getattr(tx, self.what)(table.name, *([self.given] if self.given else []))
            case "set_partitioned_by":
                tx.set_partitioned_by(table.name, [column.name])
            case "set_sorted_by":
                tx.set_sorted_by(table.name, ['"' + column.name + '"'])
            case "set_column_type":
                tx.set_column_type(table.name, column.name, "int64")
            case "rename_column" | "set_default":
                getattr(tx, self.what)(table.name, column.name, self.given)
            case _:
                getattr(tx, self.what)(table.name, column.name)


def steps(draw: Any, table: OneTable, keyed: set[int]) -> Step:
    """A step that the table can take now; ``keyed`` are columns that it is partitioned or sorted by."""
    spans = st.tuples(st.integers(-2, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))
    kind = draw(st.sampled_from(["append", "many", "overwrite", "delete", "update", "alter", "alter", "alter"]))
    if kind in ("append", "many", "overwrite"):
        span = draw(spans) if kind == "overwrite" else None
        keys = st.integers(*(span or (-2, 30)))
        optional = [column for column in table.columns[1:] if column.nullable or column.default is not None]
        left_out = draw(st.sampled_from([None, *optional]))
        given = [column for column in table.columns if column != left_out]
        count = 14 if kind == "many" else draw(st.integers(0, 3))
        values = {
            one.number: keys
            if one.number == 1
            else _VALUES[one.kind]
            if one.nullable
            else _VALUES[one.kind].filter(lambda x: x is not None)
            for one in given
        }
        rows = tuple({number: draw(value) for number, value in values.items()} for _ in range(count))
        return Rows(rows=rows, given=tuple(values), span=span)
    if kind == "delete":
        return Change(draw(spans))
    others = table.columns[1:]
    if kind == "update" and others:
        column = draw(st.sampled_from(others))
        value = draw(_VALUES[column.kind].filter(lambda x: x is not None or column.nullable))
        return Change(draw(spans), column.number, value)
    return draw(_alterations(table, keyed))


def _alterations(table: OneTable, keyed: set[int]) -> st.SearchStrategy[Alter]:
    possible = [
        st.sampled_from(["int32", "varchar"]).flatmap(
            lambda kind: _defaults(kind).map(lambda value: Alter("add_column", given=(kind, value)))
        ),
        st.just(Alter("reset_partitioned_by")),
        st.just(Alter("rename_table", given="u" if table.name == "t" else "t")),
    ]
    for one in table.columns:
        choices = [Alter("set_partitioned_by", one.number), Alter("set_sorted_by", one.number)]
        choices.append(Alter("rename_column", one.number, "renamed " + one.name.removeprefix("renamed ") + "!"))
        if one.number != 1:
            choices.append(Alter("set_not_null" if one.nullable else "drop_not_null", one.number))
            if one.number not in keyed:
                choices.append(Alter("drop_column", one.number))
        if one.kind == "int32":
            choices.append(Alter("set_column_type", one.number))
        possible.append(st.sampled_from(choices))
        if one.number != 1:
            possible.append(_defaults(one.kind).map(lambda value, number=one.number: Alter("set_default", number, value)))
    return st.one_of(possible)
