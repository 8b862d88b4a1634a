"""Values of every leaf type, as SQL of DuckDB: extremes, signs, fractions, zones, and NULL."""

from __future__ import annotations

from ducklake_core.format.types.data_types import (  # fmt: skip
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    INTERVAL,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    TIMETZ,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    UINT128,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
)

SQL_TYPES: dict[DataType, str] = {
    BOOLEAN: "BOOLEAN", INT8: "TINYINT", INT16: "SMALLINT", INT32: "INTEGER", INT64: "BIGINT", INT128: "HUGEINT",
    UINT8: "UTINYINT", UINT16: "USMALLINT", UINT32: "UINTEGER", UINT64: "UBIGINT", UINT128: "UHUGEINT",
    FLOAT32: "FLOAT", FLOAT64: "DOUBLE", DATE: "DATE", TIME: "TIME", TIMETZ: "TIMETZ", TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_S: "TIMESTAMP_S", TIMESTAMP_MS: "TIMESTAMP_MS", TIMESTAMP_NS: "TIMESTAMP_NS", TIMESTAMPTZ: "TIMESTAMPTZ",
    INTERVAL: "INTERVAL", VARCHAR: "VARCHAR", JSON: "JSON", BLOB: "BLOB", UUID: "UUID",
    DecimalType(precision=4, scale=2): "DECIMAL(4,2)", DecimalType(precision=2, scale=2): "DECIMAL(2,2)",
    DecimalType(precision=18, scale=3): "DECIMAL(18,3)", DecimalType(precision=38, scale=10): "DECIMAL(38,10)",
    DecimalType(precision=38, scale=0): "DECIMAL(38,0)",
}  # fmt: skip

_TIMES = ["1970-01-01 00:00:00", "2024-01-15 10:30:00", "0044-03-15 (BC) 10:00:00", "12345-06-07 23:59:59"]
_FINE = [*_TIMES, "1969-12-31 23:59:59.5", "2024-01-15 10:30:00.123456"]

SAMPLES: dict[DataType, list[str]] = {
    BOOLEAN: ["true", "false"],
    INT8: ["-128", "127", "0"],
    INT16: ["-32768", "32767"],
    INT32: ["-2147483648", "2147483647"],
    INT64: ["-9223372036854775808", "9223372036854775807"],
    INT128: ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "10"],
    UINT8: ["0", "255"],
    UINT16: ["0", "65535"],
    UINT32: ["0", "4294967295"],
    UINT64: ["0", "18446744073709551615"],
    UINT128: ["0", "340282366920938463463374607431768211455"],
    FLOAT32: ["0.1", "-1e10", "3.4028235e38", "1e-5", "16777216", "1e16", "123456.7"],
    FLOAT64: ["0.1", "-1e300", "1e-05", "1e10", "1e16", "123456789.125", "0.0001"],
    DATE: ["1970-01-01", "2024-02-29", "0044-03-15 (BC)", "12345-06-07", "infinity", "-infinity", "1969-12-31"],
    TIME: ["00:00:00", "23:59:59.999999", "10:00:00.5", "24:00:00"],
    TIMETZ: ["00:00:00+00", "10:00:00.5+00"],
    TIMESTAMP: [*_FINE, "infinity", "-infinity"],
    TIMESTAMP_S: [*_TIMES, "infinity"],
    TIMESTAMP_MS: [*_TIMES, "1969-12-31 23:59:59.5", "-infinity"],
    TIMESTAMP_NS: ["1970-01-01 00:00:00", "1969-12-31 23:59:59.5", "2024-01-15 10:30:00.123456789", "1700-01-01 00:00:00.000000001"],
    TIMESTAMPTZ: [f"{text}+00" for text in _FINE] + ["infinity"],
    INTERVAL: ["1 year 2 months -2 days 03:00:00.5", "-1 month -00:00:03", "00:00:00", "400 days", "1000:00:00.000001"],
    VARCHAR: ["", "a", "ä€😀", "it's \"quoted\"", "null", " "],
    JSON: ['{"a": [1, 2]}', "null", '"x"'],
    BLOB: ["\\x00\\xFFab", "plain", "", "\\x22\\x27\\x5C"],
    UUID: ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff", "80000000-0000-4000-8000-000000000001"],
    DecimalType(precision=4, scale=2): ["-99.99", "0.05", "12.30"],
    DecimalType(precision=2, scale=2): ["-0.99", "0.50", "0.00"],
    DecimalType(precision=18, scale=3): ["-999999999999999.999", "0.001"],
    DecimalType(precision=38, scale=10): ["-9999999999999999999999999999.9999999999", "0.0000000001"],
    DecimalType(precision=38, scale=0): ["-99999999999999999999999999999999999999", "7"],
}  # fmt: skip

NO_FILE_BOUNDS = (INT128, UINT128, TIMETZ, INTERVAL)
"""Types that DuckDB keeps no bounds for when they are in files."""


def in_files_of_duckdb(data_type: DataType) -> list[str]:
    """The samples that DuckDB can write to a file: no negative intervals, no infinite timestamps in seconds."""
    match data_type:
        case t if t == INTERVAL:
            return [text for text in SAMPLES[data_type] if "-" not in text]
        case t if t == TIMESTAMP_S:
            return [text for text in SAMPLES[data_type] if "infinity" not in text]
        case _:
            return SAMPLES[data_type]


def literal(text: str, data_type: DataType) -> str:
    """SQL of one value."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'::{SQL_TYPES[data_type]}"
