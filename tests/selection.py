"""Which tests a run takes, read off the fixtures that they use, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from zlib import crc32

import pytest

# Fixtures that start Spark or a server; whatever uses one of them, directly or through another fixture, is no fast test.
SERVERS = frozenset({"spark", "connect", "postgres", "mysql", "s3", "azure", "gcs", "dagster_dev"})
# Parameters by which a test asks for such a fixture while it runs.
ASKED_FOR_BY = {"postgresql": "postgres", "mysql": "mysql", "s3": "s3", "azure": "azure", "gcs": "gcs"}

CATALOGS = ("sqlite", "postgresql", "duckdb")
NOT_FAST = ("property", "faults", "concurrency", "chaos", "spark")
"""Folders without fast tests: they start Spark, or prove by number (random histories, faults, races)."""
_REPETITIVE = ("tests/behaviour/", "tests/property/hostile_catalogs/", "tests/spark/")


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


def mark_repeated_catalogs(items: list[pytest.Item], *, fast: bool) -> None:
    """Make repetition over catalog databases slow: each variant of a test has one of its databases, in turn, or the first for fast tests.

    A test without further parameters starts with a database that depends on its name, so that every database has its share of them. Tests
    that say by ``slow_on`` which variants are slow, or that are marked ``every_catalog``, are left alone, and so are folders where the
    database is what is tested.
    """
    tests: dict[str, dict[str, dict[str, pytest.Item]]] = {}
    for item in items:
        kinds = [value for value in _texts(item) if value in CATALOGS]
        chosen = any(item.get_closest_marker(name) for name in ("slow_on", "every_catalog"))
        if len(kinds) == 1 and item.nodeid.startswith(_REPETITIVE) and not chosen:
            further = "-".join(part for part in item.name.partition("[")[2].rstrip("]").split("-") if part != kinds[0])
            tests.setdefault(item.nodeid.partition("[")[0], {}).setdefault(further, {})[kinds[0]] = item
    for name, variants in tests.items():
        for number, (_, found) in enumerate(sorted(variants.items()), start=crc32(name.encode())):
            kinds = [kind for kind in CATALOGS if kind in found]
            for kind, item in found.items():
                if kind != kinds[0 if fast else number % len(kinds)]:
                    item.add_marker(pytest.mark.slow)


def mark_mysql_variants(items: list[pytest.Item]) -> None:
    """Every variant with a MySQL catalog is slow, but for those of tests marked ``on_mysql``."""
    for item in items:
        if "mysql" in set(_texts(item)) and item.get_closest_marker("on_mysql") is None:
            item.add_marker(pytest.mark.slow)


def mark_all_but_some(items: list[pytest.Item]) -> None:
    """Of a test with ``some(count)``, so many of the variants that are not slow stay so, spread evenly from a place given by its name."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("some") and item.get_closest_marker("slow") is None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, variants in tests.items():
        mark = variants[0].get_closest_marker("some")
        assert mark is not None
        first = crc32(name.encode())
        kept = {(first + number * len(variants) // mark.args[0]) % len(variants) for number in range(mark.args[0])}
        for number, item in enumerate(variants):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


def keep_fast(items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave the first variant of each test that is done within a second, without Spark or a server; gives those that are left out."""
    kept: dict[str, pytest.Item] = {}
    for item in items:
        hurried = item.get_closest_marker("slow") is None and item.get_closest_marker("takes_seconds") is None
        if hurried and not servers_of(item):
            kept.setdefault(item.nodeid.partition("[")[0], item)
    gone = set(items) - set(kept.values())
    left_out = [item for item in items if item in gone]
    items[:] = kept.values()
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
