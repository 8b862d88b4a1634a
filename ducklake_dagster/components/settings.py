"""Values of components that YAML gives as mappings or texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import dagster as dg
from pydantic import Field, TypeAdapter, ValidationError

from ducklake_core.errors import UsageError
from ducklake_dagster.catalogs import Catalog, catalog_of
from ducklake_dagster.resources import Storage

_CATALOG: TypeAdapter[Any] = TypeAdapter(Annotated[Catalog, Field(discriminator="kind")])
_STORAGE: TypeAdapter[Any] = TypeAdapter(Annotated[Storage, Field(discriminator="kind")])


def _resolve_catalog(context: dg.ResolutionContext, value: Any) -> Any:
    found = context.resolve_value(value)
    return catalog_of(found) if isinstance(found, str) else _checked(_CATALOG, "catalog", found)


def _resolve_storage(context: dg.ResolutionContext, value: Any) -> Any:
    return _checked(_STORAGE, "storage", context.resolve_value(value))


def _checked(adapter: TypeAdapter[Any], what: str, value: object) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        # The inputs are not repeated: they may be secrets.
        faults = [_text(fault) for fault in error.errors(include_input=False)]
    raise UsageError(f"the {what} of a DuckLakeComponent is not understood: {'; '.join(faults)}", parameter=what)


def _text(fault: Mapping[str, Any]) -> str:
    refused = fault.get("ctx", {}).get("error")
    text = refused.message if isinstance(refused, UsageError) else fault["msg"]
    return ": ".join(part for part in (".".join(map(str, fault["loc"])), text) if part)


ResolvedCatalog: TypeAlias = Annotated[
    Catalog,
    dg.Resolver(
        _resolve_catalog,
        model_field_type=str | dict[str, Any],
        description="Address, or a mapping with kind sqlite, duckdb, postgres or mysql and the fields of that catalog.",
        examples=[{"kind": "postgres", "host": "{{ env.PGHOST }}", "database": "lake", "password": "{{ env.PGPASSWORD }}"}],
    ),
]
ResolvedStorage: TypeAlias = Annotated[
    Storage,
    dg.Resolver(
        _resolve_storage,
        model_field_type=dict[str, Any],
        description="A mapping with kind local, s3, gcs or azure, data_path and the fields of that storage.",
        examples=[{"kind": "s3", "data_path": "s3://bucket/lake/"}],
    ),
]
