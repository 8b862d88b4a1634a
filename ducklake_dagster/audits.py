"""Write, audit, publish: conditions that the rows of a commit must meet before anybody sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.write_settings import plain_metadata

if TYPE_CHECKING:
    from ducklake_core import Condition, Scan, Transaction

AUDITS = "audits"
RESULTS = "ducklake/audits"
Audit: TypeAlias = "str | Callable[[Scan], bool]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The outcome of one audit.

    Attributes:
        failing_rows: Rows that do not meet the condition; None of an audit that is a function.
    """

    name: str
    passed: bool
    failing_rows: int | None = None

    @property
    def text(self) -> str:
        """The outcome in words."""
        if self.failing_rows is None or self.passed:
            return f"{self.name}: {'passed' if self.passed else 'failed'}"
        return f"{self.name}: {self.failing_rows:,} rows failed"

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of a check's evaluation."""
        return {} if self.failing_rows is None else {"ducklake/failing_rows": self.failing_rows}


def audits_of(metadata: Mapping[str, Any], subject: str) -> Mapping[str, Audit]:
    """The audits in an asset's metadata, by name.

    Raises:
        UsageError: They are no mapping of names to conditions or functions.
    """
    found = metadata.get(AUDITS) or {}
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and name.isidentifier() and (callable(audit) or (isinstance(audit, str) and audit.strip()))
        for name, audit in found.items()
    ):
        raise UsageError(
            f"asset {subject}: audits must be a mapping of names (letters, digits, _) to SQL conditions or functions of a Scan, "
            f"not {found!r}",
            asset=subject,
        )
    return found


def run_audits(tx: Transaction, table: str, audits: Mapping[str, Audit], inside: Condition | None, session: Any) -> list[AuditResult]:
    """Look at the rows that a transaction has staged, together with those that stay.

    Args:
        tx: An open transaction that has written.
        table: The table.
        audits: What must be so.
        inside: Rows that are looked at: those of the run's partitions; all of the table when None.
        session: Spark session that counts, None to count in this process.

    Raises:
        UnsupportedFeatureError: A condition that only a SQL engine understands, without a session.
    """
    from ducklake_core import AllOf

    staged = tx.table(table)
    results: list[AuditResult] = []
    for name, audit in audits.items():
        if not isinstance(audit, str):
            results.append(AuditResult(name=name, passed=bool(audit(staged.scan(where=inside)))))
            continue
        failing = f"(NOT ({audit})) OR (({audit}) IS NULL)"
        scan = staged.scan(where=failing if inside is None else AllOf(conditions=(inside, failing)))
        count = scan.count() if session is None else scan.to_spark(session).count()
        results.append(AuditResult(name=name, passed=not count, failing_rows=count))
    return results


def audit_metadata(results: Sequence[AuditResult]) -> dg.MetadataValue:
    """What an event says about audits, and a check reads."""
    return dg.MetadataValue.json({one.name: {"passed": one.passed, "failing_rows": one.failing_rows} for one in results})


def refuse_failed(context: dg.OutputContext, results: Sequence[AuditResult], table: str, subject: str) -> None:
    """End the step when an audit failed; each outcome becomes an evaluation of the asset's check of that name.

    Raises:
        dg.Failure: One failed. Nothing is committed.
    """
    failed = [result for result in results if not result.passed]
    if not failed:
        return
    if context.has_asset_key:
        _report(context, results)
    raise dg.Failure(
        f"asset {subject}: the rows for {table} did not pass {', '.join(result.text for result in failed)}. Nothing was committed: the "
        "table is as it was",
        metadata={"table": table, RESULTS: audit_metadata(results), "documentation": "docs/dagster/checks.md"},
        allow_retries=False,
    )


def _report(context: dg.OutputContext, results: Sequence[AuditResult]) -> None:
    """No step of the run will evaluate the checks any more, as the asset was not materialised."""
    try:
        instance = context.step_context.instance
    except dg.DagsterInvariantViolationError:
        # A context made by hand, for a test.
        return
    for result in results:
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=context.asset_key,
                check_name=result.name,
                passed=result.passed,
                description=f"{result.text}; nothing was committed",
                metadata={name: dg.MetadataValue.int(value) for name, value in result.metadata.items()},
            )
        )


def build_audit_checks(*, assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.AssetChecksDefinition]:
    """Blocking checks that show the audits of assets on their pages.

    The audits themselves run before the commit, by what ``ducklake_metadata(audits={...})`` says; these checks tell what they found, and
    read nothing. A write that is refused reports its outcome to the same checks.

    Args:
        assets: Assets with audits; others are passed over.
    """
    specs = [spec for asset in assets for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])]
    found = ((spec.key, audits_of(plain_metadata(spec.metadata), spec.key.to_user_string())) for spec in specs)
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
            description="the last materialisation was not audited: something else wrote it, or it is older than the audit",
        )
    result = AuditResult(name=name, passed=bool(found["passed"]), failing_rows=found["failing_rows"])
    return dg.AssetCheckResult(
        passed=result.passed, asset_key=key, check_name=name, metadata=result.metadata, description=f"{result.text}, before the commit"
    )
