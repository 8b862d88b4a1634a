"""How an output is written: settings from run-time output metadata, else asset metadata, else the IO manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import dagster as dg

from ducklake_core.errors import UsageError

WriteMode: TypeAlias = Literal["overwrite", "append", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]
OutOfSlice: TypeAlias = Literal["error", "filter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How one output is written.

    Attributes:
        write_mode: ``overwrite`` replaces the run's partitions (or the table), ``append`` adds rows,
            ``upsert`` replaces rows with equal keys.
        upsert_keys: Key columns of an upsert.
        partition_by: Partition keys of a table that does not exist yet: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.
        schema_evolution: ``strict`` refuses new columns and wider types, ``additive`` adds them to the table in the same commit.
        out_of_slice: What happens to rows outside the run's partitions: ``error``, or ``filter`` leaves them out.
    """

    write_mode: WriteMode = "overwrite"
    upsert_keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    schema_evolution: SchemaEvolution = "strict"
    out_of_slice: OutOfSlice = "error"


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with Dagster's wrappers taken off, so that definition and run-time metadata read the same."""
    return {key: value.value if isinstance(value, dg.MetadataValue) else value for key, value in metadata.items()}


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
        out_of_slice=_choice(merged, "out_of_slice", get_args(OutOfSlice), defaults.out_of_slice, subject),
    )
    if settings.write_mode == "upsert" and not settings.upsert_keys:
        raise UsageError(f"asset {subject} has write_mode 'upsert' but no keys: set upsert_keys to the key columns", asset=subject)
    return settings


def _choice(metadata: Mapping[str, Any], key: str, allowed: Sequence[str], default: str, subject: str) -> Any:
    value = metadata.get(key, default)
    if value not in allowed:
        raise UsageError(f"asset {subject}: {key} must be one of {', '.join(allowed)}, not {value!r}", asset=subject)
    return value


def _names(metadata: Mapping[str, Any], key: str, default: tuple[str, ...], subject: str) -> tuple[str, ...]:
    value = metadata.get(key, default)
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence) or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"asset {subject}: {key} must be a list of names, not {value!r}", asset=subject)
    return tuple(value)
