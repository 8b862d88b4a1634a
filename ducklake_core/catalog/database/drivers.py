"""Packages that only some catalog databases need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ducklake_core.errors import UnsupportedFeatureError


def driver_module(package: str, catalog: str, extra: str) -> ModuleType:
    """A package that talks to a database.

    Args:
        package: Its name.
        catalog: What needs it, for people.
        extra: The extra of ``ducklake-dagster`` that installs it.

    Raises:
        UnsupportedFeatureError: It is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"{catalog} needs the {package} package: pip install 'ducklake-dagster[{extra}]'", package=package
        ) from error
