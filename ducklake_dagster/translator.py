"""Which asset a table is, and what its page says: the names to override where a project has other conventions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.lake_tables import LakeTable, TimeUnit
from ducklake_dagster.naming import TableAddress

_CRON: dict[TimeUnit, str] = {"hour": "0 * * * *", "day": "0 0 * * *", "month": "0 0 1 * *", "year": "0 0 1 1 *"}
_FORMAT: dict[TimeUnit, str] = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d", "year": "%Y-%m-%d"}


class DuckLakeTranslator:
    """Turns a table or view of a lake into the parts of an asset's definition.

    Each part has a method; a subclass overrides those that differ, or :meth:`get_asset_spec`, which puts them together. The keys of what
    a view reads are asked for as well, so that they are the same on both sides of a dependency.

    Example:

        class Prefixed(DuckLakeTranslator):
            def get_asset_key(self, table: LakeTable) -> dg.AssetKey:
                return super().get_asset_key(table).with_prefix("lake")

    Args:
        timezone: Time zone of partitions that :meth:`get_partitions_def` makes.
        partitions: Whether tables whose layout follows a column of time become partitioned assets.

    Raises:
        UsageError: A time zone that there is not.

    A subclass with a method whose name is nearly one of these is warned of.
    """

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        known = [name for name in vars(DuckLakeTranslator) if name.startswith("get_")]
        for name in vars(cls):
            near = get_close_matches(name, known, n=1, cutoff=0.8)
            if name not in known and name.startswith("get") and near:
                warnings.warn(
                    f"{cls.__name__}.{name} is not called by DuckLakeTranslator: did you mean {near[0]}? A helper's name may begin with _.",
                    stacklevel=2,
                )

    def __init__(self, *, timezone: str = "UTC", partitions: bool = False) -> None:
        if not isinstance(partitions, bool):
            raise UsageError(f"partitions must be True or False, not {partitions!r}", parameter="partitions")
        try:
            ZoneInfo(timezone)
        except (ValueError, TypeError, AttributeError, OSError, KeyError):
            raise UsageError(f"timezone must be a name such as 'Europe/Berlin', not {timezone!r}", parameter="timezone") from None
        self.timezone = timezone
        self.partitions = partitions

    def get_asset_key(self, table: LakeTable) -> dg.AssetKey:
        """``schema/table``, with a part for each schema of a path; the metadata tells :class:`DuckLakeIOManager` the table."""
        from ducklake_core import split_path

        return dg.AssetKey([*split_path(table.schema), table.name])

    def get_description(self, table: LakeTable) -> str | None:
        """The comment."""
        return table.comment

    def get_group_name(self, table: LakeTable) -> str | None:  # noqa: ARG002 - for those who override it
        """The group; Dagster's default when None."""
        return None

    def get_kinds(self, table: LakeTable) -> set[str]:
        """``ducklake``, and ``view`` for a view."""
        return {"ducklake", "view"} if table.kind == "view" else {"ducklake"}

    def get_tags(self, table: LakeTable) -> Mapping[str, str]:  # noqa: ARG002
        """No tags."""
        return {}

    def get_owners(self, table: LakeTable) -> list[str]:  # noqa: ARG002
        """Nobody."""
        return []

    def get_partitions_def(self, table: LakeTable) -> dg.PartitionsDefinition[str] | None:
        """Time windows of the layout's unit from the earliest value on, the current window included; None unless ``partitions`` is on
        and the layout follows a column of time that has values."""
        column = table.time_column
        if not self.partitions or column is None:
            return None
        return dg.TimeWindowPartitionsDefinition(
            start=_start(column.first, column.unit),
            fmt=_FORMAT[column.unit],
            cron_schedule=_CRON[column.unit],
            timezone=self.timezone,
            end_offset=1,
        )

    def get_metadata(self, table: LakeTable) -> dict[str, Any]:
        """The table's name, folder, columns and partition keys, and a view's query."""
        columns = [
            dg.TableColumn(
                name=column.name,
                type=column.type,
                description=column.comment,
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in table.columns
        ]
        layout = [f"partitioned by {', '.join(table.partition_by)}"] if table.partition_by else []
        metadata: dict[str, Any] = {
            "schema": table.schema,
            "table": table.name,
            "dagster/table_name": str(TableAddress(schema=table.schema, table=table.name)),
            "dagster/storage_kind": "ducklake",
        }
        if table.uri is not None:
            metadata["dagster/uri"] = table.uri
        if columns:
            metadata["dagster/column_schema"] = dg.TableSchema(columns=columns, constraints=dg.TableConstraints(other=layout))
        if table.sql is not None:
            metadata["ducklake/sql"] = dg.MetadataValue.md(f"```sql\n{table.sql}\n```")
        if table.problem is not None:
            metadata["ducklake/problem"] = table.problem
        return metadata

    def get_asset_spec(self, table: LakeTable, *, references: Mapping[str, LakeTable]) -> dg.AssetSpec:
        """The whole definition.

        Args:
            table: A table or view.
            references: What the lake's views name, by ``schema.name``.
        """
        partitions_def = self.get_partitions_def(table)
        metadata = self.get_metadata(table)
        if partitions_def is not None and table.time_column is not None:
            metadata["partition_expr"] = table.time_column.name
        return dg.AssetSpec(
            key=self.get_asset_key(table),
            deps=[self.get_asset_key(references[name]) for name in table.references if name in references],
            description=self.get_description(table),
            metadata=metadata,
            group_name=self.get_group_name(table),
            kinds=self.get_kinds(table),
            tags=self.get_tags(table),
            owners=self.get_owners(table),
            partitions_def=partitions_def,
            is_virtual=table.kind == "view",
        )


def _start(first: str, unit: TimeUnit) -> str:
    if unit == "year":
        return f"{first[:4]}-01-01"
    if unit == "month":
        return f"{first[:7]}-01"
    return f"{first}-00:00" if unit == "hour" else first
