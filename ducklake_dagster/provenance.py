"""Who committed: what every commit of ours says about the run that made it, and how a commit made by a run is recognised."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from ducklake_core import Snapshot

AUTHOR = "dagster"
_MOST_KEYS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a commit says about itself.

    Attributes:
        commit_id: Same for every attempt of a step in a run and its automatic retries, so that a retried step commits once;
            another one for every deliberate materialisation.
        message: Asset key and partitions.
        extra_info: JSON object under ``dagster``, stored in ``commit_extra_info``.
    """

    commit_id: str
    message: str
    extra_info: Mapping[str, Any]


def provenance(context: dg.OutputContext, partition_keys: Sequence[str]) -> Provenance:
    """What the commit of this output says."""
    subject = output_subject(context)
    step = _step(context)
    run = step.dagster_run if step else None
    facts: dict[str, Any] = {
        "run_id": _run_id(context),
        "job": run.job_name if run else None,
        "step_key": _step_key(context),
        "output": context.name,
        "asset_key": context.asset_key.to_user_string() if context.has_asset_key else None,
        "code_location": run.remote_job_origin.location_name if run and run.remote_job_origin else None,
        "attempt": step.previous_attempt_count + 1 if step else None,
        **_bounded_keys(partition_keys),
    }
    return Provenance(
        commit_id=_commit_id(context, partition_keys),
        message=f"{subject} [{_span(partition_keys)}]" if partition_keys else subject,
        extra_info={"dagster": {name: fact for name, fact in facts.items() if fact is not None}},
    )


def output_subject(context: dg.OutputContext) -> str:
    """The output's name for messages: the asset key, or step and output of an op."""
    return context.asset_key.to_user_string() if context.has_asset_key else f"{_step_key(context)}.{context.name}"


def dagster_facts(snapshot: Snapshot) -> Mapping[str, Any]:
    """What a commit says about the run that made it; empty when no run made it."""
    try:
        facts = json.loads(snapshot.extra_info or "{}")
    except ValueError:
        return {}
    found = facts.get("dagster") if isinstance(facts, dict) else None
    return found if isinstance(found, dict) else {}


def _step(context: dg.OutputContext) -> Any:
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        # A context made by hand, for a test, has no step.
        return None


def _run_id(context: dg.OutputContext) -> str | None:
    step = _step(context)
    return str(step.run_id) if step else None


def _step_key(context: dg.OutputContext) -> str:
    step = _step(context)
    return str(step.step.key) if step else "none"


def _commit_id(context: dg.OutputContext, partition_keys: Sequence[str]) -> str:
    step = _step(context)
    if step is None:
        return str(uuid.uuid4())
    run = step.dagster_run
    # A run that Dagster retries by itself is another run of the same root; a re-execution that a person asks for has no retry
    # number and means a new materialisation.
    run_id = run.root_run_id if run.root_run_id and "dagster/retry_number" in run.tags else run.run_id
    parts = [run_id, _step_key(context), context.name, context.mapping_key or "", *partition_keys]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _bounded_keys(keys: Sequence[str]) -> dict[str, Any]:
    if not keys:
        return {}
    if len(keys) <= _MOST_KEYS:
        return {"partition_keys": list(keys)}
    return {"partition_count": len(keys), "first_partition": keys[0], "last_partition": keys[-1]}


def _span(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{keys[0]}...{keys[-1]}, {len(keys)} partitions"
