"""Runs of the assets that depend on what others committed: for exactly the partitions that are concerned."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import dagster as dg

from ducklake_core.errors import UsageError

_PREFIX = "ducklake_commits"


def run_requests(
    context: dg.SensorEvaluationContext, changed: Iterable[tuple[dg.AssetKey, str | None]], selection: dg.AssetSelection, state: str
) -> list[dg.RunRequest]:
    """A run for each partition of the selected assets that reads what changed, with all assets that have the partition.

    Args:
        context: Of the sensor, whose definitions say what depends on what. Virtual assets, which are views, are looked through.
        changed: Assets and partitions that changed, None for all of an asset.
        selection: Assets that runs are requested of.
        state: What changed; the same run is never requested twice for it.

    Raises:
        UsageError: The sensor was evaluated without the project's definitions.
    """
    if context.repository_def is None:
        raise UsageError("request_runs needs the project's definitions: pass definitions= to build_sensor_context")
    graph = context.repository_def.asset_graph
    wanted = selection.resolve(graph)
    partitions: dict[str, set[dg.AssetKey]] = {}
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        for key, partition in _readers(graph, set(changed)):
            if key in wanted:
                partitions.setdefault(partition or "", set()).add(key)
    return [_request(partition, keys, state) for partition, keys in sorted(partitions.items())]


def _readers(graph: dg.AssetGraph, changed: AbstractSet[tuple[dg.AssetKey, str | None]]) -> Iterator[tuple[dg.AssetKey, str | None]]:
    """Assets and partitions that read one of these, views looked through."""
    seen: set[tuple[dg.AssetKey, str | None]] = set()
    waiting = list(changed)
    while waiting:
        key, partition = waiting.pop()
        if not graph.has(key):
            continue
        for child in graph.get_children_partitions(key, partition):
            found = (child.asset_key, child.partition_key)
            if found in seen:
                continue
            seen.add(found)
            if graph.get(child.asset_key).is_virtual:
                waiting.append(found)
            else:
                yield found


def _request(partition: str, keys: AbstractSet[dg.AssetKey], state: str) -> dg.RunRequest:
    names = sorted(key.to_user_string() for key in keys)
    assets = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return dg.RunRequest(
        run_key=f"{_PREFIX}:{state}:{partition}:{assets}",
        partition_key=partition or None,
        asset_selection=sorted(keys),
    )
