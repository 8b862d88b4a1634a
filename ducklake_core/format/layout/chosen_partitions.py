"""Partitions named by the values of their keys, as a predicate on rows: files of other keys have rows of them as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import bind_column, is_null, literal
from ducklake_core.format.expressions.predicates import (
    ColumnReference,
    Comparison,
    InList,
    KeyValue,
    Literal,
    Predicate,
    SqlExpression,
    conjunction,
    disjunction,
)
from ducklake_core.format.files.partitioning import EPOCH_TRANSFORMS, PartitionField, PartitionSpec, parse_partition_expression
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown

# Wide enough for DuckDB's timestamps, which end in the year 294247.
_MAX_HOURS = 300_000 * 366 * 24
_RANGES = {"month": (1, 12), "day": (1, 31), "hour": (0, 23), **dict.fromkeys(EPOCH_TRANSFORMS, (-_MAX_HOURS, _MAX_HOURS))}
_YEARS = (-300_000, 300_000)


def partition_predicate(partitions: Sequence[Mapping[str, object]], spec: PartitionSpec | None, schema: Schema, table: str) -> Predicate:
    """Build the predicate that holds for exactly the rows of some partitions.

    Args:
        partitions: For each a value of every key, by the key's expression as in ``partition_by``: ``{"carrier": "UA", "month(day)": 3}``.
            Values of a transform are whole numbers: calendar parts, numbers of buckets. None is NULL.
        spec: The table's keys.
        schema: The table's columns.
        table: For messages.

    Raises:
        UsageError: The table has no keys, no partition is named, a key is missing or unknown, or a value is invalid.
        NotFoundError: A column that the table does not have.
    """
    if spec is None:
        raise UsageError(f"table {table} has no partition keys: overwrite rows of it with where=...", table=table)
    if isinstance(partitions, Mapping | str) or not partitions:
        raise UsageError("partitions must be a list of mappings from partition keys to values, with one at least", table=table)
    named = [_named(one, spec, schema, table) for one in partitions]
    # One IN list, which is looked up: 10,000 partitions would be as many branches of an OR.
    if len(spec.fields) == 1 and spec.fields[0].transform == "identity":
        return _one_of(spec.fields[0], [values[0] for values in named], schema)
    return disjunction(
        conjunction(_is(key, value, schema) for key, value in zip(spec.fields, values, strict=True)) for values in dict.fromkeys(named)
    )


def written_partitions(values: Iterable[tuple[str | None, ...]], spec: PartitionSpec, schema: Schema) -> Predicate | None:
    """Return the predicate for exactly the rows of the partitions that files were written for, None when there are none.

    Args:
        values: For each file its partition values as strings, in the order of the keys; None is NULL.
        spec: The keys that the files were written with.
        schema: The table's columns.
    """
    found = sorted(set(values), key=lambda strings: [(text is not None, text or "") for text in strings])
    if not found:
        return None
    if len(spec.fields) == 1 and spec.fields[0].transform == "identity":
        return _one_of_strings(spec.fields[0], [strings[0] for strings in found], schema)
    return disjunction(
        conjunction(_is_text(key, text, schema) for key, text in zip(spec.fields, strings, strict=True)) for strings in found
    )


def _one_of_strings(key: PartitionField, strings: Sequence[str | None], schema: Schema) -> Predicate:
    column = bind_column((key.column,), schema)
    literals = tuple(_literal(key, text, schema) for text in strings if text is not None)
    found: list[Predicate] = [InList(operand=column, values=literals)] if literals else []
    return disjunction([*found, *([is_null(schema, key.column)] if None in strings else [])])


def _is_text(key: PartitionField, text: str | None, schema: Schema) -> Predicate:
    if text is None or key.transform != "identity":
        return _is(key, None if text is None else int(text), schema)
    return Comparison(left=bind_column((key.column,), schema), operator="=", right=_literal(key, text, schema))


def _literal(key: PartitionField, text: str, schema: Schema) -> Literal:
    """Return the value of a partition's text, parsed as in DuckDB."""
    # Through the parser, so that the string is read exactly as a condition in SQL reads it.
    name, quoted = key.column.replace('"', '""'), text.replace("'", "''")
    parsed = bind(f"\"{name}\" = '{quoted}'", schema)
    assert isinstance(parsed, Comparison)
    assert isinstance(parsed.right, Literal)
    return parsed.right


def _named(given: Mapping[str, object], spec: PartitionSpec, schema: Schema, table: str) -> tuple[object, ...]:
    """Return a partition's values in the order of the keys."""
    found: dict[PartitionField, object] = {}
    keys = ", ".join(key.expression for key in spec.fields)
    if not isinstance(given, Mapping):
        raise UsageError(f"partitions must be mappings from partition keys to values, not {shown(given)}", table=table)
    for text, value in given.items():
        key = _key(text, spec, schema)
        if key is None or key in found:
            what = "there twice" if key else "none of them"
            raise UsageError(f"table {table} is partitioned by {keys}, and {text!r} is {what}", table=table)
        found[key] = value
    missing = [key.expression for key in spec.fields if key not in found]
    if missing:
        raise UsageError(f"the partition {shown(dict(given))} of {table} has no value for {', '.join(missing)}", table=table)
    return tuple(found[key] for key in spec.fields)


def _key(text: str, spec: PartitionSpec, schema: Schema) -> PartitionField | None:
    # A column may be called ``month(day)``: its plain name is enough, unless the table is also partitioned by the month of ``day``.
    exact = [key for key in spec.fields if key.expression == text]
    plain = [key for key in spec.fields if key.transform == "identity" and folded(key.column) == folded(text)]
    if exact or plain:
        return (exact or plain)[0]
    name, transform, buckets = parse_partition_expression(text)
    column = schema.column(name)
    wanted = (column.id, transform, buckets)
    return next((key for key in spec.fields if (key.column_id, key.transform, key.buckets) == wanted), None)


def _one_of(key: PartitionField, values: Sequence[object], schema: Schema) -> Predicate:
    column = bind_column((key.column,), schema)
    literals = tuple(dict.fromkeys(_value(key, value, column) for value in values if value is not None))
    found: list[Predicate] = [InList(operand=column, values=literals)] if literals else []
    return disjunction([*found, *([is_null(schema, key.column)] if None in values else [])])


def _is(key: PartitionField, value: object, schema: Schema) -> Predicate:
    column = bind_column((key.column,), schema)
    if key.transform == "identity":
        if value is None:
            return is_null(schema, key.column)
        return Comparison(left=column, operator="=", right=_value(key, value, column))
    text = None if value is None else str(_checked_number(key, value))
    name = '"' + key.column.replace('"', '""') + '"'
    call = f"bucket({key.buckets}, {name})" if key.buckets is not None else f"{key.transform}({name})"
    # The text names the key for messages. No SQL engine has these functions as DuckLake defines them, so Arrow evaluates the scalar.
    return SqlExpression(
        sql=f"{call} IS NULL" if text is None else f"{call} = {text}",
        columns=(column,),
        scalar=KeyValue(column=column, key=key, text=text),
        in_arrow=True,
    )


def _value(key: PartitionField, value: object, column: ColumnReference) -> Literal:
    try:
        return literal(value, column.type)
    except DuckLakeError as error:
        raise UsageError(f"{shown(value)} is not a value of partition key {key.column!r}: {error.message}") from error


def _checked_number(key: PartitionField, value: object) -> int:
    least, most = (0, key.buckets - 1) if key.buckets is not None else _RANGES.get(key.transform, _YEARS)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{shown(value)} is not a value of {key.expression}: it has whole numbers from {least} to {most}")
    return value
