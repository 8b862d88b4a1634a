"""Translate GROUP BY with ROLLUP, CUBE and GROUPING SETS, and window clauses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.predicates import sql_parts
from ducklake_core.format.types.data_types import INT64
from ducklake_core.planning.plan import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.view_sql.functions import AGGREGATES, NEIGHBOURS, RANKS
from ducklake_core.view_sql.operators import cast
from ducklake_core.view_sql.parsing import CATALOG, only, shown
from ducklake_core.view_sql.scopes import Scope, Sources, TableSource
from ducklake_core.view_sql.typed import Rejected, Typed, is_comparable, spark_name

Keys = tuple[exp.Expression, ...]
_MAX_GROUPING_SETS = 4096
"""Sets of one query; DuckDB takes 65535."""

Translate = Callable[[exp.Expression], Typed]
_BOUNDS = ("UNBOUNDED", "CURRENT ROW")


def grouping_sets(group: exp.Group | None) -> list[Keys] | None:
    """Return the keys of each set that a query groups by, None when it has one list of keys.

    >>> from ducklake_core.view_sql.parsing import parse_query
    >>> found = grouping_sets(parse_query("SELECT 1 FROM t GROUP BY a, ROLLUP (b, (c, d))").args["group"])
    >>> [[key.sql() for key in keys] for keys in found]
    [['a', 'b', 'c', 'd'], ['a', 'b'], ['a']]

    Raises:
        Rejected: They are too many.
    """
    parts = [] if group is None else _grouping_parts(group)
    if not any(isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets) for part in parts):
        return None
    found: list[Keys] = [()]
    for part in parts:
        own = list(_sets(part))
        if len(found) * len(own) > _MAX_GROUPING_SETS:
            raise Rejected(f"it has more than {_MAX_GROUPING_SETS} grouping sets")
        found = [(*before, *keys) for before, keys in product(found, own)]
    return found


def _grouping_parts(group: exp.Group) -> list[exp.Expression]:
    """Return what is listed after GROUP BY; earlier versions of sqlglot store each kind of sets separately."""
    kinds = ("expressions", "rollup", "cube", "grouping_sets")
    return [part for kind in kinds for part in group.args.get(kind) or ()]


def _sets(part: exp.Expression) -> Iterator[Keys]:
    match part:
        case exp.Rollup():
            elements = [_keys(one) for one in part.expressions]
            yield from (_joined(elements[:length]) for length in range(len(elements), -1, -1))
        case exp.Cube():
            elements = [_keys(one) for one in part.expressions]
            if 2 ** len(elements) > _MAX_GROUPING_SETS:
                raise Rejected(f"it has more than {_MAX_GROUPING_SETS} grouping sets")
            for chosen in product((True, False), repeat=len(elements)):
                yield _joined([keys for keys, is_in in zip(elements, chosen, strict=True) if is_in])
        case exp.GroupingSets():
            for one in part.expressions:
                yield from _sets(one)
        case _:
            yield _keys(part)


def _keys(part: exp.Expression) -> Keys:
    return tuple(part.expressions) if isinstance(part, exp.Tuple) else (part.this,) if isinstance(part, exp.Paren) else (part,)


def _joined(elements: Sequence[Keys]) -> Keys:
    return tuple(key for keys in elements for key in keys)


# The set without keys (the total) has one row in DuckDB even when no row is grouped, and none in Spark. So one row is added:
#
#   SELECT columns, TRUE AS here FROM ... WHERE ...   UNION ALL   SELECT NULL ..., FALSE
#
# Aggregates count only rows for which ``here`` is true (FILTER), and ``is_group`` drops every group that consists of the added row
# alone, except the total.
@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The sets of one query in Spark SQL.

    Attributes:
        sets: SQL text of the keys of each set.
        here: The column that is false for the added row only; None when no row is added, because there is no total.
    """

    sets: tuple[tuple[str, ...], ...]
    here: str | None

    @property
    def clause(self) -> str:
        """GROUP BY."""
        sets = (f"({', '.join(keys)})" for keys in self.sets)
        return f" GROUP BY GROUPING SETS ({', '.join(sets)})"

    @property
    def has_twins(self) -> bool:
        """Return whether a set occurs twice: then Spark does not support ``grouping_id`` in HAVING."""
        return len({frozenset(keys) for keys in self.sets}) < len(self.sets)

    @property
    def is_group(self) -> str:
        """The condition on groups that there are without the row that is added; nothing without such a row."""
        if self.here is None:
            return ""
        every = len({key for keys in self.sets for key in keys})
        return f"(count(*) FILTER (WHERE {self.here}) > 0 OR grouping_id() = {2**every - 1})"

    def source(self, text: str, scope: Scope, expressions: Sequence[str]) -> str:
        """Return FROM and WHERE, with the row that is added.

        Args:
            text: FROM and WHERE of the rows.
            scope: The names of the query.
            expressions: SQL of all expressions over the rows.
        """
        if self.here is None:
            return text
        if scope.uses_outer:
            raise Rejected("it has ROLLUP, CUBE or GROUPING SETS within a correlated query")
        mentioned = set(re.findall(r"\bc\d+\b", " ".join([*expressions, self.clause])))
        columns = []
        for relation in scope.relations:
            hidden = (relation.virtual(column.name) for column in VIRTUAL_SCHEMA if column != FILE_INDEX)
            for column in (*relation.columns, *(one for one in hidden if one is not None)):
                if column.sql in mentioned and column.sql not in columns:
                    relation.touched(column)
                    columns.append(column.sql)
        added = ", ".join([*("NULL" for _ in columns), "FALSE"])
        return f" FROM (SELECT {', '.join([*columns, f'TRUE AS {self.here}'])}{text} UNION ALL SELECT {added})"


def grouping_of(sets: Sequence[Keys], typed: Callable[[exp.Expression], Typed], here: str | None) -> Grouping:
    """Return the sets with the SQL text of their keys.

    Args:
        sets: The keys of each set.
        typed: Translates a key.
        here: Column that is false for the added row only, None when no row is added.

    Raises:
        Rejected: A key that is a constant, which Spark would not distinguish from the same constant elsewhere; or there are no keys.
    """
    found = []
    for keys in sets:
        expressions = []
        for key in keys:
            one = typed(key)
            if one.constant is not None:
                raise Rejected(f"it has the constant {shown(key)} in ROLLUP, CUBE or GROUPING SETS")
            expressions.append(one.sql)
        found.append(tuple(dict.fromkeys(expressions)))
    if not any(found):
        raise Rejected("it has GROUPING SETS without keys")
    return Grouping(sets=tuple(found), here=here)


def grouping_number(name: str, node: exp.Anonymous, parts: Sequence[Typed]) -> Typed:
    """Return ``grouping(a, b)``: a bit for each key, which is 1 where the set of the row is without it."""
    only(node, "this", "expressions")
    if not parts:
        raise Rejected(f"it calls {name} without arguments")
    bits = [f"CAST(grouping({part.sql}) AS BIGINT) * {2**place}" for place, part in enumerate(reversed(parts))]
    return Typed(sql=f"({' + '.join(bits)})", type=INT64)


def windowed(node: exp.Window, translate: Translate, named: Mapping[str, exp.Window]) -> Typed:
    """Translate a function over a window.

    Args:
        node: The parsed function with its window.
        translate: Translates an expression.
        named: Windows of the WINDOW clause by lower-case name.

    Raises:
        Rejected: A function or a frame that is not translated.
    """
    only(node, "this", "partition_by", "order", "spec", "over", "alias")
    if node.args.get("alias") is not None:
        name = node.args["alias"].name.lower()
        if name not in named:
            raise Rejected(f"window {name!r} does not exist")
        base = named[name].copy()
        base.set("this", node.this)
        base.set("alias", None)
        if any(node.args.get(key) for key in ("partition_by", "order", "spec")):
            raise Rejected(f"it changes the window {name!r}")
        return windowed(base, translate, named)
    over = _over(node, translate)
    call, nulls = _unpacked(node.this)
    function = call.name.lower()
    if function in RANKS:
        return _rank(function, call, translate, over, ordered=node.args.get("order") is not None)
    if function in NEIGHBOURS:
        return _neighbour(function, call, translate, over, nulls)
    if function in AGGREGATES and not nulls:
        if any(not isinstance(part, exp.Star) and isinstance(part, exp.Distinct | exp.Order) for part in call.expressions):
            raise Rejected(f"it has {function} with DISTINCT or an order over a window")
        parts = [translate(part) for part in call.expressions if not isinstance(part, exp.Star)]
        return AGGREGATES[function](parts, "", lambda text: f"{text} {over}")
    raise Rejected(f"it calls {function} over a window")


def _unpacked(node: exp.Expression) -> tuple[exp.Anonymous, str]:
    """Return the call, and ``IGNORE NULLS`` or an empty string."""
    nulls = ""
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        nulls, node = "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "", node.this
    if isinstance(node, exp.Dot) and node.this.name.lower() == "main":
        node = node.expression
    if not isinstance(node, exp.Anonymous):
        raise Rejected(f"it has {type(node).__name__.upper()} over a window")
    # IGNORE NULLS stands behind the call, or behind its last argument as DuckDB prints it.
    last = node.expressions[-1] if node.expressions else None
    if isinstance(last, exp.IgnoreNulls | exp.RespectNulls):
        nulls, node = "IGNORE NULLS" if isinstance(last, exp.IgnoreNulls) else "", node.copy()
        node.set("expressions", [*node.expressions[:-1], node.expressions[-1].this])
    return node, nulls


def _rank(function: str, call: exp.Anonymous, translate: Translate, over: str, *, ordered: bool) -> Typed:
    if not ordered:
        raise Rejected(f"it has {function} over a window without ORDER BY")
    template, kind = RANKS[function]
    parts = [translate(part) for part in call.expressions]
    if len(parts) != (function == "ntile") or any(part.integer is None or part.integer < 1 for part in parts):
        raise Rejected(f"it has {function} with unsupported arguments")
    return Typed(sql=template.format(f"{function}({', '.join(str(part.integer) for part in parts)}) {over}"), type=kind)


def _neighbour(function: str, call: exp.Anonymous, translate: Translate, over: str, nulls: str) -> Typed:
    parts = [translate(part) for part in call.expressions]
    value, numbers = parts[0], parts[1:2]
    value = cast(value, value.type)
    if any(part.integer is None or part.integer < (function == "nth_value") for part in numbers):
        raise Rejected(f"it has {function} with a distance that is not constant")
    if len(parts) > (3 if function in ("lag", "lead") else 2 if function == "nth_value" else 1):
        raise Rejected(f"it has {function} with {len(parts)} arguments")
    arguments = [value.sql, *(str(part.integer) for part in numbers)]
    if len(parts) == 3:
        arguments.append(cast(parts[2], value.type).sql)
    name = {"first": "first_value", "last": "last_value"}.get(function, function)
    return Typed(sql=f"{name}({', '.join(arguments)}) {nulls} {over}", type=value.type)


def order_item(node: exp.Expression, part: Typed) -> str:
    """Return a sort key with its direction and the place of NULLs."""
    assert isinstance(node, exp.Ordered)
    only(node, "this", "desc", "nulls_first")
    return sort_key(part, descending=bool(node.args.get("desc")), nulls_first=bool(node.args.get("nulls_first")))


def sort_key(part: Typed, *, descending: bool, nulls_first: bool) -> str:
    """Return a sort key like :func:`order_item`, from its parts."""
    if not is_comparable(part.type):
        raise Rejected(f"it sorts by values of type {part.type}")
    # A bare number would be a position in Spark's ORDER BY.
    sql = part.sql if part.constant is None else f"CAST({part.sql} AS {spark_name(part.type)})"
    return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def _over(node: exp.Window, translate: Translate) -> str:
    pieces = []
    partition = [translate(part) for part in node.args.get("partition_by") or ()]
    for part in partition:
        if not is_comparable(part.type):
            raise Rejected(f"it partitions by values of type {part.type}")
    if partition:
        pieces.append("PARTITION BY " + ", ".join(part.sql for part in partition))
    order = node.args.get("order")
    if order is not None:
        pieces.append("ORDER BY " + ", ".join(order_item(item, translate(item.this)) for item in order.expressions))
    spec = node.args.get("spec")
    if spec is not None:
        pieces.append(_frame(spec))
    return f"OVER ({' '.join(pieces)})"


def _frame(spec: exp.WindowSpec) -> str:
    only(spec, "kind", "start", "start_side", "end", "end_side")
    kind = str(spec.args.get("kind") or "").upper()
    start = _bound(kind, spec.args.get("start"), spec.args.get("start_side"))
    end = _bound(kind, spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(kind: str, bound: object, side: object) -> str:
    if isinstance(bound, str) and bound.upper() in _BOUNDS:
        return f"{bound} {side or ''}".strip()
    if kind == "ROWS" and isinstance(bound, exp.Literal) and not bound.is_string and bound.name.isdigit():
        return f"{bound.name} {side}"
    raise Rejected(f"it has a window frame of {kind} {bound if isinstance(bound, str) else getattr(bound, 'sql', str)('duckdb')}")


def push_conditions(condition: exp.Expression, scope: Scope, sources: Sources) -> None:
    """Pass every part of a condition that reads one table, and needs no SQL engine, to that table's scan.

    The condition itself stays where it is: only rows that it would drop are left out early.

    Args:
        condition: The parsed condition of WHERE.
        scope: Names of the query.
        sources: The tables that are read, which take the conditions.
    """
    for part in _parts(condition):
        if part.find(exp.Query) is None:
            _push(part.copy(), scope, sources)


def _parts(node: exp.Expression) -> list[exp.Expression]:
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += [node.this, node.expression]
        else:
            found.append(node)
    return found


def _push(part: exp.Expression, scope: Scope, sources: Sources) -> None:
    # Anything unclear is left out without an error, because the query tests the whole condition in any case.
    owners = {column: (source, name) for source in sources.tables for column, name in source.used.items()}
    about: TableSource | None = None
    columns = list(part.find_all(exp.Column))
    for column in columns:
        if isinstance(column.this, exp.Star):
            return
        try:
            meant = scope.column(tuple(own.name for own in column.parts)).sql
        except Rejected:
            return
        source, name = owners.get(meant, (None, ""))
        if source is None or (about is not None and source is not about):
            return
        about = source
        column.replace(exp.column(exp.to_identifier(name, quoted=True)))
    if about is None:
        return
    text = part.sql("duckdb")
    try:
        predicate = bind(text, about.table.schema)
    except DuckLakeError:
        return
    if CATALOG not in text and not sql_parts(predicate):
        about.conditions.append(text)
