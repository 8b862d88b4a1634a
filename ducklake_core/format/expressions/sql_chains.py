"""Parse long chains of AND, OR and NOT into shallow trees, and constants into literals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias, cast

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import SqlglotError

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.comparison import infinity_of, integer_range
from ducklake_core.format.expressions.literals import number_literal, text_literal, to_scale
from ducklake_core.format.expressions.predicates import MOST_LEVELS, Literal
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOATS,
    INTEGERS,
    JSON,
    PRIMITIVES,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    DataType,
    DecimalType,
)
from ducklake_core.format.values.temporal import instant

MOST_BRACKETS = 30
"""How many parentheses, function calls and CASEs may stand within each other between two connectors."""
_Kind: TypeAlias = OneOf["and", "or", "atom"]
_CLOSERS = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
    TokenType.CASE: TokenType.END,
}
_CLOSING = frozenset(_CLOSERS.values())
# Where one of these stands beside connectors, sqlglot's own precedence decides: lambdas, JSON arrows, rows, aliases, queries.
_WHOLE = frozenset({TokenType.COMMA, TokenType.ARROW, TokenType.DARROW, TokenType.ALIAS})
_QUERIES = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM})
_COMPARISONS: dict[TokenType, type[exp.Binary]] = {
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
    TokenType.GT: exp.GT,
    TokenType.GTE: exp.GTE,
}
# A parenthesis after one of these stands for a value, and is not that of a call or of a list.
_BEFORE_OPERANDS = frozenset(
    {*_COMPARISONS, TokenType.L_PAREN, TokenType.COMMA, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.DPIPE}
)

TYPE_NAMES = {
    "INT": "int32", "TINYINT": "int8", "SMALLINT": "int16", "BIGINT": "int64", "INT128": "int128", "UTINYINT": "uint8",
    "USMALLINT": "uint16", "UINT": "uint32", "UBIGINT": "uint64", "UINT128": "uint128", "FLOAT": "float32", "DOUBLE": "float64",
    "BOOLEAN": "boolean", "DATE": "date", "TIME": "time", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp",
    "TIMESTAMP_S": "timestamp_s", "TIMESTAMP_MS": "timestamp_ms", "TIMESTAMP_NS": "timestamp_ns", "TIMESTAMPTZ": "timestamptz",
    "TEXT": "varchar", "VARCHAR": "varchar", "VARBINARY": "blob", "BLOB": "blob", "UUID": "uuid", "JSON": "json",
}  # fmt: skip

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


class _Unsplit(Exception):  # noqa: N818 - never leaves this module
    """The text is left to sqlglot as a whole."""


def shown(text: str) -> str:
    """A text for messages, cut where it is long."""
    return repr(text) if len(text) <= 500 else f"{text[:300]!r} ... {text[-100:]!r} ({len(text):,} characters)"


def parse_chain(text: str, what: str) -> list[exp.Expression]:
    """The statements of a text, of which a condition is one.

    Raises:
        UsageError: Unreadable text, or one that is nested more deeply than :data:`MOST_BRACKETS` allows.
    """
    dialect = Dialect.get_or_raise("duckdb")
    try:
        tokens = list(dialect.tokenize(text))
        try:
            root = _Splitter(text, what, tokens, dialect).root()
            statements: list[exp.Expression | None] = [root]
        except (_Unsplit, SqlglotError):
            # What cannot be cut is read as a whole, and so is what is wrong, whose message then counts from the text's beginning.
            whole = _with_room(lambda: dialect.parser().parse(tokens, text), text, what)
            statements = [_rebalanced(one) if isinstance(one, exp.Expression) else None for one in cast("list[object]", whole)]
    except SqlglotError as problem:
        reason = re.sub(r"\x1b\[\d+m", "", str(problem)).split("\n")[0]
        raise UsageError(f"cannot read the {what} {shown(text)}: {shown(reason)[1:-1] if len(reason) > 500 else reason}") from problem
    return [statement for statement in statements if statement is not None]


def nodes_of(root: exp.Expression, text: str, what: str) -> Iterator[exp.Expression]:
    """All nodes of a tree, each before those below it.

    Raises:
        UsageError: A tree of more than :data:`MOST_LEVELS`, parentheses not counted.
    """
    waiting = [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_LEVELS:
            raise _too_deep(text, what)
        yield node
        below = depth if isinstance(node, exp.Paren) else depth + 1
        for value in node.args.values():
            if isinstance(value, exp.Expression):
                waiting.append((value, below))
            elif isinstance(value, list):
                waiting += [(child, below) for child in value if isinstance(child, exp.Expression)]


def _too_deep(text: str, what: str) -> UsageError:
    return UsageError(
        f"the {what} {shown(text)} is nested too deeply: at most {MOST_LEVELS} levels of operators, and {MOST_BRACKETS} of functions and "
        "parentheses between two connectors; join terms by AND and OR without nesting, or use IN for lists of values"
    )


def _with_room(parse: object, text: str, what: str) -> object:
    """Parse, on a stack of its own where the present one does not do."""
    assert callable(parse)
    try:
        return parse()
    except RecursionError:
        pass
    with ThreadPoolExecutor(max_workers=1) as fresh:
        try:
            return fresh.submit(parse).result()
        except RecursionError:
            raise _too_deep(text, what) from None


@dataclass(slots=True)
class _Part:
    """A condition that is read: one node, or the operands of a chain that the next connector may go on with."""

    kind: _Kind
    nodes: list[exp.Expression]

    def node(self) -> exp.Expression:
        """The whole as a balanced tree."""
        nodes, connector = self.nodes, exp.And if self.kind == "and" else exp.Or
        while len(nodes) > 1:
            pairs = range(0, len(nodes) - 1, 2)
            joined: list[exp.Expression] = [connector(this=nodes[i], expression=nodes[i + 1]) for i in pairs]
            nodes = joined + nodes[len(nodes) - len(nodes) % 2 :]
        return nodes[0]


@dataclass(frozen=True, slots=True)
class _Join:
    """Work to do when the parts before it are read: join so many of them, or negate one."""

    kind: OneOf["and", "or", "not"]
    count: int


class _Splitter:
    """Cuts the tokens of one text."""

    def __init__(self, text: str, what: str, tokens: list[Token], dialect: Dialect) -> None:
        self.text, self.what, self.tokens, self.dialect = text, what, tokens, dialect
        self.types = [token.token_type for token in tokens]
        self.closing = self._brackets()

    def root(self) -> exp.Expression:
        """The whole text as one tree."""
        work: list[tuple[int, int] | _Join] = [(0, len(self.tokens))]
        parts: list[_Part] = []
        while work:
            item = work.pop()
            if isinstance(item, _Join):
                taken = parts[len(parts) - item.count :]
                del parts[len(parts) - item.count :]
                parts.append(_negated(taken[0]) if item.kind == "not" else _joined(item.kind, taken))
                continue
            start, end = self._unwrapped(*item)
            kind, cuts = self._cuts(start, end)
            if kind is not None:
                spans = list(zip([start, *(cut + 1 for cut in cuts)], [*cuts, end], strict=True))
                work += [_Join(kind, len(spans)), *reversed(spans)]
            elif self._is(start, TokenType.NOT) and end - start > 1:
                operand = start
                while self._is(operand, TokenType.NOT):
                    operand += 1
                work += [_Join("not", 1), (operand, end)] if (operand - start) % 2 else [(operand, end)]
            else:
                parts.append(_Part("atom", [self._atom(start, end)]))
        return parts[0].node()

    def _is(self, place: int, kind: TokenType) -> bool:
        return place < len(self.types) and self.types[place] == kind

    def _brackets(self) -> dict[int, int]:
        """Places of the closing tokens by those of the opening ones."""
        found: dict[int, int] = {}
        opened: list[int] = []
        for place, kind in enumerate(self.types):
            if kind == TokenType.SEMICOLON:
                raise _Unsplit
            if place and self.types[place - 1] == TokenType.DOT:
                continue
            if kind in _CLOSERS:
                opened.append(place)
            elif kind in _CLOSING:
                if not opened or _CLOSERS[self.types[opened[-1]]] != kind:
                    raise _Unsplit
                found[opened.pop()] = place
        if opened or not self.types:
            raise _Unsplit
        return found

    def _unwrapped(self, start: int, end: int) -> tuple[int, int]:
        """The span without parentheses around all of it."""
        while self._is(start, TokenType.L_PAREN) and self.closing[start] == end - 1:
            start, end = start + 1, end - 1
        return start, end

    def _cuts(self, start: int, end: int) -> tuple[OneOf["and", "or"] | None, list[int]]:
        """Places of the connectors of least precedence in a span, outside of all brackets."""
        found: dict[TokenType, list[int]] = {TokenType.AND: [], TokenType.OR: []}
        place, betweens = start, 0
        while place < end:
            kind = self.types[place]
            if place > start and self.types[place - 1] == TokenType.DOT:
                pass
            elif kind in _CLOSERS:
                place = self.closing[place]
            elif kind in _WHOLE or (kind in _QUERIES and place == start):
                raise _Unsplit
            elif kind == TokenType.BETWEEN:
                betweens += 1
            elif kind == TokenType.AND and betweens:
                betweens -= 1
            elif kind in found:
                if betweens:
                    raise _Unsplit
                found[kind].append(place)
            place += 1
        if found[TokenType.OR]:
            return "or", found[TokenType.OR]
        return ("and", found[TokenType.AND]) if found[TokenType.AND] else (None, [])

    def _atom(self, start: int, end: int) -> exp.Expression:
        """Parse the operand between two connectors."""
        simple = self._comparison(start) if end - start == 3 else None
        if simple is not None:
            return cast("exp.Expression", simple)
        if start == end:
            raise _Unsplit
        tokens = self._without_doubles(start, end)
        parsed = _with_room(lambda: self.dialect.parser().parse_into(exp.Condition, tokens, self.text), self.text, self.what)
        [node] = cast("list[exp.Expression | None]", parsed) or [None]
        if node is None:
            raise _Unsplit
        return node

    def _comparison(self, start: int) -> exp.Binary | None:
        """A column compared with a number or a text, by far the most frequent term of long conditions; None for anything else."""
        column, operator, constant = self.tokens[start : start + 3]
        kind = _COMPARISONS.get(operator.token_type)
        if kind is None or column.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            return None
        if constant.token_type not in (TokenType.NUMBER, TokenType.STRING) or not constant.text.isascii():
            return None
        if constant.token_type == TokenType.NUMBER and not constant.text.isdecimal():
            return None
        name = exp.Identifier(this=column.text, quoted=column.token_type == TokenType.IDENTIFIER)
        literal = exp.Literal(this=constant.text, is_string=constant.token_type == TokenType.STRING)
        return kind(this=exp.Column(this=name), expression=literal)

    def _without_doubles(self, start: int, end: int) -> list[Token]:
        """The tokens of a span, without parentheses that only surround others: ``((a + 1))``."""
        dropped: set[int] = set()
        depth = 0
        for place in range(start, end):
            closing = self.closing.get(place)
            if closing is not None:
                alone = self._is(place, TokenType.L_PAREN) and self._is(place + 1, TokenType.L_PAREN)
                if alone and self.closing[place + 1] == closing - 1 and (place == start or self.types[place - 1] in _BEFORE_OPERANDS):
                    dropped |= {place, closing}
                    continue
                depth += 1
            elif self.types[place] in _CLOSING and place not in dropped:
                depth -= 1
            if depth > MOST_BRACKETS:
                raise _too_deep(self.text, self.what)
        return [self.tokens[place] for place in range(start, end) if place not in dropped]


def _rebalanced(root: exp.Expression) -> exp.Expression:
    """A tree of sqlglot's own with the chains at its top balanced."""
    if not isinstance(root, exp.And | exp.Or):
        return root
    operands = [_rebalanced_and(operand) for operand in operands_of(root)]
    return _Part("and" if isinstance(root, exp.And) else "or", operands).node()


def _rebalanced_and(node: exp.Expression) -> exp.Expression:
    return _Part("and", operands_of(node)).node() if isinstance(node, exp.And) else node


def operands_of(chain: exp.Expression) -> list[exp.Expression]:
    """The operands of a chain of AND or of OR, in order; parentheses do not interrupt it."""
    kind, found, waiting = type(chain), list[exp.Expression](), [chain]
    while waiting:
        node = unwrapped(waiting.pop())
        if type(node) is kind:
            waiting += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _joined(kind: OneOf["and", "or"], parts: list[_Part]) -> _Part:
    """Parts as one chain; the first goes on where it is of the same kind."""
    first, *others = parts
    joined = first if first.kind == kind else _Part(kind, [_operand(first)])
    for part in others:
        joined.nodes += part.nodes if part.kind == kind else [_operand(part)]
    return joined


def _operand(part: _Part) -> exp.Expression:
    return part.nodes[0] if part.kind == "atom" else exp.Paren(this=part.node())


def _negated(part: _Part) -> _Part:
    node = _operand(part)
    # Two negations are none.
    return _Part("atom", [node.this if isinstance(node, exp.Not) else exp.Not(this=node)])


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


def unwrapped(node: exp.Expression) -> exp.Expression:
    """The node inside its parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class QuotedText(NamedTuple):
    """A quoted string whose type comes from what it is compared with."""

    text: str


def constant_of(node: exp.Expression) -> QuotedText | Literal | None:
    """The constant that a node spells, None when it is none or only an engine can compute it."""
    node = unwrapped(node)
    match node:
        case exp.Literal() if node.is_string:
            return QuotedText(node.name)
        case exp.Literal():
            return number_literal(node.name)
        case exp.Neg() if isinstance(unwrapped(node.this), exp.Literal) and not unwrapped(node.this).is_string:
            return number_literal("-" + unwrapped(node.this).name)
        case exp.Boolean():
            return Literal(value=bool(node.this), type=BOOLEAN)
        case exp.Null():
            return Literal(value=None, type=BOOLEAN)
        case exp.Cast() if not isinstance(node, exp.TryCast):
            inner, target = constant_of(node.this), data_type_of(node.to)
            return None if inner is None or target is None else _cast(inner, target)
        case _:
            return None


def data_type_of(node: exp.DataType) -> DataType | None:
    """The type that a cast names, None for one that is not a table's leaf type."""
    name = str(node.this.value) if isinstance(node.this, exp.DataType.Type) else ""
    if name == "DECIMAL":
        sizes = [int(part.name) for part in node.expressions] or [18, 3]
        return DecimalType(precision=sizes[0], scale=sizes[1] if len(sizes) > 1 else 0)
    return PRIMITIVES.get(TYPE_NAMES.get(name, ""))


def zoned(constant: Literal) -> Literal | None:
    """Return the instant at which a date or timestamp begins in the effective time zone, None for other types and for no instant."""
    value = constant.value
    if not isinstance(value, int) or (constant.type != DATE and constant.type not in TIMESTAMPS):
        return None
    if constant.type == TIMESTAMPTZ:
        return constant
    if abs(value) >= infinity_of(constant.type):
        limit = infinity_of(TIMESTAMPTZ)
        return Literal(value=limit if value > 0 else -limit, type=TIMESTAMPTZ)
    if constant.type == TIMESTAMP_NS and value % 1000:
        return None
    wall = value * 86_400_000_000 if constant.type == DATE else value // 1000 if constant.type == TIMESTAMP_NS else value
    moment = instant(wall) if abs(wall) < infinity_of(TIMESTAMPTZ) else None
    return None if moment is None or abs(moment) >= infinity_of(TIMESTAMPTZ) else Literal(value=moment, type=TIMESTAMPTZ)


def _is_exact_number(data_type: DataType) -> bool:
    """Whether values of a type are integers or decimals; days and microseconds are not."""
    return data_type in INTEGERS or isinstance(data_type, DecimalType)


def _cast(constant: QuotedText | Literal, target: DataType) -> Literal | None:
    """A constant cast to another type where that is exact and plain; None leaves the cast to the engine."""
    if isinstance(constant, QuotedText):
        # Whether a text is JSON is looked at where it is cast.
        return None if target == JSON else text_literal(constant.text, target)
    value = constant.value
    if value is None or constant.type == target:
        return Literal(value=value, type=target)
    if constant.type == DATE and target == TIMESTAMP and isinstance(value, int) and abs(value) < 2**26:
        return Literal(value=value * 86_400_000_000, type=TIMESTAMP)
    if target == TIMESTAMPTZ:
        return zoned(constant)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not _is_exact_number(constant.type):
        return None
    if target in INTEGERS:
        whole, (low, high) = int(Decimal(value).to_integral_value(rounding=ROUND_HALF_UP)), integer_range(target)
        return Literal(value=whole, type=target) if low <= whole <= high else None
    if isinstance(target, DecimalType):
        try:
            return Literal(value=to_scale(Decimal(value), target), type=target)
        except ValueError:
            return None
    return text_literal(str(value), target) if target in FLOATS else None
