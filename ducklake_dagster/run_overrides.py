"""Find resources that a run's configuration changes at the top level, but not inside the IO manager that has them too."""

from __future__ import annotations

from typing import Any

import dagster as dg

from ducklake_dagster.resources import DuckLakeResource


def overridden_lakes(context: dg.InitResourceContext) -> dict[str, str]:
    """Return the fields of an IO manager whose lake is also a resource that the run's configuration changes, with that resource's key.

    Dagster initialises a configured resource inside another one from its definition alone. A resource of ``configure_at_launch()`` follows
    the run's configuration in both places.

    Args:
        context: Context in which Dagster initialises the IO manager.
    """
    given = _resource_config(context)
    nested = getattr(context.resource_def, "nested_resources", None) or {}
    if not given or not nested:
        return {}
    found = {}
    for field, inner in nested.items():
        if not isinstance(inner, DuckLakeResource):
            continue
        for key, settings in given.items():
            outer = context.all_resource_defs.get(key)
            if outer is not None and _is_same(outer, inner) and _changes(outer, settings):
                found[field] = key
    return found


def _resource_config(context: dg.InitResourceContext) -> dict[str, Any]:
    run = context.run
    resources = run.run_config.get("resources") if run is not None and isinstance(run.run_config, dict) else None
    return {key: one["config"] for key, one in (resources or {}).items() if isinstance(one, dict) and one.get("config") is not None}


def _is_same(outer: dg.ResourceDefinition, inner: DuckLakeResource) -> bool:
    """Return whether a resource is the one inside the IO manager, or another object with the same settings."""
    own = inner.get_resource_definition()
    if outer is own:
        return True
    is_lake = issubclass(getattr(outer, "configurable_resource_cls", type(None)), DuckLakeResource)
    return is_lake and _defined(outer) is not None and _defined(outer) == _defined(own)


def _changes(outer: dg.ResourceDefinition, settings: Any) -> bool:
    """Return whether settings of a run differ from those of the definition: the launchpad may repeat them all."""
    return bool(_resolved(outer, settings) != _defined(outer))


def _defined(resource: dg.ResourceDefinition) -> Any:
    return _resolved(resource, resource.config_schema.default_value if resource.config_schema.default_provided else {})


def _resolved(resource: dg.ResourceDefinition, settings: Any) -> Any:
    """Return settings with defaults filled in and environment variables read, None where they are not valid."""
    from dagster._config import process_config

    found = process_config(resource.config_schema.config_type, settings)
    return found.value if found.success else None
