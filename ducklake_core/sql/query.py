"""Queries over a lake, run by DuckDB in process or translated for Spark, and temporary views of a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from html import escape
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from ducklake_core.catalog.reading.definitions import ViewState, views
from ducklake_core.engines.arrow.readable import Readable, rows_html, rows_text
from ducklake_core.engines.duckdb.query import Sources, Target, check_query, explained, query_definitions, run
from ducklake_core.engines.duckdb_instance import is_installed
from ducklake_core.errors import DuckLakeError, NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import NULL, Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, quoted_path, schemas_meant, split_path
from ducklake_core.format.types.schema import Schema, from_arrow_schema
from ducklake_core.format.types.text import counted, shown
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.format.values.temporal import checked_zone, in_zone, is_named, session_zone
from ducklake_core.planning.plan import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.scan import Scan
from ducklake_core.sql.names import RUN_STRINGS, all_then, definitions, is_about_definitions, lake_names, sources
from ducklake_core.sql.time_travel import command, identifiers, is_name, is_query, keyword, reads_rows, tokens_of, without_time_travel
from ducklake_core.staging.arguments import At, resolve_at
from ducklake_core.view_sql.parsing import CATALOG, PLACEHOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.engines.duckdb.relations import TableSource
    from ducklake_core.sql.names import Names
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.view_sql.selection import Selection
    from ducklake_core.view_sql.translation import Translation


_ALL_COLUMNS = (exp.Columns, exp.Pivot, exp.Summarize, exp.Describe, exp.Command)

_SUBJECT = "the query"
Found = TypeVar("Found")


class Query(Readable):
    """Rows of a query at one snapshot, made by :meth:`DuckLake.sql`. Every run computes them again, at that snapshot.

    With a Spark session the session computes the rows. Without one, columns of one table under a condition are read as a scan.
    Everything else is computed by DuckDB in this process, if it is installed, over scans that read only the columns and files it needs.
    """

    def __init__(
        self,
        lake: LakeContext,
        sql: str,
        snapshot_id: int,
        session: SparkSession | None = None,
        zone: str | None = None,
        frames: tuple[TableSource, ...] = (),
        *,
        files: bool = False,
    ) -> None:
        self._lake = lake
        self._files = files
        self._frames = frames
        self._sql = sql
        self._snapshot_id = snapshot_id
        self._session = session
        self._given_zone = zone
        self._zone = zone or session_zone()
        self._is_checked = False
        self._as_scan: Selection | None = None
        self._bound: tuple[str, Sources] | None = None

    def __repr__(self) -> str:
        text = f"<Query at snapshot {self._snapshot_id}: {shown(self._sql)}>"
        # A job of Spark is not started by looking at an object.
        return text if self._session is not None else rows_text(self, otherwise=text)

    def _repr_html_(self) -> str:
        return rows_html(self) if self._session is None else f"<pre>{escape(repr(self))}</pre>"

    def show(self) -> None:
        """Print the first rows, with the types of the columns."""
        print(rows_text(self))  # noqa: T201

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot at which tables without AT are read."""
        return self._snapshot_id

    @property
    def text(self) -> str:
        """The SQL text of the query."""
        return self._sql

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream with a known schema, ordered if the query has ORDER BY.

        Raises:
            NotFoundError: A table does not exist.
            UsageError: The engine rejects the query, or fails while it runs.
            UnsupportedFeatureError: DuckDB is required and not installed, or the engine does not support the query.
        """
        if self._session is not None:
            return self.to_spark(self._session).toArrow().to_reader()
        with in_zone(self._zone):
            return self._rows_in_process()

    def _rows_in_process(self) -> pa.RecordBatchReader:
        # Columns of one table under a condition need no engine at all.
        selected = self._as_scan if self._is_checked else self._selection()
        if selected is not None:
            return renamed(selected_scan(self._lake, selected).to_reader(), selected)
        if self._bound is not None:
            return run(*self._bound, files=self._files)
        from ducklake_core.engines.duckdb_instance import require_duckdb

        require_duckdb(
            "the query is more than a selection of columns of one table, so it needs an engine. Pass a Spark session with spark="
        )
        return rows_in_process(self._lake, self._names(), self._sql, files=self._files)

    def _names(self) -> Names:
        with self._lake.reader() as reader:
            return replace(lake_names(self._lake, reader, self._snapshot_id), frames=self._frames)

    def checked(self) -> Query:
        """Let DuckDB bind the query, if it is the engine that will run it, so that errors appear before rows are requested.

        Raises:
            NotFoundError: A table, column or function does not exist.
            UsageError: DuckDB rejects the query.
        """
        # Only Spark knows file_index.
        if self._session is None and is_installed() and FILE_INDEX.name not in identifiers(self._sql):
            with in_zone(self._zone):
                self._as_scan = self._selection()
                if self._as_scan is None:
                    self._bound = check_in_process(self._lake, self._names(), self._sql, files=self._files)
            self._is_checked = True
        return self

    def to_spark(self, session: SparkSession | None = None) -> DataFrame:
        """Return the rows as a lazy DataFrame, classic or Connect. docs/reference/views.md lists the SQL that is translated.

        Args:
            session: Spark session. Default: the session of the query.

        Raises:
            UnsupportedFeatureError: A part of the query is not translated; the message names it.
            UsageError: There is no session, it does not use ANSI SQL, or its time zone differs from that of the query.
        """
        session = session or self._session
        if self._frames:
            raise UnsupportedFeatureError("a query of frames runs in this process: leave out spark, or write the frames to tables")
        if session is None:
            raise UsageError("to_spark needs a Spark session. Use query.to_spark(session), or lake.sql(..., spark=session)")
        with in_zone(statement_zone(self._given_zone, session)):
            return self._on_spark(session)

    def _on_spark(self, session: SparkSession) -> DataFrame:
        from ducklake_core.view_sql.translation import translate

        selected = self._selection()
        if selected is not None:
            return selected_frame(self._lake, selected, session)
        text, then = without_time_travel(self._sql)
        with self._lake.reader() as reader:
            translated = translate(reader, self._as_view(text), _SUBJECT, all_then(reader, then))
        return translated_frame(self._lake, translated, session)

    def _selection(self) -> Selection | None:
        """Return the query as a scan of one table, None when it is more."""
        if self._frames or not reads_rows(self._sql):
            return None
        from ducklake_core.view_sql.selection import selection

        try:
            with self._lake.reader() as reader:
                return selection(reader, self._as_view(self._sql))
        except UnsupportedFeatureError:
            return None

    def _as_view(self, text: str) -> ViewState:
        return ViewState(
            id=-1,
            uuid="",
            name="query",
            schema_id=-1,
            schema_name=DEFAULT_SCHEMA,
            dialect="duckdb",
            sql=text.rstrip().rstrip(";"),
            column_aliases=(),
            comment=None,
            snapshot_id=self._snapshot_id,
        )


def statement_zone(timezone: str | None, spark: SparkSession | None) -> str:
    """Return the time zone of a statement: the one given, that of its Spark session, or the effective one.

    Raises:
        UsageError: There is no such zone, or the session has another.
    """
    chosen = checked_zone(timezone)
    if spark is None:
        if chosen is not None and not is_named(chosen):
            raise UsageError(
                f"timezone must be a name such as 'Europe/Berlin', not {chosen!r}. DuckDB does not support offsets as time zones; use a "
                "name such as 'Etc/GMT-5' for +05:00",
                parameter="timezone",
            )
        return chosen or session_zone()
    from ducklake_core.engines.spark.session import TIME_ZONE, zone_of

    own = zone_of(spark)
    if chosen is not None and chosen != own:
        raise UsageError(
            f"timezone is {chosen!r}, but the time zone of the Spark session is {own!r}. Leave timezone out, or call "
            f"spark.conf.set({TIME_ZONE!r}, {chosen!r}) first",
            parameter="timezone",
        )
    return own


def renamed(rows: pa.RecordBatchReader, selected: Selection) -> pa.RecordBatchReader:
    """Return the rows of a scan under the names that a query gives its columns."""
    schema = pa.schema([rows.schema.field(base).with_name(name) for name, base in selected.columns])
    batches = (pa.RecordBatch.from_arrays([batch.column(base) for _, base in selected.columns], schema=schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, batches)


def rows_in_process(
    lake: LakeContext, names: Names, sql: str, *, target: Target | None = None, by_name: bool = False, files: bool = False
) -> pa.RecordBatchReader:
    """Return the rows of a query as a stream.

    Args:
        lake: The lake.
        names: What the query may name.
        sql: The query.
        target: See :func:`ducklake_core.engines.duckdb.query.run`, as for ``by_name``.
        files: Whether the query may read files of this machine. Default: False.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        UsageError: DuckDB rejects the query, or fails while it runs; or it names a virtual column and shows whole rows.
    """
    if _is_explain(sql):
        return _explained_in_process(lake, names, sql, files=files).to_reader()
    if is_about_definitions(sql, names):
        return query_definitions(sql, definitions(lake, names)).to_reader()
    return _in_process(lake, names, sql, lambda text, found: run(text, found, target=target, by_name=by_name, files=files))


def columns_in_process(lake: LakeContext, names: Names, sql: str, *, files: bool = False) -> Schema:
    """Return the columns of a query with DuckDB's types, some of which Arrow lacks.

    Raises:
        SchemaError: A type that no column of a lake has, or a name given twice.
    """
    if is_about_definitions(sql, names):
        return from_arrow_schema(query_definitions(sql, definitions(lake, names)).schema)
    described = _in_process(lake, names, sql, lambda text, found: run(f"DESCRIBE {text}", found, files=files)).read_all()
    columns: list[Field] = []
    for name, kind in zip(distinct(described["column_name"].to_pylist()), described["column_type"].to_pylist(), strict=True):
        try:
            # DuckDB describes an untyped NULL as "NULL", with the quotes.
            columns.append(Field(name=name, type=NULL if kind == '"NULL"' else data_type_of(kind)))
        except DuckLakeError as problem:
            message = f"column {name!r} of the query has type {kind}, which DuckLake does not support. Cast it, for example to VARCHAR"
            raise SchemaError(message, column=name) from problem
    return Schema(columns=tuple(columns))


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names of columns as DuckDB gives them to a table: those that are there already get a number.

    >>> distinct(["a", "A", "a_1", "b", "a"])
    ['a', 'A_1', 'a_1_1', 'b', 'a_2']
    """
    taken: set[str] = set()
    found = []
    for name in names:
        chosen = next(one for one in (name if not n else f"{name}_{n}" for n in count()) if folded(one) not in taken)
        taken.add(folded(chosen))
        found.append(chosen)
    return found


def check_in_process(lake: LakeContext, names: Names, sql: str, *, files: bool = False) -> tuple[str, Sources] | None:
    """Let DuckDB bind a query; raises as :func:`rows_in_process` does.

    Returns:
        The text that DuckDB runs, and what it may name; None for EXPLAIN, PIVOT and for queries of definitions.
    """
    is_explain = _is_explain(sql)
    query = _explained_query(sql) if is_explain else sql
    if _pivots(query):
        return None
    if is_about_definitions(query, names):
        return None

    def check(text: str, found: Sources) -> tuple[str, Sources]:
        check_query(text, found, files=files)
        return text, found

    bound = _in_process(lake, names, query, check)
    return None if is_explain else bound


def _explained_in_process(lake: LakeContext, names: Names, sql: str, *, files: bool = False) -> pa.Table:
    """Return the plan of a query that EXPLAIN stands before, with the files that are read; the columns are those of DuckDB's EXPLAIN.

    EXPLAIN ANALYZE runs the query too, and adds the number of its rows and the time that it takes.
    """
    query = _explained_query(sql)
    plan = _in_process(lake, names, query, lambda text, found: explained(text, found, files=files))
    if not _is_analyze(sql):
        return pa.table({"explain_key": ["physical_plan"], "explain_value": [plan]})
    began = perf_counter()
    count = sum(batch.num_rows for batch in rows_in_process(lake, names, query, files=files))
    plan = f"{counted(count, 'row')} in {perf_counter() - began:.3f} s\n{plan}"
    return pa.table({"explain_key": ["analyzed_plan"], "explain_value": [plan]})


def _pivots(sql: str) -> bool:
    """Return whether a query has PIVOT, whose columns depend on the rows, so that nothing can be bound over empty tables."""
    return not {"PIVOT", "PIVOT_WIDER"}.isdisjoint(keyword(token) for token in tokens_of(sql))


def _is_explain(sql: str) -> bool:
    return command(sql)[0] == "EXPLAIN"


def _is_analyze(sql: str) -> bool:
    return command(command(sql)[1])[0] == "ANALYZE"


def _explained_query(sql: str) -> str:
    _, text = command(sql)
    if text and _is_analyze(sql):
        _, text = command(text)
    if not text or text.startswith("(") or not is_query(text):
        raise UnsupportedFeatureError(
            "EXPLAIN is only supported as EXPLAIN [ANALYZE] query, without options. For a change, explain its query, or a SELECT with its "
            "condition"
        )
    if _pivots(text):
        raise UnsupportedFeatureError("EXPLAIN of PIVOT is not supported: its columns depend on the rows. Explain the query that it pivots")
    return text


# DuckDB's views have no columns that ``*`` does not show. A query that names virtual columns, and would not run without them, gets them in
# addition to the tables' own, and its ``*`` leaves them out.
def _in_process(lake: LakeContext, names: Names, sql: str, work: Callable[[str, Sources], Found]) -> Found:
    text, found = sources(lake, names, sql)
    try:
        return work(text, found)
    # Virtual columns are added only when the query fails without them, because ``*`` would show them.
    except (UsageError, NotFoundError) as problem:
        statements = [text, *found.statements]
        extended = with_virtual_columns(found, statements)
        missing = missing_virtual(statements, problem)
        if not missing or extended == found:
            raise
        mentioned = {name for one in statements for name in identifiers(one)}
        hidden = [name for name in VIRTUAL_SCHEMA.names if name in mentioned]
        starless, text = _without_stars(text, hidden, {folded(table.name) for table in extended.tables})
        check_named_alone([starless, *found.statements], extended, missing, problem)
        return work(text, extended)


def _without_stars(sql: str, hidden: Sequence[str], tables: set[str]) -> tuple[str, str]:
    """Return a query with a constant for each ``*`` that shows columns of tables, and with a ``*`` that does not show the hidden ones.

    >>> _without_stars("SELECT rowid, * FROM t", ["rowid"], {"t"})
    ('SELECT rowid, NULL FROM t', "SELECT rowid, COLUMNS(lambda c: c NOT IN ('rowid')) FROM t")

    Args:
        sql: The query.
        hidden: Columns that ``*`` does not show.
        tables: Folded names of the tables.
    """
    tokens = tokens_of(sql)
    names = ", ".join(f"'{one}'" for one in hidden)
    excluded = f"* EXCLUDE ({', '.join(hidden)})"
    starless, shown_text, done = "", "", 0
    for place in range(1, len(tokens)):
        before, token, after = tokens[place - 1], tokens[place], tokens[place + 1] if place + 1 < len(tokens) else None
        is_qualified = before.token_type == TokenType.DOT
        is_star = token.token_type == TokenType.STAR and (
            is_qualified or keyword(before) in ("SELECT", "DISTINCT") or before.token_type == TokenType.COMMA
        )
        has_list = after is not None and keyword(after) in ("EXCLUDE", "REPLACE", "RENAME", "LIKE", "ILIKE")
        if not is_star or has_list or not tables & _read_around(tokens, place):
            continue
        # DuckDB has no t.COLUMNS(...), and rejects EXCLUDE of columns that are not there.
        starless += f"{sql[done : token.start]}{hidden[0] if is_qualified else 'NULL'}"
        shown_text += f"{sql[done : token.start]}{excluded if is_qualified else f'COLUMNS(lambda c: c NOT IN ({names}))'}"
        done = token.end + 1
    return starless + sql[done:], shown_text + sql[done:]


def _read_around(tokens: Sequence[Any], place: int) -> set[str]:
    """Return the folded names of the tables that the SELECT at a place reads, without those of its subqueries."""
    found: set[str] = set()
    for step in (1, -1):
        depth, at = 0, place
        opening, closing = (TokenType.L_PAREN, TokenType.R_PAREN)[::step]
        while 0 <= at < len(tokens) and depth >= 0 and not (depth == 0 and keyword(tokens[at]) in ("UNION", "EXCEPT", "INTERSECT")):
            depth += (tokens[at].token_type == opening) - (tokens[at].token_type == closing)
            begins = at > 0 and (keyword(tokens[at - 1]) in ("FROM", "JOIN") or tokens[at - 1].token_type == TokenType.COMMA)
            if depth == 0 and begins and is_name(tokens[at]):
                end = at
                while end + 2 < len(tokens) and tokens[end + 1].token_type == TokenType.DOT:
                    end += 2
                found.add(folded(tokens[end].text))
            at += step
    return found


def missing_virtual(statements: Sequence[str], problem: DuckLakeError) -> list[str]:
    """Return the virtual columns that SQL text names and that were not found."""
    mentioned = {name for one in statements for name in identifiers(one)}
    return [name for name in VIRTUAL_SCHEMA.names if name in mentioned and name in problem.message.lower()]


def check_named_alone(statements: Sequence[str], extended: Sources, named: Sequence[str], problem: DuckLakeError | None) -> None:
    """Reject queries that show all columns or whole rows of a table, because they would show the virtual columns that they name as well.

    Args:
        statements: Queries or statements.
        extended: What they may name, with the virtual columns.
        named: Names of these.
        problem: What is wrong without them.

    Raises:
        UsageError: They do.
    """
    read = {folded(table.name) for table in extended.tables}
    own = {folded(column.name) for table in extended.tables for column in table.columns}
    if any(_shows_all_columns(one, read, own) for one in statements if (read | RUN_STRINGS) & identifiers(one)):
        known = "virtual columns are only supported in queries that list their columns, without * and whole rows"
        before = "" if problem is None else f"{problem.message}; "
        raise UsageError(f"{before}{', '.join(named)}: {known}") from problem


def with_virtual_columns(found: Sources, statements: Sequence[str]) -> Sources:
    """Return what SQL text may name, with the virtual columns that it names."""
    mentioned = {name for one in statements for name in identifiers(one)}
    wanted = [column for column in VIRTUAL_SCHEMA if column.name in mentioned and column != FILE_INDEX]
    tables = []
    for table in found.tables:
        more = [
            column for column in wanted if (not table.is_frame or column.name in table.virtual) and table.columns.find(column.name) is None
        ]
        tables.append(replace(table, columns=Schema(columns=(*table.columns, *more))) if more else table)
    return replace(found, tables=tuple(tables))


def _shows_all_columns(sql: str, tables: Collection[str], columns: Collection[str]) -> bool:
    """Return whether a query may show all columns of something, by ``*`` or as a row, which is what the name of a table stands for.

    >>> [_shows_all_columns(f"SELECT {shown} FROM t AS a", {"t"}, {"k"}) for shown in ("a.*", "a", "count(*), k", "trim(BOTH FROM k)")]
    [True, True, False, False]

    Args:
        sql: The query; one that cannot be parsed may show anything.
        tables: Folded names of the tables.
        columns: Folded names of their columns, which win over those of tables.
    """
    try:
        tree = sqlglot.parse_one(sql.replace(PLACEHOLDER, CATALOG), read="duckdb")
    except (SqlglotError, RecursionError):
        return True
    if tree.find(*_ALL_COLUMNS) or any(_reaches(star, tables) for star in tree.find_all(exp.Star)):
        return True
    # The tree does not contain what query('...') reads.
    if any(call.name.lower() == "query" for call in tree.find_all(exp.Anonymous)):
        return True
    # The name of a table alone is its row, unless a column has the same name.
    rows = {folded(table.alias_or_name) for table in tree.find_all(exp.Table) if folded(table.name) in tables}.difference(columns)
    has_rows = any(not column.table and folded(column.name) in rows for column in tree.find_all(exp.Column))
    return has_rows or any(join.method == "NATURAL" for join in tree.find_all(exp.Join))


def _reaches(star: exp.Star, tables: Collection[str]) -> bool:
    """Return whether one of the tables is among what ``*`` shows; subqueries next to it are checked on their own."""
    if isinstance(star.parent, exp.Count):
        return False
    select = star.find_ancestor(exp.Select)
    if select is None:
        return True
    clauses = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or ())]
    # Not into subqueries: their own stars decide what they show.
    inner = (exp.Select, exp.SetOperation)
    nodes = (node for clause in clauses if clause is not None for node in clause.walk(prune=lambda node: isinstance(node, inner)))
    return any(isinstance(node, exp.Table) and (not node.name or folded(node.name) in tables) for node in nodes)


def selected_scan(lake: LakeContext, selected: Selection) -> Scan:
    """Return the scan that a query of columns of one table is; a column that is named twice is read once."""
    columns = list(dict.fromkeys(base for _, base in selected.columns))
    return Scan(table=selected.table, columns=columns, where=selected.where, reader=lake.reader, storage=lake.storage)


def selected_frame(lake: LakeContext, selected: Selection, session: SparkSession) -> DataFrame:
    """Return the rows of such a query."""
    frame = selected_scan(lake, selected).to_spark(session)
    return frame.select(*(frame["`" + base.replace("`", "``") + "`"].alias(name) for name, base in selected.columns))


def translated_frame(lake: LakeContext, translated: Translation, session: SparkSession) -> DataFrame:
    """Return the rows of a translated query.

    Args:
        lake: The lake.
        translated: The query in Spark SQL, with its scans.
        session: The Spark session.

    Raises:
        UnsupportedFeatureError: Spark does not run it.
        UsageError: The session does not follow ANSI SQL.
    """
    from ducklake_core.engines.spark.scan_schema import run_query, scanned

    frames = {}
    for one in translated.scans:
        # Not exact: the query computes with its columns, which strings in place of numbers would not allow.
        scan = Scan(table=one.table, columns=one.columns, where=one.where, reader=lake.reader, storage=lake.storage)
        frames[one.key] = scanned(scan.to_spark(session, exact=False), one.types, one.identifiers, translated.subject)
    return run_query(translated.sql, frames, translated.identifiers, translated.schema, session, translated.subject)


def register(
    lake: LakeContext, session: SparkSession | None, schema: str | None, tables: Sequence[str] | None, at: At
) -> dict[str, str | None]:
    """Make the temporary views; see :meth:`DuckLake.register`.

    Args:
        lake: The lake.
        session: The Spark session.
        schema: Path of the schema, ``main`` when None.
        tables: Names of tables and views, all of the schema when None.
        at: The snapshot, or a time.

    Raises:
        UsageError: There is no session.
    """
    if session is None:
        raise UsageError("register needs a Spark session")
    with lake.reader() as reader:
        snapshot = resolve_at(reader, at).id
        owner = reader.schema(*schemas_meant(schema or DEFAULT_SCHEMA), snapshot_id=snapshot)
        names = [name for own, name in reader.table_names(snapshot).values() if folded(own) == folded(owner.name)]
        names += [view.name for view in views(reader, snapshot) if view.schema_id == owner.id]
    wanted = names if tables is None else _chosen(tables, names, owner.name)
    made: dict[str, str | None] = {}
    for name in sorted(wanted):
        try:
            frame = _frame(lake, owner.name, name, snapshot, session)
        except UnsupportedFeatureError as problem:
            # One view that Spark cannot run does not keep the others from being registered.
            made[name] = problem.message
        else:
            frame.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
            made[name] = None
    return made


def _chosen(tables: Sequence[str], names: Sequence[str], schema: str) -> list[str]:
    known = {folded(name): name for name in names}
    missing = [name for name in tables if folded(name) not in known]
    if missing:
        raise NotFoundError(f"schema {schema} has no table or view {', '.join(missing)}", tables=missing)
    return [known[folded(name)] for name in tables]


def _frame(lake: LakeContext, schema: str, name: str, snapshot: int, session: SparkSession) -> DataFrame:
    query = f"FROM {quoted_path((*split_path(schema), name))}"
    return Query(lake, query, snapshot, session).to_spark()
