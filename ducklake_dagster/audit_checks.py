"""Checks that show on an asset's page what its audits found."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
from collections.abc import Iterable, Iterator, Mapping, Sequence

import dagster as dg

from ducklake_dagster.asset_tables import asset_specs
from ducklake_dagster.audits import RESULTS, AuditResult, audits_of
from ducklake_dagster.write_settings import plain_metadata


def build_audit_checks(*, assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.AssetChecksDefinition]:
    """Blocking checks that show the audits of assets on their pages.

    The audits themselves run before the commit, by what ``ducklake_metadata(audits={...})`` says; these checks tell what they found, and
    read nothing. A write that is refused reports its outcome to the same checks.

    Args:
        assets: Assets with audits; others are passed over.
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
            description="the last materialisation was not audited: something else wrote it, or it is older than the audit",
        )
    result = AuditResult(name=name, passed=bool(found["passed"]), failing_rows=found["failing_rows"])
    return dg.AssetCheckResult(
        passed=result.passed, asset_key=key, check_name=name, metadata=result.metadata, description=f"{result.text}, before the commit"
    )
