"""Expressions by subject, over the columns of the table that :data:`TABLE` makes."""

from __future__ import annotations

TABLE = (
    """CREATE TABLE t (k INT, i8 TINYINT, i16 SMALLINT, i INT, j BIGINT, u8 UTINYINT, u32 UINTEGER, h HUGEINT, f REAL, g DOUBLE,
       m DECIMAL(5,2), n DECIMAL(18,3), w DECIMAL(38,4), b BOOLEAN, s VARCHAR, r VARCHAR, d DATE, e DATE, ts TIMESTAMP, tz TIMESTAMPTZ,
       l INT[], lv VARCHAR[], st STRUCT(x INT, "Y" VARCHAR), mp MAP(VARCHAR, INT), uu UUID)""",
)
ROWS = (
    """(1, 1, 2, 3, 4, 5, 6, 7, 1.5, 2.5, 1.25, 2.125, 3.0625, true, 'abc', 'a-b-c', '2020-02-29', '2019-12-31',
        '2020-02-29 13:14:15.123456', '2020-02-29 13:14:15+00', [1, 2, 3], ['a', NULL], {'x': 1, 'Y': 'one'}, MAP {'a': 1, 'b': 2},
        '00000000-0000-0000-0000-000000000001')""",
    """(2, -7, -300, -70000, -5000000000, 200, 4000000000, -170000000000000000000, -0.5, -2.5, -1.25, -2.125, -3.0625, false, '', 'x',
        '1969-12-31', '1970-01-01', '1969-12-31 23:59:59.5', '1969-12-31 23:59:59+00', [], [], {'x': NULL, 'Y': ''}, MAP {},
        'ffffffff-0000-0000-0000-000000000001')""",
    """(3, 0, 0, 0, 0, 0, 0, 0, 'nan', 'nan', 0, 0, 0, NULL, NULL, 'Ünïcödé 🦆', '0005-01-01', '9999-12-31',
        '0005-01-01 00:00:00', NULL, NULL, ['b', 'b'], NULL, NULL, NULL)""",
    """(4, 5, 2, 2, 2, 2, 2, 2, 0.1, 0.1, 0.05, 0.005, 0.0005, true, 'ABC', '50%_off', '1900-03-01', '1600-02-29',
        '1600-02-29 00:00:00.000001', '2024-07-01 00:00:00+00', [NULL, 5], NULL, {'x': 5, 'Y': NULL}, MAP {'a': NULL}, NULL)""",
    """(5, 127, 32767, 1000000, 123456789012, 255, 4294967295, 5, 'inf', '-inf', 999.99, 123456789012345.678, 5, false,
        'it''s "quoted" \\ {0}', '5', '2020-12-28', '2021-01-03', '2021-01-03 23:59:59.999999', '2021-01-03 10:00:00+00', [7], ['x'],
        {'x': 7, 'Y': 'seven'}, MAP {'zz': 9}, '12345678-1234-1234-1234-123456789abc')""",
    f"(6{', NULL' * 24})",
    """(7, 2, 3, 5, 7, 11, 13, 17, 2.5, 3.5, 2.25, 2.555, 0.125, true, ' pad  ', '-12', '2000-01-01', '2000-12-31',
        '2000-01-01 00:00:00', '2000-01-01 00:00:00+00', [2, NULL, 2], ['q'], {'x': 2, 'Y': 'two'}, MAP {'a': 3}, NULL)""",
)

EXPRESSIONS: dict[str, list[str]] = {
    "integers": [
        "i + 1", "i - 1000000", "i * 3", "i8 - 1", "i8 - i16", "i16 * 1", "j * 2", "i + j", "j - i", "-i", "-(j)", "+i", "i / 2", "i / j",
        "i // 2", "j // 7", "i // i8", "i % 3", "j % i8", "-7 % i16", "mod(i, 4)", "i / 0", "i // 0", "i % 0", "j / i16", "abs(i)", "sign(j)",
        "i8 + 1000", "i + 3000000000", "(i + 1) * 2 - j", "h + 1", "h * 2", "h - j", "h % 7", "h / 4", "1 + 2", "-5 // 2", "-5 % 3", "10",
        "i16 / i8 / 2", "greatest(i, j, 5)", "least(i8, 3)", "coalesce(i8, 5)", "coalesce(i8, 1000)", "nullif(i, 0)", "ifnull(j, 0)",
        "CAST(i AS DECIMAL(12,2))", "i + NULL", "floor(i)", "round(i)", "trunc(i)", "round(i, 2)",
    ],
    "floats": [
        "g + 1", "g * f", "f + f", "f + i", "f * m", "g - n", "g / 2", "g / 0", "f / 0", "g / m", "-g / 0", "g / (i * 0.0)", "f / i8", "g // 2",
        "g // 0", "g % 2", "g % 0", "f % 0", "-g", "abs(g)", "sign(g)", "round(g)", "round(g, 1)", "round(g, 3)", "round(f)", "floor(g)",
        "ceil(g)", "floor(f)", "ceil(-g)", "trunc(g)", "trunc(-g)", "isnan(g)", "isnan(f)", "g = 'nan'::DOUBLE", "g > 1e300",
        "greatest(g, f)", "least(g, 0)", "1.5e0 + g", "CAST(f AS DOUBLE)", "CASE WHEN NOT isnan(g) AND abs(g) < 100 THEN CAST(g AS INT) END",
        "CASE WHEN abs(f) < 100 AND k <> 3 THEN CAST(f AS BIGINT) END", "i / 3.0", "sqrt(abs(i))", "g <> f", "coalesce(f, g)",
        "i * 0.1::DOUBLE", "1e0 / 3",
    ],
    "decimals": [
        "m + 1", "m + n", "m - n", "m * 2", "m * m", "m * CAST(m AS DECIMAL(9,2))", "n * 2", "w + 1", "w + m", "m / 2", "n / m", "m / 0", "m // 2", "m // 0",
        "m % 2", "n % 0", "m % n", "-m", "abs(n)", "sign(m)", "round(m)", "round(m, 1)", "round(n, 2)", "round(n, 5)", "floor(m)", "ceil(n)",
        "trunc(n)", "m + i", "m * i8", "m + j", "1.5 + i", "1.5 * 2.25", "m > 1.2", "m = i", "n < j", "CAST(m AS INT)", "CAST(m AS DOUBLE)",
        "CAST(n AS DECIMAL(20,1))", "CAST(m AS DECIMAL(10,4))", "CAST(n AS FLOAT)", "coalesce(m, n)", "coalesce(m, 7)", "greatest(m, n)",
        "m * 1.1", "m * 0.01 + m", "CAST(0.125 AS DECIMAL(5,2))", "CAST(n AS BIGINT)", "1.50", "m - 0.5", "w * 2",
    ],
    "strings": [
        "s || '-'", "s || r", "s || i", "s || m", "s || b", "s || d", "upper(s)", "lower(s)", "length(r)", "length(s)", "trim(s)",
        "ltrim(s)", "rtrim(s)", "substring(r, 2)", "substring(r, 2, 3)", "substr(r, 1, 0)", "left(r, 3)", "right(r, 2)", "replace(r, '-', '+')",
        "replace(s, '', 'x')", "concat(s, i, NULL, 'z')", "concat_ws('|', s, r)", "concat_ws(',', s, i)", "starts_with(r, 'a')", "suffix(r, 'f')",
        "contains(r, '-')", "strpos(r, '-')", "instr(r, 'ï')", "position('c' IN r)", "lpad(r, 4, '*')", "rpad(s, 12, 'ab')", "repeat(s, 2)",
        "split_part(r, '-', 2)", "split_part(r, '-', 9)", "md5(r)", "s LIKE 'a%'", "r LIKE '_-%'", "r LIKE '%\\%'", "r NOT LIKE '%x%'",
        "r LIKE '50%_%'", "r LIKE '%🦆'", "s ILIKE 'ABC'", "r NOT ILIKE '%X%'", "s = 'abc'", "s < 'b'", "s IN ('abc', 'ABC', '')", "regexp_matches(r, '^[a-z]-')",
        "regexp_matches(r, '[0-9]+$')", "regexp_full_match(r, '.*')", "regexp_full_match(s, 'a?b*c|abc')", "regexp_matches(s, 'q\\w+')",
        "s ~ 'abc'", "coalesce(s, 'none')", "nullif(s, '')", "CASE WHEN s = '' THEN 'empty' ELSE r END", "CAST(i AS VARCHAR)",
        "CAST(m AS VARCHAR)", "CAST(d AS VARCHAR)", "CAST(ts AS VARCHAR)", "CAST(b AS VARCHAR)", "CAST(h AS VARCHAR)", "'a\\b{c}'''",
        "greatest(s, r)", "CASE WHEN k IN (5, 7) THEN CAST(r AS INT) END", "CASE WHEN k IN (5, 7) THEN CAST(r AS DOUBLE) END", "s > r",
        "'x' || NULL", "length('')", "s IS NULL", "concat(g IS NULL, d)",
    ],
    "logic": [
        "i = 3", "i <> j", "i < 2.5", "i >= g", "j = u32", "u8 > i", "u32 = 6", "h > j", "b", "NOT b", "b AND i > 0", "b OR NULL", "b AND NULL",
        "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b = true", "i IS NULL", "i IS NOT NULL", "i IS DISTINCT FROM 3", "i IS NOT DISTINCT FROM j",
        "s IS DISTINCT FROM r", "i BETWEEN 0 AND 5", "i NOT BETWEEN m AND 10", "d BETWEEN '2000-01-01' AND '2020-12-31'", "i IN (1, 2, 3)",
        "i NOT IN (1, NULL)", "i IN (2.0, 3)", "d IN ('2020-02-29', DATE '1969-12-31')", "CASE i WHEN 3 THEN 'three' WHEN 2 THEN 'two' END",
        "CASE WHEN i > 2 THEN 1 WHEN i > 1 THEN 2.5 ELSE NULL END", "if(b, 1, 2)", "if(i > 2, i8, j)", "CASE WHEN b THEN d ELSE '2001-02-03' END",
        "CASE WHEN b THEN NULL ELSE d END", "CAST(b AS INT)", "CAST(i AS BOOLEAN)", "CAST('t' AS BOOLEAN)", "NULL", "NULL IS NULL",
        "uu = '00000000-0000-0000-0000-000000000001'", "uu > '80000000-0000-0000-0000-000000000000'", "st IS NULL", "l IS NULL", "uu", "tz",
        "tz > TIMESTAMPTZ '2000-06-01 00:00:00+00'", "u8", "u32", "h", "coalesce(b, false)", "i > '2'", "least(d, e)", "b > false", "i = NULL", "i IN (1, NULL)", "u8 = 200", "NULL BETWEEN 1 AND 2", "coalesce(NULL, NULL)",
    ],
    "dates": [
        "d + 1", "d - 30", "1 + d", "d - e", "d + i8", "d + INTERVAL 1 DAY", "d + INTERVAL 1 MONTH", "d - INTERVAL '2 years'", "ts + INTERVAL 3 HOUR",
        "ts - INTERVAL 90 MINUTE", "ts + INTERVAL 1 MONTH", "d + INTERVAL 2 WEEK", "ts + INTERVAL (-1) DAY", "year(d)", "month(d)", "day(d)",
        "quarter(d)", "week(d)", "dayofweek(d)", "isodow(d)", "dayofyear(d)", "extract(year FROM d)", "extract(dow FROM ts)", "date_part('doy', e)",
        "hour(ts)", "minute(ts)", "second(ts)", "year(ts)", "month(ts)", "date_part('hour', d)", "date_trunc('month', d)", "date_trunc('year', e)",
        "date_trunc('week', d)", "date_trunc('quarter', ts)", "date_trunc('day', ts)", "date_trunc('hour', ts)", "date_trunc('minute', ts)",
        "date_trunc('second', ts)", "date_diff('day', e, d)", "date_diff('month', d, e)", "date_diff('year', ts, d)", "last_day(d)", "last_day(ts)",
        "dayname(d)", "monthname(ts)", "CAST(ts AS DATE)", "CAST(d AS TIMESTAMP)", "d > '2000-01-01'", "ts >= d", "d = CAST(ts AS DATE)",
        "ts > '2020-01-01 00:00:00'", "DATE '2020-01-01'", "TIMESTAMP '1969-12-31 23:59:59.999'", "d < TIMESTAMP '2020-01-01'", "strftime(d, '%Y-%m')",
        "strftime(ts, '%d.%m.%Y %H:%M:%S')", "make_date(2020, 2, 29)", "coalesce(d, e)", "coalesce(ts, d)", "greatest(d, e)", "d",
    ],
    "nested": [
        "l[1]", "l[2]", "l[-1]", "l[9]", "lv[1]", "list_extract(l, 2)", "len(l)", "len(lv)", "array_length(l)", "list_contains(l, 2)",
        "list_contains(lv, 'b')", "contains(l, 5)", "st.x", "t.st.x", "(st).x", "st.\"Y\"", "st['x']", "struct_extract(st, 'y')", "mp['a']",
        "mp['none']", "st.x + 1", "upper(st.y)", "l", "st", "coalesce(l[3], -1)", "l IS NOT NULL", "coalesce(l, NULL)",
        "CASE WHEN i > 0 THEN l END",
    ],
}  # fmt: skip
AGGREGATED = [
    "count(*)", "count(i)", "count(DISTINCT i)", "count(DISTINCT s)", "sum(i)", "sum(j)", "sum(h)", "sum(i8)", "sum(u32)", "sum(m)", "sum(w)",
    "sum(b)", "sum(DISTINCT i8)", "avg(i)", "avg(j)", "avg(m)", "avg(n)", "avg(i8)", "avg(DISTINCT i16)", "min(i)", "max(j)", "min(g)", "max(g)",
    "max(f)", "min(s)", "max(r)", "min(d)", "max(ts)", "min(tz)", "max(uu)", "min(b)", "bool_and(b)", "bool_or(i > 2)", "count_if(i > 0)",
    "sum(i) FILTER (WHERE i > 0)", "avg(m) FILTER (WHERE b)", "count(*) FILTER (WHERE s IS NULL)", "sum(i) / count(*)", "sum(i) + 1", "sum(m) * 2",
    "100.0 * count(b) / count(*)", "max(i) - min(i)", "round(avg(m), 2)", "sum(i * i8)", "coalesce(sum(i), 0)", "sum(CASE WHEN b THEN 1 ELSE 0 END)",
    "sum(1)", "max(u8)", "avg(h % 10)", "sum(i / 4)", "max(DISTINCT i)", "mean(i)", "min(NULL)",
]  # fmt: skip
