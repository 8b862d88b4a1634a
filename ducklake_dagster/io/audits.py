"""Run audits, the conditions on rows before a commit, and map tables of production to tables of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.assets.settings import about_settings
from ducklake_dagster.assets.tables import TableAddress
from ducklake_dagster.config.errors import documentation
from ducklake_dagster.io.commit import makes_table

if TYPE_CHECKING:
    from ducklake_core import Condition, DuckLake, Scan, Snapshot, Table, Transaction


AUDITS = "audits"
RESULTS = "ducklake/audits"
Audit: TypeAlias = "str | Callable[[Scan], bool]"

# Between schema and branch: tables of schema sales in branch pr_1 are in the schema sales__pr_1.
SEPARATOR = "__"


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
        """Return the outcome in words."""
        if self.failing_rows is None or self.passed:
            return f"{self.name}: {'passed' if self.passed else 'failed'}"
        return f"{self.name}: {self.failing_rows:,} row{'' if self.failing_rows == 1 else 's'} failed"

    @property
    def metadata(self) -> dict[str, Any]:
        """Return metadata for the evaluation of a check."""
        return {} if self.failing_rows is None else {"ducklake/failing_rows": self.failing_rows}


def stored_audits(audits: Mapping[str, Audit]) -> dict[str, Any]:
    """Return audits as metadata can hold them: a function by the module and name that it is imported from.

    >>> stored_audits({"positive": "n > 0", "sane": len})
    {'positive': 'n > 0', 'sane': {'function': 'builtins:len'}}

    Raises:
        UsageError: The argument is not a mapping of names to conditions or functions, or a function cannot be imported.
    """
    if not isinstance(audits, Mapping):
        raise _wrong("ducklake_metadata", audits)
    stored = {name: {"function": _place(audit)} if callable(audit) else audit for name, audit in audits.items()}
    audits_of({AUDITS: stored}, "ducklake_metadata")
    return stored


def audits_of(metadata: Mapping[str, Any], subject: str) -> Mapping[str, Audit]:
    """Return the audits in an asset's metadata, by name.

    Raises:
        UsageError: They are not a mapping of names to conditions or functions.
    """
    stored = metadata.get(AUDITS) or {}
    if not isinstance(stored, Mapping):
        raise _wrong(subject, stored)
    return {name: _audit(name, value, subject) for name, value in stored.items()}


def _audit(name: object, value: object, subject: str) -> Audit:
    if isinstance(name, str) and name.isidentifier():
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, Mapping) and list(value) == ["function"] and isinstance(value["function"], str):
            return _function(value["function"], subject)
    raise _wrong(subject, {name: value})


def _wrong(subject: str, found: object) -> UsageError:
    about = about_settings(subject)
    return UsageError(
        f"{about}: audits must be a mapping of names (letters, digits, _) to SQL conditions or functions of a Scan, not {found!r}",
        asset=subject,
    )


def _place(function: Callable[..., Any]) -> str:
    place = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', None)}"
    known: Callable[..., Any] | None
    try:
        known = _function(place, "ducklake_metadata")
    except UsageError:
        # The asset's module is still being imported, so it does not have its names yet. A lambda or local function never has one.
        known = function if "<" not in place else None
    if known is not function:
        raise UsageError(
            f"audit {function!r} is not a function at the top level of a module, so other processes cannot import it. Move it to a module"
        )
    return place


def _function(place: str, subject: str) -> Callable[[Scan], bool]:
    module, _, path = place.partition(":")
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"asset {subject}: audit function {place} cannot be imported: {error}. Correct the module, or install it where the step runs",
            asset=subject,
        ) from error
    function: Callable[[Scan], bool] = found
    return function


def run_audits(tx: Transaction, table: str, audits: Mapping[str, Audit], inside: Condition | None, session: Any) -> list[AuditResult]:
    """Run audits on the rows that a transaction has staged, together with those that it keeps.

    Args:
        tx: An open transaction that has written.
        table: The table.
        audits: Conditions or functions by name.
        inside: Condition for the rows to audit, those of the run's partitions; None for the whole table.
        session: Spark session that counts; None to count in this process.

    Raises:
        UnsupportedFeatureError: A condition needs a SQL engine, and there is no session.
    """
    from ducklake_core import AllOf

    # Turns a concurrent commit to the table into a conflict, so that the rows audited here are the rows that are committed.
    tx.guard(table)
    staged = tx.table(table)
    results: list[AuditResult] = []
    for name, audit in audits.items():
        if not isinstance(audit, str):
            results.append(AuditResult(name=name, passed=_verdict(name, audit(staged.scan(where=inside)))))
            continue
        # Under three-valued logic a condition that is NULL is not met, so such a row fails.
        failing = f"(NOT ({audit})) OR (({audit}) IS NULL)"
        with _named(name, audit, failing):
            scan = staged.scan(where=failing if inside is None else AllOf(conditions=(inside, failing)))
            count = scan.count() if session is None else scan.to_spark(session).count()
        results.append(AuditResult(name=name, passed=not count, failing_rows=count))
    return results


def _verdict(name: str, found: object) -> bool:
    """Return the result of a function as a bool. A string such as "no" must not count as True, nor None as False."""
    plain = found
    # Accept scalars of numpy and pyarrow. Tables and columns have methods of the same names, which raise.
    with suppress(Exception):
        plain = found.as_py() if hasattr(found, "as_py") else found.item() if hasattr(found, "item") else found
    if not isinstance(plain, bool):
        raise UsageError(f"the function of audit {name} must return True or False, but returned {found!r}", audit=name)
    return plain


@contextmanager
def _named(name: str, audit: str, failing: str) -> Iterator[None]:
    """Name the audit in errors about a condition, and show the condition as the user wrote it."""
    try:
        yield
    except (UsageError, NotFoundError, UnsupportedFeatureError) as error:
        message = error.message.replace(failing, audit)
        raise type(error)(f"audit {name} ({audit!r}): {message}", **{**error.details, "audit": name}) from error


def passed_audits(snapshot: Snapshot) -> list[AuditResult]:
    """Return the audits of a commit that an earlier attempt made. All of them passed, or there would be no commit."""
    names = dagster_facts(snapshot).get(AUDITS)
    return [AuditResult(name=name, passed=True) for name in names if isinstance(name, str)] if isinstance(names, list) else []


def audit_metadata(results: Sequence[AuditResult]) -> dg.MetadataValue:
    """Return metadata that stores audit results in an event, where checks read them."""
    return dg.MetadataValue.json({one.name: {"passed": one.passed, "failing_rows": one.failing_rows} for one in results})


def reject_failed(context: dg.OutputContext, results: Sequence[AuditResult], table: str, subject: str) -> None:
    """End the step when an audit failed; each outcome becomes an evaluation of the asset's check of that name.

    Raises:
        dg.Failure: An audit failed. Nothing is committed.
    """
    failed = [result for result in results if not result.passed]
    if not failed:
        return
    if context.has_asset_key:
        _report(context, results)
    raise dg.Failure(
        f"asset {subject}: the rows for {table} failed audits: {', '.join(result.text for result in failed)}. Nothing was committed. "
        "Correct the rows, or change the audits of the asset",
        metadata={"table": table, RESULTS: audit_metadata(results), "documentation": documentation("how-to/dagster/checks.md")},
        allow_retries=False,
    )


def _report(context: dg.OutputContext, results: Sequence[AuditResult]) -> None:
    """Report results as evaluations of the checks: no step does, since the asset is not materialised."""
    try:
        instance = context.step_context.instance
    except dg.DagsterInvariantViolationError:
        # A context that a test builds.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch, and the location of its tables.

    Attributes:
        name: Name of the branch.
        own_lake: Whether the branch has its own lake, where tables keep their names. Otherwise a schema of the branch is called
            ``schema__name``.
    """

    name: str
    own_lake: bool = False

    def address(self, production: TableAddress) -> TableAddress:
        """Return the branch's table for a table of production."""
        from ducklake_core import dotted, split_path

        *around, own = split_path(production.schema)
        return production if self.own_lake else replace(production, schema=dotted((*around, f"{own}{SEPARATOR}{self.name}")))


def branch_holds(lake: DuckLake, address: TableAddress, keys: Sequence[str] | None, subject: str) -> bool:
    """Return whether an input is read from the branch: its table exists there, with all of the run's partitions.

    Args:
        lake: The lake of the branch.
        address: The branch's table.
        keys: Partition keys of the run, None for an asset without partitions.
        subject: The input, for messages.

    Raises:
        UsageError: The branch has only some of the partitions, or its older commits were expired, so it is unknown which partitions it has.
    """
    # table exists   partitions written in the branch   read from
    #     no         -                                   production
    #     yes        all, or the asset has none          branch
    #     yes        none                                production
    #     yes        some                                error: rows of the branch and of production would mix
    #     yes        unknown, commits were expired       error
    try:
        table = lake.table(address.sql)
    except NotFoundError:
        return False
    if not keys:
        return True
    written, complete = _written_keys(table)
    missing = sorted(set(keys) - written)
    if not missing:
        return True
    shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    advice = "Materialise them in the branch, or set ducklake_input(production=True) on the input to read only production"
    if not complete:
        raise UsageError(
            f"input {subject}: snapshots of {address} were expired, so it is unknown whether the branch has partitions {shown}. {advice}",
            input=subject,
        )
    if len(missing) == len(set(keys)):
        return False
    raise UsageError(f"input {subject}: the branch has some of the partitions, but not {shown}. {advice}", input=subject)


def _written_keys(table: Table) -> tuple[AbstractSet[str], bool]:
    """Return partitions that commits of assets wrote since the table was created, and whether all of these commits still exist."""
    # Rows do not show this: a partition without rows may also be in the branch. Commits to a branch contain all of their keys.
    keys: set[str] = set()
    complete = False
    for snapshot in reversed(table.snapshots()):
        found = dagster_facts(snapshot).get("partition_keys")
        if isinstance(found, list):
            keys.update(key for key in found if isinstance(key, str))
        if makes_table(snapshot, table):
            complete = True
            break
    return keys, complete
