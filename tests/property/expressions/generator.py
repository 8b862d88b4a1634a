"""Random typed expressions in DuckDB's SQL over the table of edge values, made from the code's own tables of what it knows."""

# ruff: noqa: E501 - lists of awkward values and forms

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from ducklake_core.format.expressions.parser import COMPARISONS
from ducklake_core.format.expressions.syntax import TYPE_NAMES as CAST_TYPES
from tests.property.expressions.edge_values import BLANKS, DUCKDB_TYPES, LEAVES, STRINGS

NUMBERS = ("integer", "float", "decimal")
CLASSES: dict[str, str] = {
    "int": "integer", "uint": "integer", "float": "float", "decimal": "decimal", "boolean": "boolean", "varchar": "text", "date": "date",
    "timestamp": "instant",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An expression: its SQL with ``{0}`` ... for its parts, and roughly what it gives."""

    template: str
    kind: str
    parts: tuple[Node, ...] = ()

    @property
    def sql(self) -> str:
        text = self.template
        if not self.parts:
            return text
        return text.format(*(part.sql for part in self.parts))

    def walk(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            yield from part.walk()


def class_of(name: str) -> str:
    kind = str(LEAVES[name][0])
    return next((found for prefix, found in CLASSES.items() if kind.startswith(prefix)), "other")


COLUMNS: dict[str, list[Node]] = {}
for _name in LEAVES:
    COLUMNS.setdefault(class_of(_name), []).append(Node(template=_name, kind=class_of(_name)))
COLUMNS["integer"].append(Node(template="st.a", kind="integer"))
COLUMNS["text"].append(Node(template="st.T", kind="text"))
COLUMNS["other"] += [Node(template="st", kind="other"), Node(template="li", kind="other")]


def quoted(text: str) -> str:
    """Return a string as a SQL constant; NUL cannot be written within quotes."""
    return "'" + text.replace("'", "''") + "'"


_STRINGS = [quoted(text) for text in STRINGS if "\0" not in text and len(text) < 100]
_CONSTANTS: dict[str, list[str]] = {
    "integer": ["0", "1", "2", "3", "-1", "7", "-7", "127", "128", "255", "300", "2147483647", "-2147483648", "3000000000", "9223372036854775807",
                "-9223372036854775808", "18446744073709551615", "170141183460469231731687303715884105727"],
    "float": ["1e0", "1.5e0", "-0e0", "1e300", "1e-300", "5e-324", "0.1e0", "CAST('nan' AS DOUBLE)", "CAST('-inf' AS FLOAT)", "CAST(0.1 AS FLOAT)"],
    "decimal": ["0.5", "1.50", "-0.01", "2.5", "99.999", "12345678901234567890.123456789", "0.00000001", "99999999999999999999999999999999999999", "1.0", "0.0"],
    "boolean": ["TRUE", "FALSE"],
    "text": [*_STRINGS, "''", "'a'", "'-'", "' '"],
    "date": ["DATE '2020-02-29'", "DATE 'infinity'", "DATE '-infinity'", "DATE '1969-12-31'", "'2024-01-31'", "DATE '0044-03-15 (BC)'", "DATE '5881580-07-10'"],
    "instant": ["TIMESTAMP '2020-02-29 12:34:56.789'", "TIMESTAMP 'infinity'", "'2024-01-31 10:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'",
                "TIMESTAMPTZ '2020-02-29 00:00:00+00'"],
    "other": ["CAST('12345678-1234-1234-1234-123456789abc' AS UUID)", "CAST('\\x00a' AS BLOB)", "TIME '12:34:56'", "'00000000-0000-0000-0000-000000000001'"],
}  # fmt: skip

Signature = tuple[str, tuple[str, ...], str]
"""SQL with placeholders, their classes (``same`` as the first, ``any`` anything, ``#`` an index), and the result's class."""
PARTS = ("year", "quarter", "month", "week", "day", "dayofyear", "dayofweek", "isodow", "hour", "minute", "second")
CALLS: dict[str, list[Signature]] = {
    "+": [("({0} + {1})", ("number", "number"), "number"), ("({0} + {1})", ("date", "integer"), "date")],
    "-": [("({0} - {1})", ("number", "number"), "number"), ("({0} - {1})", ("date", "integer"), "date")],
    "*": [("({0} * {1})", ("number", "number"), "number")],
    "/": [("({0} / {1})", ("number", "number"), "float")],
    "//": [("({0} // {1})", ("number", "number"), "number")],
    "%": [("({0} % {1})", ("number", "number"), "number")],
    "negate": [("(-{0})", ("number",), "number")],
    "abs": [("abs({0})", ("number",), "number")],
    "floor": [("floor({0})", ("number",), "number")],
    "ceil": [("ceil({0})", ("number",), "number"), ("ceiling({0})", ("number",), "number")],
    "||": [("({0} || {1})", ("text", "text"), "text"), ("({0} || {1})", ("text", "any"), "text")],
    "concat": [("concat({0}, {1})", ("text", "text"), "text"), ("concat({0}, {1}, {2})", ("any", "any", "any"), "text"), ("concat({0})", ("text",), "text")],
    "upper": [("upper({0})", ("text",), "text")],
    "lower": [("lower({0})", ("text",), "text")],
    "length": [("length({0})", ("text",), "integer")],
    "trim": [("trim({0})", ("text",), "text")],
    "ltrim": [("ltrim({0})", ("text",), "text")],
    "rtrim": [("rtrim({0})", ("text",), "text")],
    "replace": [("replace({0}, {1}, {2})", ("text", "quoted", "quoted"), "text"), ("replace({0}, {1}, {2})", ("text", "text", "text"), "text")],
    "substring": [("substring({0}, {1}, {2})", ("text", "#", "#"), "text"), ("substr({0}, {1})", ("text", "#"), "text"),
                  ("substring({0}, {1}, {2})", ("text", "integer", "integer"), "text")],
    "coalesce": [("coalesce({0}, {1})", ("any", "same"), "first"), ("coalesce({0}, {1}, {2})", ("any", "same", "same"), "first"),
                 ("ifnull({0}, {1})", ("any", "same"), "first")],
    "nullif": [("nullif({0}, {1})", ("any", "same"), "first")],
    "like": [("({0} LIKE {1})", ("text", "like"), "boolean"), ("({0} NOT LIKE {1})", ("text", "like"), "boolean")],
    "ilike": [("({0} ILIKE {1})", ("text", "like"), "boolean"), ("({0} NOT ILIKE {1})", ("text", "like"), "boolean")],
    "starts_with": [("starts_with({0}, {1})", ("text", "quoted"), "boolean")],
    # With a cast: DuckDB cannot choose a function for a NULL without a type.
    **{part: [(f"{part}(CAST({{0}} AS TIMESTAMP))", ("moment",), "integer")] for part in PARTS},
}  # fmt: skip

_CAST_NAMES = {str(data_type): sql for data_type, sql in LEAVES.values()}
CAST_TARGETS = [
    *(_CAST_NAMES[name] for name in dict.fromkeys(CAST_TYPES.values())), "DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(38,0)",
    "DECIMAL(38,10)", "DECIMAL(5,5)", "DECIMAL",
]  # fmt: skip
"""Every type that a cast names."""


def _cast_class(target: str) -> str:
    column = next((name for name, sql in DUCKDB_TYPES.items() if sql == target), "m")
    return class_of(column)


CASTS: list[Signature] = [
    (f"{word}({{0}} AS {target})", ("any",), _cast_class(target)) for target in CAST_TARGETS for word in ("CAST", "TRY_CAST")
]
CONDITIONS: list[Signature] = [
    *((f"({{0}} {operator} {{1}})", ("any", "same"), "boolean") for operator in COMPARISONS.values()),
    *((f"({{0}} IS {word} {{1}})", ("any", "same"), "boolean") for word in ("DISTINCT FROM", "NOT DISTINCT FROM")),
    ("({0} IS NULL)", ("any",), "boolean"), ("({0} IS NOT NULL)", ("any",), "boolean"),
    ("({0} BETWEEN {1} AND {2})", ("any", "same", "same"), "boolean"), ("({0} NOT BETWEEN {1} AND {2})", ("any", "same", "same"), "boolean"),
    ("({0} IN ({1}, {2}))", ("any", "same", "same"), "boolean"), ("({0} NOT IN ({1}, {2}, {3}))", ("any", "same", "same", "same"), "boolean"),
    ("({0} LIKE {1})", ("text", "pattern"), "boolean"), ("({0} NOT LIKE {1})", ("text", "pattern"), "boolean"),
    ("starts_with({0}, {1})", ("text", "quoted"), "boolean"), ("prefix({0}, {1})", ("text", "quoted"), "boolean"),
    ("({0} AND {1})", ("boolean", "boolean"), "boolean"), ("({0} OR {1})", ("boolean", "boolean"), "boolean"), ("(NOT {0})", ("boolean",), "boolean"),
    ("({0} IS TRUE)", ("boolean",), "boolean"), ("({0} IS NOT FALSE)", ("boolean",), "boolean"),
]  # fmt: skip
CHOICES: list[Signature] = [
    ("CASE WHEN {0} THEN {1} ELSE {2} END", ("boolean", "any", "same"), "second"),
    ("CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END", ("boolean", "any", "boolean", "same"), "second"),
    ("CASE {0} WHEN {1} THEN {2} ELSE {3} END", ("any", "same", "any", "any"), "other"),
    ("if({0}, {1}, {2})", ("boolean", "any", "same"), "second"),
]  # fmt: skip
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
CALENDAR: list[Signature] = [
    ("extract(year FROM CAST({0} AS TIMESTAMP))", ("moment",), "integer"), ("date_part('year', CAST({0} AS DATE))", ("moment",), "integer"),
    *((f"date_trunc('{unit}', {{0}})", ("moment",), "instant") for unit in UNITS),
]  # fmt: skip

CALLS_OF_ARROW = [signature for signatures in CALLS.values() for signature in signatures]
EVERY: list[Signature] = [*CALLS_OF_ARROW, *CASTS, *CONDITIONS, *CHOICES, *CALENDAR]


class Generator:
    """Draws expressions.

    Args:
        draw: Where chance comes from.
        wild: Share of parts that are of any type.
    """

    def __init__(self, draw: Random, wild: float = 0.08, groups: Sequence[Sequence[Signature]] = ()) -> None:
        self.draw = draw
        self.wild = wild
        self.groups = groups or (CALLS_OF_ARROW, CASTS, CONDITIONS, CHOICES)
        self.every = [signature for group in groups for signature in group] if groups else EVERY

    def expression(self, depth: int = 3) -> Node:
        """Any expression; each kind of call is as likely as the others."""
        group = self.draw.choices(self.groups, [5, 3, 2, 1])[0]
        return self._made(self.draw.choice(group), depth)

    def condition(self, depth: int = 3) -> Node:
        """An expression that is a condition."""
        return self._made(self.draw.choice(CONDITIONS), depth)

    def of(self, kind: str, depth: int) -> Node:
        """An expression of about a kind."""
        if self.draw.random() < self.wild:
            kind = "any"
        if kind == "any":
            kind = self.draw.choices([*COLUMNS], [3, 2, 3, 2, 3, 2, 3, 1][: len(COLUMNS)])[0]
        if kind == "number":
            kind = self.draw.choice(NUMBERS)
        if kind == "moment":
            kind = self.draw.choice(["date", "instant"])
        if kind == "quoted":
            return Node(template=self.draw.choice(_CONSTANTS["text"]).replace("{", "(").replace("}", ")"), kind="text")
        if kind == "pattern":
            return Node(
                template=quoted(self.draw.choice(["", "a", "ab", "é", " ", "%", "\\", "1"]) + self.draw.choice(["", "%", "%", "_"])),
                kind="text",
            )
        if kind == "like":
            return Node(
                template=quoted("".join(self.draw.choices(["a", "b", "é", " ", "%", "_", "\\", "1", "."], k=self.draw.randrange(5)))),
                kind="text",
            )
        if kind == "pattern of letters":
            return Node(
                template=quoted(self.draw.choice(["a", "^a", "[a-z]+$", "b?c*", ".", "^$", "[0-9]+", "a|b", "\\d", "\\w+", "\\s"])),
                kind="text",
            )
        if kind == "format":
            return Node(template=quoted(self.draw.choice(["%Y-%m-%d", "%d.%m.%Y %H:%M:%S", "", "%Y"])), kind="text")
        if kind == "#":
            return Node(template=self.draw.choice(["1", "2", "3", "0", "5", "-1", "NULL", "100"]), kind="integer")
        if depth <= 0 or self.draw.random() < 0.3:
            return self._leaf(kind)
        fits = [signature for signature in self.every if self._gives(signature, kind)]
        return self._made(self.draw.choice(fits), depth - 1, kind) if fits else self._leaf(kind)

    def _leaf(self, kind: str) -> Node:
        chance = self.draw.random()
        if chance < 0.05:
            return Node(template="NULL", kind=kind)
        if chance < 0.3:
            return Node(template=self.draw.choice(_CONSTANTS[kind]), kind=kind)
        return self.draw.choice(COLUMNS[kind])

    def _made(self, signature: Signature, depth: int, kind: str | None = None) -> Node:
        template, classes, result = signature
        parts: list[Node] = []
        for wanted_class in classes:
            wanted = wanted_class
            if wanted_class == "same":
                wanted = next(part.kind for part, of in zip(parts, classes, strict=False) if of == "any")
            elif wanted_class == "any" and result in ("first", "second") and kind is not None:
                wanted = kind
            parts.append(self.of(wanted, depth - 1))
        given = parts[0].kind if result == "first" else parts[1].kind if result == "second" else result
        if given == "number":
            given = parts[0].kind
        return Node(template=template, kind=given, parts=tuple(parts))

    @staticmethod
    def _gives(signature: Signature, kind: str) -> bool:
        result = signature[2]
        return result == kind or (result == "number" and kind in NUMBERS) or result in ("first", "second")


def matrix(groups: tuple[str, ...] = ("calls", "casts", "conditions", "calendar")) -> list[Node]:
    """Every operator, function and cast over every column, or every pair of columns, which include each type."""
    leaves = [Node(template=name, kind=class_of(name)) for name in LEAVES if name not in ("i2", "g2", "r", "blank", "e")]
    leaves += [Node(template=text, kind="null") for text in ("NULL", "5", "1.5", "'7'")]
    signatures = {"calls": CALLS_OF_ARROW, "casts": CASTS, "conditions": CONDITIONS, "calendar": CALENDAR}
    found: list[Node] = []
    for template, classes, kind in (signature for group in groups for signature in signatures[group]):
        if len(classes) <= 2:
            found += [Node(template=template, kind=kind, parts=parts) for parts in product(leaves, repeat=len(classes))]
    return found


def smaller(node: Node) -> Iterator[Node]:
    """Expressions that are simpler than one, the simplest first."""
    yield from sorted((part for part in node.walk() if part is not node and part.parts), key=lambda part: len(part.sql))
    for index, part in enumerate(node.parts):
        for plain in (*COLUMNS.get(part.kind, [])[:3], *part.parts):
            if len(plain.sql) < len(part.sql):
                yield replace(node, parts=(*node.parts[:index], plain, *node.parts[index + 1 :]))
        for inner in smaller(part):
            yield replace(node, parts=(*node.parts[:index], inner, *node.parts[index + 1 :]))


__all__ = ["BLANKS", "EVERY", "Generator", "Node", "matrix", "smaller"]
