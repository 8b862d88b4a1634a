"""Locks held by another thread during a fork: the child, in which nothing releases them, must not wait for ever."""

from __future__ import annotations

import importlib
import os
import pkgutil
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import ducklake_core
import ducklake_dagster

_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def _modules() -> Iterator[ModuleType]:
    for package in (ducklake_core, ducklake_dagster):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__") and ".demo" not in info.name:
                yield importlib.import_module(info.name)


def _holders(modules: list[ModuleType]) -> list[tuple[Any, str]]:
    """Return every lock of a module and of the library's objects in it: the owner, and the attribute."""
    found: dict[int, tuple[Any, str]] = {}
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, _LOCKS):
                found[id(value)] = (module, name)
            elif type(value).__module__.startswith("ducklake_"):
                for attribute, inner in getattr(value, "__dict__", {}).items():
                    if isinstance(inner, _LOCKS):
                        found[id(inner)] = (module, f"{name}.{attribute}")
    return list(found.values())


def _lock(holder: tuple[Any, str]) -> Any:
    value = holder[0]
    for name in holder[1].split("."):
        value = getattr(value, name)
    return value


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_no_child_inherits_a_lock_that_is_held() -> None:
    holders = _holders(list(_modules()))
    assert len(holders) >= 6, holders
    held = [_lock(holder) for holder in holders]
    for lock in held:
        assert lock.acquire(timeout=5)
    try:
        child = os.fork()
        if child == 0:
            stuck = sum(not _lock(holder).acquire(blocking=False) for holder in holders)
            os._exit(stuck)
    finally:
        for lock in held:
            lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, [f"{module.__name__}.{name}" for module, name in holders]
