"""The next step of a history: which kind, weighted, and what it does to the lake as it is now."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.property.histories import definitions, rows, upkeep
from tests.property.histories.actions import Action, Reattach, Sql
from tests.property.histories.sketch import LakeSketch, TableSketch, look
from tests.support.oracle import Oracle

# Weights: rows change most; every kind comes up in a few hundred steps.
_ROWS: dict[Callable[[Random, TableSketch], list[str]], int] = {
    rows.insert: 26,
    rows.insert_from_itself: 3,
    rows.delete: 12,
    rows.update: 12,
    rows.merge: 5,
    rows.truncate: 1,
    rows.add_file: 3,
}
_COLUMNS: dict[Callable[[Random, TableSketch], list[str]], int] = {
    definitions.add_column: 5,
    definitions.drop_column: 2,
    definitions.rename_column: 3,
    definitions.promote: 4,
    definitions.widen_decimal: 1,
    definitions.alter_nested: 5,
    definitions.set_default: 2,
    definitions.not_null: 1,
    definitions.partition: 5,
    definitions.sort: 2,
    definitions.comment: 1,
}
_TABLES: dict[Callable[[Random, LakeSketch], list[str]], int] = {
    definitions.create_table: 3,
    definitions.create_table_as: 1,
    definitions.create_schema: 2,
    definitions.drop_table: 1,
    definitions.drop_schema: 1,
    definitions.rename_table: 2,
    definitions.create_view: 1,
}
_OURS: dict[Callable[[Random, TableSketch], list[Action]], int] = {
    rows.our_append: 5,
    rows.our_overwrite: 3,
    rows.our_upsert: 3,
    rows.our_delete: 3,
    rows.our_widening: 1,
}
_UPKEEP: dict[Callable[[Random, LakeSketch], list[Action]], int] = {
    upkeep.merge_files: 4,
    upkeep.rewrite_files: 4,
    upkeep.flush: 5,
    upkeep.set_option: 5,
    rows.our_table: 1,
}
_OTHER = {"expire": 3, "clean up": 2, "checkpoint": 2, "our upkeep": 8, "reattach": 2, "transaction": 5}


def _pick(draw: Random, weights: dict[Any, int]) -> Any:
    return draw.choices(list(weights), list(weights.values()))[0]


def first_steps(draw: Random) -> list[Action]:
    """A table with something in it, so that no history is about nothing."""
    lake = LakeSketch(tables=(), schemas=("main",), views=())
    return rows.as_actions(definitions.create_table(draw, lake))


def next_step(draw: Random, duck: Oracle) -> list[Action]:
    """Actions that belong together; may be none when what was drawn does not fit the lake."""
    lake = look(duck)
    if not lake.tables:
        return rows.as_actions(definitions.create_table(draw, lake))
    kind = _pick(draw, {**_ROWS, **_COLUMNS, **_TABLES, **_OURS, **_UPKEEP, **_OTHER})
    if kind in _TABLES:
        return rows.as_actions(kind(draw, lake))
    if kind in _UPKEEP:
        return kind(draw, lake)
    table = draw.choice(lake.tables)
    if kind in _OURS:
        return kind(draw, table)
    if kind in _ROWS or kind in _COLUMNS:
        return rows.as_actions(kind(draw, table))
    match kind:
        case "expire":
            return upkeep.expire(draw, duck)
        case "clean up":
            return upkeep.clean_up(draw)
        case "checkpoint":
            return upkeep.checkpoint()
        case "our upkeep":
            return upkeep.our_upkeep(draw)
        case "reattach":
            return [Reattach()]
        case _:
            return [Sql("BEGIN")]


def next_in_transaction(draw: Random, duck: Oracle) -> list[Action]:
    """The next statement of the oracle's open transaction."""
    lake = look(duck)
    if not lake.tables:
        return [Sql("COMMIT")]
    # DuckDB writes the columns of a table twice when one transaction alters and renames it, and can never load the lake again.
    kind = _pick(draw, {**_ROWS, **_COLUMNS, **{kind: n for kind, n in _TABLES.items() if kind is not definitions.rename_table}})
    actions = rows.as_actions(kind(draw, lake) if kind in _TABLES else kind(draw, draw.choice(lake.tables)))
    # DuckDB's instance is lost when a transaction resets partition keys and writes rows afterwards (docs/reference/differences.md).
    return [action for action in actions if not (isinstance(action, Sql) and action.text.endswith("RESET PARTITIONED BY"))]
