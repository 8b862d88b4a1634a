"""How an output is written: settings from run-time output metadata, else asset metadata, else the IO manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.naming import name_list

WriteMode: TypeAlias = Literal["overwrite", "append", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]
OutOfSlice: TypeAlias = Literal["error", "filter"]
MissingColumns: TypeAlias = Literal["null", "error"]

_PREFIX = "ducklake/"
OUTPUT_KEYS = (
    "table", "schema", "partition_expr", "partition_by", "write_mode", "upsert_keys", "schema_evolution", "missing_columns",
    "out_of_slice", "shared", "audits",
)  # fmt: skip
"""Keys of an asset's metadata that the IO manager reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How one output is written.

    Attributes:
        write_mode: ``overwrite`` replaces the run's partitions (or the table), ``append`` adds rows,
            ``upsert`` replaces rows with equal keys.
        upsert_keys: Key columns of an upsert.
        partition_by: Partition keys of the table: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Of a table with other keys they
            become the keys of new files, in the same commit; empty leaves the keys of a table alone.
        schema_evolution: ``strict`` refuses new columns and wider types, ``additive`` adds them to the table in the same commit.
        missing_columns: What happens when the frame lacks columns that the table has: ``null`` writes NULL (or their default) and
            warns, ``error`` refuses.
        out_of_slice: What happens to rows outside the run's partitions: ``error``, or ``filter`` leaves them out.
        shared: Whether an overwrite may replace rows that another asset wrote.
    """

    write_mode: WriteMode = "overwrite"
    upsert_keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    schema_evolution: SchemaEvolution = "strict"
    missing_columns: MissingColumns = "null"
    out_of_slice: OutOfSlice = "error"
    shared: bool = False


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with Dagster's wrappers taken off, so that definition and run-time metadata read the same."""
    return {key: value.value if isinstance(value, dg.MetadataValue) else value for key, value in metadata.items()}


def refuse_unknown_keys(metadata: Mapping[str, Any], known: Sequence[str], subject: str) -> None:
    """Refuse keys of definition metadata that are spelled as this library's, but are none.

    Args:
        metadata: Of an asset or an input.
        known: Keys that it may have; others without the prefix belong to others.
        subject: What it is about, for the message.

    Raises:
        UsageError: A key that begins with ``ducklake/`` is not known.
    """
    for key in metadata:
        if key.lower().startswith(_PREFIX) and key not in known:
            plain = {name.removeprefix(_PREFIX): name for name in known}
            near = get_close_matches(key.lower().removeprefix(_PREFIX), plain, n=2)
            hint = f" (did you mean {' or '.join(repr(plain[name]) for name in near)}?)" if near else ""
            raise UsageError(f"{subject}: there is no metadata key {key!r}{hint}; the keys are {', '.join(known)}", metadata=key)


def resolve_settings(defaults: WriteSettings, *layers: Mapping[str, Any], subject: str) -> WriteSettings:
    """The settings after all layers; later layers win.

    >>> resolve_settings(WriteSettings(), {"write_mode": "append"}, {"write_mode": "upsert", "upsert_keys": ["id"]}, subject="a").write_mode
    'upsert'

    Raises:
        UsageError: A value that a setting cannot have, or an upsert without keys.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    settings = WriteSettings(
        write_mode=_choice(merged, "write_mode", get_args(WriteMode), defaults.write_mode, subject),
        upsert_keys=_names(merged, "upsert_keys", defaults.upsert_keys, subject),
        partition_by=_names(merged, "partition_by", defaults.partition_by, subject),
        schema_evolution=_choice(merged, "schema_evolution", get_args(SchemaEvolution), defaults.schema_evolution, subject),
        missing_columns=_choice(merged, "missing_columns", get_args(MissingColumns), defaults.missing_columns, subject),
        out_of_slice=_choice(merged, "out_of_slice", get_args(OutOfSlice), defaults.out_of_slice, subject),
        shared=_choice(merged, "shared", (True, False), defaults.shared, subject),
    )
    if settings.write_mode == "upsert" and not settings.upsert_keys:
        raise UsageError(f"asset {subject} has write_mode 'upsert' but no keys: set upsert_keys to the key columns", asset=subject)
    return settings


def _choice(metadata: Mapping[str, Any], key: str, allowed: Sequence[Any], default: Any, subject: str) -> Any:
    value = metadata.get(key, default)
    if value not in allowed:
        raise UsageError(f"asset {subject}: {key} must be one of {', '.join(map(str, allowed))}, not {value!r}", asset=subject)
    return value


def _names(metadata: Mapping[str, Any], key: str, default: tuple[str, ...], subject: str) -> tuple[str, ...]:
    return name_list(f"asset {subject}: {key}", metadata.get(key, default))
