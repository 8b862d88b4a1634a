"""Maintenance and options, by the oracle and by us."""

from __future__ import annotations

from random import Random

from tests.property.histories.actions import Action, Reattach, Sql, Upkeep
from tests.property.histories.sketch import LakeSketch
from tests.support.oracle import Oracle

OPTIONS: dict[str, tuple[str, ...]] = {
    "data_inlining_row_limit": ("0", "3", "10", "40"),
    "target_file_size": ("'10KB'", "'1MB'", "'512MB'"),
    "parquet_compression": ("'zstd'", "'snappy'", "'uncompressed'", "'gzip'"),
    "parquet_version": ("1", "2"),
    "parquet_row_group_size": ("2048", "122880"),
    "hive_file_pattern": ("true", "false"),
    "per_thread_output": ("true", "false"),
    "sort_on_insert": ("true", "false"),
    "write_deletion_vectors": ("true", "false"),
}


def _scope(draw: Random, lake: LakeSketch) -> tuple[str, ...]:
    """No arguments, or those that name one table."""
    if not lake.tables or draw.random() < 0.6:
        return ()
    table = draw.choice(lake.tables)
    return (_text(table.name), f"schema => {_text(table.schema)}")


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _call(function: str, *arguments: str) -> list[Action]:
    return [Sql(f"CALL {function}({', '.join((_text('lake'), *arguments))})")]


def merge_files(draw: Random, lake: LakeSketch) -> list[Action]:
    return _call("ducklake_merge_adjacent_files", *_scope(draw, lake))


def rewrite_files(draw: Random, lake: LakeSketch) -> list[Action]:
    return _call("ducklake_rewrite_data_files", *_scope(draw, lake), f"delete_threshold => {draw.choice(('0.0', '0.2', '0.95'))}")


def flush(draw: Random, lake: LakeSketch) -> list[Action]:
    if not lake.tables or draw.random() < 0.6:
        return _call("ducklake_flush_inlined_data")
    table = draw.choice(lake.tables)
    return _call("ducklake_flush_inlined_data", f"schema_name => {_text(table.schema)}", f"table_name => {_text(table.name)}")


def expire(draw: Random, duck: Oracle) -> list[Action]:
    ids = [int(str(row[0])) for row in duck.rows("SELECT snapshot_id FROM lake.snapshots() ORDER BY 1")][:-1]
    if len(ids) < 3:
        return []
    chosen = sorted(draw.sample(ids, draw.randint(1, max(1, len(ids) // 3))))
    if draw.random() < 0.25:
        return [Upkeep("expire_snapshots", tuple(chosen))]
    return _call("ducklake_expire_snapshots", f"versions => {chosen}")


def clean_up(draw: Random) -> list[Action]:
    if draw.random() < 0.25:
        return [Upkeep("cleanup_old_files")]
    calls = _call("ducklake_cleanup_old_files", "cleanup_all => true")
    return calls if draw.random() < 0.7 else [*calls, *_call("ducklake_delete_orphaned_files", "cleanup_all => true")]


def checkpoint() -> list[Action]:
    return [Sql("CHECKPOINT lake")]


def our_upkeep(draw: Random) -> list[Action]:
    verbs = ("merge_adjacent_files", "flush_inlined_data", "flush_inlined_data", "rewrite_data_files", "rewrite_data_files", "checkpoint")
    return [Upkeep(draw.choice(verbs))]


def set_option(draw: Random, lake: LakeSketch) -> list[Action]:
    name = draw.choice(tuple(OPTIONS))
    scope = ""
    if lake.tables and draw.random() < 0.5:
        table = draw.choice(lake.tables)
        scope = f", schema => {_text(table.schema)}, table_name => {_text(table.name)}"
    set_it = Sql(f"CALL lake.set_option('{name}', {draw.choice(OPTIONS[name])}{scope})")
    return [set_it, Reattach()]
