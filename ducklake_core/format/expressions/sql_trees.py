"""SQL texts of users, in DuckDB's dialect, as sqlglot's trees: what one expression over a row may hold, and its parts."""

from __future__ import annotations

from sqlglot import exp

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.sql_chains import nodes_of, parse_chain, shown
from ducklake_core.format.expressions.sql_constants import unwrapped

_REFUSED: dict[type, str] = {
    exp.Query: "a subquery",
    exp.Exists: "a subquery",
    exp.AggFunc: "an aggregate",
    exp.Window: "a window function",
    exp.Placeholder: "a placeholder",
    exp.Parameter: "a parameter",
    exp.Alias: "an alias",
    exp.Star: "a star",
    exp.Rand: "a random value",
}


def parse_text(text: str, what: str = "condition") -> exp.Expression:
    """One condition or expression over the columns of a row, as sqlglot's tree.

    Raises:
        UsageError: Unreadable text, several statements, or something that is no expression over one row.
    """
    statements = parse_chain(text, what)
    if len(statements) != 1:
        raise UsageError(f"{shown(text)} must be exactly one SQL {what}, not {len(statements)}")
    root = statements[0]
    kinds = set()
    for node in nodes_of(root, text, what):
        if node.error_messages():
            raise UsageError(f"cannot read the {what} {shown(text)}: a part of {node.key.upper()} is missing")
        kinds.add(type(node))
    for refused, name in _REFUSED.items():
        if any(issubclass(kind, refused) for kind in kinds):
            raise UsageError(f"the {what} {shown(text)} holds {name}; only the columns of one row can be used")
    if not isinstance(root, exp.Condition):
        raise UsageError(f"{shown(text)} is not a SQL {what}")
    return root


def conjuncts(text: str) -> list[str]:
    """The conditions that a condition joins by AND, as SQL."""
    found: list[str] = []
    waiting = [parse_text(text)]
    while waiting:
        node = unwrapped(waiting.pop())
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            found.append(node.sql(dialect="duckdb"))
    return found


def equal_sides(text: str) -> tuple[str, str] | None:
    """Both sides of an equality, as SQL; None for any other condition."""
    node = unwrapped(parse_text(text))
    return (node.this.sql(dialect="duckdb"), node.expression.sql(dialect="duckdb")) if isinstance(node, exp.EQ) else None


def column_path(node: exp.Expression) -> tuple[str, ...] | None:
    """Names of a column or of a field of structs, None when the node is something else."""
    node = unwrapped(node)
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            return tuple(part.name for part in node.parts)
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            return _extended(node.this, node.expression.name)
        case exp.Bracket() if len(node.expressions) == 1 and _is_text(node.expressions[0]):
            return _extended(node.this, node.expressions[0].name)
        case exp.StructExtract() if _is_text(node.expression):
            return _extended(node.this, node.expression.name)
        case _:
            return None


def _is_text(node: object) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _extended(node: exp.Expression, name: str) -> tuple[str, ...] | None:
    base = column_path(node)
    return None if base is None else (*base, name)
