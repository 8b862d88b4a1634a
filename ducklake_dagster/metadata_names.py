"""Metadata keys that mean a setting but are spelled otherwise: passed over, an append would be an overwrite."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ducklake_core.errors import UsageError

_PREFIX = "ducklake/"
# Shorter keys, such as "tables", are near a setting by chance.
_SHORTEST_NEAR = {"asset": 8, "input": 6}
_NEAR = 0.9
# In dagster-deltalake, dagster-delta and dagster-iceberg.
_ELSEWHERE: Mapping[str, Sequence[str]] = {
    "root_name": ("table",),
    "schema_mode": ("schema_evolution",),
    "overwrite_schema": ("schema_evolution",),
    "schema_update_mode": ("schema_evolution",),
    "partition_spec_update_mode": ("partition_by",),
    "upsert_options": ("upsert_keys",),
    "merge_config": ("write_mode", "merge_keys"),
    "partition_expression": ("partition_expr",),
}
_MODES = ("error", "append", "overwrite", "ignore", "merge", "create_or_replace")


def refuse_other_spellings(metadata: Mapping[str, Any], known: Sequence[str], subject: str) -> None:
    """Refuse keys that another library's IO manager reads in place of one of these, and keys that differ from one by a slip.

    Args:
        metadata: Of an asset, a run's output or an input.
        known: Keys that are read.
        subject: What it is about, as in ``asset orders``.

    Raises:
        UsageError: There is one; the message says which key is meant.
    """
    for key, value in metadata.items():
        if key in known or "/" in key:
            continue
        meant = _meant(key, value, known, _SHORTEST_NEAR.get(subject.partition(" ")[0], 8))
        if meant:
            raise UsageError(
                f"{subject}: metadata key {key!r} is not read by DuckLakeIOManager: set {' and '.join(map(repr, meant))} instead, or, if "
                f"it means something else, give it a name with a prefix, such as 'team/{key}'",
                metadata=key,
            )


def _meant(key: str, value: object, known: Sequence[str], shortest: int) -> Sequence[str]:
    same = [name for name in known if _letters(name.removeprefix(_PREFIX)) == _letters(key)]
    if same:
        return same
    if key in _ELSEWHERE or (key == "mode" and value in _MODES):
        found = _ELSEWHERE.get(key, ("write_mode",))
        return found if set(found) <= set(known) else ()
    return get_close_matches(key.lower(), known, n=1, cutoff=_NEAR) if len(key) >= shortest else ()


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
