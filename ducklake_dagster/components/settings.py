"""Values of components that YAML gives as mappings or texts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_args

import dagster as dg
from pydantic import Field, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from ducklake_core.errors import UsageError
from ducklake_dagster.catalogs import AddressCatalog, Catalog, catalog_of
from ducklake_dagster.resources import Storage

_CATALOG: TypeAdapter[Any] = TypeAdapter(Annotated[Catalog, Field(discriminator="kind")])
_STORAGE: TypeAdapter[Any] = TypeAdapter(Annotated[Storage, Field(discriminator="kind")])


_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\benv\.([A-Za-z_]\w*)")
_ONLY_VARIABLE = re.compile(r"\s*\{\{-?\s*env\.([A-Za-z_]\w*)\s*-?\}\}\s*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WITH_A_DEFAULT = re.compile(r"(?<!\.)\b(or|and|if|is|default|d)\b")


def _resolve_catalog(context: dg.ResolutionContext, value: Any) -> Any:
    found = resolved_now_or_later(context, value)
    if isinstance(found, dg.EnvVar):
        return AddressCatalog(address=found)
    return catalog_of(found) if isinstance(found, str) else _checked(_CATALOG, Catalog, "catalog", found)


def _resolve_storage(context: dg.ResolutionContext, value: Any) -> Any:
    return _checked(_STORAGE, Storage, "storage", resolved_now_or_later(context, value))


def _resolve_text(context: dg.ResolutionContext, value: Any) -> Any:
    return resolved_now_or_later(context, value)


def resolved_now_or_later(context: dg.ResolutionContext, value: Any) -> Any:
    """A value of the YAML. A variable that is not set when definitions are loaded, of which Dagster makes nothing at all, is asked for
    when a run begins, as in Python: whoever builds an image need not know the password, and no run goes on without it.

    An expression that says what else there is, such as ``env.NAME or 'main'``, is evaluated at once.

    Raises:
        UsageError: A part of a text is a variable that is not set.
    """
    if isinstance(value, Mapping):
        return {key: resolved_now_or_later(context, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolved_now_or_later(context, one) for one in value]
    if isinstance(value, str) and "{{" in value:
        only = _ONLY_VARIABLE.fullmatch(value)
        if only is not None and only[1] not in os.environ:
            return dg.EnvVar(only[1])
        expressions = (_QUOTED.sub("", text) for text in _EXPRESSION.findall(value))
        needed = (name for text in expressions if not _WITH_A_DEFAULT.search(text) for name in _VARIABLE.findall(text))
        unset = [name for name in needed if name not in os.environ]
        if unset:
            raise UsageError(f"{value!r} needs the environment variable {unset[0]}, which is not set", variable=unset[0])
    return context.resolve_value(value)


def _checked(adapter: TypeAdapter[Any], kinds: Any, what: str, value: object) -> Any:
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if isinstance(kind, dg.EnvVar):
        name = kind.env_var_name
        raise UsageError(f"the {what} of a DuckLakeComponent needs the environment variable {name}, which is not set", variable=name)
    try:
        return adapter.validate_python(_with_numbers(kinds, value))
    except ValidationError as error:
        # The inputs are not repeated: they may be secrets.
        faults = [_text(fault) for fault in error.errors(include_input=False)]
    raise UsageError(f"the {what} of a DuckLakeComponent is not understood: {'; '.join(faults)}", parameter=what)


def _with_numbers(kinds: Any, value: Any) -> Any:
    """The mapping with variables of the environment that will be numbers, such as a port, said to be that."""
    if not isinstance(value, Mapping):
        return value
    fields: Mapping[str, Any] = next(
        (one.model_fields for one in get_args(kinds) if one.model_fields["kind"].default == value.get("kind")), {}
    )
    numbers = {name for name, field in fields.items() if field.annotation is int}
    later = {name: one for name, one in value.items() if name in numbers and isinstance(one, dg.EnvVar)}
    return {**value, **{name: dg.EnvVar.int(one.env_var_name) for name, one in later.items()}}


def _text(fault: Mapping[str, Any]) -> str:
    refused = fault.get("ctx", {}).get("error")
    text = refused.message if isinstance(refused, UsageError) else fault["msg"]
    return ": ".join(part for part in (".".join(map(str, fault["loc"])), text) if part)


def refuse_no_key(what: str, key: object) -> None:
    """Refuse what cannot be the key of a resource.

    Raises:
        UsageError: It is none.
    """
    if not isinstance(key, str) or not key.isidentifier():
        raise UsageError(f"{what} must be a name of letters, digits and _, not {key!r}", parameter=what)


def _kept(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    # Pydantic would make a plain text of it: the variable's name.
    return value if isinstance(value, dg.EnvVar) else check(value)


ResolvedName: TypeAlias = Annotated[
    str | None, WrapValidator(_kept), dg.Resolver(_resolve_text, model_field_type=str | None, inject_before_resolve=False)
]
"""A name, or the variable of the environment that it will be in."""
ResolvedCatalog: TypeAlias = Annotated[
    Catalog,
    dg.Resolver(
        _resolve_catalog,
        model_field_type=str | dict[str, Any],
        inject_before_resolve=False,
        description="Address, or a mapping with kind sqlite, duckdb, postgres or mysql and the fields of that catalog.",
        examples=[{"kind": "postgres", "host": "{{ env.PGHOST }}", "database": "lake", "password": "{{ env.PGPASSWORD }}"}],
    ),
]
ResolvedStorage: TypeAlias = Annotated[
    Storage,
    dg.Resolver(
        _resolve_storage,
        model_field_type=dict[str, Any],
        inject_before_resolve=False,
        description="A mapping with kind local, s3, gcs or azure, data_path and the fields of that storage.",
        examples=[{"kind": "s3", "data_path": "s3://bucket/lake/"}],
    ),
]
