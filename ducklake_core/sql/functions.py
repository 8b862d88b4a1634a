"""Replace variables, the lake's name and calls of DuckLake's functions in SQL text, before anything else reads it.

    SELECT * FROM lake.t, lake.snapshots()   ->   SELECT * FROM t, "__ducklake_calls"."f0" AS "snapshots"

The rows of a function are a table of the statement, like a frame of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import pyarrow as pa
from sqlglot import TokenType

from ducklake_core.catalog.database.tables import is_inlined_table
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.options import resolve_bound, scoped_options
from ducklake_core.engines.arrow.merge import source_ids
from ducklake_core.engines.duckdb.query import write_file
from ducklake_core.engines.duckdb.relations import TableSource
from ducklake_core.engines.duckdb.syntax import argument_value, constant_text, words_of_sql
from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, join_name, quoted_path, split_name, split_path
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.format.types.text import counted, similar_in_brackets, similar_or_all
from ducklake_core.format.types.type_parser import data_type_of
from ducklake_core.planning.plan import FEED_ROW_ID, FEED_SNAPSHOT_ID
from ducklake_core.planning.planner import feed_schema
from ducklake_core.scan import ChangeFeed
from ducklake_core.sql.names import Run, has_alias, is_before_table, lake_names, may_be_alias, name_runs
from ducklake_core.sql.parts import bracketed, comma_separated, outside_brackets, text_between
from ducklake_core.sql.time_travel import command, identifiers, keyword, tokens_of
from ducklake_core.staging.arguments import At, resolve_at

if TYPE_CHECKING:
    from ducklake_core.catalog.reading.options import StoredOptions
    from ducklake_core.engines.arrow.readable import Readable
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.state import Snapshot
    from ducklake_core.planning.plan import FeedKind
    from ducklake_core.sql.names import Names
    from ducklake_core.staging.context import LakeContext


LAKE = "lake"
"""Name of the lake in SQL, as a catalog of DuckDB."""
LAKE_NAMES = (LAKE, "my_ducklake")
"""All names of the lake; the second one is that of DuckDB's documentation."""
CATALOG_TABLES = tuple(f"__ducklake_metadata_{name}" for name in LAKE_NAMES)
"""Names of the catalog's own tables in SQL, as in DuckDB."""
_CATALOG_TYPES: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", datetime: "TIMESTAMPTZ", bytes: "BLOB"}
_CALLS = "__ducklake_calls"
_NAMED = re.compile(r"\s*(\w+)\s*(?:=>|:=)\s*(.*)", re.DOTALL)
_COMMANDS = ("CALL", "SET", "RESET", "EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SUMMARIZE")
_WORDS = ("variable", "ducklake_", "call", "checkpoint", "snapshot", "table_", "options", "settings", "list_files", LAKE)
"""A text without any of them has nothing to replace."""

Arguments: TypeAlias = "dict[str, Any]"
Rows: TypeAlias = "Iterable[tuple[object, ...]]"

_SNAPSHOT_COLUMNS = (
    "snapshot_id BIGINT, snapshot_time TIMESTAMPTZ, schema_version BIGINT, changes MAP(VARCHAR, VARCHAR[]), author VARCHAR, "
    "commit_message VARCHAR, commit_extra_info VARCHAR"
)
_FILE_COLUMNS = ", ".join(
    f"{kind}_file{column}"
    for kind in ("data", "delete")
    for column in (" VARCHAR", "_size_bytes UBIGINT", "_footer_size UBIGINT", "_encryption_key BLOB")
)
_DESCRIPTIONS = {
    "auto_compact": "Whether maintenance of all tables includes this one",
    "created_by": "Tool that created the lake",
    "data_inlining_row_limit": "Maximum number of rows of an insert that is stored in the catalog",
    "data_path": "Path of the data files",
    "delete_older_than": "Minimum age of unneeded files that are deleted",
    "encrypted": "Whether data files are encrypted",
    "expire_older_than": "Age of snapshots that expire",
    "hive_file_pattern": "Whether partitions have directories of their own",
    "parquet_compression": "Compression of data files",
    "parquet_compression_level": "Level of the compression",
    "parquet_row_group_size": "Rows of a row group",
    "parquet_row_group_size_bytes": "Bytes of a row group",
    "parquet_version": "Version of the Parquet format",
    "per_thread_output": "Whether each writing thread makes its own files",
    "require_commit_message": "Whether a commit needs a message",
    "rewrite_delete_threshold": "Fraction of deleted rows from which a file is rewritten",
    "sort_on_insert": "Whether inserted rows are sorted",
    "target_file_size": "Size of data files in bytes",
    "version": "Version of the DuckLake format",
    "write_deletion_vectors": "Whether deletes are written as deletion vectors",
}


_MAX_FAILURES = 3
"""Maximum number of failures that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Context of function calls.

    Attributes:
        lake: The lake.
        at: The snapshot that the statement reads.
        operations: The lake or the transaction, whose methods the functions call.
        files: Whether SQL may read files.
        describe: Sets author, message and further information of the transaction; None outside of one.
        options: The options as the transaction sees them; None outside of one.
        schemas: Returns the paths of the schemas as the transaction sees them; None outside of one.
    """

    lake: LakeContext
    operations: object
    at: At = None
    files: bool = False
    describe: Callable[[str | None, str | None, str | None], None] | None = None
    options: StoredOptions | None = None
    schemas: Callable[[], Collection[str]] | None = None

    def method(self, name: str) -> Callable[..., Any]:
        """Return the method with the name of a function.

        Raises:
            UnsupportedFeatureError: The statement is part of a transaction, which does not have the method.
        """
        found: Callable[..., Any] | None = getattr(self.operations, name, None)
        if found is None:
            function = name.upper() if name == "checkpoint" else f"ducklake_{name}"
            raise UnsupportedFeatureError(
                f"{function} commits by itself, so it cannot be part of a transaction. Call it with lake.sql before or after it"
            )
        return found

    def maintained(self, name: str, **arguments: object) -> Any:
        """Call a method of maintenance.

        Raises:
            DuckLakeError: It has failed for a table or file. The others are done.
        """
        result = self.method(name)(**arguments)
        if result.failed_steps:
            message = "; ".join(f"{step.target}: {step.reason}" for step in result.failed_steps[:_MAX_FAILURES])
            raise DuckLakeError(f"{name} failed for {counted(len(result.failed_steps), 'step')}, and the others are done. {message}")
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of DuckLake.

    Attributes:
        columns: Names and types of its result, as in DuckDB.
        rows: Computes the result.
        positional: Names of the arguments behind the lake's name.
        required: How many of them have to be there.
        named: Further arguments.
        feed: The change feed that it returns, with the columns of the table; None for all other functions.
        takes_null: Whether NULL is a value of its arguments; False by default.
    """

    columns: str = ""
    rows: Callable[[Caller, Arguments], Rows] = lambda _caller, _arguments: ()
    positional: tuple[str, ...] = ()
    required: int = 0
    named: tuple[str, ...] = ()
    feed: FeedKind | None = None
    takes_null: bool = False


def replaced(sql: str, caller: Caller) -> tuple[str, tuple[TableSource, ...]]:
    """Return the text without variables, the lake's name and function calls, and the rows of the functions.

    Functions that change the lake run now.

    Args:
        sql: A statement without parameters.
        caller: What functions may use.

    Raises:
        UsageError: A function lacks an argument, or has one that it does not take.
        NotFoundError: There is no such table or snapshot.
        UnsupportedFeatureError: A function cannot be called here.
    """
    lowered = sql.lower()
    if not any(word in lowered for word in _WORDS):
        return sql, ()
    word, rest = command(sql)
    if word == "CHECKPOINT" and folded(rest) in ("", *LAKE_NAMES):
        word, rest = "CALL", f"ducklake_checkpoint('{LAKE}')"
    if word not in _COMMANDS:
        return _replaced(sql, caller)
    if not rest:
        raise UsageError(f"cannot parse the SQL: nothing follows {word}")
    text, found = _replaced(rest, caller)
    if word != "CALL":
        return f"{word} {text}", found
    if not found:
        name = rest.partition("(")[0].strip()
        bare = name.rpartition(".")[2]
        listed = similar_or_all(bare, [one.removeprefix("ducklake_") for one in FUNCTIONS], ". The functions are")
        raise UnsupportedFeatureError(f"CALL {name} is not supported{listed}", sql=sql)
    return f"FROM {text}", found


def _replaced(sql: str, caller: Caller) -> tuple[str, tuple[TableSource, ...]]:
    text = _without_variables(sql, caller.lake.variables)
    for name in LAKE_NAMES:
        text = _without_lake_name(text, name, caller)
    return _without_calls(text, caller)


# Statements that change nothing


def uses_lake(sql: str, caller: Caller) -> bool:
    """Return whether a statement is USE with the lake's name or ``main``, which has no effect: they are in use."""
    words = [folded(token.text) for token in tokens_of(sql)]
    if words not in [["use", name] for name in (*LAKE_NAMES, DEFAULT_SCHEMA)]:
        return False
    with caller.lake.reader() as reader:
        found = lake_names(caller.lake, reader, resolve_at(reader, caller.at).id)
    return words[1] == DEFAULT_SCHEMA or words[1] not in _first_schemas(found, caller)


def set_variable(sql: str, variables: dict[str, str], query: Callable[[str], Readable]) -> bool:
    """Run SET VARIABLE or RESET VARIABLE; return whether the statement is one of them.

    Args:
        sql: A statement.
        variables: SQL text of the variables by name.
        query: Makes a query.
    """
    word, rest = command(sql)
    if word not in ("SET", "RESET") or not rest or keyword(tokens_of(rest)[0]) != "VARIABLE":
        return False
    tokens = tokens_of(rest)
    if word == "RESET" and len(tokens) == 2:
        variables.pop(folded(tokens[1].text), None)
        return True
    if word == "RESET" or len(tokens) < 4 or tokens[2].token_type != TokenType.EQ:
        raise UsageError("cannot parse the SQL. Write SET VARIABLE name = value")
    value = f"FROM (SELECT ({text_between(rest, tokens, 3)}) AS v) AS value SELECT typeof(v) AS kind, CAST(v AS VARCHAR) AS text"
    (row,) = query(value).to_arrow().to_pylist()
    variables[folded(tokens[1].text)] = constant_text(row["kind"], row["text"])
    return True


def copy_to_file(sql: str, query: Callable[[str], Readable], *, files: bool) -> bool:
    """Run COPY ... TO a file; return whether the statement is one.

    Args:
        sql: A statement.
        query: Makes a query.
        files: Whether SQL may write files.

    Raises:
        UnsupportedFeatureError: It may not.
        UsageError: DuckDB rejects the statement, or cannot write the file.
    """
    tokens = tokens_of(sql)
    if keyword(tokens[0]) != "COPY":
        return False
    places = [place for place in outside_brackets(tokens, 1) if keyword(tokens[place]) == "TO"]
    if not places:
        return False
    if not files:
        raise UnsupportedFeatureError("SQL cannot write files: pass files=True for COPY ... TO, or use the result of a query")
    (end, *_) = places
    text = text_between(sql, tokens, 1, end)
    rows = query(text[1:-1] if text.startswith("(") else f"FROM {text}")
    write_file(rows.to_reader(), text_between(sql, tokens, end), sql)
    return True


def _without_variables(sql: str, variables: dict[str, str]) -> str:
    tokens = tokens_of(sql)
    pieces, done = [], 0
    for place, token in enumerate(tokens[:-3]):
        name = tokens[place + 2]
        if folded(token.text) != "getvariable" or tokens[place + 1].token_type != TokenType.L_PAREN or name.token_type != TokenType.STRING:
            continue
        pieces += [sql[done : token.start], variables.get(folded(name.text), "NULL")]
        done = tokens[place + 3].end + 1
    return "".join([*pieces, sql[done:]])


# The lake's name


def _without_lake_name(sql: str, lake: str, caller: Caller) -> str:
    """Return the text with ``t`` for ``lake.t``, unless ``lake`` is a schema, a table, a column or an alias."""
    if lake not in sql.lower():
        return sql
    tokens = tokens_of(sql)
    runs = list(name_runs(tokens))
    qualified = [one for one in runs if len(one.parts) > 1 and folded(one.parts[0]) == lake]
    if not qualified:
        return sql
    with caller.lake.reader() as reader:
        found = lake_names(caller.lake, reader, resolve_at(reader, caller.at).id)
    schemas = _first_schemas(found, caller)
    names = {folded(name) for schema, name in found.objects() if folded(schema) == DEFAULT_SCHEMA}
    is_alias = any(len(one.parts) == 1 and folded(one.parts[0]) == lake and may_be_alias(tokens, one.start) for one in runs)
    if lake in schemas | names:
        return sql
    if not is_alias and not all(is_before_table(tokens, one.start) or _is_call(tokens, one) for one in qualified):
        mentioned = identifiers(sql)
        columns = (one.open()[0].names for one in found.tables if folded(one.name) in mentioned)
        is_alias = any(folded(name) == lake for table in columns for name in table)
    # What stands behind FROM is a table; elsewhere ``lake.x`` may be a field of a column, or a column of an alias.
    known = set() if is_alias else {DEFAULT_SCHEMA, *schemas, *names}
    known |= set() if is_alias else {folded(one.parts[1]) for one in qualified if is_before_table(tokens, one.start)}
    pieces, done = [], 0
    for one in qualified:
        is_in_lake = is_before_table(tokens, one.start) or folded(one.parts[1]) in known
        if is_in_lake and not _is_call(tokens, one):
            pieces.append(sql[done : tokens[one.start].start])
            done = tokens[one.start + 2].start
    return "".join([*pieces, sql[done:]])


def _first_schemas(names: Names, caller: Caller) -> set[str]:
    """Return the schemas that are in no other schema."""
    return {folded(split_path(one)[0]) for one in (caller.schemas or names.schemas)()}


# Functions


def _is_call(tokens: Sequence[Any], run: Run) -> bool:
    """Return whether a name calls a function of DuckLake: ``ducklake_snapshots``, ``lake.snapshots`` or ``snapshots``, behind FROM."""
    if run.end >= len(tokens) or tokens[run.end].token_type != TokenType.L_PAREN:
        return False
    # In INSERT INTO lake.options (key) the brackets hold columns.
    is_first = run.start == 0 or keyword(tokens[run.start - 1]) in ("FROM", "JOIN")
    is_source = is_first or tokens[run.start - 1].token_type == TokenType.COMMA
    *owner, name = map(folded, run.parts)
    if not owner:
        return (is_source and name in FUNCTIONS) or (is_first and f"ducklake_{name}" in FUNCTIONS)
    return is_source and owner[0] in LAKE_NAMES and f"ducklake_{name}" in FUNCTIONS


def _calls(tokens: Sequence[Any], runs: Sequence[Run], caller: Caller) -> list[Run]:
    """Return the names that call functions of DuckLake; macros of the lake come first."""
    calls = [one for one in runs if _is_call(tokens, one)]
    if all(len(one.parts) > 1 or folded(one.parts[0]) in FUNCTIONS for one in calls):
        return calls
    with caller.lake.reader() as reader:
        own = {folded(macro.name) for macro in lake_names(caller.lake, reader, resolve_at(reader, caller.at).id).macros}
    return [one for one in calls if len(one.parts) > 1 or folded(one.parts[0]) not in own]


def _without_calls(sql: str, caller: Caller) -> tuple[str, tuple[TableSource, ...]]:
    tokens = tokens_of(sql)
    found: list[TableSource] = []
    pieces, done = [], 0
    runs = list(name_runs(tokens))
    calls = _calls(tokens, runs, caller)
    if calls and keyword(tokens[0]) == "CREATE" and {"VIEW", "MACRO", "FUNCTION"} & {keyword(token) for token in tokens[1:4]}:
        raise UnsupportedFeatureError(f"a view or macro cannot call {calls[0].parts[-1]}: call it in a query")
    for one in runs:
        key = f"f{len(found)}"
        if one in calls:
            end = bracketed(tokens, one.end)
            found.append(_source(key, one, comma_separated(sql, tokens[one.end + 1 : end - 1]), caller))
        elif len(one.parts) > 1 and folded(one.parts[0]) in CATALOG_TABLES and tuple(one.parts[1:-1]) in ((), ("main",)):
            end = one.end
            found.append(_catalog_source(key, folded(one.parts[-1]), caller))
        else:
            continue
        # DESCRIBE and its like take no alias. At the start of the text such a word was removed before.
        before = keyword(tokens[one.start - 1]) if one.start else _COMMANDS[0]
        has_none = before in _COMMANDS or has_alias(tokens, end)
        alias = "" if has_none else f" AS {quoted_path(one.parts[-1:])}"
        pieces += [sql[done : tokens[one.start].start], quoted_path((_CALLS, key)), alias]
        done = tokens[end - 1].end + 1
    return "".join([*pieces, sql[done:]]), tuple(found)


def _source(key: str, run: Run, given: Sequence[str], caller: Caller) -> TableSource:
    *owner, name = run.parts
    is_method = folded(name) not in FUNCTIONS
    function = FUNCTIONS[f"ducklake_{folded(name)}" if is_method else folded(name)]
    arguments = _arguments(name, function, given, is_method=is_method)
    if len(owner) > 1:
        arguments.setdefault("schema", owner[1])
    if function.feed is not None:
        return _feed_source(key, function.feed, arguments, caller)
    return _rows_source(key, _schema(function.columns), list(function.rows(caller, arguments)))


def _catalog_source(key: str, name: str, caller: Caller) -> TableSource:
    """Return a table of the catalog itself. Encryption keys stay there: they open the files of everybody who reads the result."""
    with caller.lake.reader() as reader:
        table = reader.catalog.get(name.removeprefix("ducklake_"))
        if table is None and not (is_inlined_table(name) and reader.has_table(name)):
            near = similar_in_brackets(name, [f"ducklake_{one}" for one in reader.catalog])
            raise NotFoundError(f"the catalog has no table {name}{near}", table=name)
        # The catalog does not list the columns of tables of inlined rows and deletes.
        selected = reader.catalog.whole(name) if table is None else table.select()
        result = reader.connection.execute(selected)
        names = list(result.keys())
        rows = [tuple(map(_catalog_value, row)) for row in result]
    known = reader.catalog.system_columns(name) if table is None else table.c
    types = {column.name: column.type.python_type for column in known}
    fields = []
    for place, column in enumerate(names):
        # Columns of times and flags have different types in each database; their values do not.
        found = next((type(row[place]) for row in rows if row[place] is not None), types.get(column, str))
        fields.append(Field(name=column, type=data_type_of(_CATALOG_TYPES.get(found, "VARCHAR"))))
    hidden = [table is not None and field.name == "encryption_key" for field in fields]
    shown = [tuple(None if is_hidden else value for value, is_hidden in zip(row, hidden, strict=True)) for row in rows]
    return _rows_source(key, Schema(columns=tuple(fields)), shown)


def _catalog_value(value: object) -> object:
    return value if value is None or isinstance(value, (*_CATALOG_TYPES, str)) else str(value)


def _rows_source(key: str, columns: Schema, rows: Sequence[tuple[object, ...]]) -> TableSource:
    columns = source_ids(columns)
    schema = to_arrow_schema(columns, physical=False)
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    data = pa.Table.from_arrays([pa.array(one, column.type) for one, column in zip(values, schema, strict=True)], schema=schema)
    return TableSource(
        schema_name=_CALLS,
        name=key,
        columns=columns,
        read=lambda names, _: data.select(list(names)).to_reader(),
        row_count=data.num_rows,
        is_frame=True,
    )


def _schema(text: str) -> Schema:
    parts = comma_separated(text, tokens_of(text))
    return Schema(columns=tuple(Field(name=name, type=data_type_of(kind)) for name, _, kind in (one.partition(" ") for one in parts)))


def _arguments(name: str, function: Function, given: Sequence[str], *, is_method: bool) -> Arguments:
    """Return the arguments by name.

    Raises:
        UsageError: One is missing or unknown, or the first is not the lake's name.
    """
    found: Arguments = {}
    values = []
    for one in given:
        named = _NAMED.match(one)
        if named is None:
            values.append(argument_value(one))
        else:
            found[folded(named[1])] = argument_value(named[2])
    if not is_method:
        if not values or not isinstance(values[0], str) or folded(values[0]) not in LAKE_NAMES:
            raise UsageError(f"the first argument of {name} must be '{LAKE}', which is the name of the lake in SQL")
        del values[0]
    # ``lake.table_changes('t', 1, 2)`` names no schema.
    names = function.positional[1:] if is_method and function.feed is not None else function.positional
    known = (*names, *function.named)
    unknown = [one for one in found if one not in known]
    if unknown or len(values) > len(names):
        excess = ", ".join(unknown) or f"{len(values)} arguments"
        raise UsageError(f"{name} does not take {excess}. Its arguments are: {', '.join(known) or 'none'}")
    found.update(zip(names, values, strict=False))
    missing = [one for one in names[: function.required] if found.get(one) is None]
    if missing:
        raise UsageError(f"{name} needs the argument {missing[0]}")
    nulls = [one for one, value in found.items() if value is None and not function.takes_null]
    if nulls:
        raise UsageError(f"{name} does not take NULL for {nulls[0]}. Leave the argument out")
    return found


def _snapshots(caller: Caller, _: Arguments) -> Rows:
    with caller.lake.reader() as reader:
        return list(map(_snapshot_row, reader.snapshots(until=None if caller.at is None else resolve_at(reader, caller.at).id)))


def _snapshot_row(one: Snapshot) -> tuple[object, ...]:
    changes = list(one.change_set.listing(words_of_sql()).items())
    return (one.id, one.time, one.schema_version, changes, one.author, one.message, one.extra_info)


def _current(caller: Caller, _: Arguments) -> Rows:
    with caller.lake.reader() as reader:
        return [(resolve_at(reader, caller.at).id,)]


def _last_committed(caller: Caller, _: Arguments) -> Rows:
    return [(caller.lake.database.last_committed,)]


def _settings(caller: Caller, _: Arguments) -> Rows:
    database, info = caller.lake.database, caller.lake.info
    return [(database.address.url.get_backend_name(), info.created_by, info.data_path)]


def _table_info(caller: Caller, _: Arguments) -> Rows:
    with caller.lake.reader() as reader:
        for one in reader.tables(resolve_at(reader, caller.at).id):
            sizes = (one.file_count, one.file_size_bytes, one.delete_file_count, one.delete_file_size_bytes)
            yield (one.name, one.schema_id, one.id, UUID(one.uuid).bytes, *sizes)


def _options(caller: Caller, _: Arguments) -> Rows:
    with caller.lake.reader() as reader:
        for one in scoped_options(reader, resolve_at(reader, caller.at).id, caller.options):
            yield (one.name, _DESCRIPTIONS.get(one.name), one.value, one.scope.upper(), one.entry)


def _list_files(caller: Caller, given: Arguments) -> Rows:
    if "snapshot_version" in given and "snapshot_time" in given:
        raise UsageError("list_files takes snapshot_version or snapshot_time, not both")
    at = given.get("snapshot_version", given.get("snapshot_time"))
    with caller.lake.reader() as reader:
        snapshot = resolve_at(reader, caller.at if at is None else at)
        table = reader.table(given.get("schema", DEFAULT_SCHEMA), given["table_name"], snapshot.id)
        for file, _ in data_files(reader, table):
            # Keys stay in the catalog: they open the files of everybody who reads the result.
            own = (file.path, file.file_size_bytes, file.footer_size, None)
            deletes: list[tuple[object, ...]] = [(one.path, one.file_size_bytes, one.footer_size, None) for one in file.delete_files]
            yield from ((*own, *one) for one in deletes or [(None,) * 4])


def _feed_source(key: str, kind: FeedKind, given: Arguments, caller: Caller) -> TableSource:
    with caller.lake.reader() as reader:
        start, end = resolve_bound(reader, "start_snapshot", given["start_snapshot"]), resolve_at(reader, given["end_snapshot"])
        table = reader.table(given.get("schema", DEFAULT_SCHEMA), given["table_name"], end.id)
    lake = caller.lake

    def read(names: Sequence[str], _: Predicate | None) -> pa.RecordBatchReader:
        feed = ChangeFeed(table=table, kind=kind, start=start, columns=list(names), reader=lake.reader, storage=lake.storage)
        return feed.to_reader()

    columns = feed_schema(table, kind)
    # Without the kind of change, DuckDB shows the columns of the table; snapshot_id and rowid are virtual columns.
    own, virtual = (columns, ()) if kind == "changes" else (table.schema, (FEED_SNAPSHOT_ID.name, FEED_ROW_ID.name))
    return TableSource(schema_name=_CALLS, name=key, columns=own, read=read, is_frame=True, virtual=virtual)


def _set_option(caller: Caller, given: Arguments) -> Rows:
    set_option = caller.method("set_option")
    schema, table = given.get("schema"), given.get("table_name")
    scope = {"table": join_name(schema or DEFAULT_SCHEMA, table)} if table is not None else {"schema": schema} if schema is not None else {}
    set_option(given["option"], given["value"], **scope)
    return ()


def _flush(caller: Caller, given: Arguments) -> Rows:
    result = caller.maintained("flush_inlined_data", **_scope(given))
    # As in DuckDB, the count includes deleted rows, which earlier snapshots show.
    return [(*split_name(one.table), one.rows) for one in result.tables if one.rows and one.skipped is None]


def _merge(caller: Caller, given: Arguments) -> Rows:
    options = {name: given[name] for name in ("max_compacted_files", "min_file_size", "max_file_size") if name in given}
    result = caller.maintained("merge_adjacent_files", **_scope(given), **options)
    # As in DuckDB, a row for each group of files.
    return [(*split_name(step.target), step.files, 1) for step in result.steps if step.outcome == "done"]


def _rewrite(caller: Caller, given: Arguments) -> Rows:
    options = {"delete_threshold": given["delete_threshold"]} if "delete_threshold" in given else {}
    result = caller.maintained("rewrite_data_files", **_scope(given), **options)
    return [(*split_name(one.table), one.files_rewritten, one.files_created) for one in result.tables if one.files_rewritten]


def _scope(given: Arguments) -> dict[str, str]:
    schema, table = given.get("schema", given.get("schema_name")), given.get("table_name")
    if table is None:
        return {} if schema is None else {"schema": schema}
    return {"table": join_name(schema or DEFAULT_SCHEMA, table)}


def _expire(caller: Caller, given: Arguments) -> Rows:
    with caller.lake.reader() as reader:
        known = {one.id: one for one in reader.snapshots()}
    expired = caller.maintained("expire_snapshots", **given).snapshot_ids
    return [_snapshot_row(known[one]) for one in expired if one in known]


def _cleanup(caller: Caller, given: Arguments) -> Rows:
    return [(one.path,) for one in caller.maintained("cleanup_old_files", **given).files]


def _orphans(caller: Caller, given: Arguments) -> Rows:
    return [(one.path,) for one in caller.maintained("delete_orphaned_files", **given).files]


def _checkpoint(caller: Caller, _: Arguments) -> Rows:
    caller.maintained("checkpoint")
    return ()


def _set_commit_message(caller: Caller, given: Arguments) -> Rows:
    if caller.describe is None:
        raise UsageError("set_commit_message belongs into a transaction. Pass author= and message= to lake.sql instead")
    caller.describe(given.get("author"), given.get("message"), given.get("extra_info"))
    return ()


def _add_files(caller: Caller, given: Arguments) -> Rows:
    add_data_files = caller.method("add_data_files")
    if not caller.files:
        raise UnsupportedFeatureError("SQL cannot read files: pass files=True for ducklake_add_data_files, or call lake.add_data_files")
    options = {
        name: given[name] for name in ("hive_partitioning", "ignore_extra_columns", "allow_missing", "allow_duplicates") if name in given
    }
    add_data_files(join_name(given.get("schema") or DEFAULT_SCHEMA, given["table_name"]), given["files"], **options)
    return ()


def _feed(kind: FeedKind) -> Function:
    return Function(feed=kind, positional=("schema", "table_name", "start_snapshot", "end_snapshot"), required=4)


_PAIRS = "schema_name VARCHAR, table_name VARCHAR, "
_COMPACTED = _PAIRS + "files_processed BIGINT, files_created BIGINT"
_ADDING = ("hive_partitioning", "ignore_extra_columns", "allow_missing", "allow_duplicates")
_AGES = ("dry_run", "cleanup_all", "older_than", "min_age")
FUNCTIONS: Mapping[str, Function] = {
    "ducklake_snapshots": Function(columns=_SNAPSHOT_COLUMNS, rows=_snapshots),
    "ducklake_current_snapshot": Function(columns="id UBIGINT", rows=_current),
    "ducklake_last_committed_snapshot": Function(columns="id UBIGINT", rows=_last_committed),
    "ducklake_settings": Function(columns="catalog_type VARCHAR, extension_version VARCHAR, data_path VARCHAR", rows=_settings),
    "ducklake_table_info": Function(
        columns="table_name VARCHAR, schema_id BIGINT, table_id BIGINT, table_uuid UUID, file_count BIGINT, file_size_bytes BIGINT, "
        "delete_file_count BIGINT, delete_file_size_bytes BIGINT",
        rows=_table_info,
    ),
    "ducklake_options": Function(
        columns="option_name VARCHAR, description VARCHAR, value VARCHAR, scope VARCHAR, scope_entry VARCHAR", rows=_options
    ),
    "ducklake_list_files": Function(
        columns=_FILE_COLUMNS,
        rows=_list_files,
        positional=("table_name",),
        required=1,
        named=("schema", "snapshot_version", "snapshot_time"),
    ),
    "ducklake_table_changes": _feed("changes"),
    "ducklake_table_insertions": _feed("insertions"),
    "ducklake_table_deletions": _feed("deletions"),
    "ducklake_set_option": Function(
        columns="Success BOOLEAN", rows=_set_option, positional=("option", "value"), required=2, named=("schema", "table_name")
    ),
    "ducklake_set_commit_message": Function(
        columns="Success BOOLEAN", rows=_set_commit_message, positional=("author", "message"), named=("extra_info",), takes_null=True
    ),
    "ducklake_flush_inlined_data": Function(columns=_PAIRS + "rows_flushed HUGEINT", rows=_flush, named=("schema_name", "table_name")),
    "ducklake_merge_adjacent_files": Function(
        columns=_COMPACTED,
        rows=_merge,
        positional=("table_name",),
        named=("schema", "max_compacted_files", "min_file_size", "max_file_size"),
    ),
    "ducklake_rewrite_data_files": Function(
        columns=_COMPACTED, rows=_rewrite, positional=("table_name",), named=("schema", "delete_threshold")
    ),
    "ducklake_expire_snapshots": Function(columns=_SNAPSHOT_COLUMNS, rows=_expire, named=("dry_run", "versions", "older_than", "min_age")),
    "ducklake_cleanup_old_files": Function(columns="path VARCHAR", rows=_cleanup, named=_AGES),
    "ducklake_delete_orphaned_files": Function(columns="path VARCHAR", rows=_orphans, named=_AGES),
    "ducklake_checkpoint": Function(columns="Success BOOLEAN", rows=_checkpoint),
    "ducklake_add_data_files": Function(
        columns="filename VARCHAR",
        rows=_add_files,
        positional=("table_name", "files"),
        required=2,
        named=("schema", *_ADDING),
    ),
}
"""The functions, by the names that they have in DuckDB. ``lake.name(...)`` calls ``ducklake_name('lake', ...)``."""
