"""Render predicates as SQL for Spark and DuckDB, with the same result in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, TypeAlias, assert_never
from typing import Literal as OneOf

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.comparison import Fitted, common_domain, domain_of, fit, infinity_of
from ducklake_core.format.expressions.predicates import (
    And,
    BoxOverlap,
    ColumnReference,
    Comparison,
    Constant,
    InList,
    InRanges,
    IsNull,
    Literal,
    NestedTest,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    Range,
    SqlExpression,
    StartsWith,
    VariantComparison,
    VariantField,
    VariantIsNull,
)
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INTEGERS,
    JSON,
    TIME,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
    PrimitiveType,
)
from ducklake_core.format.values.temporal import civil_from_days

Dialect: TypeAlias = OneOf["spark", "duckdb"]
_FLOAT_NAMES = {
    ("float32", "spark"): "FLOAT",
    ("float64", "spark"): "DOUBLE",
    ("float32", "duckdb"): "REAL",
    ("float64", "duckdb"): "DOUBLE",
}
_TIMESTAMP_NAMES = {"timestamp": "TIMESTAMP", "timestamp_s": "TIMESTAMP_S", "timestamp_ms": "TIMESTAMP_MS", "timestamp_ns": "TIMESTAMP_NS"}
_DAY = 86_400_000_000
_MAX_OPERANDS = 50
_RANGES_PER_LEAF = 4
_MAX_DIVISIONS = 64

_TYPE_NAMES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "int128": "HUGEINT", "uint8": "UTINYINT",
    "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "uint128": "UHUGEINT", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip


def to_sql(predicate: Predicate, dialect: Dialect) -> str:
    """Return the predicate as a SQL condition.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> day = ColumnReference(column_id=1, path=("the day",), type=DATE)
    >>> newer = Comparison(left=day, operator=">=", right=Literal(value=15737, type=DATE))
    >>> to_sql(newer, "spark"), to_sql(Not(operand=IsNull(operand=day)), "duckdb")
    ("(`the day` >= DATE '2013-02-01')", '(NOT ("the day" IS NULL))')

    Raises:
        UnsupportedFeatureError: A constant that the dialect cannot hold, or SQL that it cannot express.
    """
    match predicate:
        case ColumnReference():
            return column_sql(predicate, dialect)
        case SqlExpression():
            return f"({expression_sql(predicate.sql, dialect)})"
        case Constant(value=value):
            return "CAST(NULL AS BOOLEAN)" if value is None else str(value).upper()
        case IsNull(operand=operand):
            return f"({_operand(operand, dialect)} IS NULL)"
        case Not(operand=inner):
            return f"(NOT {to_sql(inner, dialect)})"
        case And(operands=operands):
            return _chain("AND", [to_sql(operand, dialect) for operand in operands])
        case Or(operands=operands):
            return _chain("OR", [to_sql(operand, dialect) for operand in operands])
        case StartsWith(operand=column, prefix=prefix):
            function = "startswith" if dialect == "spark" else "starts_with"
            text = (
                column_sql(column, dialect) if column.type == VARCHAR else f"CAST({column_sql(column, dialect)} AS {_text_type(dialect)})"
            )
            return f"{function}({text}, {quoted(prefix, dialect)})"
        case VariantComparison() | VariantIsNull() | BoxOverlap():
            return nested_sql(predicate, dialect)
        case InList():
            return _in_list(predicate, dialect)
        case InRanges(operand=column, ranges=ranges):
            return _in_ranges(column, ranges, dialect)
        case Comparison():
            return _comparison(predicate, dialect)
        case _:
            assert_never(predicate)


def _chain(connector: str, operands: Sequence[str]) -> str:
    """Return a chain of operands, many of them in groups of groups: engines turn a plain chain into a tree as deep as it is long."""
    while len(operands) > _MAX_OPERANDS:
        groups = (operands[start : start + _MAX_OPERANDS] for start in range(0, len(operands), _MAX_OPERANDS))
        operands = [f"({f' {connector} '.join(group)})" for group in groups]
    return f"({f' {connector} '.join(operands)})"


def _in_ranges(column: ColumnReference, ranges: Sequence[Range], dialect: Dialect) -> str:
    """Return few ranges as a chain, which engines push down to files, and many as a search that halves them at every step."""
    if len(ranges) <= _MAX_OPERANDS:
        return _chain("OR", [_in_range(column, one, dialect) for one in ranges])
    # The outer bounds are what can still be pushed down. Where the column is NULL they are NULL, and so is the search.
    outer = Range(low=ranges[0].low, low_inclusive=ranges[0].low_inclusive, high=ranges[-1].high, high_inclusive=ranges[-1].high_inclusive)
    search = _search(column, ranges, dialect)
    return (
        search
        if outer == Range(low_inclusive=outer.low_inclusive, high_inclusive=outer.high_inclusive)
        else (f"({_in_range(column, outer, dialect)} AND {search})")
    )


def _search(column: ColumnReference, ranges: Sequence[Range], dialect: Dialect) -> str:
    if len(ranges) <= _RANGES_PER_LEAF:
        return _chain("OR", [_in_range(column, one, dialect) for one in ranges])
    # A search tree over the ascending ranges:
    #
    #   CASE WHEN column < (start of the middle range) THEN (left half) ELSE (right half) END
    #
    # A dozen comparisons find one of 5,000 ranges. Where the column is NULL, every WHEN fails and the last leaf gives NULL.
    middle = len(ranges) // 2
    upper = ranges[middle:]
    low = Literal(value=upper[0].low, type=column.type)
    below = _with_literal(column, "<", low, dialect)
    return f"(CASE WHEN {below} THEN {_search(column, ranges[:middle], dialect)} ELSE {_search(column, upper, dialect)} END)"


def _in_range(column: ColumnReference, one: Range, dialect: Dialect) -> str:
    parts = []
    if one.low is not None:
        low = Literal(value=one.low, type=column.type)
        parts.append(_with_literal(column, ">=" if one.low_inclusive else ">", low, dialect))
    if one.high is not None:
        high = Literal(value=one.high, type=column.type)
        parts.append(_with_literal(column, "<=" if one.high_inclusive else "<", high, dialect))
    return _chain("AND", parts) if parts else _settled(column, True, dialect)


def _text_type(dialect: Dialect) -> str:
    return "STRING" if dialect == "spark" else "VARCHAR"


def _identifier(name: str, dialect: Dialect) -> str:
    quote = "`" if dialect == "spark" else '"'
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def column_sql(column: ColumnReference, dialect: Dialect) -> str:
    """Return the column, or field of structs, by its quoted names."""
    if dialect == "duckdb" and len(column.path) > 1:
        # Parentheses keep DuckDB from taking the struct's name for a table's.
        first, *rest = (_identifier(name, dialect) for name in column.path)
        return f"({first}).{'.'.join(rest)}"
    return ".".join(_identifier(name, dialect) for name in column.path)


def expression_sql(sql: str, dialect: Dialect) -> str:
    """Return SQL in DuckDB's dialect as SQL of another.

    Raises:
        UnsupportedFeatureError: The other dialect cannot express it.
    """
    if dialect == "duckdb":
        return sql
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
        # From the inside to the outside: replaced nodes are not visited again.
        for node in reversed(list(tree.find_all(exp.Like, exp.ILike, exp.Escape, exp.Div, exp.IntDiv, exp.Mod))):
            changed = _patterned(node) if isinstance(node, exp.Like | exp.ILike | exp.Escape) else _divided(node)
            if node is tree:
                tree = changed
            elif changed is not node:
                node.replace(changed)
        tree = tree.transform(_unescaped)
        return str(tree.sql(dialect=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE))
    except sqlglot.errors.SqlglotError as problem:
        raise UnsupportedFeatureError(f"Spark cannot evaluate {sql!r}: {problem}", expression=sql) from problem


def _patterned(node: Any) -> Any:
    """Return LIKE, ILIKE or ESCAPE with a pattern that Spark matches as DuckDB does."""
    from sqlglot import exp

    like, escape = (node.this, node.expression.name) if isinstance(node, exp.Escape) else (node, "")
    if not isinstance(like, exp.Like | exp.ILike) or isinstance(node.parent, exp.Escape):
        return node
    like = like.copy()
    if not isinstance(like.expression, exp.Literal):
        return node if escape else exp.Escape(this=like, expression=exp.Literal.string("\x01"))
    pattern, unused = spark_pattern(like.expression.name, escape)
    if not escape and "\\" not in pattern:
        return node
    like.set("expression", exp.Literal.string(pattern))
    return exp.Escape(this=like, expression=exp.Literal.string(unused))


def _divided(node: Any) -> Any:
    """Return a division whose divisor may be zero, which is an error in Spark. In DuckDB, / then returns an infinity or NaN, and // and %
    of integers return NULL."""
    from sqlglot import exp

    dividend, divisor = node.this, node.expression
    if len(list(islice(node.find_all(exp.Div), _MAX_DIVISIONS))) == _MAX_DIVISIONS:
        # Both sides occur twice in the result, which must not grow without bounds. Spark reports a division by zero.
        return node
    if isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.name):
        return node
    if not isinstance(node, exp.Div):
        return type(node)(this=dividend.copy(), expression=exp.Nullif(this=divisor.copy(), expression=exp.Literal.number(0)))
    infinity = exp.cast(exp.Literal.string("Infinity"), "double")
    return exp.If(
        this=exp.EQ(this=divisor.copy(), expression=exp.Literal.number(0)),
        true=exp.Mul(this=exp.cast(dividend.copy(), "double"), expression=infinity),
        false=node.copy(),
    )


def _unescaped(node: Any) -> Any:
    """Return a string constant that means the same under every setting of Spark's parser."""
    from sqlglot import exp

    if not isinstance(node, exp.Literal) or not node.is_string or not _has_specials(node.name) or isinstance(node.parent, exp.Escape):
        return node
    return exp.cast(exp.HexString(this=_hex(node.name)), "text")


def _operand(operand: Operand, dialect: Dialect) -> str:
    match operand:
        case ColumnReference():
            return column_sql(operand, dialect)
        case Literal():
            return literal_text(operand.value, operand.type, dialect)
        case SqlExpression():
            return f"({expression_sql(operand.sql, dialect)})"
        case _:
            assert_never(operand)


def _in_list(predicate: InList, dialect: Dialect) -> str:
    column, fitted, others = predicate.operand, [], []
    for literal in predicate.values:
        exact = fit("=", literal, column.type)
        if isinstance(exact, Fitted):
            fitted.append(literal_text(exact.value, column.type, dialect))
        elif exact is None:
            others.append(_comparison(Comparison(left=column, operator="=", right=literal), dialect))
    if predicate.has_null:
        fitted.append("NULL")
    if not fitted and not others:
        return _settled(column, False, dialect)
    parts = [f"{column_sql(column, dialect)} IN ({', '.join(fitted)})"] if fitted else []
    return f"({' OR '.join(parts + others)})"


def _settled(column: ColumnReference, outcome: bool, dialect: Dialect) -> str:
    """Return a condition that is ``outcome`` for every value and NULL for NULL."""
    name = column_sql(column, dialect)
    return f"({name} IS NOT NULL OR CAST(NULL AS BOOLEAN))" if outcome else f"({name} IS NULL AND CAST(NULL AS BOOLEAN))"


def _comparison(comparison: Comparison, dialect: Dialect) -> str:
    left, op, right = comparison.left, comparison.operator, comparison.right
    if isinstance(left, ColumnReference) and isinstance(right, Literal):
        return _with_literal(left, op, right, dialect)
    if isinstance(left, SqlExpression) or isinstance(right, SqlExpression):
        return f"({_operand(left, dialect)} {op} {_operand(right, dialect)})"
    domain = common_domain(left.type, right.type)
    if BOOLEAN in (left.type, right.type) and left.type != right.type:
        # Spark compares booleans with nothing else.
        sides = (f"CAST({_operand(o, dialect)} AS INT)" if o.type == BOOLEAN else _operand(o, dialect) for o in (left, right))
        return f"({f' {op} '.join(sides)})"
    return f"({_in_domain(left, domain, dialect)} {op} {_in_domain(right, domain, dialect)})"


def _with_literal(column: ColumnReference, op: Operator, literal: Literal, dialect: Dialect) -> str:
    if literal.value is None:
        return "CAST(NULL AS BOOLEAN)"
    fitted = fit(op, literal, column.type)
    if isinstance(fitted, bool):
        return _settled(column, fitted, dialect)
    if fitted is None:
        domain = common_domain(column.type, literal.type)
        return f"({_in_domain(column, domain, dialect)} {op} {_in_domain(literal, domain, dialect)})"
    return f"({column_sql(column, dialect)} {fitted.operator} {literal_text(fitted.value, column.type, dialect)})"


def _in_domain(operand: ColumnReference | Literal, domain: str | None, dialect: Dialect) -> str:
    if domain in ("float32", "float64") and domain_of(operand.type) != domain:
        return f"CAST({_operand(operand, dialect)} AS {_FLOAT_NAMES[domain, dialect]})"
    return _operand(operand, dialect)


def literal_text(value: object, data_type: DataType, dialect: Dialect) -> str:
    """Return a constant of a type as SQL.

    Args:
        value: The value in the Python form of its type; None is NULL.
        data_type: Its type.
        dialect: The engine that reads the text.

    Raises:
        UsageError: A type that has no constants here.
        UnsupportedFeatureError: A value that the dialect cannot hold.
    """
    if value is None:
        return "NULL"
    if data_type == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if data_type in INTEGERS:
        return _integer(value, dialect)
    if isinstance(data_type, DecimalType):
        assert isinstance(value, Decimal | int)
        # As a string: a bare number would get the type of its own digits, or become a double.
        return f"CAST('{Decimal(value):f}' AS DECIMAL({data_type.precision}, {data_type.scale}))"
    if data_type in (FLOAT32, FLOAT64):
        assert isinstance(data_type, PrimitiveType)
        return f"CAST('{_float_text(value, dialect)}' AS {_FLOAT_NAMES[data_type.name, dialect]})"
    if data_type in (VARCHAR, JSON):
        assert isinstance(value, str)
        return quoted(value, dialect)
    if data_type == BLOB:
        return _blob(value, dialect)
    # Spark has no UUID; columns of it are strings there.
    if data_type == UUID:
        return f"'{value}'" if dialect == "spark" else f"CAST('{value}' AS UUID)"
    if data_type == DATE or data_type in TIMESTAMPS:
        return _point_in_time(value, data_type, dialect)
    if data_type == TIME:
        assert isinstance(value, int)
        return _time(value, dialect)
    raise UsageError(f"a constant of type {data_type} cannot be written as SQL")


def _integer(value: object, dialect: Dialect) -> str:
    assert isinstance(value, int)
    if dialect == "duckdb":
        return str(value)
    if -(2**31) < value < 2**31:
        return str(value)
    if -(2**63) < value < 2**63:
        return f"{value}L"
    # Spark holds uint64 and wider columns as decimal(20,0) or decimal(38,0), and as strings where 38 digits are not enough.
    return f"CAST('{value}' AS DECIMAL({max(20, len(str(abs(value))))}, 0))" if abs(value) < 10**38 else f"'{value}'"


def _float_text(value: object, dialect: Dialect) -> str:
    assert isinstance(value, int | float | Decimal)
    # Adding 0.0 drops the sign of zero. Both zeros are equal, but Spark's reader compares the bits with a file's
    # dictionary, and would skip rows.
    number = float(value) + 0.0 if dialect == "spark" else float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return repr(number)


def quoted(text: str, dialect: Dialect) -> str:
    """Return a string as a constant."""
    if dialect == "spark":
        return string_text(text)
    whole = "'" + text.replace("'", "''") + "'"
    return "(" + whole.replace("\x00", "' || chr(0) || '") + ")" if "\x00" in text else whole


def string_text(text: str) -> str:
    """Return a string constant that means the same under every setting of Spark's parser.

    >>> string_text("it's"), string_text("a-b")
    ("CAST(X'69742773' AS STRING)", "'a-b'")
    """
    return f"CAST(X'{_hex(text)}' AS STRING)" if _has_specials(text) else f"'{text}'"


def _has_specials(text: str) -> bool:
    return not text.isascii() or not text.isprintable() or bool(set(text) & set("'\\{}"))


def _hex(text: str) -> str:
    return text.encode().hex().upper()


def spark_pattern(pattern: str, escape: str = "") -> tuple[str, str]:
    """Return a pattern and an escape character with which Spark's LIKE matches what a pattern of DuckDB matches.

    In DuckDB, only the character of an ESCAPE clause escapes, and it may precede any character. Spark always has an escape character.

    >>> spark_pattern("a!%!b_", "!"), spark_pattern("a\\\\%")
    (('a\\x01%b_', '\\x01'), ('a\\\\%', '\\x01'))

    Args:
        pattern: The pattern.
        escape: Character of the ESCAPE clause; none if it is empty.

    Raises:
        UnsupportedFeatureError: The clause has several characters, or the pattern ends with its escape character.
    """
    # Control characters may be between quotes as they are.
    free = next(letter for letter in map(chr, range(1, 32)) if letter not in pattern)
    try:
        return escaped_pattern(pattern, escape, free), free
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(f"Spark cannot evaluate {error.message}") from None


def escaped_pattern(pattern: str, escape: str, letter: str) -> str:
    """Return a pattern of LIKE for an engine with its own escape character that matches what the pattern matches in DuckDB.

    >>> print(escaped_pattern("50!%!_%", "!", "#"), escaped_pattern("a#%", "", "#"))
    50#%#_% a##%

    Args:
        pattern: The pattern.
        escape: Character of the ESCAPE clause; none if it is empty.
        letter: Escape character of the engine.

    Raises:
        UnsupportedFeatureError: The clause has several characters, or the pattern ends with its escape character.
    """
    if len(escape) > 1:
        raise UnsupportedFeatureError(f"LIKE with ESCAPE {escape!r}, which has several characters")
    found: list[str] = []
    letters = iter(pattern)
    for one in letters:
        is_escaped = one == escape
        plain = next(letters, None) if is_escaped else one
        if plain is None:
            raise UnsupportedFeatureError(f"LIKE with the pattern {pattern!r}, which ends with its escape character")
        found.append(letter + plain if plain == letter or (is_escaped and plain in "%_") else plain)
    return "".join(found)


def _blob(value: object, dialect: Dialect) -> str:
    assert isinstance(value, bytes | bytearray | memoryview)
    if dialect == "spark":
        return f"X'{bytes(value).hex().upper()}'"
    return "CAST('" + "".join(f"\\x{byte:02X}" for byte in bytes(value)) + "' AS BLOB)"


def _time(microseconds: int, dialect: Dialect) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"TIME '{text}'" if dialect == "spark" else f"CAST('{text}' AS TIME)"


def _point_in_time(value: object, data_type: DataType, dialect: Dialect) -> str:
    assert isinstance(value, int)
    assert isinstance(data_type, PrimitiveType)
    if abs(value) >= infinity_of(data_type):
        return _infinite(value > 0, data_type, dialect)
    if data_type == DATE:
        return f"DATE '{_date_text(value, dialect)}'"
    unit = 1 if data_type == TIMESTAMP_NS else 1000
    days, nanoseconds = divmod(value * unit, _DAY * 1000)
    seconds, fraction = divmod(nanoseconds, 10**9)
    digits = f"{fraction:09}" if data_type == TIMESTAMP_NS else f"{fraction // 1000:06}"
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{digits}"
    text = f"{_date_text(days, dialect)} {clock}"
    if data_type == TIMESTAMPTZ:
        return f"TIMESTAMP '{text}+00:00'" if dialect == "spark" else f"CAST('{text}+00' AS TIMESTAMPTZ)"
    if dialect == "duckdb":
        return f"CAST('{text}' AS {_TIMESTAMP_NAMES[data_type.name]})"
    if data_type == TIMESTAMP_NS and fraction % 1000:
        raise UnsupportedFeatureError(
            "Spark's timestamps have microseconds; a timestamp_ns constant with nanoseconds cannot be compared there"
        )
    return f"TIMESTAMP_NTZ '{text[:-3] if data_type == TIMESTAMP_NS else text}'"


def _date_text(days: int, dialect: Dialect) -> str:
    year, month, day = civil_from_days(days)
    rest = f"{month:02}-{day:02}"
    if dialect == "duckdb":
        return f"{year:04}-{rest}" if year > 0 else f"{1 - year:04}-{rest} (BC)"
    # Spark wants a sign on years that do not have four digits.
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    return f"{sign}{abs(year):04}-{rest}"


def _infinite(positive: bool, data_type: PrimitiveType, dialect: Dialect) -> str:
    sign = "" if positive else "-"
    if dialect == "duckdb":
        name = {"date": "DATE", "timestamptz": "TIMESTAMPTZ"}.get(data_type.name) or _TIMESTAMP_NAMES[data_type.name]
        return f"CAST('{sign}infinity' AS {name})"
    # Spark has no infinite times. It reads those of a file as the extreme numbers they are stored as, so constants are the same numbers.
    if data_type == TIMESTAMPTZ:
        return f"timestamp_micros({sign}9223372036854775807L)"
    if data_type == DATE:
        return f"date_from_unix_date({sign}2147483647)"
    if data_type == TIMESTAMP_NS:
        raise UnsupportedFeatureError("Spark has no infinite timestamp_ns")
    limit = 2**63 - 1 if positive else -(2**63) + 1
    days, microseconds = divmod(limit, _DAY)
    seconds, fraction = divmod(microseconds, 1_000_000)
    return f"TIMESTAMP_NTZ '{_date_text(days, dialect)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}'"


def nested_sql(predicate: NestedTest, dialect: Dialect) -> str:
    """Return a condition on what lies inside of a value, which only DuckDB can evaluate."""
    column = column_sql(predicate.operand if isinstance(predicate, BoxOverlap) else _field(predicate).column, "duckdb")
    if isinstance(predicate, BoxOverlap):
        text = _geometry_sql(predicate, column)
    else:
        field = _field(predicate)
        value = column + "".join(f"[{quoted(step, 'duckdb') if isinstance(step, str) else step}]" for step in field.path)
        if field.cast is not None:
            value = f"{'TRY_CAST' if field.lenient else 'CAST'}({value} AS {_type_name(field.cast)})"
        if isinstance(predicate, VariantIsNull):
            text = f"({value} IS NULL)"
        else:
            text = f"({value} {predicate.operator} {literal_text(predicate.right.value, predicate.right.type, 'duckdb')})"
    if dialect != "duckdb":
        raise UnsupportedFeatureError(f"Spark cannot evaluate {text} together with conditions that only Spark evaluates", expression=text)
    return text


def _geometry_sql(predicate: BoxOverlap, column: str) -> str:
    constant = f"{quoted(predicate.constant, 'duckdb')}::GEOMETRY"
    if predicate.relation is None:
        return f"({column} && {constant})"
    return f"{predicate.relation}({', '.join((constant, column) if predicate.constant_first else (column, constant))})"


def _type_name(data_type: DataType) -> str:
    return _TYPE_NAMES.get(data_type.name, data_type.name.upper()) if isinstance(data_type, PrimitiveType) else str(data_type).upper()


def _field(predicate: VariantComparison | VariantIsNull) -> VariantField:
    return predicate.left if isinstance(predicate, VariantComparison) else predicate.operand
