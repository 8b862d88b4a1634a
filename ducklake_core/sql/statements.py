"""Run SQL statements within a transaction: CREATE, DROP, ALTER and COMMENT map to the library's methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from ducklake_core.errors import UsageError
from ducklake_core.format.macros import table_names
from ducklake_core.format.types.names import dotted, folded, quoted_path, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.sql.parts import (
    bracketed,
    column_of,
    comma_separated,
    constant_text,
    find_word,
    name_of,
    names_at,
    only,
    reject,
    table_name,
    text_between,
)
from ducklake_core.sql.staged_queries import StagedQueries
from ducklake_core.sql.time_travel import keyword

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.sql.changes import ChangeComputed
    from ducklake_core.sql.target import StatementTarget


_FLAGS = ("exists", "replace", "kind", "this", "refresh")
_LAYOUTS = ("RESET PARTITIONED BY", "RESET SORTED BY", "SET PARTITIONED BY", "SET SORTED BY")


class Statement:
    """One statement that changes something."""

    def __init__(
        self, tx: StatementTarget, queries: StagedQueries, sql: str, spark: SparkSession | None, change_computed: ChangeComputed
    ) -> None:
        from ducklake_core.sql.time_travel import main_word, tokens_of

        tokens = tokens_of(sql)
        self._tx = tx
        self._change_computed = change_computed
        self._queries = queries
        self._sql = sql[: tokens[-1].end + 1]
        self._tokens = tokens[main_word(tokens) :]
        self._spark = spark

    def carry_out(self) -> None:
        """Run the statement."""
        from ducklake_core.sql.changes import change_rows
        from ducklake_core.sql.parts import parse_statement, reject
        from ducklake_core.sql.time_travel import keyword

        words = [keyword(token) for token in self._tokens[:4]]
        # By tokens where sqlglot does not know DuckDB's grammar: comments, macros, layouts and statements about rows. The rest by its
        # tree.
        if words[0] == "COMMENT":
            comment(self._tx, self._tokens)
        elif words[0] == "CREATE" and {"MACRO", "FUNCTION"} & set(words[1:]):
            create_macro(self._tx, self._sql, self._tokens)
        elif words[0] == "ALTER" and alter_layout(self._tx, self._sql, self._tokens):
            pass
        elif words[0] == "INSERT":
            self._insert()
        elif words[0] in ("UPDATE", "DELETE", "MERGE"):
            change_rows(self._tx, self._queries, self._sql, self._spark, self._change_computed)
        elif words[0] in ("TRUNCATE", "CREATE", "DROP", "ALTER"):
            self._parsed(parse_statement(self._sql))
        else:
            reject(words[0])

    def _parsed(self, node: exp.Expression) -> None:
        from ducklake_core.sql.parts import only, reject, table_name

        match node:
            case exp.Create() if node.args.get("replace") and node.args.get("exists"):
                reject("OR REPLACE with IF NOT EXISTS")
            case exp.TruncateTable():
                only(node, "expressions")
                self._tx.delete(table_name(node.expressions[0]), None, spark=self._spark)
            case exp.Create(kind="TABLE") if node.expression is not None:
                self._create_as(node)
            case exp.Create():
                create(self._tx, self._sql, self._tokens, node)
            case exp.Drop():
                drop(self._tx, self._tokens, node)
            case exp.Alter():
                alter(self._tx, node)
            case _:
                reject(" ".join(token.text for token in self._tokens[:6]))

    def _insert(self) -> None:
        from ducklake_core.sql.row_statements import insert_of

        insert = insert_of(self._sql)
        schema = self._queries.schema(insert.table)
        target = [(name, schema.column(name)) for name in insert.given(schema)]
        rows = self._queries.rows_of(insert.query_for(target), target, by_name=insert.by_name, spark=self._spark)
        # Columns that an INSERT does not name get their default or NULL, as in any SQL database.
        self._tx.append(insert.table, rows, missing_columns="null")

    def _create_as(self, node: exp.Create) -> None:
        from ducklake_core.sql.parts import find_word, only, reject, table_name, text_between

        only(node, "this", "kind", "expression", "replace", "exists", "properties", "refresh")
        name = table_name(node.this)
        # IF NOT EXISTS does not run the query when the table exists.
        if node.args.get("exists") and self._queries.has(name):
            return
        query = text_between(self._sql, self._tokens, find_word(self._tokens, "AS") + 1)
        given = node.this.expressions if isinstance(node.this, exp.Schema) else []
        if any(not isinstance(one, exp.Identifier) for one in given):
            reject("a type of a column in CREATE TABLE AS", "cast the column in the query")
        if given:
            query = f"SELECT * FROM ({query}\n) AS __ducklake_rows({', '.join(quoted_path((one.name,)) for one in given)})"  # noqa: S608
        # Spark's types are those of its frame.
        columns = self._queries.columns_of(query) if self._spark is None else None
        target = None if columns is None else [(column.name, column) for column in columns]
        rows = self._queries.rows_of(query, target, spark=self._spark)
        keys = partition_keys(self._sql, self._tokens, node)
        self._tx.create_table_as(name, rows, schema=columns, partition_by=keys, or_replace=bool(node.args.get("replace")))


def create(tx: StatementTarget, sql: str, tokens: Sequence[Any], node: exp.Create) -> None:
    """Run CREATE SCHEMA, VIEW, or TABLE without a query."""
    or_replace, if_not_exists = bool(node.args.get("replace")), bool(node.args.get("exists"))
    match node.kind:
        case "SCHEMA":
            only(node, "exists", "kind", "this")
            tx.create_schema(schema_name(tokens), if_not_exists=if_not_exists)
        case "VIEW":
            only(node, *_FLAGS, "expression")
            columns = [one.name for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
            query = text_between(sql, tokens, find_word(tokens, "AS") + 1)
            tx.create_view(table_name(node.this), query, columns=columns, or_replace=or_replace, if_not_exists=if_not_exists)
        case "TABLE":
            only(node, *_FLAGS, "properties")
            if not isinstance(node.this, exp.Schema):
                reject("CREATE TABLE without columns")
            schema = Schema(columns=tuple(column_of(one) for one in node.this.expressions))
            name, keys = table_name(node.this), partition_keys(sql, tokens, node)
            tx.create_table(name, schema, partition_by=keys, or_replace=or_replace, if_not_exists=if_not_exists)
        case kind:
            reject(f"CREATE {kind}")


def partition_keys(sql: str, tokens: Sequence[Any], node: exp.Create) -> list[str]:
    """Return the keys of PARTITIONED BY; other properties are rejected."""
    properties = node.args.get("properties")
    for one in properties.expressions if properties is not None else ():
        if not isinstance(one, exp.PartitionedByProperty):
            reject(f"{one.sql('duckdb')} in CREATE TABLE")
    # sqlglot makes one token of PARTITIONED BY. The keys are read from the text, because its tree spells them otherwise.
    place = next((at for at, token in enumerate(tokens) if keyword(token).startswith("PARTITIONED")), None)
    return [] if properties is None or place is None else _keys(sql, tokens, place)


def _keys(sql: str, tokens: Sequence[Any], place: int) -> list[str]:
    """Return the parts in the brackets that follow a position."""
    opened = next((at for at in range(place, len(tokens)) if tokens[at].token_type == TokenType.L_PAREN), None)
    if opened is None:
        raise UsageError("cannot parse the SQL. Write PARTITIONED BY (keys) and SORTED BY (keys)")
    return comma_separated(sql, tokens[opened + 1 : bracketed(tokens, opened) - 1])


def create_macro(tx: StatementTarget, sql: str, tokens: Sequence[Any]) -> None:
    """Run CREATE MACRO with one definition."""
    words = [keyword(token) for token in tokens]
    start = find_word(tokens, "MACRO", "FUNCTION") + 1
    if_not_exists = words[start : start + 3] == ["IF", "NOT", "EXISTS"]
    start += 3 if if_not_exists else 0
    opened = next((place for place in range(start, len(tokens)) if tokens[place].token_type == TokenType.L_PAREN), len(tokens))
    closed = bracketed(tokens, opened)
    body = find_word(tokens, "AS", start=closed) + 1
    if body != closed + 1 or body >= len(tokens):
        raise UsageError("cannot parse the SQL. Write CREATE MACRO name(parameters) AS expression")
    is_table = words[body] == "TABLE"
    body += is_table
    if len(comma_separated(sql, tokens[body:])) > 1 and not is_table:
        reject("CREATE MACRO with several definitions", "use lake.create_macro")
    parameters = text_between(sql, tokens, opened + 1, closed - 1) if closed - 1 > opened + 1 else ""
    tx.create_macro(
        _name(tokens[start:opened]),
        {parameters: text_between(sql, tokens, body)},
        kind="table" if is_table else "scalar",
        or_replace=words[1] == "OR",
        if_not_exists=if_not_exists,
    )


def drop(tx: StatementTarget, tokens: Sequence[Any], node: exp.Drop) -> None:
    """Run DROP TABLE, VIEW, SCHEMA or MACRO."""
    only(node, "exists", "tables", "this", "kind", "cascade", "restrict")
    named = node.args.get("tables") or [node.this]
    if len(named) != 1:
        reject("DROP of several at once")
    (target,), if_exists = named, bool(node.args.get("exists"))
    match node.args.get("kind"):
        case "TABLE":
            tx.drop_table(table_name(target), if_exists=if_exists)
        case "VIEW":
            tx.drop_view(table_name(target), if_exists=if_exists)
        case "SCHEMA":
            tx.drop_schema(schema_name(tokens), cascade=bool(node.args.get("cascade")), if_exists=if_exists)
        case "MACRO" | "FUNCTION":
            is_table = keyword(tokens[2]) == "TABLE"
            tx.drop_macro(table_name(target), kind="table" if is_table else "scalar", if_exists=if_exists)
        case kind:
            reject(f"DROP {kind}")


def alter(tx: StatementTarget, node: exp.Alter) -> None:
    """Run ALTER TABLE or VIEW with one action."""
    only(node, "this", "kind", "actions", "options")
    name, actions = table_name(node.this), node.args["actions"]
    if len(actions) != 1:
        reject("ALTER with several actions")
    (action,) = actions
    options = node.args.get("options") or []
    match action:
        # sqlglot reads RENAME a TO b, without COLUMN, as a new name of the table and an option.
        case exp.AlterRename() if len(options) == 1 and isinstance(options[0], exp.ToTableProperty) and node.args.get("kind") == "TABLE":
            tx.rename_column(name, tuple(part.name for part in action.this.parts), options[0].this.name)
        case _ if options:
            reject(f"ALTER ... {action.sql('duckdb')} {' '.join(option.sql('duckdb') for option in options)}")
        case exp.AlterRename():
            new_name = _renamed(name, action.this)
            if node.args.get("kind") == "VIEW":
                tx.rename_view(name, new_name)
            else:
                tx.rename_table(name, new_name)
        case exp.ColumnDef():
            added = column_of(action)
            if not added.nullable or added.default_is_expression:
                reject("ADD COLUMN with NOT NULL or a computed default", "existing rows have no value; alter the column afterwards")
            tx.add_column(name, (added.name,), added.type, default=added.default, if_not_exists=bool(action.args.get("exists")))
        case exp.Drop() if action.args.get("kind") == "COLUMN":
            (column,) = action.args.get("tables") or [action.this]
            tx.drop_column(name, _path(column), if_exists=bool(action.args.get("exists")))
        case exp.RenameColumn():
            tx.rename_column(name, _path(action.this), action.args["to"].name)
        case exp.AlterColumn():
            _alter_column(tx, name, action)
        case _:
            reject(f"ALTER ... {action.sql('duckdb')}")


def _alter_column(tx: StatementTarget, name: str, action: exp.AlterColumn) -> None:
    column, args = (action.this.name,), action.args
    for part in ("using", "collate"):
        if args.get(part):
            reject(f"ALTER COLUMN ... {part.upper()}")
    if args.get("dtype") is not None:
        tx.set_column_type(name, column, args["dtype"].sql("duckdb"))
    elif args.get("default") is not None:
        text = constant_text(args["default"])
        if text is None and not isinstance(args["default"], exp.Null):
            tx.set_default(name, column, expression=args["default"].sql("duckdb"))
        else:
            tx.set_default(name, column, text)
    elif args.get("allow_null") is not None:
        (tx.drop_not_null if args["allow_null"] else tx.set_not_null)(name, column)
    elif args.get("drop"):
        tx.drop_default(name, column)
    else:
        reject(action.sql("duckdb"))


def alter_layout(tx: StatementTarget, sql: str, tokens: Sequence[Any]) -> bool:
    """Run ALTER TABLE t SET or RESET PARTITIONED BY or SORTED BY; return False when the statement is none of these."""
    words = [keyword(token) for token in tokens]
    place = next((at for at in range(2, len(words)) if words[at] in ("SET", "RESET")), len(words))
    kind = next((one for one in _LAYOUTS if " ".join(words[place : place + 3]).startswith(one)), None)
    if words[:2] != ["ALTER", "TABLE"] or kind is None:
        return False
    name = _name(tokens[2:place])
    if kind == "RESET PARTITIONED BY":
        tx.reset_partitioned_by(name)
    elif kind == "RESET SORTED BY":
        tx.reset_sorted_by(name)
    elif kind == "SET PARTITIONED BY":
        tx.set_partitioned_by(name, _keys(sql, tokens, place))
    else:
        tx.set_sorted_by(name, _keys(sql, tokens, place))
    return True


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


def _renamed(name: str, target: exp.Expression) -> str:
    schema = split_name(name)[0]
    names = table_names(target) if isinstance(target, exp.Table) else (target.name,)
    if len(names) > 1 and folded(dotted(names[:-1])) != folded(schema):
        reject("RENAME TO another schema")
    return names[-1]


def _path(column: exp.Expression) -> tuple[str, ...]:
    return tuple(part.name for part in column.parts) if isinstance(column, exp.Column) else (column.name,)


def _name(tokens: Sequence[Any]) -> str:
    return name_of(names_at(tokens, 0))
