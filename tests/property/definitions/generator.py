"""Random statements that create and alter a table, valid and invalid ones."""

from __future__ import annotations

from random import Random

from tests.support.oracle import quoted

SCALARS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE",
    "DECIMAL(9,2)", "DECIMAL(38,0)", "BOOLEAN", "VARCHAR", "BLOB", "DATE", "TIME", "TIMETZ", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_S",
    "TIMESTAMP_MS", "TIMESTAMP_NS", "INTERVAL", "UUID", "JSON",
)  # fmt: skip
NESTED = ("INTEGER[]", "VARCHAR[]", "STRUCT(x INTEGER, y VARCHAR)", "MAP(VARCHAR, INTEGER)", "STRUCT(l INTEGER[])", "VARIANT", "GEOMETRY")
NAMES = (
    "b", "B c", "select", "year", "year(d)", 'q"uote', "a.b", "ß", "row_id", "begin_snapshot", "_ducklake_internal_row_id",
    "_ducklake_internal_snapshot_id", "_ducklake_row_id", "filename", "file_row_number", "1", "x" * 70, "A", "'", "", "a/b", "null",
)  # fmt: skip
LITERALS = (
    "1", "-1", "0", "300", "1.5", "1e3", "'5'", "'x'", "''", "'it''s'", "true", "NULL", "'NULL'", "'2020-01-01'", "'2020-01-01 01:02:03'",
    "'01:02:03'", "'infinity'", "'nan'", "'[1]'", "'\\xAA'", "'1 day'", "'00000000-0000-0000-0000-000000000001'",
    "170141183460469231731687303715884105727", "9223372036854775808",
)  # fmt: skip
EXPRESSIONS = (
    "(1 + 1)", "-(1)", "+1", "now()", "uuid()", "random()", "current_date", "today()", "upper('x')", "'a' || 'b'", "abs(-1)", "pi()",
    "CASE WHEN true THEN 1 ELSE 2 END", "coalesce(NULL, 1)", "INTERVAL 1 DAY", "DATE '2020-01-01' + 1", "[1, 2]", "{'x': 1, 'y': 'z'}",
    "MAP {'k': 1}", "sum(1)", "count(*)", "unnest([1])", "row_number() OVER ()", "(SELECT 1)", "a", "no_function()", "list_sum([1, 2])",
    "list_transform([1], lambda x: x + 1)", "1 IN (1, 2)", "NOT true", "1 BETWEEN 0 AND 2", "current_user", "getvariable('v')", "$1", "?",
    "COLUMNS(*)", "nextval('s')", "TRY_CAST('x' AS INTEGER)", "date_trunc('month', DATE '2020-01-05')", "'x' IS NULL", "'a' LIKE 'a%'",
)  # fmt: skip
VALID = {
    "FLOAT": ("1.5", "'nan'", "1.1::FLOAT"), "DOUBLE": ("1.5", "'-inf'", "1e3"), "DECIMAL(9,2)": ("1.5", "-1.234", "pi()"),
    "BOOLEAN": ("true", "'f'", "NOT true", "1"), "VARCHAR": ("'it''s'", "upper('x')", "current_user", "5"), "BLOB": ("'\\xAA'", "''"),
    "DATE": ("'2020-01-01'", "current_date", "today()", "'infinity'"), "TIME": ("'01:02:03'", "'24:00:00'"), "TIMETZ": ("'01:02:03+00'",),
    "TIMESTAMP": ("'2020-01-01 01:02:03'", "now()", "DATE '2020-01-01'"), "TIMESTAMPTZ": ("'2020-01-01 01:02:03+02'", "now()"),
    "TIMESTAMP_NS": ("'2020-01-01 01:02:03.123456789'",), "INTERVAL": ("'1 day'", "INTERVAL 1 DAY"), "JSON": ("'[1]'",),
    "UUID": ("'00000000-0000-0000-0000-000000000001'", "uuid()"),
}  # fmt: skip
WHOLE = ("1", "'5'", "1.5", "1 + 1", "abs(-1)", "random()", "true", "CASE WHEN true THEN 1 ELSE 2 END")
TYPED = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
SORT_FORMS = (
    "{}", "{} DESC", "{} ASC NULLS FIRST", "upper({})", "lower({}::VARCHAR)", "{} + 1", "abs({})", "year({})", "{}[1]", "{}.x", "t.{}",
    "{}['x']", "unnest([{}])", "sum({})", "row_number() OVER (ORDER BY {})", "(SELECT {})", "no_function({})", "random()", "1", "NULL", "*",
    "list_transform([{}], lambda x: x)", "CASE WHEN {} IS NULL THEN 0 ELSE 1 END", "hash({})", "COLUMNS(*)", "coalesce({}, {})",
)  # fmt: skip
PARTITION_FORMS = (
    "{}", "year({})", "month({})", "day({})", "hour({})", "bucket(4, {})", "bucket(1, {})", "bucket(0, {})", "bucket(2147483648, {})",
    "bucket({})", "upper({})", "{}.x", "epoch_day({})",
)  # fmt: skip


class Definitions:
    """The statements that make one table, with ``a`` as the first column."""

    def __init__(self, random: Random, table: str) -> None:
        self._random = random
        self._table = table
        self._names = ["a"]

    def statements(self) -> list[str]:
        """Return CREATE TABLE and up to four statements that alter the table."""
        columns = ", ".join(["a INTEGER", *(self._column() for _ in range(self._random.randrange(3)))])
        keys = f" PARTITIONED BY ({self._keys(PARTITION_FORMS)})" if self._random.random() < 0.1 else ""
        alterations = (self._sorting, self._partitioning, self._default, self._added, self._renamed, self._retyped)
        created = f"CREATE TABLE {self._table} ({columns}){keys}"
        return [created, *(self._random.choice(alterations)() for _ in range(self._random.randrange(5)))]

    def _column(self) -> str:
        name, kind = self._new_name(), self._type()
        default = f" DEFAULT {self._value(kind)}" if self._random.random() < 0.6 else ""
        return f"{quoted(name)} {kind}{default}"

    def _new_name(self) -> str:
        plain = f"c{len(self._names)}"
        self._names.append(plain if self._random.random() < 0.7 else self._random.choice(NAMES))
        return self._names[-1]

    def _type(self) -> str:
        return self._random.choice(SCALARS if self._random.random() < 0.85 else NESTED)

    def _value(self, kind: str) -> str:
        pick = self._random.random()
        valid = VALID.get(kind, WHOLE)
        if pick < 0.4:
            return self._random.choice(valid)
        if pick < 0.5:
            return self._random.choice(LITERALS)
        if pick < 0.9:
            own = kind if self._random.random() < 0.8 else self._random.choice(SCALARS)
            literal = self._random.choice(valid if self._random.random() < 0.7 else LITERALS)
            return f"{own} {literal}" if own in TYPED and literal[0] == literal[-1] == "'" else f"({literal})::{own}"
        return self._random.choice(EXPRESSIONS)

    def _keys(self, forms: tuple[str, ...]) -> str:
        count = self._random.choice((1, 1, 1, 2, 3))
        return ", ".join(
            self._random.choice(forms[:3] if self._random.random() < 0.5 else forms).format(*[self._known()] * 2) for _ in range(count)
        )

    def _known(self) -> str:
        return quoted(self._random.choice(self._names))

    def _sorting(self) -> str:
        return f"ALTER TABLE {self._table} SET SORTED BY ({self._keys(SORT_FORMS)})"

    def _partitioning(self) -> str:
        return f"ALTER TABLE {self._table} SET PARTITIONED BY ({self._keys(PARTITION_FORMS)})"

    def _default(self) -> str:
        return f"ALTER TABLE {self._table} ALTER {self._known()} SET DEFAULT {self._value(self._type())}"

    def _added(self) -> str:
        return f"ALTER TABLE {self._table} ADD COLUMN {self._column()}"

    def _renamed(self) -> str:
        old = self._known()
        return f"ALTER TABLE {self._table} RENAME COLUMN {old} TO {quoted(self._new_name())}"

    def _retyped(self) -> str:
        return f"ALTER TABLE {self._table} ALTER {self._known()} SET DATA TYPE {self._type()}"
