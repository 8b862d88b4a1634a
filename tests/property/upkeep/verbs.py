"""A verb of ours with random options: scopes, globs, budgets, clustering, ages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from ducklake_core import DuckLake
from ducklake_core.maintenance.request import MaintenanceResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = timedelta(0)
EVERYTHING: dict[str, Any] = {"cleanup_all": True, "min_age": NOW}
_BUDGETS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"max_files": 3}, {"max_input_bytes": 3000}, {"max_seconds": 0})
_BY_EXECUTORS = ("merge", "rewrite", "flush", "checkpoint", "cluster", "merge cluster")
_CLUSTERABLE = ("int32", "int64", "varchar", "date", "float64")


@dataclass(frozen=True)
class Verb:
    """A verb and what it is called with."""

    name: str
    call: Callable[..., MaintenanceResult]
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name} {self.options}"

    def on(self, session: SparkSession) -> Verb:
        """The same done by executors, where it writes files of rows."""
        return replace(self, options={**self.options, "spark": session}) if self.name in _BY_EXECUTORS else self

    def __call__(self, *, dry_run: bool = False) -> Any:
        """Run it, or plan it."""
        return self.call(**self.options, dry_run=dry_run)

    @property
    def does_what_it_plans(self) -> bool:
        """Whether nothing that it does depends on the clock, or on what it has done itself."""
        return "checkpoint" not in self.name and "max_seconds" not in self.options

    @property
    def sweeps(self) -> bool:
        """Whether it deletes files that nobody names, of any age."""
        return self.name in ("orphans", "checkpoint")

    @property
    def takes_all(self) -> bool:
        """Whether no budget leaves anything for the next call."""
        return not any(name in self.options for name in ("max_files", "max_seconds", "max_input_bytes"))


def draw_verb(lake: DuckLake, draw: Random) -> Verb:
    """Any verb; those that rewrite come up most."""
    scope = _scope(draw, [info.table for info in lake.tables()])
    budget = draw.choice(_BUDGETS)
    groups = {"partial_progress": draw.random() < 0.3, "max_concurrency": draw.choice((None, 2))}
    some_files = {key: value for key, value in budget.items() if key != "max_input_bytes"}
    verbs = [
        Verb("merge", lake.merge_adjacent_files, {**scope, **groups, **budget}),
        Verb("merge", lake.merge_adjacent_files, {**scope, **groups, **_sizes(draw)}),
        Verb("rewrite", lake.rewrite_data_files, {**scope, **groups, **budget, "delete_threshold": draw.choice((0.0, 0.3, None))}),
        Verb("flush", lake.flush_inlined_data, scope),
        Verb("flush", lake.flush_inlined_data, {**scope, **draw.choice(({"max_rows": 4}, {"max_seconds": 0}, {"max_concurrency": 2}))}),
        Verb("checkpoint", lake.checkpoint, {**scope, **groups, **budget}),
        Verb("checkpoint", _expiring_checkpoint(lake), {**scope, "keep_last": draw.randint(2, 8)}),
        Verb("cleanup", lake.cleanup_old_files, {**EVERYTHING, **some_files}),
        Verb("orphans", lake.delete_orphaned_files, {**EVERYTHING, **some_files}),
        *_expiries(lake, draw),
        *_clusterings(lake, draw),
    ]
    return draw.choice(verbs)


def _scope(draw: Random, tables: Sequence[str]) -> dict[str, Any]:
    """Everything, some tables by name, those that a pattern matches, or a schema."""
    if not tables or draw.random() < 0.5:
        return {}
    if draw.random() < 0.5:
        return {"tables": draw.sample(tables, draw.randint(1, len(tables)))}
    return {"tables": draw.choice(("main.*", "*.*", "**.*", ["*.t", "*.u", "main.?"], ["*", "other.*"]))}


def _sizes(draw: Random) -> dict[str, Any]:
    return draw.choice(({"max_compacted_files": 2}, {"min_file_size": 700}, {"max_file_size": 2000}, {}))


def _expiring_checkpoint(lake: DuckLake) -> Callable[..., MaintenanceResult]:
    """A checkpoint while the lake's options let everything expire; DuckDB's own checkpoint does not see them."""

    def run(**options: Any) -> MaintenanceResult:
        for name in ("expire_older_than", "delete_older_than"):
            lake.set_option(name, "0 days")
        try:
            return lake.checkpoint(**options, min_age=NOW)
        finally:
            for name in ("expire_older_than", "delete_older_than"):
                lake.unset_option(name)

    return run


def _expiries(lake: DuckLake, draw: Random) -> list[Verb]:
    ids = [snapshot.id for snapshot in lake.snapshots()][:-1]
    kept = {"older_than": "0 days", "keep_last": draw.randint(1, len(ids) + 2), "min_age": NOW}
    verbs = [Verb("expire", lake.expire_snapshots, kept)] if draw.random() < 0.7 else []
    if gone := sorted(draw.sample(ids, draw.randint(0, len(ids) // 3))):
        verbs.append(Verb("expire", lake.expire_snapshots, {"versions": gone, "min_age": "0 days"}))
    return verbs


def _clusterings(lake: DuckLake, draw: Random) -> list[Verb]:
    """Rewriting and merging by columns of a table that has some to cluster by."""
    for info in draw.sample(found := lake.tables(), len(found)):
        names = [column.name for column in lake.table(info.table).schema if str(column.type) in _CLUSTERABLE]
        if names:
            how = {"tables": [info.table], "cluster_by": draw.sample(names, min(len(names), draw.randint(1, 3)))}
            return [Verb("cluster", lake.rewrite_data_files, how), Verb("merge cluster", lake.merge_adjacent_files, how)]
    return []
