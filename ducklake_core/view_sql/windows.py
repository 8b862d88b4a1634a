"""OVER: windows of DuckDB in Spark SQL, with the order of NULLs and the frame written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from ducklake_core.view_sql.aggregates import AGGREGATES, NEIGHBOURS, RANKS
from ducklake_core.view_sql.casts import cast
from ducklake_core.view_sql.parsing import only
from ducklake_core.view_sql.typed import Refused, Typed, is_comparable, spark_name

Translate = Callable[[exp.Expression], Typed]
_BOUNDS = ("UNBOUNDED", "CURRENT ROW")


def windowed(node: exp.Window, translate: Translate, named: Mapping[str, exp.Window]) -> Typed:
    """A function over a window.

    Raises:
        Refused: A function or a frame that is not translated.
    """
    only(node, "this", "partition_by", "order", "spec", "over", "alias")
    if node.args.get("alias") is not None:
        name = node.args["alias"].name.lower()
        if name not in named:
            raise Refused(f"there is no window {name!r}")
        base = named[name].copy()
        base.set("this", node.this)
        base.set("alias", None)
        if any(node.args.get(key) for key in ("partition_by", "order", "spec")):
            raise Refused(f"it changes the window {name!r}")
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
            raise Refused(f"it has {function} with DISTINCT or an order over a window")
        parts = [translate(part) for part in call.expressions if not isinstance(part, exp.Star)]
        return AGGREGATES[function](parts, "", lambda text: f"{text} {over}")
    raise Refused(f"it calls {function} over a window")


def _unpacked(node: exp.Expression) -> tuple[exp.Anonymous, str]:
    """The call, and what it says about NULLs."""
    nulls = ""
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        nulls, node = "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "", node.this
    if isinstance(node, exp.Dot) and node.this.name.lower() == "main":
        node = node.expression
    if not isinstance(node, exp.Anonymous):
        raise Refused(f"it has {type(node).__name__.upper()} over a window")
    last = node.expressions[-1] if node.expressions else None
    if isinstance(last, exp.IgnoreNulls | exp.RespectNulls):
        nulls, node = "IGNORE NULLS" if isinstance(last, exp.IgnoreNulls) else "", node.copy()
        node.set("expressions", [*node.expressions[:-1], node.expressions[-1].this])
    return node, nulls


def _rank(function: str, call: exp.Anonymous, translate: Translate, over: str, *, ordered: bool) -> Typed:
    if not ordered:
        raise Refused(f"it has {function} over a window without ORDER BY")
    template, kind = RANKS[function]
    parts = [translate(part) for part in call.expressions]
    if len(parts) != (function == "ntile") or any(part.integer is None or part.integer < 1 for part in parts):
        raise Refused(f"it has {function} with other arguments than are understood")
    return Typed(sql=template.format(f"{function}({', '.join(str(part.integer) for part in parts)}) {over}"), type=kind)


def _neighbour(function: str, call: exp.Anonymous, translate: Translate, over: str, nulls: str) -> Typed:
    parts = [translate(part) for part in call.expressions]
    value, numbers = parts[0], parts[1:2]
    value = cast(value, value.type)
    if any(part.integer is None or part.integer < (function == "nth_value") for part in numbers):
        raise Refused(f"it has {function} with other than a constant distance")
    if len(parts) > (3 if function in ("lag", "lead") else 2 if function == "nth_value" else 1):
        raise Refused(f"it has {function} with {len(parts)} arguments")
    texts = [value.sql, *(str(part.integer) for part in numbers)]
    if len(parts) == 3:
        texts.append(cast(parts[2], value.type).sql)
    name = {"first": "first_value", "last": "last_value"}.get(function, function)
    return Typed(sql=f"{name}({', '.join(texts)}) {nulls} {over}", type=value.type)


def order_item(node: exp.Expression, part: Typed) -> str:
    """A sort key with its direction and the place of NULLs."""
    assert isinstance(node, exp.Ordered)
    only(node, "this", "desc", "nulls_first")
    return sort_key(part, descending=bool(node.args.get("desc")), nulls_first=bool(node.args.get("nulls_first")))


def sort_key(part: Typed, *, descending: bool, nulls_first: bool) -> str:
    """As :func:`order_item`, of parts."""
    if not is_comparable(part.type):
        raise Refused(f"it sorts by values of type {part.type}")
    sql = part.sql if part.constant is None else f"CAST({part.sql} AS {spark_name(part.type)})"
    return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def _over(node: exp.Window, translate: Translate) -> str:
    pieces = []
    partition = [translate(part) for part in node.args.get("partition_by") or ()]
    for part in partition:
        if not is_comparable(part.type):
            raise Refused(f"it partitions by values of type {part.type}")
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
    raise Refused(f"it has a window frame of {kind} {bound if isinstance(bound, str) else getattr(bound, 'sql', str)('duckdb')}")
