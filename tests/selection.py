"""Which tests a run takes, read off the fixtures that they use, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from zlib import crc32

import pytest

# Fixtures that start Spark or a server; whatever uses one of them, directly or through another fixture, is no fast test.
SERVERS = frozenset({"spark", "connect", "postgres", "s3", "azure", "gcs", "dagster_dev"})
# Parameters by which a test asks for such a fixture while it runs.
ASKED_FOR_BY = {"postgresql": "postgres", "s3": "s3", "azure": "azure", "gcs": "gcs"}

CATALOGS = ("sqlite", "postgresql", "duckdb")
_REPETITIVE = ("tests/behaviour/", "tests/property/hostile_catalogs/", "tests/spark/")
_MANY = 4


def servers_of(item: pytest.Item) -> frozenset[str]:
    """The fixtures of a test that start Spark or a server."""
    named = {name for name in getattr(item, "fixturenames", ()) if name in SERVERS}
    return frozenset(named | {ASKED_FOR_BY[value] for value in _texts(item) if value in ASKED_FOR_BY})


def mark_slow_variants(items: list[pytest.Item]) -> None:
    """A test with ``slow_on(*parameters)`` is slow where it has one of these parameters."""
    for item in items:
        for mark in item.iter_markers("slow_on"):
            parameters = getattr(item, "callspec", None)
            if parameters and set(mark.args) & {str(value) for value in parameters.params.values()}:
                item.add_marker(pytest.mark.slow)


def mark_repeated_catalogs(items: list[pytest.Item]) -> None:
    """Make repetition over catalog databases slow: every test keeps every database, but not every one with each further parameter.

    A test with four further parameters or more has one database for each of them in turn. Another one that has three databases has
    SQLite and one of the others. Tests that say by ``slow_on`` which variants are slow are left alone, and so are folders where the
    database is what is tested.
    """
    tests: dict[str, dict[str, dict[str, pytest.Item]]] = {}
    for item in items:
        kinds = [value for value in _texts(item) if value in CATALOGS]
        if len(kinds) == 1 and item.nodeid.startswith(_REPETITIVE) and item.get_closest_marker("slow_on") is None:
            further = "-".join(part for part in item.name.partition("[")[2].rstrip("]").split("-") if part != kinds[0])
            tests.setdefault(item.nodeid.partition("[")[0], {}).setdefault(further, {})[kinds[0]] = item
    for name, variants in tests.items():
        for number, (_, found) in enumerate(sorted(variants.items())):
            kept = [kind for kind in CATALOGS if kind in found]
            if len(variants) >= _MANY:
                kept = [kept[number % len(kept)]]
            elif len(kept) == len(CATALOGS):
                kept = ["sqlite", CATALOGS[1 + crc32(name.encode()) % 2]]
            for kind, item in found.items():
                if kind not in kept:
                    item.add_marker(pytest.mark.slow)


def keep_fast(items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave only tests that are not slow and use neither Spark nor a server; gives those that are left out."""
    left_out = [item for item in items if servers_of(item) or item.get_closest_marker("slow") is not None]
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    return left_out


def shuffle_files(items: list[pytest.Item], seed: int) -> None:
    """Take the files in another order; the tests of one file stay together, as they share what is costly to make."""
    files = sorted({item.path for item in items})
    random.Random(seed).shuffle(files)
    places = {file: place for place, file in enumerate(files)}
    items.sort(key=lambda item: places[item.path])


def _texts(item: pytest.Item) -> Iterator[str]:
    parameters = getattr(item, "callspec", None)
    return (value for value in (parameters.params.values() if parameters else ()) if isinstance(value, str))
