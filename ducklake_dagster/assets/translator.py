"""Make asset specs from the tables of a lake; a translator may change their names and metadata."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from ducklake_core import folded
from ducklake_core.errors import UsageError
from ducklake_dagster.assets.settings import name_list, plain_metadata
from ducklake_dagster.assets.tables import TableAddress, table_address

if TYPE_CHECKING:
    from ducklake_core import DuckLake, PartitionField, Schema, Table, ViewDefinition
    from ducklake_dagster.config.resources import DuckLakeResource


_CRON: dict[TimeUnit, str] = {"hour": "0 * * * *", "day": "0 0 * * *", "month": "0 0 1 * *", "year": "0 0 1 1 *"}
_FORMAT: dict[TimeUnit, str] = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d", "year": "%Y-%m-%d"}
TimeUnit: TypeAlias = Literal["hour", "day", "month", "year"]
# Finest first: a layout by year(t) and month(t) makes monthly partitions.
_UNITS: tuple[TimeUnit, ...] = ("hour", "day", "month", "year")
# Per day.
_MICROSECONDS = 86_400_000_000
_NANOSECONDS = 1000 * _MICROSECONDS


class DuckLakeTranslator:
    """Translate a table or view of a lake to the parts of an asset's definition.

    Each part has a method. Override the methods to change single parts, or :meth:`get_asset_spec`, which combines them. The methods are
    also called for the tables that a view reads, so that both sides of a dependency have the same keys.

    Example:

        class Prefixed(DuckLakeTranslator):
            def get_asset_key(self, table: LakeTable) -> dg.AssetKey:
                return super().get_asset_key(table).with_prefix("lake")

    Args:
        timezone: Time zone of partitions that :meth:`get_partitions_def` makes, UTC by default.
        partitions: Whether tables that are partitioned by a time column become partitioned assets, False by default.

    Raises:
        UsageError: The time zone does not exist.

    A subclass with a method whose name is similar to one of these causes a warning.
    """

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        known = [name for name in vars(DuckLakeTranslator) if name.startswith("get_")]
        for name in vars(cls):
            near = get_close_matches(name, known, n=1, cutoff=0.8)
            if name not in known and name.startswith("get") and near:
                warnings.warn(
                    f"{cls.__name__}.{name} is not called by DuckLakeTranslator: did you mean {near[0]}? Names of helpers should begin "
                    "with _.",
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
        """Return ``schema/table``, with a part for each schema of a path; :class:`DuckLakeIOManager` finds the table by the metadata."""
        from ducklake_core import split_path

        return dg.AssetKey([*split_path(table.schema), table.name])

    def get_description(self, table: LakeTable) -> str | None:
        """Return the comment."""
        return table.comment

    def get_group_name(self, table: LakeTable) -> str | None:  # noqa: ARG002 - for those who override it
        """Return the group; Dagster's default when None."""
        return None

    def get_kinds(self, table: LakeTable) -> set[str]:
        """Return ``ducklake``, and ``view`` for a view."""
        return {"ducklake", "view"} if table.kind == "view" else {"ducklake"}

    def get_tags(self, table: LakeTable) -> Mapping[str, str]:  # noqa: ARG002
        """Return no tags."""
        return {}

    def get_owners(self, table: LakeTable) -> list[str]:  # noqa: ARG002
        """Return no owners."""
        return []

    def get_partitions_def(self, table: LakeTable) -> dg.PartitionsDefinition[str] | None:
        """Return time windows of the layout's unit, from the earliest value to the current window.

        None unless ``partitions`` is True and the table is partitioned by a time column that has values.
        """
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
        """Return the table's name, folder, columns and partition keys, and a view's query."""
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
        """Return the whole definition.

        Args:
            table: A table or view.
            references: Tables and views that the lake's views read, by ``schema.name``.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeColumn:
    """A column as it is in the catalog.

    Attributes:
        type: Name of the DuckLake type.
        comment: Comment; None without one.
    """

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """The time column that a table is partitioned by.

    Attributes:
        name: Column.
        unit: The finest unit among the partition keys of that column.
        first: Day of the earliest value in the statistics, such as ``2026-03-01``.
    """

    name: str
    unit: TimeUnit
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """A table or a view of a lake.

    Attributes:
        kind: ``table`` or ``view``.
        comment: Comment; None without one.
        columns: The columns; empty for a view whose query cannot be analysed.
        partition_by: Partition keys as SQL.
        uri: Folder of its files, None for a view.
        time_column: The time column that the table is partitioned by; None without one, or when no value is known.
        references: Tables and views that a view reads, ``schema.name``.
        sql: Query of a view.
        problem: Why the references of a view are not known.
    """

    schema: str
    name: str
    kind: Literal["table", "view"] = "table"
    comment: str | None = None
    columns: tuple[LakeColumn, ...] = ()
    partition_by: tuple[str, ...] = ()
    uri: str | None = None
    time_column: TimeColumn | None = None
    references: tuple[str, ...] = ()
    sql: str | None = None
    problem: str | None = None

    @property
    def qualified_name(self) -> str:
        """Return ``schema.name``, parts with dots double-quoted."""
        from ducklake_core import join_name

        return join_name(self.schema, self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON values; :meth:`from_dict` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LakeTable:
        """Return the table from the result of :meth:`to_dict`."""
        time_column = fields.get("time_column")
        return cls(
            **{
                **fields,
                "columns": tuple(LakeColumn(**column) for column in fields.get("columns", ())),
                "partition_by": tuple(fields.get("partition_by", ())),
                "references": tuple(fields.get("references", ())),
                "time_column": TimeColumn(**time_column) if time_column else None,
            }
        )


def read_lake_tables(lake: DuckLake, include: str | Sequence[str] = "*", exclude: str | Sequence[str] = ()) -> list[LakeTable]:
    """Return the tables and views of a lake that match, sorted by name, all at one snapshot. No data file is opened.

    Args:
        lake: The lake.
        include: Names or patterns of ``schema.name``, such as ``raw.*``. A pattern without a dot applies to the schema ``main``; ``*``
            alone matches everything, which is the default. Case does not matter.
        exclude: Names or patterns to leave out, none by default.

    Raises:
        UsageError: ``include`` has a name without wildcards that does not exist.
    """
    wanted, unwanted = _patterns("include", include), _patterns("exclude", exclude)
    state = lake.at(None)
    found = state.definitions()
    tables = {table.name: table for table in found.tables}
    views = {one.view.name: one for one in found.views}
    names = {*tables, *views}
    for pattern in wanted:
        if not set("*?[") & set(pattern) and not any(_fits(name, (pattern,)) for name in names):
            raise UsageError(f"include has {pattern}, but the lake has no table or view of that name", parameter="include")
    _warn_of_idle("include", [pattern for pattern in wanted if pattern != "*"], names)
    _warn_of_idle("exclude", unwanted, names)
    chosen = sorted(name for name in names if _fits(name, wanted) and not _fits(name, unwanted))
    units = {name: unit for name in chosen if name in tables and (unit := _time_unit(tables[name])) is not None}
    first = state.earliest_values({tables[name]: column for name, (column, _) in units.items()}) if units else {}
    return [_view(views[name]) if name in views else _table(tables[name], units.get(name), first.get(name)) for name in chosen]


def _warn_of_idle(what: str, patterns: Sequence[str], names: Iterable[str]) -> None:
    """Warn of patterns that match nothing. This is not an error, because such tables may be created later."""
    idle = [pattern for pattern in patterns if not any(_fits(name, (pattern,)) for name in names)]
    if idle:
        warnings.warn(f"{what}: no table or view of the lake matches {', '.join(idle)}", stacklevel=3)


def _patterns(what: str, value: str | Sequence[str]) -> tuple[str, ...]:
    from ducklake_core import DEFAULT_SCHEMA

    found = name_list(what, value)
    return tuple(folded(one if "." in one or one == "*" else f"{DEFAULT_SCHEMA}.{one}") for one in found)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(folded(name), pattern) for pattern in patterns)


def _columns(schema: Schema, comments: dict[str, str]) -> tuple[LakeColumn, ...]:
    return tuple(
        LakeColumn(name=column.name, type=str(column.type), nullable=column.nullable, comment=comments.get(column.name))
        for column in schema
    )


def _table(table: Table, time: tuple[str, TimeUnit] | None, first: object) -> LakeTable:
    day = _day(first, str(table.schema.column(time[0]).type)) if time is not None else None
    return LakeTable(
        schema=table.state.schema_name,
        name=table.state.name,
        comment=table.comment,
        columns=_columns(table.schema, table.column_comments),
        partition_by=tuple(key.expression for key in table.partition_spec.fields) if table.partition_spec is not None else (),
        uri=table.state.path,
        time_column=TimeColumn(name=time[0], unit=time[1], first=day) if time is not None and day is not None else None,
    )


def _view(definition: ViewDefinition) -> LakeTable:
    view, schema = definition.view, definition.schema
    return LakeTable(
        schema=view.state.schema_name,
        name=view.state.name,
        kind="view",
        comment=view.comment,
        columns=_columns(schema, view.column_comments) if schema is not None else (),
        references=definition.references,
        sql=view.sql,
        problem=definition.problem,
    )


def _time_unit(table: Table) -> tuple[str, TimeUnit] | None:
    """Return the first column of time that the layout follows, with the finest of its units."""
    keys = table.partition_spec.fields if table.partition_spec is not None else ()
    found = [(key.column, unit) for key in keys for unit in [_unit(table.schema, key)] if unit is not None]
    if not found:
        return None
    name = found[0][0]
    return name, next(unit for unit in _UNITS if (name, unit) in found)


def _unit(schema: Schema, key: PartitionField) -> TimeUnit | None:
    """Return the unit of time of a partition key; a day itself is one too."""
    for unit in _UNITS:
        if key.transform == unit:
            return unit
    return "day" if key.transform == "identity" and str(schema.column(key.column).type) == "date" else None


def _day(bound: object, type_name: str) -> str | None:
    """Return the day of a bound in days, microseconds or nanoseconds; None for infinite and very early bounds."""
    if not isinstance(bound, int):
        return None
    days = bound if type_name == "date" else bound // (_NANOSECONDS if type_name == "timestamp_ns" else _MICROSECONDS)
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def load_table_specs(
    lake: DuckLakeResource | DuckLake,
    *,
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    translator: DuckLakeTranslator | None = None,
) -> list[dg.AssetSpec]:
    """Return an asset for each table and view of a lake, with columns, comments and partition keys.

    A view is a virtual asset that depends on the tables it reads. The function reads the catalog when a code location loads, with a number
    of queries that does not depend on the number of tables, and opens no data file. Run processes of this location receive the result
    from Dagster and do not connect to the catalog for it. :class:`DuckLakeTablesComponent` keeps the result in a file instead, so that
    the location loads without the catalog, too. The assets may be inputs, and :func:`build_commit_sensor` reports what other writers
    commit to them.

    Args:
        lake: The lake, or its resource.
        include: Names or patterns of ``schema.name``, such as ``raw.*``. A pattern without a dot applies to the schema ``main``; ``*``
            alone matches everything, which is the default.
        exclude: Names or patterns to leave out, none by default.
        translator: Sets keys, groups, partitions and other parts of a definition; a plain :class:`DuckLakeTranslator` by default.

    Raises:
        UsageError: A name in ``include`` does not exist, or two tables would have the same asset key.
        CatalogUnavailableError: The catalog cannot be reached.
        NotALakeError: There is no lake. It is not created, even with ``create_if_missing``.
    """
    from ducklake_core.errors import UsageError
    from ducklake_dagster.config.resources import DuckLakeResource

    if translator is not None and not isinstance(translator, DuckLakeTranslator):
        raise UsageError(f"translator must be an instance of DuckLakeTranslator, not {translator!r}", parameter="translator")
    if isinstance(lake, DuckLakeResource):
        resource = lake.process_config_and_initialize()
        chosen = (resource.shown_catalog(), resource.catalog.metadata_schema, _patterns("include", include), _patterns("exclude", exclude))
        key = f"ducklake_dagster.load_table_specs{json.dumps(chosen)}"
        tables = _state_of_definitions(key, lambda: read_lake_tables(resource.connect_to_existing(), include, exclude))
    elif hasattr(lake, "tables"):
        tables = read_lake_tables(lake, include, exclude)
    else:
        raise UsageError(f"lake must be a DuckLake or a DuckLakeResource, not {lake!r}", parameter="lake")
    return table_specs(tables, translator or DuckLakeTranslator())


def _state_of_definitions(key: str, read: Callable[[], list[LakeTable]]) -> list[LakeTable]:
    """Return the tables that the code location has read when it loaded, or read them if the location is loading.

    Dagster stores the state with each run, so that its processes define the same assets.
    """
    context = DefinitionsLoadContext.get()
    if context.load_type is DefinitionsLoadType.RECONSTRUCTION and key in context.reconstruction_metadata:
        stored = str(context.reconstruction_metadata[key])
        tables = [LakeTable.from_dict(fields) for fields in json.loads(stored)]
    else:
        tables = read()
        stored = json.dumps([table.to_dict() for table in tables], separators=(",", ":"))
    context.add_to_pending_reconstruction_metadata(key, stored)
    return tables


def table_specs(tables: Sequence[LakeTable], translator: DuckLakeTranslator) -> list[dg.AssetSpec]:
    """Return the assets of tables that :func:`read_lake_tables` returned.

    A table that a view reads is a dependency even when it is not among ``tables``, under the key that it would have.

    Args:
        tables: Tables and views.
        translator: Sets keys, groups, partitions and other parts of a definition.

    Raises:
        UsageError: Two tables would have the same asset key, or the translator returns an invalid part.
    """
    from ducklake_core.errors import UsageError

    known = {table.qualified_name: table for table in tables}
    for table in tables:
        for name in table.references:
            known.setdefault(name, _named(name))
    with warnings.catch_warnings():
        # Dagster marks virtual assets as a preview; users of this library cannot act on the warning.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        specs = [_spec(translator, table, known) for table in tables]
    by_key: dict[dg.AssetKey, str] = {}
    for table, spec in zip(tables, specs, strict=True):
        other = by_key.setdefault(spec.key, table.qualified_name)
        if other != table.qualified_name:
            raise UsageError(
                f"{other} and {table.qualified_name} would both have the asset key {spec.key.to_user_string()}. Return different keys from "
                "get_asset_key of the translator",
                asset=spec.key.to_user_string(),
            )
    return specs


def _spec(translator: DuckLakeTranslator, table: LakeTable, known: Mapping[str, LakeTable]) -> dg.AssetSpec:
    """Return the asset that the translator makes of a table, and reject an asset whose metadata names another table."""
    from ducklake_core.errors import UsageError

    name, about = type(translator).__name__, table.qualified_name
    parts: Sequence[tuple[str, Any, str]] = (
        ("get_asset_key", (dg.AssetKey, str, Sequence), "an AssetKey"),
        ("get_kinds", (AbstractSet, list, tuple, NoneType), "a set of strings"),
        ("get_metadata", Mapping, "a mapping"),
    )
    for method, kind, wanted in parts:
        part = getattr(translator, method)(table)
        if not isinstance(part, kind):
            raise UsageError(f"{name}.{method} must return {wanted}, but returned {part!r} for {about}", method=method)
    spec = translator.get_asset_spec(table, references=known)
    if not isinstance(spec, dg.AssetSpec):
        raise UsageError(f"{name}.get_asset_spec must return an AssetSpec, but returned {spec!r} for {about}", method="get_asset_spec")
    # The IO manager and the commit sensor find the table by the asset's metadata, which must name the same table.
    found = table_address(spec.key.path, plain_metadata(spec.metadata), None)
    if folded(found.sql) != folded(about):
        raise UsageError(
            f"{name} makes an asset of {about} whose metadata names table {found}. Keep 'schema' and 'table' in the result of get_metadata",
            asset=spec.key.to_user_string(),
        )
    return spec


def _named(name: str) -> LakeTable:
    """Return a placeholder for a table that only a view names."""
    from ducklake_core import split_name

    schema, table = split_name(name)
    return LakeTable(schema=schema, name=table)
