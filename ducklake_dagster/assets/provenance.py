"""Record in each commit which run made it, and recognise commits of runs."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded

if TYPE_CHECKING:
    from ducklake_core import Snapshot


AUTHOR = "dagster"
DEFAULT_OUTPUT = "result"
"""Name that Dagster gives to the only output of an op."""
WRITERS = "table_writers"
"""Key of the record of assets that may have rows in the table of a commit; for several tables, a mapping by asset."""
# With more partition keys, a commit to production stores only their number and the first and last one.
_MAX_KEYS = 50


# The commit id makes a materialisation idempotent:
#
#   run 1, step s, partitions p               id = hash(run 1, s, output, p)
#   automatic retry of s in run 1             the same id: the first commit is found, and nothing is written twice
#   run 2 resumes run 1 from failure at s     the same id: run 2 completes the materialisation of run 1
#   run 2 executes everything again           hash(run 2, ...): a new materialisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Strings and facts that a commit stores about its run.

    Attributes:
        commit_id: Same for every attempt of a step in a run, its automatic retries and the runs that resume it from failure, so that
            the step commits once; another one for every deliberate materialisation.
        message: Asset key and partitions.
        extra_info: JSON object under ``dagster``, stored in ``commit_extra_info``.
        writer: The asset, or the op's output, that the rows come from.
    """

    commit_id: str
    writer: str
    message: str
    extra_info: Mapping[str, Any]

    def with_writers(self, writers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``extra_info`` with the record of the table's writers."""
        return {"dagster": {**self.extra_info["dagster"], WRITERS: writers}}


def provenance(
    context: dg.OutputContext, partition_keys: Sequence[str], *, branch: str | None = None, audits: Sequence[str] = ()
) -> Provenance:
    """Return the provenance of one output's commit.

    Args:
        context: The output.
        partition_keys: Partition keys of the run, sorted.
        branch: The branch that is written to, None for production. Commits to a branch name all of their partitions, because reads
            use them to find the partitions of the branch.
        audits: Names of the audits that the rows must pass; a later attempt reads from them which audits the commit passed.
    """
    subject = output_subject(context)
    own = {
        "output": _output_name(context),
        "asset_key": context.asset_key.to_user_string() if context.has_asset_key else None,
        "op_output": None if context.has_asset_key else _op_output(context),
    }
    facts = {**_facts_of_step(context), **own, **_facts_of_rows(partition_keys, branch, audits)}
    return Provenance(
        commit_id=_commit_id(context, [_output_name(context), context.mapping_key or "", *partition_keys]),
        writer=subject if context.has_asset_key else _op_output(context),
        message=f"{subject} [{_span(partition_keys)}]" if partition_keys else subject,
        extra_info={"dagster": {name: fact for name, fact in facts.items() if fact is not None}},
    )


def joint_provenance(
    context: dg.OutputContext, tables: Mapping[str, str], partition_keys: Sequence[str], *, branch: str | None, audits: Sequence[str]
) -> Provenance:
    """Return the provenance of one commit of several assets of a step.

    Args:
        context: The output of one of them.
        tables: The table of each, by asset key.
        partition_keys: Partition keys of the run, sorted.
        branch: The branch that is written to, None for production.
        audits: Names of the audits of all of them.
    """
    assets = sorted(tables)
    facts = {**_facts_of_step(context), "assets": dict(tables), **_facts_of_rows(partition_keys, branch, audits)}
    subject = ", ".join(assets)
    return Provenance(
        commit_id=_commit_id(context, ["together", *assets, *partition_keys]),
        writer=subject,
        message=f"{subject} [{_span(partition_keys)}]" if partition_keys else subject,
        extra_info={"dagster": {name: fact for name, fact in facts.items() if fact is not None}},
    )


def _facts_of_step(context: dg.OutputContext) -> dict[str, Any]:
    step = _step(context)
    run = step.dagster_run if step else None
    return {
        "run_id": _run_id(context),
        "job": run.job_name if run else None,
        "step_key": _step_key(context),
        "code_location": run.remote_job_origin.location_name if run and run.remote_job_origin else None,
        "attempt": step.previous_attempt_count + 1 if step else None,
    }


def _facts_of_rows(partition_keys: Sequence[str], branch: str | None, audits: Sequence[str]) -> dict[str, Any]:
    keys = _bounded_keys(partition_keys) if branch is None else {"partition_keys": list(partition_keys)}
    return {"branch": branch, "audits": list(audits) or None, **keys}


def output_subject(context: dg.OutputContext) -> str:
    """Return the output's name for messages: the asset key, or step and output of an op."""
    return context.asset_key.to_user_string() if context.has_asset_key else f"{_step_key(context)}.{_output_name(context)}"


def writer_of(snapshot: Snapshot, table: str) -> str | None:
    """Return the asset, or the op's output, that wrote a commit's rows of a table, as in :attr:`Provenance.writer`; None when unknown."""
    facts = dagster_facts(snapshot)
    together = facts.get("assets")
    if isinstance(together, dict):
        return next((asset for asset, name in together.items() if folded(str(name)) == folded(table)), None)
    found = facts.get("asset_key") or facts.get("op_output")
    return found if isinstance(found, str) else None


def dagster_facts(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return metadata about the run that made a commit; empty when no run made it."""
    if not snapshot.extra_info:
        return {}
    try:
        facts = json.loads(snapshot.extra_info)
    except (ValueError, RecursionError):
        # Any client may store any string there, such as JSON that is nested too deeply for the parser.
        return {}
    found = facts.get("dagster") if isinstance(facts, dict) else None
    return found if isinstance(found, dict) else {}


def _output_name(context: dg.OutputContext) -> str:
    try:
        return context.name
    except dg.DagsterInvariantViolationError:
        # A context that a test builds without name=.
        return DEFAULT_OUTPUT


def _op_output(context: dg.OutputContext) -> str:
    """Return an op's output with its job; without the job inside a graph-backed asset, which any job may materialise."""
    step = _step(context)
    output = output_subject(context)
    return output if step is None or step.is_in_graph_asset else f"{step.job_name}:{output}"


def _step(context: dg.OutputContext) -> Any:
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        # A context that a test builds has no step.
        return None


def _run_id(context: dg.OutputContext) -> str | None:
    step = _step(context)
    return str(step.run_id) if step else None


def _step_key(context: dg.OutputContext) -> str:
    step = _step(context)
    return str(step.step.key) if step else "none"


def _commit_id(context: dg.OutputContext, what: Sequence[str]) -> str:
    step = _step(context)
    if step is None:
        return str(uuid.uuid4())
    run_id = materialising_run(step.instance, step.dagster_run, _step_key(context))
    parts = [run_id, _step_key(context), *what]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def materialising_run(instance: dg.DagsterInstance, run: dg.DagsterRun, step_key: str) -> str:
    """Return the run whose materialisation a step completes: an earlier one when this run retries or resumes it, otherwise this run.

    The earlier run may have been lost after its commit. Re-executing all steps, or one that succeeded, is a new materialisation.

    Args:
        instance: Instance that knows the runs.
        run: The run that executes the step.
        step_key: The step.
    """
    while run.parent_run_id is not None and (_is_automatic_retry(run) or _resumes(instance, run, step_key)):
        parent = instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            # The parent was deleted from the instance. Its commits still contain its id.
            return run.parent_run_id
        run = parent
    return run.run_id


def _is_automatic_retry(run: dg.DagsterRun) -> bool:
    return "dagster/retry_number" in run.tags


def _resumes(instance: dg.DagsterInstance, run: dg.DagsterRun, step_key: str) -> bool:
    """Return whether a run continues its parent at the point of failure, and the step had not succeeded there."""
    # The tag alone is not enough: a run of chosen steps has no tag and may still complete a failed step, and one with a tag may include a
    # step that had succeeded.
    tagged = any(run.tags.get(tag) == "true" for tag in ("dagster/is_resume_retry", "dagster/is_asset_resume_retry"))
    if run.parent_run_id is None or not (tagged or run.step_keys_to_execute):
        return False
    (*_, stats) = instance.get_run_step_stats(run.parent_run_id, step_keys=[step_key]) or (None,)
    return stats is None or stats.status is None or stats.status.value != "SUCCESS"


def _bounded_keys(keys: Sequence[str]) -> dict[str, Any]:
    if not keys:
        return {}
    if len(keys) <= _MAX_KEYS:
        return {"partition_keys": list(keys)}
    return {"partition_count": len(keys), "first_partition": keys[0], "last_partition": keys[-1]}


def _span(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{keys[0]}...{keys[-1]}, {len(keys)} partitions"
