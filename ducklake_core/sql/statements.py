"""Run SQL statements within a transaction: CREATE, DROP, ALTER and COMMENT map to the library's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import TokenType, exp

from ducklake_core.errors import UsageError
from ducklake_core.format.types.names import dotted, folded, quoted_path, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import similar_in_brackets
from ducklake_core.sql.parts import (
    bracketed,
    column_of,
    comma_separated,
    constant_text,
    find_word,
    name_of,
    names_at,
    only,
    outside_brackets,
    parse_statement,
    reject,
    table_name,
    text_between,
)
from ducklake_core.sql.time_travel import keyword, main_word, tokens_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.macro_definitions import MacroKind
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.sql.changes import ChangeComputed
    from ducklake_core.sql.staged_queries import StagedQueries, StatementTarget


_FIRST_WORDS = (
    "SELECT", "FROM", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "ALTER", "DROP", "COMMENT", "TRUNCATE", "COPY", "CALL",
    "SHOW", "DESCRIBE", "SUMMARIZE", "EXPLAIN", "PIVOT",
)  # fmt: skip
_INSTEAD_OF_TEMP = (
    "pass rows = lake.sql(query).to_arrow() to each statement that reads it, as in lake.sql('FROM rows', rows=rows), or write "
    "WITH name AS (query)"
)
_TRANSACTION = "run the statements with tx.sql(...) in a block of lake.transaction()"
_INSTEAD = {
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "ABORT", "END"), _TRANSACTION),
    **dict.fromkeys(("ATTACH", "DETACH"), "open the other lake with DuckLake.open(...), and pass its rows as a frame"),
    **dict.fromkeys(("SET", "RESET"), "only SET VARIABLE and RESET VARIABLE are"),
    "USE": "write the schema before the name of a table, as in schema.table",
}
_FLAGS = ("exists", "replace", "kind", "this", "refresh")


class Statement:
    """One statement that changes something."""

    def __init__(
        self, tx: StatementTarget, queries: StagedQueries, sql: str, spark: SparkSession | None, change_computed: ChangeComputed
    ) -> None:
        tokens = tokens_of(sql)
        self._tx = tx
        self._change_computed = change_computed
        self._queries = queries
        self._sql = sql[: tokens[-1].end + 1]
        self._tokens = tokens[main_word(tokens) :]
        self._spark = spark
        self._sort_keys: list[str] = []

    def carry_out(self) -> None:
        """Run the statement."""
        from ducklake_core.sql.changes import change_rows
        from ducklake_core.sql.parts import parse_statement, reject
        from ducklake_core.sql.time_travel import keyword

        words = [keyword(token) for token in self._tokens[:4]]
        # By tokens where sqlglot does not know DuckDB's grammar: ALTER, DROP, COMMENT, macros and statements about rows. The rest by its
        # tree.
        if words[0] == "COMMENT":
            self._check_kind(words[2], self._tokens[3 : find_word(self._tokens, "IS")])
            comment(self._tx, self._tokens)
        elif words[0] == "CREATE" and (words[3:] if words[1:3] == ["OR", "REPLACE"] else words[1:])[:1] in (["TEMP"], ["TEMPORARY"]):
            reject(f"CREATE {words[-1] if words[1] == 'OR' else words[1]}", _INSTEAD_OF_TEMP)
        elif words[0] == "CREATE" and {"MACRO", "FUNCTION"} & set(words[1:]):
            create_macro(self._tx, self._sql, self._tokens)
        elif words[0] == "CREATE" and "RECURSIVE" in words:
            create_recursive_view(self._tx, self._queries, self._sql, self._tokens)
        elif words[0] == "ALTER":
            self._alter()
        elif words[0] == "DROP":
            self._drop()
        elif words[0] == "INSERT":
            self._insert()
        elif words[0] == "COPY":
            self._copy()
        elif words[0] in ("UPDATE", "DELETE", "MERGE"):
            change_rows(self._tx, self._queries, self._sql, self._spark, self._change_computed)
        elif words[0] in ("TRUNCATE", "CREATE"):
            self._sql, self._sort_keys = without_sort_keys(self._sql, self._tokens)
            self._tokens = tokens_of(self._sql)[main_word(self._tokens) :] if self._sort_keys else self._tokens
            text, has_data = without_data_clause(self._sql, self._tokens)
            self._parsed(parse_statement(without_query(text, self._tokens)), has_data=has_data)
        else:
            if words[0] in _INSTEAD:
                reject(words[0], _INSTEAD[words[0]])
            near = similar_in_brackets(words[0], _FIRST_WORDS)
            reject(f"{words[0]}{near}", None if near else f"statements begin with {', '.join(_FIRST_WORDS)}")

    def _check_kind(self, kind: str, tokens: Sequence[Any]) -> None:
        """Raise where a statement about a table names a view, or the reverse, as DuckDB does."""
        if kind not in ("TABLE", "VIEW"):
            return
        name = _name(tokens)
        found = self._queries.kind_of(name)
        if found is not None and found != kind.lower():
            word = keyword(self._tokens[0])
            raise UsageError(f"{name} is a {found}: write {word}{' ON' if word == 'COMMENT' else ''} {found.upper()}", table=name)

    def _drop(self) -> None:
        """Run DROP TABLE, VIEW, SCHEMA or MACRO."""
        at = Cursor(self._sql, self._tokens, 1)
        kind = at.word()
        is_table_macro = kind in ("MACRO", "FUNCTION") and at.takes("TABLE")
        if_exists = at.takes("IF", "EXISTS")
        start = at.place
        parts = at.name()
        if at.place < len(self._tokens) and self._tokens[at.place].token_type == TokenType.COMMA:
            reject("DROP of several at once")
        cascade = at.takes("CASCADE")
        if not cascade:
            at.takes("RESTRICT")
        at.end()
        self._check_kind(kind, self._tokens[start:])
        match kind:
            case "TABLE" | "VIEW" if cascade:
                reject(f"CASCADE in DROP {kind}")
            case "TABLE":
                self._tx.drop_table(name_of(parts), if_exists=if_exists)
            case "VIEW":
                self._tx.drop_view(name_of(parts), if_exists=if_exists)
            case "SCHEMA":
                self._tx.drop_schema(dotted(parts), cascade=cascade, if_exists=if_exists)
            case "MACRO" | "FUNCTION":
                self._tx.drop_macro(name_of(parts), kind="table" if is_table_macro else "scalar", if_exists=if_exists)
            case _:
                reject(f"DROP {kind}")

    def _alter(self) -> None:
        """Run ALTER TABLE or VIEW with one action."""
        at = Cursor(self._sql, self._tokens, 1)
        kind = at.word()
        if kind not in ("TABLE", "VIEW"):
            reject(f"ALTER {kind}")
        if_exists = at.takes("IF", "EXISTS")
        start = at.place
        name = name_of(at.name())
        if if_exists and not self._queries.has(name):
            return
        self._check_kind(kind, self._tokens[start:])
        if at.takes("RENAME", "TO"):
            new_name = _renamed(name, at.name())
            at.end()
            (self._tx.rename_view if kind == "VIEW" else self._tx.rename_table)(name, new_name)
        elif kind == "VIEW":
            reject(f"ALTER VIEW ... {at.rest()}")
        else:
            alter_table(self._tx, name, at)

    def _parsed(self, node: exp.Expression, *, has_data: bool) -> None:
        from ducklake_core.sql.parts import only, reject, table_name

        match node:
            case exp.Create() if node.args.get("replace") and node.args.get("exists"):
                reject("OR REPLACE with IF NOT EXISTS")
            case exp.TruncateTable():
                only(node, "expressions")
                self._tx.delete(table_name(node.expressions[0]), None, spark=self._spark)
            case exp.Create(kind="TABLE") if node.expression is not None:
                self._create_as(node, has_data=has_data)
            case exp.Create():
                create(self._tx, self._queries, self._sql, self._tokens, node, self._sort_keys)
            case _:
                reject(" ".join(token.text for token in self._tokens[:6]))

    def _insert(self) -> None:
        from ducklake_core.sql.row_statements import insert_of

        insert = insert_of(self._sql)
        schema = self._queries.schema(insert.table)
        target = [(name, schema.column(name)) for name in insert.given(schema)]
        query = insert.query_for(target)
        try:
            rows = self._queries.rows_of(query, target, by_name=insert.by_name, spark=self._spark)
        except UsageError:
            if self._spark is None:
                insert.check_values(target)
            raise
        # Columns that an INSERT does not name get their default or NULL, as in any SQL database.
        self._tx.append(insert.table, rows, missing_columns="null")

    def _copy(self) -> None:
        from ducklake_core.sql.copy_from import copy_from

        copy = copy_from(self._sql, files=self._queries.files)
        schema = self._queries.schema(copy.table)
        target = [schema.column(name) for name in copy.columns or schema.names]
        rows = self._queries.rows_of(copy.query(target), [(column.name, column) for column in target])
        self._tx.append(copy.table, rows, missing_columns="null")

    def _create_as(self, node: exp.Create, *, has_data: bool) -> None:
        only(node, "this", "kind", "expression", "replace", "exists", "properties", "refresh")
        name = table_name(node.this)
        # IF NOT EXISTS does not run the query when the table exists.
        if node.args.get("exists") and self._queries.has(name):
            return
        text, _ = without_data_clause(self._sql, self._tokens)
        query = text[self._tokens[find_word(self._tokens, "AS") + 1].start :]
        given = node.this.expressions if isinstance(node.this, exp.Schema) else []
        if any(not isinstance(one, exp.Identifier) for one in given):
            reject("a type of a column in CREATE TABLE AS", "cast the column in the query")
        if given:
            query = f"SELECT * FROM ({query}\n) AS __ducklake_rows({', '.join(quoted_path((one.name,)) for one in given)})"  # noqa: S608
        if not has_data:
            query = f"SELECT * FROM ({query}\n) AS __ducklake_rows LIMIT 0"  # noqa: S608 - it is the caller's own SQL
        # Spark's types are those of its frame.
        columns = self._queries.columns_of(query) if self._spark is None else None
        target = None if columns is None else [(column.name, column) for column in columns]
        rows = self._queries.rows_of(query, target, spark=self._spark)
        keys, options = partition_keys(self._sql, self._tokens, node), table_options(node)
        or_replace = bool(node.args.get("replace"))
        if not self._sort_keys and not options:
            self._tx.create_table_as(name, rows, schema=columns, partition_by=keys, or_replace=or_replace)
            return
        if columns is None:
            reject("SORTED BY or WITH (option = value) in CREATE TABLE AS with spark", "leave spark out")
        # The rows may come from the table that this one replaces.
        held = pa.Table.from_batches(rows, schema=rows.schema) if isinstance(rows, pa.RecordBatchReader) else rows
        self._tx.create_table(name, columns, partition_by=keys, or_replace=or_replace)
        _arrange(self._tx, name, self._sort_keys, options)
        self._tx.append(name, held)


def create(
    tx: StatementTarget, queries: StagedQueries, sql: str, tokens: Sequence[Any], node: exp.Create, sort_keys: Sequence[str] = ()
) -> None:
    """Run CREATE SCHEMA, VIEW, or TABLE without a query."""
    or_replace, if_not_exists = bool(node.args.get("replace")), bool(node.args.get("exists"))
    match node.kind:
        case "SCHEMA":
            only(node, "exists", "kind", "this", "replace")
            if or_replace:
                tx.drop_schema(schema_name(tokens), if_exists=True)
            tx.create_schema(schema_name(tokens), if_not_exists=if_not_exists)
        case "VIEW":
            only(node, *_FLAGS, "expression")
            columns = [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
            query = text_between(sql, tokens, find_word(tokens, "AS") + 1)
            queries.check_view(query)
            tx.create_view(table_name(node.this), query, columns=columns, or_replace=or_replace, if_not_exists=if_not_exists)
        case "TABLE":
            only(node, *_FLAGS, "properties")
            if not isinstance(node.this, exp.Schema):
                reject("CREATE TABLE without columns")
            schema = Schema(columns=tuple(column_of(one) for one in node.this.expressions))
            name, keys, options = table_name(node.this), partition_keys(sql, tokens, node), table_options(node)
            if if_not_exists and queries.has(name):
                sort_keys, options = (), {}
            tx.create_table(name, schema, partition_by=keys, or_replace=or_replace, if_not_exists=if_not_exists)
            _arrange(tx, name, sort_keys, options)
        case kind:
            reject(f"CREATE {kind}")


def create_recursive_view(tx: StatementTarget, queries: StagedQueries, sql: str, tokens: Sequence[Any]) -> None:
    """Run CREATE RECURSIVE VIEW name (columns) AS query, which is a view of WITH RECURSIVE, as in DuckDB."""
    at = Cursor(sql, tokens, 1)
    or_replace = at.takes("OR", "REPLACE")
    if not at.takes("RECURSIVE", "VIEW"):
        reject(text_between(sql, tokens, 0))
    parts = at.name()
    opened = at.place
    closed = bracketed(tokens, opened) if opened < len(tokens) and tokens[opened].token_type == TokenType.L_PAREN else opened
    listed = tokens[opened + 1 : closed - 1]
    columns = [name for token in listed[::2] for name in names_at([token], 0)]
    commas = [token for token in listed[1::2] if token.token_type == TokenType.COMMA]
    at.place = closed
    if len(listed) != 2 * len(columns) - 1 or len(commas) != len(columns) - 1 or not at.takes("AS"):
        raise UsageError("cannot parse the SQL. Write CREATE RECURSIVE VIEW name (columns) AS query")
    names, name = ", ".join(quoted_path((one,)) for one in columns), quoted_path(parts[-1:])
    # The line break ends a comment at the end of the query.
    query = f"WITH RECURSIVE {name} ({names}) AS ({at.rest()}\n) SELECT {names} FROM {name}"  # noqa: S608 - it is the caller's own SQL
    queries.check_view(query)
    tx.create_view(name_of(parts), query, columns=columns, or_replace=or_replace)


def partition_keys(sql: str, tokens: Sequence[Any], node: exp.Create) -> list[str]:
    """Return the keys of PARTITIONED BY; properties other than that and WITH (option = value) are rejected."""
    properties = node.args.get("properties")
    for one in properties.expressions if properties is not None else ():
        if not isinstance(one, exp.PartitionedByProperty) and type(one) is not exp.Property:
            reject(f"{one.sql('duckdb')} in CREATE TABLE")
    # sqlglot makes one token of PARTITIONED BY. The keys are read from the text, because its tree spells them otherwise.
    place = next((at for at, token in enumerate(tokens) if keyword(token).startswith("PARTITIONED")), None)
    return [] if properties is None or place is None else _keys(sql, tokens, place)


def table_options(node: exp.Create) -> dict[str, str | int | bool]:
    """Return the options of WITH (option = value)."""
    properties = node.args.get("properties")
    return {one.name: _option(one.args["value"]) for one in (properties.expressions if properties else ()) if type(one) is exp.Property}


def _option(value: exp.Expression) -> str | int | bool:
    """Return the value of an option that SQL sets."""
    if isinstance(value, exp.Boolean):
        return bool(value.this)
    if not isinstance(value, exp.Literal):
        reject(f"the value {value.sql('duckdb')} of an option", "write a string, a number, true or false")
    return value.name if value.is_string or not value.is_int else int(value.name)


def _arrange(tx: StatementTarget, name: str, sort_keys: Sequence[str], options: Mapping[str, str | int | bool]) -> None:
    """Give a new table its sort order and options."""
    if sort_keys:
        tx.set_sorted_by(name, sort_keys)
    for option, value in options.items():
        tx.set_option(option, value, table=name)


def _keys(sql: str, tokens: Sequence[Any], place: int) -> list[str]:
    """Return the parts in the brackets that follow a position."""
    opened = next((at for at in range(place, len(tokens)) if tokens[at].token_type == TokenType.L_PAREN), None)
    if opened is None:
        raise UsageError("cannot parse the SQL. Write PARTITIONED BY (keys) and SORTED BY (keys)")
    return comma_separated(sql, tokens[opened + 1 : bracketed(tokens, opened) - 1])


def create_macro(tx: StatementTarget, sql: str, tokens: Sequence[Any]) -> None:
    """Run CREATE MACRO: ``name(parameters) AS expression``, or ``AS TABLE query``, and further definitions behind commas."""
    at = Cursor(sql, tokens, 1)
    or_replace = at.takes("OR", "REPLACE")
    for word in ("TEMP", "TEMPORARY"):
        if at.takes(word):
            reject(f"CREATE {word} MACRO")
    at.word()
    if_not_exists = at.takes("IF", "NOT", "EXISTS")
    name = name_of(at.name())
    definitions: dict[str, str] = {}
    kinds: list[MacroKind] = []
    while True:
        opened = at.place
        if opened >= len(tokens) or tokens[opened].token_type != TokenType.L_PAREN:
            raise UsageError("cannot parse the SQL. Write CREATE MACRO name(parameters) AS expression")
        closed = bracketed(tokens, opened)
        parameters = text_between(sql, tokens, opened + 1, closed - 1) if closed - 1 > opened + 1 else ""
        at.place = closed
        if not at.takes("AS") or at.place >= len(tokens):
            raise UsageError("cannot parse the SQL. Write CREATE MACRO name(parameters) AS expression")
        kinds.append("table" if at.takes("TABLE") else "scalar")
        end = _definition_end(tokens, at.place)
        start = at.place
        if kinds[-1] == "table" and start < end and tokens[start].token_type == TokenType.L_PAREN and bracketed(tokens, start) == end:
            # The brackets around a query are not a part of it.
            definitions[parameters] = text_between(sql, tokens, start + 1, end - 1)
        else:
            definitions[parameters] = text_between(sql, tokens, start, end)
        at.place = end + 1
        if end >= len(tokens):
            break
    if len(set(kinds)) > 1:
        reject("CREATE MACRO with definitions of scalars and of tables")
    tx.create_macro(name, definitions, kind=kinds[0], or_replace=or_replace, if_not_exists=if_not_exists)


def _definition_end(tokens: Sequence[Any], start: int) -> int:
    """Return the position of the comma before the next definition, ``, (parameters) AS``; that behind the last token if there is none."""
    for place in outside_brackets(tokens, start):
        if tokens[place].token_type == TokenType.COMMA and place + 1 < len(tokens) and tokens[place + 1].token_type == TokenType.L_PAREN:
            closed = bracketed(tokens, place + 1)
            if closed < len(tokens) and keyword(tokens[closed]) == "AS":
                return place
    return len(tokens)


def without_sort_keys(sql: str, tokens: Sequence[Any]) -> tuple[str, list[str]]:
    """Return CREATE TABLE without SORTED BY, and the keys of the clause."""
    for place in outside_brackets(tokens, 1):
        words = " ".join(keyword(token) for token in tokens[place : place + 2]).split()
        if words[:1] == ["AS"]:
            break
        if words[:2] == ["SORTED", "BY"]:
            opened = next(at for at in range(place, len(tokens) + 1) if at == len(tokens) or tokens[at].token_type == TokenType.L_PAREN)
            end = bracketed(tokens, opened)
            return sql[: tokens[place].start] + sql[tokens[end - 1].end + 1 :], _keys(sql, tokens, place)
    return sql, []


def without_data_clause(sql: str, tokens: Sequence[Any]) -> tuple[str, bool]:
    """Return a statement without ``WITH DATA`` or ``WITH NO DATA`` at its end, and whether it copies rows."""
    words = [keyword(token) for token in tokens[-3:]]
    for clause, has_data in ((["WITH", "NO", "DATA"], False), (["WITH", "DATA"], True)):
        if words[-len(clause) :] == clause:
            return sql[: tokens[-len(clause)].start].rstrip(), has_data
    return sql, True


def without_query(sql: str, tokens: Sequence[Any]) -> str:
    """Return CREATE TABLE or VIEW with a short query in place of its own, which is DuckDB's to read."""
    place = next((place for place in outside_brackets(tokens, 0) if keyword(tokens[place]) == "AS"), None)
    return sql if place is None else f"{sql[: tokens[place].end + 1]} SELECT 1"


class Cursor:
    """A position in the tokens of a statement."""

    def __init__(self, sql: str, tokens: Sequence[Any], place: int) -> None:
        self._sql = sql
        self._tokens = tokens
        self.place = place

    def word(self) -> str:
        """Return the next keyword, and step over it."""
        found = keyword(self._tokens[self.place]) if self.place < len(self._tokens) else ""
        self.place += 1
        return found

    def takes(self, *words: str) -> bool:
        """Step over words if they come next; return whether they do."""
        # sqlglot makes one token of words such as PARTITIONED BY.
        found = " ".join(keyword(token) for token in self._tokens[self.place : self.place + len(words)]).split()
        if found[: len(words)] != list(words):
            return False
        count = 0
        while count < len(words):
            count += len(keyword(self._tokens[self.place]).split())
            self.place += 1
        return True

    def name(self) -> list[str]:
        """Return the parts of a name, and step over it."""
        parts = names_at(self._tokens, self.place)
        self.place += 2 * len(parts) - 1
        return parts

    def rest(self) -> str:
        """Return the text from here to the end, and step to the end."""
        if self.place >= len(self._tokens):
            raise UsageError("cannot parse the SQL: it ends too early")
        text = text_between(self._sql, self._tokens, self.place)
        self.place = len(self._tokens)
        return text

    def has(self, word: str) -> bool:
        """Return whether a keyword follows, outside of brackets."""
        return any(keyword(self._tokens[place]) == word for place in outside_brackets(self._tokens, self.place))

    def keys(self) -> list[str]:
        """Return the parts in the brackets that follow, and step to the end."""
        keys = _keys(self._sql, self._tokens, self.place)
        self.place = len(self._tokens)
        return keys

    def options(self) -> list[tuple[str, exp.Expression]]:
        """Return the names and values in the bracket that has just opened, and step to the end; a name alone has itself as value."""
        self.place -= 1
        found = [parse_statement(f"SELECT {one}").expressions[0] for one in self.keys()]
        if not found:
            raise UsageError("cannot parse the SQL: no option is in the brackets")
        return [(one.this.name, one.expression) if isinstance(one, exp.EQ) else (one.name, one) for one in found]

    def end(self) -> None:
        """Raise unless the statement ends here.

        Raises:
            UnsupportedFeatureError: The statement continues.
        """
        if self.place < len(self._tokens):
            text = text_between(self._sql, self._tokens, self.place)
            reject(f"{text} in {keyword(self._tokens[0])}")


def alter_table(tx: StatementTarget, name: str, at: Cursor) -> None:
    """Run the action of ALTER TABLE, at which the cursor stands; a column may be a field of structs."""
    if at.takes("ADD"):
        start = at.place
        if any(at.takes(word) for word in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "CONSTRAINT")):
            at.place = start
            reject(f"ADD {at.rest()}", "the only constraint of DuckLake is NOT NULL, as in ALTER TABLE name ALTER column SET NOT NULL")
        at.takes("COLUMN")
        if_not_exists = at.takes("IF", "NOT", "EXISTS")
        path = at.name()
        added = _column(path[-1], at.rest())
        if not added.nullable or added.default_is_expression:
            reject("ADD COLUMN with NOT NULL or a computed default", "existing rows have no value; alter the column afterwards")
        tx.add_column(name, tuple(path), added.type, default=added.default, if_not_exists=if_not_exists)
    elif at.takes("DROP"):
        at.takes("COLUMN")
        if_exists = at.takes("IF", "EXISTS")
        path = at.name()
        # DuckDB drops the column with either word.
        if not at.takes("CASCADE"):
            at.takes("RESTRICT")
        at.end()
        tx.drop_column(name, tuple(path), if_exists=if_exists)
    elif at.takes("RENAME"):
        at.takes("COLUMN")
        path = at.name()
        if not at.takes("TO"):
            raise UsageError("cannot parse the SQL: ALTER TABLE ... RENAME column TO name")
        (new_name,) = at.name()
        at.end()
        tx.rename_column(name, tuple(path), new_name)
    elif at.takes("ALTER"):
        at.takes("COLUMN")
        _alter_column(tx, name, at)
    elif at.takes("SET"):
        _set(tx, name, at)
    elif at.takes("RESET"):
        _reset(tx, name, at)
    else:
        reject(f"ALTER TABLE ... {at.rest()}")


def _set(tx: StatementTarget, name: str, at: Cursor) -> None:
    """Run ALTER TABLE ... SET."""
    if at.takes("PARTITIONED", "BY"):
        tx.set_partitioned_by(name, at.keys())
    elif at.takes("SORTED", "BY"):
        tx.set_sorted_by(name, at.keys())
    elif at.takes("("):
        for key, value in at.options():
            tx.set_option(key, _option(value), table=name)
    else:
        reject(f"ALTER TABLE ... SET {at.rest()}")


def _reset(tx: StatementTarget, name: str, at: Cursor) -> None:
    """Run ALTER TABLE ... RESET."""
    if at.takes("PARTITIONED", "BY"):
        at.end()
        tx.reset_partitioned_by(name)
    elif at.takes("SORTED", "BY"):
        at.end()
        tx.reset_sorted_by(name)
    elif at.takes("("):
        for key, _ in at.options():
            tx.unset_option(key, table=name)
    else:
        reject(f"ALTER TABLE ... RESET {at.rest()}")


def _alter_column(tx: StatementTarget, name: str, at: Cursor) -> None:
    column = tuple(at.name())
    if at.takes("TYPE") or at.takes("SET", "TYPE") or at.takes("SET", "DATA", "TYPE"):
        if at.has("USING"):
            reject("ALTER COLUMN ... USING", "add a column, update it, and drop the old one")
        kind = _column(column[-1], at.rest())
        if kind.default is not None or not kind.nullable:
            reject("ALTER COLUMN ... TYPE with a default or NOT NULL", "alter the column again afterwards")
        tx.set_column_type(name, column, kind.type)
    elif at.takes("SET", "DEFAULT"):
        expression = at.rest()
        node = _definition(f'"c" INTEGER DEFAULT {expression}').constraints[0].kind.this
        text = constant_text(node)
        if text is None and not isinstance(node, exp.Null):
            tx.set_default(name, column, expression=expression)
        else:
            tx.set_default(name, column, text)
    elif at.takes("DROP", "DEFAULT"):
        at.end()
        tx.drop_default(name, column)
    elif at.takes("SET", "NOT", "NULL"):
        at.end()
        tx.set_not_null(name, column)
    elif at.takes("DROP", "NOT", "NULL"):
        at.end()
        tx.drop_not_null(name, column)
    else:
        reject(f"ALTER COLUMN ... {at.rest()}")


def _column(name: str, rest: str) -> Field:
    """Return a column from its name and the text behind it: the type, and perhaps a default."""
    return column_of(_definition(f"{quoted_path((name,))} {rest}"))


def _definition(text: str) -> exp.ColumnDef:
    statement = parse_statement(f"CREATE TABLE t ({text})")
    parts = statement.this.expressions if isinstance(statement, exp.Create) and isinstance(statement.this, exp.Schema) else []
    if len(parts) != 1 or not isinstance(parts[0], exp.ColumnDef):
        reject(f"the column {text}")
    return parts[0]


def comment(tx: StatementTarget, tokens: Sequence[Any]) -> None:
    """Run COMMENT ON TABLE, VIEW, COLUMN or SCHEMA name IS 'text' or NULL."""
    end = find_word(tokens, "IS")
    kind, value = keyword(tokens[2]), tokens[end + 1 :]
    if len(value) != 1 or not (value[0].token_type == TokenType.STRING or keyword(value[0]) == "NULL"):
        raise UsageError("cannot parse the SQL. Write COMMENT ON TABLE name IS 'comment', or IS NULL")
    text = value[0].text if value[0].token_type == TokenType.STRING else None
    parts = names_at(tokens, 3)
    match kind:
        case "TABLE" | "VIEW":
            tx.set_comment(_name(tokens[3:end]), text)
        case "COLUMN" if len(parts) > 1:
            tx.set_comment(name_of(parts[:-1]), text, column=(parts[-1],))
        case "SCHEMA":
            tx.set_schema_comment(dotted(parts), text)
        case _:
            reject(f"COMMENT ON {kind}")


def schema_name(tokens: Sequence[Any]) -> str:
    """Return the path of the schema that CREATE or DROP SCHEMA names."""
    start = find_word(tokens, "SCHEMA") + 1
    words = [keyword(token) for token in tokens]
    if words[start] == "IF":
        start = words.index("EXISTS", start) + 1
    return dotted(names_at(tokens, start))


def _renamed(name: str, parts: Sequence[str]) -> str:
    if len(parts) > 1 and folded(dotted(parts[:-1])) != folded(split_name(name)[0]):
        reject("RENAME TO another schema")
    return parts[-1]


def _name(tokens: Sequence[Any]) -> str:
    return name_of(names_at(tokens, 0))
