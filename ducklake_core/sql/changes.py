"""Run UPDATE, DELETE and MERGE: by the library's own operations, or computed by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ducklake_core.engines.arrow.changes import matched_twice
from ducklake_core.engines.arrow.merge import Binder, ChangeRequest, MergeSource, RequestedClause, source_ids
from ducklake_core.engines.duckdb.query import Session, Sources, cast_text, in_instance
from ducklake_core.engines.duckdb.relations import ReadRows, TableSource
from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.parser import parse_expression
from ducklake_core.format.expressions.predicates import And, Predicate, conjunction
from ducklake_core.format.expressions.ranges import all_of, any_of
from ducklake_core.format.expressions.syntax import parse_text
from ducklake_core.format.types.data_types import INT64, Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, join_name, quoted_path, split_path
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.planning.plan import ROW_ID
from ducklake_core.sql.parts import name_of, reject, requalified, unsupported, without_qualifier
from ducklake_core.sql.row_statements import DEFAULT, Branch, RowStatement, row_statement, source_name, under_alias, value_text
from ducklake_core.sql.time_travel import identifiers
from ducklake_core.view_sql.scopes import OTHER_SNAPSHOTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.merge_builder import MergeClause
    from ducklake_core.sql.staged_queries import StagedQueries, StatementTarget
    from ducklake_core.staging.staged_table import StagedTable


ROW_ID_NAME = "__ducklake_row_id"
_ROW_ID = Field(id=-9, name=ROW_ID_NAME, type=INT64)
_WHEN = ("matched", "not matched", "not matched by source")


_TARGET, _NUMBER, _BRANCH = "__ducklake_target", "__ducklake_number", "__ducklake_branch"
_SOURCE, _PAIRS = "__ducklake_source", "__ducklake_pairs"


@dataclass(slots=True)
class _Narrowing:
    """The predicates of DuckDB's scans of the table: rows for which none of them holds are not changed."""

    conditions: list[Predicate | None] = field(default_factory=list)
    settled: Predicate | None = None
    is_settled: bool = False

    def begin(self) -> None:
        """Forget the predicates of earlier scans."""
        self.conditions, self.settled, self.is_settled = [], None, False

    def settle(self) -> None:
        """Limit later scans to the rows of earlier ones."""
        self.settled, self.is_settled = self.predicate, True

    def watched(self, read: ReadRows) -> ReadRows:
        """Return the same reads, noted."""

        def watched(columns: Sequence[str], where: Predicate | None) -> pa.RecordBatchReader:
            of_columns = _of_columns(where)
            if self.is_settled:
                return read(columns, conjunction(part for part in (of_columns, self.settled) if part is not None))
            self.conditions.append(of_columns)
            return read(columns, of_columns)

        return watched

    @property
    def predicate(self) -> Predicate | None:
        """A predicate for every row that may be changed, None for all rows."""
        if self.is_settled:
            return self.settled
        known = [one for one in self.conditions if one is not None]
        return any_of(known) if known and len(known) == len(self.conditions) else None


def _of_columns(where: Predicate | None) -> Predicate | None:
    """Return the parts of a condition that are about columns alone."""
    if where is None:
        return None
    parts = where.operands if isinstance(where, And) else (where,)
    kept = [part for part in parts if _ROW_ID.id not in pruning.columns(part)]
    return all_of(kept) if kept else None


# How DuckDB computes a change that the library's own operations cannot express. DuckDB only computes which rows change and to what;
# the library writes the change, by row id:
#
#   1. The table is a scan with its row ids as a column (_ROW_ID).
#   2. UPDATE and DELETE are one query for row ids and new values (_selected).
#   3. MERGE (_merged) numbers the rows of the source and stores them, and then the pairs of row id and number that match. For each kind
#      of rows, a CASE over the conditions gives every row to the first branch that takes it; one query per branch computes its values.
#   4. The results become one merge source with a clause for each branch (request):
#
#        id | branch | v0 | v1 ...      v0, v1: every column that some branch sets, NULL in the rows of other branches
#
# _Narrowing notes the predicates with which DuckDB scans the table. Rows outside of all of them cannot change.
def computed_change(
    statement: RowStatement, sql: str, table: TableSource, schema: Schema, found: Sources
) -> tuple[ChangeRequest, MergeSource]:
    """Return the change that a statement makes, with the rows that it names.

    Args:
        statement: It, taken apart, as DuckDB runs it.
        sql: Its text.
        table: The table that it changes, with the columns that it may name, and reads that give the row id as :data:`ROW_ID`.
        schema: The table's own columns.
        found: What it may name.

    Raises:
        UsageError: DuckDB rejects a part, several rows of the source match one row, or a branch is an error.
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
        """Return no rows, under these columns."""
        return cast_to(pa.table({"id": pa.nulls(0, pa.int64())}), source_ids(self.source), physical=False)

    def request(self, where: Predicate | None) -> ChangeRequest:
        """Return the change of the rows that :meth:`parts` has given."""
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
        """Return the rows of the change, each part under all columns of :attr:`source`."""
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
        """Yield the rows of an UPDATE or DELETE."""
        statement = self._statement
        if statement.branches[0].then == "update":
            self._values[0] = by_column(statement.branches[0], self._schema, (), "")
        scans = self._scan if statement.other is None else f"{self._scan}, {self._text(statement.other)}"
        where = "" if statement.where is None else f" WHERE {self._text(statement.where)}"
        # Several rows of FROM that set the same values count as one.
        distinct = "" if statement.other is None else "DISTINCT "
        columns = ", ".join([f'{self._alias}."{ROW_ID_NAME}"', *self._value_expressions(0)])
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
        ids, numbers = f'{self._alias}."{ROW_ID_NAME}"', f'{own}."{_NUMBER}"'
        both = f"{self._scan} JOIN {source} {matching}"
        session.make(_PAIRS, f'{statement.prefix} SELECT {ids} AS "{ROW_ID_NAME}", {numbers} AS "{_NUMBER}" FROM {both}')  # noqa: S608
        # A row of the table may match only one row of the source, as it would get the values of both.
        if session.number(f'SELECT count(*) - count(DISTINCT "{ROW_ID_NAME}") FROM temp.main."{_PAIRS}"'):  # noqa: S608
            raise matched_twice(self._table)
        if all(branch.when != "not matched by source" for branch in statement.branches):
            # Without BY SOURCE, the rows that change are all among the pairs, so later scans need no others.
            self._narrowing.settle()
        # Pairs are joined again by their numbers. USING has to be repeated, because it decides which columns a bare name means.
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
        """Yield the rows of the branches for one kind of rows; ``rest`` is the key of those that are in no pair."""
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
        # The line break ends a comment with which the user's text may end.
        holds = [
            f"WHEN {'TRUE' if one.condition is None else f'({self._text(one.condition)}{chr(10)})'} THEN {number}"
            for number, one in branches
        ]
        query = f'SELECT {keys[0]} AS "{ROW_ID_NAME}", {keys[1]} AS "{_NUMBER}", CASE {" ".join(holds)} END AS "{_BRANCH}" FROM {of_kind}'  # noqa: S608
        session.make(chosen, f"{prefix} {query}")
        for number, branch in branches:
            rows = f'temp.main."{chosen}" AS __p'
            is_chosen = f'__p."{_BRANCH}" = {number}'
            if branch.then == "error":
                self._check_none(session, branch, rows, is_chosen)
            elif branch.then == "delete":
                yield number, session.rows(f'SELECT "{ROW_ID_NAME}" FROM {rows} WHERE {is_chosen}')  # noqa: S608
            elif branch.then != "nothing":
                joined = f"{scans}, {rows} {self._paired(keys, 'WHERE')} AND {is_chosen}"
                columns = ", ".join([f'__p."{ROW_ID_NAME}"', *self._value_expressions(number)])
                yield number, session.rows(f"{prefix} SELECT {columns} FROM {joined}")  # noqa: S608

    @staticmethod
    def _paired(keys: tuple[str, str], word: str) -> str:
        known = [f'__p."{name}" = {key}' for key, name in zip(keys, (ROW_ID_NAME, _NUMBER), strict=True) if key != "NULL"]
        return f"{word} {' AND '.join(known)}"

    def _check_none(self, session: Session, branch: Branch, rows: str, is_chosen: str) -> None:
        if session.number(f"SELECT count(*) FROM {rows} WHERE {is_chosen}"):  # noqa: S608
            message = (
                "" if branch.message is None else session.rows(f"SELECT CAST({branch.message} AS VARCHAR) AS message")["message"][0].as_py()
            )
            raise UsageError(
                f"MERGE into {self._table} stopped at its action ERROR, WHEN {branch.when.upper()}{': ' if message else ''}{message or ''}"
            )

    def _value_expressions(self, number: int) -> list[str]:
        expressions = []
        for name, text in self._values.get(number, {}).items():
            column = self._schema.column(name)
            expressions.append(cast_text(f"({self._text(value_text(text, column))}\n)", column))
        return expressions

    _sides: tuple[tuple[tuple[str, ...], str], ...] = ()

    def _text(self, text: str) -> str:
        """Return a text in which the statement's names qualify columns."""
        for written, alias in ((self._statement.target, self._statement.alias), *self._sides):
            name = written if len(written) > 1 else (DEFAULT_SCHEMA, *written)
            text = under_alias(text, name, alias)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedChange:
    """A change of rows that are named by their ids; ``tables`` are the names of those that it was computed from."""

    request: ChangeRequest
    source: MergeSource
    tables: tuple[str, ...]


ChangeComputed: TypeAlias = Callable[[str, str, Callable[["StagedTable"], ComputedChange]], None]
"""Stages what a function computes for the table of a name; the text identifies the change."""


def change_rows(tx: StatementTarget, queries: StagedQueries, sql: str, spark: SparkSession | None, change_computed: ChangeComputed) -> None:
    """Carry out an UPDATE, DELETE or MERGE.

    Args:
        tx: The transaction.
        queries: Queries inside the transaction.
        sql: The statement.
        spark: The session that computes rows, None for this process.
        change_computed: Stages a change that DuckDB computes.

    Raises:
        UnsupportedFeatureError: A part that the library's operations do not support, and DuckDB is not installed.
        UsageError: It cannot be parsed, or is rejected.
        NotFoundError: A table or column that does not exist.
    """
    statement = row_statement(sql)
    table = name_of(statement.target)
    plain = Plain(statement=statement, table=table, schema=queries.schema(table))
    try:
        # The library's own operations come first, because they need no DuckDB. _by_operation checks everything before anything is staged.
        carry_out = _by_operation(tx, queries, plain, spark)
    except DuckLakeError as rejection:
        if spark is not None:
            raise
        _computed(queries, sql, table, rejection, change_computed)
    else:
        carry_out()


def _by_operation(tx: StatementTarget, queries: StagedQueries, plain: Plain, spark: SparkSession | None) -> Callable[[], None]:
    """Return a function that runs a statement with the library's own operations.

    Raises:
        DuckLakeError: They do not support a part, or a part is wrong.
    """
    from ducklake_core.engines.arrow.merge import merge_request, update_request
    from ducklake_core.engines.frame import frame_of

    table, schema = plain.table, plain.schema
    match plain.statement.kind:
        case "UPDATE":
            values, where = plain.assignments(), plain.where()
            if spark is None:
                known = {name: queries.without_macros(str(value)) for name, value in values.items()}
                update_request(table, schema, known, None if where is None else queries.without_macros(where)).change()
            return lambda: tx.update(table, values, where=where, spark=spark)
        case "DELETE":
            where = plain.where()
            if spark is None and where is not None:
                _check_condition(queries.without_macros(where), schema)
            return lambda: tx.delete(table, where, spark=spark)
        case _:
            on = plain.on()
            frame = frame_of(queries.rows_of(plain.source, spark=spark))
            clauses = plain.clauses(frame.schema)
            if spark is None and clauses:
                merge_request(table, schema, frame.schema, on, clauses).change()
            return lambda: tx.merge_clauses(table, frame.data, on, clauses) if clauses else None


def _check_condition(where: str, schema: Schema) -> None:
    """Reject a condition that needs an engine, by evaluating it over no rows."""
    from ducklake_core.engines.arrow.evaluate import evaluate
    from ducklake_core.engines.arrow.merge import nullable_schema
    from ducklake_core.format.expressions.conditions import bind
    from ducklake_core.format.values.arrow_cast import null_array
    from ducklake_core.planning.plan import with_virtual

    columns = with_virtual(schema)
    arrow = nullable_schema(columns)
    nothing = pa.RecordBatch.from_arrays([null_array(0, one.type) for one in arrow], schema=arrow)
    evaluate(bind(where, columns), nothing)


def _computed(queries: StagedQueries, sql: str, table: str, rejection: DuckLakeError, change_computed: ChangeComputed) -> None:
    """Let DuckDB compute the change.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed; the message names what to install.
    """
    from ducklake_core.engines.duckdb_instance import require_duckdb
    from ducklake_core.sql.names import sources

    try:
        require_duckdb()
    except UnsupportedFeatureError as missing:
        if not isinstance(rejection, UnsupportedFeatureError) or "package" in rejection.details:
            raise rejection from missing
        message = f"{rejection.message}. DuckDB can compute it in this process: pip install 'ducklake-dagster[duckdb]'"
        raise UnsupportedFeatureError(message, **rejection.details) from rejection
    text, found = sources(queries.lake, queries.names(), sql)
    try:
        found = _checked(text, found)
    except DuckLakeError as problem:
        raise (rejection if isinstance(rejection, NotFoundError) else problem) from rejection
    change_computed(table, sql, lambda staged: _change(queries, text, found, staged))


def _checked(text: str, found: Sources) -> Sources:
    """Return what a statement may name, with the virtual columns that it names, after DuckDB has checked it.

    Raises:
        UsageError: DuckDB rejects it, or it names virtual columns and shows all columns.
        NotFoundError: It names something that does not exist.
    """
    from ducklake_core.engines.duckdb.query import check_statement
    from ducklake_core.sql.query import check_named_alone, missing_virtual, with_virtual_columns

    named = identifiers(text)
    problem = None
    try:
        check_statement(text, found)
    except (UsageError, NotFoundError) as rejected:
        problem = rejected
    # DuckDB's own tables have row ids; the views that stand for the tables of the lake have none.
    if problem is None and ROW_ID.name not in named:
        return found
    statements = [text, *found.statements]
    extended = with_virtual_columns(found, statements)
    missing = [ROW_ID.name] if problem is None else missing_virtual(statements, problem)
    if not missing or extended == found:
        if problem is not None:
            raise problem
        return found
    check_named_alone(statements, extended, missing, problem)
    check_statement(text, extended)
    return extended


def _change(queries: StagedQueries, text: str, found: Sources, staged: StagedTable) -> ComputedChange:
    """Return the change of a table's rows that DuckDB computes over what the transaction sees."""
    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.view_sql.scopes import OTHER_SNAPSHOTS

    state, name = staged.state, staged.name
    tables = [one for one in found.tables if one.schema_name != OTHER_SNAPSHOTS and not one.is_frame]
    of_name = {(folded(one.schema_name), folded(one.name)): one for one in tables}
    named = of_name.get((folded(state.schema_name), folded(state.name)))
    table = TableSource(
        schema_name=state.schema_name,
        name=state.name,
        columns=state.schema if named is None else named.columns,
        read=lambda columns, where: queries.read_with_ids(name, columns, where),
        row_count=None if named is None else named.row_count,
    )
    request, source = computed_change(row_statement(text), text, table, state.schema, found)
    return ComputedChange(request=request, source=source, tables=tuple(join_name(one.schema_name, one.name) for one in tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """An UPDATE, DELETE or MERGE as arguments of the library's own operations, which support most of their clauses.

    Args:
        statement: It, taken apart.
        table: ``schema.table``.
        schema: The table's columns.
    """

    statement: RowStatement
    table: str
    schema: Schema

    def where(self) -> str | None:
        """Return the condition of an UPDATE or DELETE.

        Raises:
            UnsupportedFeatureError: Other tables are named.
            UsageError: It cannot be parsed.
        """
        kind, other = self.statement.kind, self.statement.other
        if self.statement.prefix:
            reject(f"WITH before {kind}")
        if other is not None:
            reject(f"{kind} ... {'FROM' if kind == 'UPDATE' else 'USING'}", "MERGE does the same")
        return None if self.statement.where is None else self._of_table(self.statement.where)

    def assignments(self) -> dict[str, object]:
        """Return the values by column of an UPDATE."""
        values = self.statement.branches[0].values
        assert not isinstance(values, str | tuple)
        return {name: self._of_table(value_text(text, self.schema.column(name))) for name, text in values.items()}

    def _of_table(self, text: str) -> str:
        return without_qualifier(parse_text(text), *self._qualifiers()).sql("duckdb")

    def _qualifiers(self) -> list[tuple[str, ...]]:
        target, alias = self.statement.target, self.statement.alias
        if folded(alias) != folded(target[-1]):
            return [(alias,)]
        return [tuple(split_path(self.table))[start:] for start in range(len(split_path(self.table)))]

    @property
    def source(self) -> str:
        """The query of a MERGE's source.

        Raises:
            UnsupportedFeatureError: A WITH clause, a source without a name or under the table's.
        """
        if self.statement.prefix:
            reject("WITH before MERGE")
        if folded(self._source_name()[1]) == folded(self.statement.alias):
            reject("MERGE of a table with itself under one name")
        return f"FROM {self.statement.other}"

    def _source_name(self) -> tuple[tuple[str, ...], str]:
        named = source_name(self.statement.other or "")
        if named is None:
            raise unsupported("a source of MERGE without a name")
        return named

    def on(self) -> str | list[str]:
        """Return the condition or the columns by which rows of both sides match."""
        on = self.statement.on
        return self._of_sides(on) if isinstance(on, str) else list(on)

    def _of_sides(self, text: str, only: str | None = None, names: Sequence[str] = ()) -> str:
        """Return an expression over ``t`` and ``s``; of one side only, where the other has no row."""
        written, alias = self._source_name()
        sides = {written[start:]: ("s",) for start in range(len(written))} if folded(alias) == folded(written[-1]) else {(alias,): ("s",)}
        sides |= dict.fromkeys(self._qualifiers(), ("t",))
        return requalified(parse_text(text), sides, of_side=(only, names)).sql("duckdb")

    def clauses(self, source: Schema) -> list[MergeClause]:
        """Return the branches of a MERGE.

        Args:
            source: The source's columns.

        Raises:
            UnsupportedFeatureError: An action that no operation supports.
        """
        found: list[MergeClause] = []
        nothing: dict[str, list[str]] = {}
        for branch in self.statement.branches:
            side, names = {"matched": (None, ()), "not matched": ("s", source.names)}.get(branch.when, ("t", self.schema.names))
            parts = [] if branch.condition is None else [f"({self._of_sides(branch.condition, side, names)})"]
            match branch.then:
                # DO NOTHING takes its rows from the branches behind it, whose conditions get the negation; NULL takes none.
                case "nothing" if parts:
                    nothing.setdefault(branch.when, []).append(f"{parts[0]} IS NOT TRUE")
                case "nothing":
                    pass
                case "error":
                    reject("ERROR in MERGE")
                case then:
                    condition = " AND ".join([*nothing.get(branch.when, ()), *parts]) or None
                    values = None if then == "delete" else self._values(branch, source, side, names)
                    found.append((branch.when, then, values, condition))
        return found

    def _values(self, branch: Branch, source: Schema, side: str | None, names: Sequence[str]) -> dict[str, object]:
        values = by_column(branch, self.schema, source.names, "s")
        return {name: self._of_sides(value_text(text, self.schema.column(name)), side, names) for name, text in values.items()}


def by_column(branch: Branch, target: Schema, source: Sequence[str], alias: str) -> dict[str, str]:
    """Return the values of a branch by column, as SQL text.

    Args:
        branch: It updates or inserts.
        target: The table's columns.
        source: Names of the source's.
        alias: What the source is called.

    Raises:
        UsageError: Not as many columns as the table has, where they are taken by their places.
        NotFoundError: A column that the table does not have.
    """
    match branch.values:
        case "by name":
            pairs = [(name, quoted_path((alias, name))) for name in source]
        case "by position":
            if len(source) != len(target):
                raise UsageError(
                    f"the source of MERGE has {len(source)} columns, but the table has {len(target)}. Use BY NAME, or list the columns"
                )
            pairs = [(name, quoted_path((alias, value))) for name, value in zip(target.names, source, strict=True)]
        case "defaults":
            pairs = [(name, DEFAULT) for name in target.names]
        case tuple(values):
            if len(values) != len(target):
                raise UsageError(
                    f"INSERT has {len(values)} values, but the table has {len(target)} columns. List the columns, or add values"
                )
            pairs = list(zip(target.names, values, strict=True))
        case values:
            pairs = list(values.items())
    return {target.column(name).name: text for name, text in pairs}
