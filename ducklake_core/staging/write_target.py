"""The target of a write, checked before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.commit.alterations import partition_spec
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files import paths
from ducklake_core.format.layout.chosen_partitions import key_expression
from ducklake_core.format.layout.sorting import sort_orders
from ducklake_core.format.options import Options
from ducklake_core.format.types.names import join_name

if TYPE_CHECKING:
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.expressions.scalars import Scalar
    from ducklake_core.format.state import LakeInfo, TableState
    from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a write goes to, and how it is made when it is missing."""

    name: str
    create: bool
    partition_by: tuple[str, ...]
    comment: str | None

    def check_existing(self, table: TableState) -> None:
        """Refuse what was said for a new table, when the table is there and is not so.

        Raises:
            UsageError: Other partition keys than the table's, or another comment.
            SchemaError: Partition keys that the table cannot have.
        """
        name = table.qualified_name
        if self.partition_by:
            wanted, present = partition_spec(self.partition_by, table.schema, table.format_version), table.partition_spec
            if wanted is None or present is None or wanted.fields != present.fields:
                keys = ", ".join(key_expression(key) for key in present.fields) if present is not None else "nothing"
                raise UsageError(
                    f"table {name} is partitioned by {keys}, not by {', '.join(self.partition_by)}: leave partition_by out, or change the "
                    "keys with set_partitioned_by",
                    table=name,
                )
        if self.comment is not None and self.comment != table.comment:
            raise UsageError(
                f"table {name} has another comment than the given one: leave comment out, or change it with set_comment", table=name
            )


def check_replaceable(table: TableState, inline: bool | None) -> None:
    """Refuse to replace whatever partitions a frame has where there are none, or where its rows are to stay in the catalog.

    Raises:
        UsageError: The table has no partition keys.
        UnsupportedFeatureError: The rows shall be inlined.
    """
    name = table.qualified_name
    if table.partition_spec is None:
        raise UsageError(f"table {name} has no partition keys: overwrite all of it, or rows of it with where=...", table=name)
    if inline:
        raise UnsupportedFeatureError(
            "rows that replace the partitions that they are in go to files, which know their partitions: leave inline away", table=name
        )


def new_write_state(
    table: TableState,
    info: LakeInfo,
    storage: Storage,
    *,
    defaults: tuple[tuple[int, Scalar], ...] = (),
    row_constraint: Predicate | None = None,
    write_id: str | None = None,
) -> WriteState:
    """Build the settings for the writers of a table's new files.

    Args:
        table: The table as the write leaves it behind.
        info: The lake.
        storage: How to reach its files.
        defaults: What columns that rows lack get, by column id, where it is computed.
        row_constraint: What every row must satisfy.
        write_id: Mark of the write, a new one when None.

    Raises:
        UnsupportedFeatureError: The catalog names a directory that the lake has no business to write to.
    """
    name, options = join_name(table.schema_name, table.name), Options.from_mapping(table.options)
    return WriteState(
        table=name,
        directory=info.checked_location(table.path, f"table {name}", table=name),
        schema=table.schema,
        partition_spec=table.partition_spec,
        storage=storage,
        encrypted=info.encrypted,
        format_version=table.format_version,
        options=options,
        defaults=defaults,
        row_constraint=row_constraint,
        sort=sort_orders(table.sort_keys, table.schema, name) if options.sort_on_insert else (),
        write_id=write_id or paths.write_id(),
    )
