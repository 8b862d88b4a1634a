"""Build asset checks that run as one step, with a fixed number of catalog statements."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_dagster.assets.settings import plain_metadata
from ducklake_dagster.assets.tables import AssetTable, asset_specs, asset_tables, listed_assets
from ducklake_dagster.checks.base import JudgedTable, LakeCheck, Subject, Verdict, absent_table, io_manager_keys, judged_table, verdict_of
from ducklake_dagster.checks.row import NullFraction, RowCountChange
from ducklake_dagster.io.audits import RESULTS, AuditResult, audits_of
from ducklake_dagster.io.read_points import BRANCH
from ducklake_dagster.statistics.lake_state import LakeState, read_state
from ducklake_dagster.statistics.partitions import PartitionKeys, StoredTable, partition_columns

if TYPE_CHECKING:
    from ducklake_core import DuckLake


Assets = Iterable[dg.AssetsDefinition | dg.AssetSpec]
_LONGEST_NAME = 200
_STEP_TEXT = "Checks DuckLake tables by the statistics of their catalog."


def build_lake_checks(
    *,
    assets: Assets,
    checks: Sequence[LakeCheck],
    lake_key: str = "lake",
    spark_key: str | None = None,
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Build checks of the tables of assets, all of them in one step.

    The checks read only the catalog, with a number of statements that depends on neither assets nor checks, except for kinds that read
    rows (:class:`UniqueKey`, :class:`Reference`, :class:`RowCondition`). In a run of partitions most kinds check these partitions; where
    the table's files hold rows of several partitions, the partition columns of those files are read.

    Args:
        assets: Assets that are DuckLake tables.
        checks: Checks of each of them, such as ``[Freshness(max_age="26 hours"), RowCountChange(max_drop=0.3, blocking=True)]``.
        lake_key: Resource key of the :class:`DuckLakeResource`, ``lake`` by default.
        spark_key: Resource key of a resource with a ``spark_session``. Its executors then read the rows for checks that read rows; None to
            read them in the process of the step.
        schema: The ``schema`` setting of the IO manager.

    Raises:
        UsageError: There are no assets or no checks, or two checks have one name.
    """
    reject_names(checks)
    assets = listed_assets(assets)
    tables = asset_tables(assets, schema)
    if not tables:
        raise UsageError("assets is empty: pass the assets whose tables are to be checked")
    specs = check_specs(tables, checks)
    managers = io_manager_keys(assets)
    needed = {lake_key, *managers.values()} | ({spark_key} if spark_key is not None else set())

    @dg.multi_asset_check(
        name=step_name("_".join(check.name for check in checks), tables),
        specs=specs,
        can_subset=True,
        required_resource_keys=needed,
        description=_STEP_TEXT,
    )
    def check_lake(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        found = {name: getattr(context.resources, name) for name in needed}
        stored_by = {asset: found[manager] for asset, manager in managers.items()}
        session = None if spark_key is None else lambda: found[spark_key].spark_session
        yield from _results(context, found[lake_key].connect(), tables, checks, stored_by, session)

    return [check_lake]


def _results(
    context: dg.AssetCheckExecutionContext,
    production: "DuckLake",
    tables: Sequence[AssetTable],
    checks: Sequence[LakeCheck],
    stored_by: Mapping[dg.AssetKey, object],
    session: Callable[[], Any] | None,
) -> Iterator[dg.AssetCheckResult]:
    """Run the selected checks on the run's partitions, after one read of each lake's state."""
    selected = context.selected_asset_check_keys
    wanted = {table.key: [one for one in checks if dg.AssetCheckKey(table.key, one.name) in selected] for table in tables}
    partitions = {table.key: run_partitions(context, table) for table in tables if wanted[table.key]}
    mine = [judged_table(table, production, stored_by.get(table.key), partitions[table.key]) for table in tables if table.key in partitions]
    judges = _judges(mine, [one for found in wanted.values() for one in found], context.instance, session)
    for judged in mine:
        for check in wanted[judged.table.key]:
            found = judges[id(judged.lake)].verdict(judged.table, check, partitions[judged.table.key], judged)
            yield dg.AssetCheckResult(
                passed=found.passed,
                asset_key=judged.table.key,
                check_name=check.name,
                description=found.description,
                metadata=found.metadata,
                severity=check.severity,
            )


def build_row_count_change_checks(
    *,
    assets: Assets,
    name: str = "row_count_change",
    max_drop: float | None = None,
    max_growth: float | None = None,
    min_rows: int = 1,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    blocking: bool = False,
    lake_key: str = "lake",
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Build one :class:`RowCountChange` for each asset with :func:`build_lake_checks`.

    Args:
        assets: Assets that are DuckLake tables.
        name: Name of the checks; checks of one asset need different ones.
        max_drop: Maximum fraction of rows that may disappear in one commit, such as 0.3 for 30 %; None for no limit.
        max_growth: Maximum growth in one commit as a fraction of the rows before; None for no limit.
        min_rows: Minimum number of rows of the whole table, 1 by default.
        severity: ERROR or WARN; only ERROR stops the assets downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for the check.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The ``schema`` setting of the IO manager.

    Raises:
        UsageError: A bound is negative.
    """
    check = RowCountChange(name=name, max_drop=max_drop, max_growth=max_growth, min_rows=min_rows, severity=severity, blocking=blocking)
    return build_lake_checks(assets=assets, checks=[check], lake_key=lake_key, schema=schema)


def build_null_fraction_checks(
    *,
    assets: Assets,
    name: str = "null_fraction",
    columns: Mapping[str, float],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    lake_key: str = "lake",
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Build one :class:`NullFraction` for each asset with :func:`build_lake_checks`.

    Args:
        assets: Assets that are DuckLake tables; each must have all of the columns.
        name: Name of the checks; checks of one asset need different ones.
        columns: Maximum fraction of NULLs by column name; 0.0 allows none.
        severity: ERROR or WARN; only ERROR stops the assets downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for the check.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The ``schema`` setting of the IO manager.

    Raises:
        UsageError: There are no columns, or a fraction is not between 0 and 1.
    """
    check = NullFraction(name=name, limits=columns, severity=severity, blocking=blocking)
    return build_lake_checks(assets=assets, checks=[check], lake_key=lake_key, schema=schema)


def read_lake(lake: "DuckLake", tables: Sequence[AssetTable], checks: Sequence[LakeCheck]) -> LakeState:
    """Read the state of the lake that checks need."""
    columns = [column for check in checks for column in check.columns()]
    wanted: dict[str, list[str]] = {}
    for table in tables:
        # One table may be that of several assets with different partition columns.
        wanted.setdefault(folded(table.address.sql), [*columns]).extend(partition_columns(table))
    return read_state(lake, wanted, findings=any(check.checks_catalog for check in checks))


def _judges(
    judged: Sequence[JudgedTable], checks: Sequence[LakeCheck], instance: dg.DagsterInstance, session: Callable[[], Any] | None
) -> dict[int, "Judge"]:
    """Return a judge for each lake, by ``id()`` of the lake; each lake is read once."""
    lakes = {id(one.lake): one.lake for one in judged}
    return {
        place: Judge(read_lake(lake, [one.table for one in judged if one.lake is lake], checks), instance, session)
        for place, lake in lakes.items()
    }


class Judge:
    """Verdicts on assets by the state of a lake.

    Args:
        state: The result of :func:`read_lake`.
        instance: Instance that stores dynamic partitions.
        session: Returns a Spark session; None without Spark.
    """

    def __init__(self, state: LakeState, instance: dg.DagsterInstance, session: Callable[[], Any] | None = None) -> None:
        self._state = state
        self._session = session
        self._keys = PartitionKeys(instance)
        self._stored: dict[dg.AssetKey, StoredTable] = {}

    def stored(self, table: AssetTable) -> StoredTable | None:
        """Return the stored rows of an asset; None when its table does not exist."""
        statistics = self._state.statistics_of(table.address.sql)
        if statistics is None:
            return None
        if table.key not in self._stored:
            self._stored[table.key] = StoredTable(table, self._state, statistics, self._keys)
        return self._stored[table.key]

    def verdict(self, table: AssetTable, check: LakeCheck, keys: Sequence[str] | None, judged: JudgedTable | None = None) -> Verdict:
        """Judge one asset, or some of its partitions. A check that raises an error of the lake fails, and does not stop the others.

        Args:
            table: The asset.
            check: The check.
            keys: Partition keys, None for the whole table.
            judged: The choice of the table; None when only production is checked.
        """
        stored = self.stored(table)
        if judged is not None and judged.fault:
            return Verdict(passed=False, description=judged.fault)
        if stored is None:
            return Verdict(passed=False, description=absent_table(table))
        try:
            found = verdict_of(check, Subject(table=table, stored=stored, keys=keys, session=self._session, judged=judged))
        except DuckLakeError as error:
            found = Verdict(passed=False, description=error.message)
        facts: dict[str, Any] = {"ducklake/snapshot_id": self._state.snapshot_id}
        if judged is not None and judged.branch is not None:
            facts |= {BRANCH: judged.branch.name, "dagster/table_name": str(table.address)}
        return Verdict(passed=found.passed, description=found.description, metadata={**facts, **found.metadata})


def check_specs(tables: Sequence[AssetTable], checks: Sequence[LakeCheck]) -> list[dg.AssetCheckSpec]:
    """Return the specs of all checks of all assets."""
    return [
        dg.AssetCheckSpec(name=check.name, asset=table.key, blocking=check.blocking, description=check.text())
        for table in tables
        for check in checks
    ]


def step_name(name: str, tables: Sequence[AssetTable]) -> str:
    """Return a name for the step that checks these assets, which differs from the names of other such steps."""
    assets = sorted(table.key.to_python_identifier() for table in tables)
    text = "__".join(["ducklake", name, *assets])
    if len(text) <= _LONGEST_NAME:
        return text
    # Two long names may differ only in the part that is cut.
    return f"{text[: _LONGEST_NAME - 9]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def run_partitions(context: dg.AssetCheckExecutionContext, table: AssetTable) -> Sequence[str] | None:
    """Return the partition keys of an asset in a run; None when the run has none, or those of another asset."""
    definition, tags = table.partitions_def, context.run.tags
    if definition is None:
        return None
    known = definition.get_partition_keys(dynamic_partitions_store=context.instance)
    key = tags.get("dagster/partition")
    if key is not None:
        return [key] if key in known else None
    start, end = (tags.get(f"dagster/asset_partition_range_{side}") for side in ("start", "end"))
    if start is None or end is None or start not in known or end not in known:
        # The run has no partitions, or its keys belong to another asset of the run.
        return None
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return definition.get_partition_keys_in_range(dg.PartitionKeyRange(start, end))
    return known[known.index(start) : known.index(end) + 1]


def reject_names(checks: Sequence[LakeCheck]) -> None:
    """Reject an empty list, values that are not checks, and two checks with one name.

    Raises:
        UsageError: The list is invalid.
    """
    if not _are_checks(checks):
        raise UsageError(f"checks must be a list such as [Freshness(max_age='26 hours')], not {checks!r}", parameter="checks")
    if not checks:
        raise UsageError("checks is empty: pass checks such as checks=[Freshness(max_age='26 hours')]")
    names = [check.name for check in checks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"several checks are named {', '.join(map(repr, twice))}: set different names with name=", checks=tuple(twice))


def _are_checks(given: object) -> bool:
    return isinstance(given, Sequence) and all(isinstance(one, LakeCheck) for one in given)


def build_audit_checks(*, assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.AssetChecksDefinition]:
    """Build blocking checks that show the audits of assets on their pages.

    The audits themselves run before the commit, as declared by ``ducklake_metadata(audits={...})``. The checks report the stored results
    and read no rows. A write that an audit rejects reports its results to the same checks.

    Args:
        assets: Assets with audits; assets without audits are ignored.
    """
    found = ((spec.key, audits_of(plain_metadata(spec.metadata), spec.key.to_user_string())) for spec in asset_specs(assets))
    return [_check(key, list(audits)) for key, audits in found if audits]


def _check(key: dg.AssetKey, names: Sequence[str]) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{key.to_python_identifier()}__audits",
        specs=[
            dg.AssetCheckSpec(name, asset=key, blocking=True, description="Rows are audited before they are committed.") for name in names
        ],
        can_subset=True,
    )
    def audits(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        event = context.instance.get_latest_materialization_event(key)
        materialization = event.asset_materialization if event is not None else None
        stored = plain_metadata(materialization.metadata).get(RESULTS) if materialization is not None else None
        for chosen in sorted(context.selected_asset_check_keys, key=lambda check: check.name):
            yield _result(key, chosen.name, stored)

    return audits


def _result(key: dg.AssetKey, name: str, stored: object) -> dg.AssetCheckResult:
    found = stored.get(name) if isinstance(stored, Mapping) else None
    if found is None:
        return dg.AssetCheckResult(
            passed=False,
            asset_key=key,
            check_name=name,
            severity=dg.AssetCheckSeverity.WARN,
            description="the last materialisation was not audited: another writer made it, or it is older than the audit",
        )
    result = AuditResult(name=name, passed=bool(found["passed"]), failing_rows=found["failing_rows"])
    return dg.AssetCheckResult(
        passed=result.passed, asset_key=key, check_name=name, metadata=result.metadata, description=f"{result.text}, before the commit"
    )
