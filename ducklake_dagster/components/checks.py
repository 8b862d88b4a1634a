"""Define the attribute of components that lists checks."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, TypeAlias

import dagster as dg
import pydantic

from ducklake_core.errors import UsageError
from ducklake_dagster.checks.base import LakeCheck
from ducklake_dagster.checks.row import (
    ColumnBounds,
    ColumnContract,
    ColumnSchemaChange,
    CompletePartitions,
    Freshness,
    NullFraction,
    RowCount,
    RowCountAnomaly,
    RowCountChange,
)
from ducklake_dagster.checks.scan import Reference, RowCondition, UniqueKey
from ducklake_dagster.checks.storage import (
    DeleteRatio,
    FileSize,
    InlinedRows,
    ScheduledFiles,
    SmallFiles,
    SnapshotBacklog,
    SoundCatalog,
)
from ducklake_dagster.components.yaml_types import yaml_schema, yaml_type

_KINDS: Mapping[str, type[LakeCheck]] = {
    kind.__name__: kind
    for kind in (
        ColumnBounds,
        ColumnContract,
        ColumnSchemaChange,
        CompletePartitions,
        DeleteRatio,
        FileSize,
        Freshness,
        InlinedRows,
        NullFraction,
        Reference,
        RowCondition,
        RowCount,
        RowCountAnomaly,
        RowCountChange,
        ScheduledFiles,
        SmallFiles,
        SnapshotBacklog,
        SoundCatalog,
        UniqueKey,
    )
}


def _resolve_checks(context: dg.ResolutionContext, value: Any) -> Sequence[LakeCheck]:
    given = context.resolve_value(value)
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise UsageError(f"checks must be a list such as [{{kind: Freshness, max_age: 26 hours}}], not {given!r}", parameter="checks")
    return [_check(one) for one in given]


def _check(given: Any) -> LakeCheck:
    settings = dict(given) if isinstance(given, Mapping) else {}
    kind = _KINDS.get(str(settings.pop("kind", None)))
    if kind is None:
        raise UsageError(f"checks: kind of {given!r} must be one of {', '.join(_KINDS)}", parameter="kind")
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(settings.keys() - known.keys())
    if unknown:
        names = ", ".join(known)
        raise UsageError(f"{kind.__name__} has no field {', '.join(unknown)}. Its fields are {names}", parameter=unknown[0])
    missing = [name for name, field in known.items() if _is_required(field) and name not in settings]
    if missing:
        raise UsageError(f"{kind.__name__} needs {', '.join(missing)}", parameter=missing[0])
    if "severity" in settings:
        settings["severity"] = _severity(settings["severity"])
    return kind(**settings)


def _severity(value: object) -> dg.AssetCheckSeverity:
    names = [severity.name for severity in dg.AssetCheckSeverity]
    if value not in names:
        raise UsageError(f"severity must be {' or '.join(names)}, not {value!r}", parameter="severity")
    return dg.AssetCheckSeverity[str(value)]


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _schema_of(kind: type[LakeCheck]) -> dict[str, Any]:
    properties: dict[str, dict[str, str]] = {"kind": {}, **{field.name: {} for field in fields(kind)}}
    return {"properties": properties, "required": [field.name for field in fields(kind) if _is_required(field)]}


_SCHEMA = {"type": ["array", "string"], "items": yaml_schema({name: _schema_of(kind) for name, kind in _KINDS.items()})}

ResolvedChecks: TypeAlias = Annotated[
    Sequence[LakeCheck],
    dg.Resolver(
        _resolve_checks,
        model_field_type=yaml_type("ChecksAttributes", _SCHEMA),
        inject_before_resolve=False,
        description="Checks of the tables, each with its class as kind and the fields of that class. A sensor evaluates them.",
        examples=[[{"kind": "Freshness", "max_age": "26 hours"}, {"kind": "SmallFiles"}]],
    ),
]
"""Checks in YAML, such as ``[{kind: Freshness, max_age: 26 hours}]``."""


class CheckSensorSettings(dg.Model, dg.Resolvable):
    """Settings of the sensor that evaluates checks, as in :func:`build_check_sensor`."""

    name: Annotated[str, pydantic.Field(description="Name of the sensor.")] = "ducklake_checks"
    minimum_interval_seconds: Annotated[int, pydantic.Field(description="Seconds between evaluations.")] = 300
