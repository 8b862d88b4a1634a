"""UPDATE, DELETE and MERGE that DuckDB computes: which rows of a table they are about, by row id, and what these become.

A scan of the table with its row ids takes the table's place, under the name that it has in the statement::

    UPDATE t SET a = x FROM u WHERE t.k = u.k    SELECT DISTINCT t.rowid, CAST(x AS ...) FROM (scan) AS t, u WHERE t.k = u.k
    MERGE INTO t USING (q) AS s ON c ...         source: q, numbered                                              kept once
                                                 pairs:  t.rowid, number FROM (scan) AS t JOIN source AS s ON c   rows that match
                                                 rest:   numbers that are in no pair; row ids that are in none
                                                 chosen: of each of them, the first branch whose condition holds
                                                 values: of each branch, for the rows that it was chosen for

What was computed becomes one table of row ids, branches and values, which the verbs carry out (engines/arrow/changed_by_id.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from ducklake_core.engines.arrow.changed_rows import matched_twice
from ducklake_core.engines.arrow.merge_source import MergeSource
from ducklake_core.engines.arrow.row_change import source_ids
from ducklake_core.engines.arrow.row_request import Binder, ChangeRequest, RequestedClause
from ducklake_core.engines.duckdb.query import Sources, cast_text
from ducklake_core.engines.duckdb.relations import ReadRows, TableSource
from ducklake_core.engines.duckdb.session import Session, in_instance
from ducklake_core.errors import UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.folding import all_of, any_of
from ducklake_core.format.expressions.predicates import And, Predicate, conjunction
from ducklake_core.format.expressions.scalar_parser import parse_expression
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, join_name, quoted_path
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.sql.plain_changes import by_column
from ducklake_core.sql.row_clauses import Branch, RowStatement, source_name, under_alias
from ducklake_core.sql.row_statements import value_text
from ducklake_core.view_sql.sources import OTHER_SNAPSHOTS

ROW_ID = "__ducklake_row_id"
_ROW_ID = Field(id=-9, name=ROW_ID, type=INT64)
_TARGET, _NUMBER, _BRANCH = "__ducklake_target", "__ducklake_number", "__ducklake_branch"
_SOURCE, _PAIRS = "__ducklake_source", "__ducklake_pairs"
_WHEN = ("matched", "not matched", "not matched by source")


@dataclass(slots=True)
class _Narrowing:
    """What DuckDB asks of the scans of the table: rows that none of the predicates holds for are not changed."""

    asked: list[Predicate | None] = field(default_factory=list)
    settled: Predicate | None = None
    is_settled: bool = False

    def begin(self) -> None:
        """Forget what was asked before."""
        self.asked, self.settled, self.is_settled = [], None, False

    def settle(self) -> None:
        """Note that later scans look for rows of earlier ones again."""
        self.settled, self.is_settled = self.predicate, True

    def watched(self, read: ReadRows) -> ReadRows:
        """The same reads, noted."""

        def watched(columns: Sequence[str], where: Predicate | None) -> pa.RecordBatchReader:
            of_columns = _of_columns(where)
            if self.is_settled:
                return read(columns, conjunction(part for part in (of_columns, self.settled) if part is not None))
            self.asked.append(of_columns)
            return read(columns, of_columns)

        return watched

    @property
    def predicate(self) -> Predicate | None:
        """A predicate for every row that may be changed, None for all rows."""
        if self.is_settled:
            return self.settled
        known = [one for one in self.asked if one is not None]
        return any_of(known) if known and len(known) == len(self.asked) else None


def _of_columns(where: Predicate | None) -> Predicate | None:
    """The parts of a condition that are about columns alone."""
    if where is None:
        return None
    parts = where.operands if isinstance(where, And) else (where,)
    kept = [part for part in parts if _ROW_ID.id not in pruning.columns(part)]
    return all_of(kept) if kept else None


def computed_change(
    statement: RowStatement, sql: str, table: TableSource, schema: Schema, found: Sources
) -> tuple[ChangeRequest, MergeSource]:
    """What a statement does, with the rows that it names.

    Args:
        statement: It, taken apart, as DuckDB runs it.
        sql: Its text.
        table: The table that it changes, with the columns that it may name, and reads that give the row id as :data:`ROW_ID`.
        schema: The table's own columns.
        found: What it may name.

    Raises:
        UsageError: DuckDB refuses a part, several rows say what becomes of one, or a branch is an error.
        DuckLakeError: A table cannot be read.
    """
    narrowing = _Narrowing()
    change = _Change(statement, join_name(table.schema_name, table.name), schema, narrowing)
    columns = Schema(columns=(*table.columns, _ROW_ID))
    scan = replace(table, schema_name=OTHER_SNAPSHOTS, name=_TARGET, columns=columns, read=narrowing.watched(table.read))
    parts = in_instance([sql], replace(found, tables=(*found.tables, scan)), change.parts)
    rows = pa.concat_tables(parts) if parts else change.no_rows()
    return change.request(narrowing.predicate), MergeSource(schema=source_ids(change.source), rows=rows)


class _Change:
    """A statement's queries."""

    def __init__(self, statement: RowStatement, table: str, schema: Schema, narrowing: _Narrowing) -> None:
        self._statement = statement
        self._table = table
        self._schema = schema
        self._narrowing = narrowing
        self._alias = quoted_path((statement.alias,))
        self._scan = f"{quoted_path((OTHER_SNAPSHOTS, _TARGET))} AS {self._alias}"
        self._names: list[str] = []
        self._values: dict[int, dict[str, str]] = {}

    @property
    def _set(self) -> list[Field]:
        """The columns that any branch sets."""
        names = set(chain.from_iterable(self._values.values()))
        return [column for column in self._schema if column.name in names]

    @property
    def source(self) -> Schema:
        """Row id, branch and values."""
        values = (Field(name=f"v{place}", type=column.type) for place, column in enumerate(self._set))
        return Schema(columns=(Field(name="id", type=INT64), Field(name="branch", type=INT64), *values))

    def no_rows(self) -> pa.Table:
        """Nothing, in these columns."""
        return cast_to(pa.table({"id": pa.nulls(0, pa.int64())}), source_ids(self.source), physical=False)

    def request(self, where: Predicate | None) -> ChangeRequest:
        """The change of the rows that :meth:`parts` has given."""
        source = source_ids(self.source)
        flat = Binder(self._table, self._schema, source).flat
        places = {column.name: place for place, column in enumerate(self._set)}
        clauses = []
        for number, branch in enumerate(self._statement.branches):
            if branch.then == "nothing" or branch.then == "error":  # noqa: PLR1714 - narrows the type
                continue
            values = tuple(
                (self._schema.columns.index(self._schema.column(name)), parse_expression(f'"s{2 + places[name]}"', flat))
                for name in self._values.get(number, ())
            )
            clauses.append(
                RequestedClause(
                    when="not matched" if branch.then == "insert" else "matched",
                    action=branch.then,
                    condition=parse_expression(f'"s1" = {number}', flat),
                    values=values,
                )
            )
        return ChangeRequest(table=self._table, target=self._schema, source=source, where=where, by_row_id=True, clauses=tuple(clauses))

    def parts(self, session: Session) -> list[pa.Table]:
        """Rows of the change, each part under all columns of :attr:`source`."""
        self._values = {}
        self._narrowing.begin()
        found = list(self._merged(session) if self._statement.kind == "MERGE" else self._selected(session))
        wanted = source_ids(self.source)
        names = [column.name for column in self._set]
        parts = []
        for number, rows in found:
            given = [f"v{names.index(name)}" for name in self._values.get(number, ())]
            plain = rows.rename_columns(["id", *given]).append_column("branch", pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
            parts.append(cast_to(plain, wanted, physical=False))
        return parts

    def _selected(self, session: Session) -> Iterator[tuple[int, pa.Table]]:
        """The rows of an UPDATE or DELETE."""
        statement = self._statement
        if statement.branches[0].then == "update":
            self._values[0] = by_column(statement.branches[0], self._schema, (), "")
        scans = self._scan if statement.other is None else f"{self._scan}, {self._text(statement.other)}"
        where = "" if statement.where is None else f" WHERE {self._text(statement.where)}"
        # Rows of FROM that say the same are one.
        distinct = "" if statement.other is None else "DISTINCT "
        columns = ", ".join([f'{self._alias}."{ROW_ID}"', *self._value_texts(0)])
        yield 0, session.rows(f"{statement.prefix} SELECT {distinct}{columns} FROM {scans}{where}")  # noqa: S608 - names are quoted

    def _merged(self, session: Session) -> Iterator[tuple[int, pa.Table]]:
        statement = self._statement
        named = source_name(statement.other or "")
        own = quoted_path((named[1] if named is not None else _SOURCE,))
        query = f"SELECT * FROM {statement.other}\n"  # noqa: S608
        numbered = f'SELECT *, row_number() OVER () AS "{_NUMBER}" FROM ({query})'  # noqa: S608
        names = session.make(_SOURCE, f"{statement.prefix} {numbered}")[:-1]
        for number, branch in enumerate(statement.branches):
            if branch.then in ("update", "insert"):
                self._values[number] = by_column(branch, self._schema, names, named[1] if named is not None else _SOURCE)
        source = f'temp.main."{_SOURCE}" AS {own}'
        self._sides = () if named is None else (named,)
        on = statement.on
        matching = f"ON ({self._text(on)}\n)" if isinstance(on, str) else f"USING ({', '.join(quoted_path((name,)) for name in on)})"
        ids, numbers = f'{self._alias}."{ROW_ID}"', f'{own}."{_NUMBER}"'
        both = f"{self._scan} JOIN {source} {matching}"
        session.make(_PAIRS, f'{statement.prefix} SELECT {ids} AS "{ROW_ID}", {numbers} AS "{_NUMBER}" FROM {both}')  # noqa: S608
        if session.number(f'SELECT count(*) - count(DISTINCT "{ROW_ID}") FROM temp.main."{_PAIRS}"'):  # noqa: S608
            raise matched_twice(self._table)
        if all(branch.when != "not matched by source" for branch in statement.branches):
            self._narrowing.settle()
        again = both if not isinstance(on, str) else f"{self._scan}, {source}"
        kinds = {
            "matched": (again, (ids, numbers), None),
            "not matched": (source, ("NULL", numbers), numbers),
            "not matched by source": (self._scan, (ids, "NULL"), ids),
        }
        for when in _WHEN:
            scans, keys, rest = kinds[when]
            yield from self._of_kind(session, when, scans, keys, rest)

    def _of_kind(self, session: Session, when: str, scans: str, keys: tuple[str, str], rest: str | None) -> Iterator[tuple[int, pa.Table]]:
        """The rows of the branches for one kind of rows; ``rest`` is the key of those that are in no pair."""
        branches = [(number, branch) for number, branch in enumerate(self._statement.branches) if branch.when == when]
        if not branches:
            return
        prefix, pairs, chosen = self._statement.prefix, f'temp.main."{_PAIRS}"', f"__ducklake_{when.replace(' ', '_')}"
        if rest is not None:
            missing = rest.rsplit(".", 1)[1]
            condition = f"WHERE {rest} NOT IN (SELECT {missing} FROM {pairs})"  # noqa: S608
            of_kind = f"{scans} {condition}"
        else:
            of_kind = f"{scans}, {pairs} AS __p {self._paired(keys, 'WHERE')}"
        holds = [
            f"WHEN {'TRUE' if one.condition is None else f'({self._text(one.condition)}{chr(10)})'} THEN {number}"
            for number, one in branches
        ]
        query = f'SELECT {keys[0]} AS "{ROW_ID}", {keys[1]} AS "{_NUMBER}", CASE {" ".join(holds)} END AS "{_BRANCH}" FROM {of_kind}'  # noqa: S608
        session.make(chosen, f"{prefix} {query}")
        for number, branch in branches:
            rows = f'temp.main."{chosen}" AS __p'
            is_chosen = f'__p."{_BRANCH}" = {number}'
            if branch.then == "error":
                self._check_none(session, branch, rows, is_chosen)
            elif branch.then == "delete":
                yield number, session.rows(f'SELECT "{ROW_ID}" FROM {rows} WHERE {is_chosen}')  # noqa: S608
            elif branch.then != "nothing":
                joined = f"{scans}, {rows} {self._paired(keys, 'WHERE')} AND {is_chosen}"
                columns = ", ".join([f'__p."{ROW_ID}"', *self._value_texts(number)])
                yield number, session.rows(f"{prefix} SELECT {columns} FROM {joined}")  # noqa: S608

    @staticmethod
    def _paired(keys: tuple[str, str], word: str) -> str:
        known = [f'__p."{name}" = {key}' for key, name in zip(keys, (ROW_ID, _NUMBER), strict=True) if key != "NULL"]
        return f"{word} {' AND '.join(known)}"

    def _check_none(self, session: Session, branch: Branch, rows: str, is_chosen: str) -> None:
        if session.number(f"SELECT count(*) FROM {rows} WHERE {is_chosen}"):  # noqa: S608
            said = "" if branch.message is None else session.rows(f"SELECT CAST({branch.message} AS VARCHAR) AS said")["said"][0].as_py()
            raise UsageError(f"MERGE into {self._table} ends with its ERROR, WHEN {branch.when.upper()}{': ' if said else ''}{said or ''}")

    def _value_texts(self, number: int) -> list[str]:
        texts = []
        for name, text in self._values.get(number, {}).items():
            column = self._schema.column(name)
            texts.append(cast_text(f"({self._text(value_text(text, column))}\n)", column))
        return texts

    _sides: tuple[tuple[tuple[str, ...], str], ...] = ()

    def _text(self, text: str) -> str:
        """A text in which the statement's names stand before columns."""
        for written, alias in ((self._statement.target, self._statement.alias), *self._sides):
            name = written if len(written) > 1 else (DEFAULT_SCHEMA, *written)
            text = under_alias(text, name, alias)
        return text
