"""Metadata keys that mean a setting but are spelled otherwise: passed over, an append would be an overwrite."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ducklake_core.errors import UsageError

_PREFIX = "ducklake/"
# Keys are near shorter settings by chance, as "tables" is near "table".
_SHORTEST_NEAR = 7
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
# A "mode" of another value is the user's own.
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
        meant = _meant(key, value, known)
        if meant:
            raise UsageError(
                f"{subject}: metadata key {key!r} is not read by DuckLakeIOManager: set {' and '.join(map(repr, meant))} instead, or, if "
                f"it means something else, give it a name with a prefix, such as 'team/{key}'",
                metadata=key,
            )


def _meant(key: str, value: object, known: Sequence[str]) -> Sequence[str]:
    """Settings that a key means, none when it is a key of the user's own."""
    same = [name for name in known if _letters(name.removeprefix(_PREFIX)) == _letters(key)]
    if same:
        return same
    is_mode = key == "mode" and isinstance(value, str) and value in _MODES
    elsewhere = ("write_mode",) if is_mode else _ELSEWHERE.get(key)
    if elsewhere is not None:
        return elsewhere if set(elsewhere) <= set(known) else ()
    return get_close_matches(key.lower(), [name for name in known if len(name) >= _SHORTEST_NEAR], n=1, cutoff=_NEAR)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
