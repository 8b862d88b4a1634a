"""What an input's metadata asks for: which columns and rows, and of which moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from ducklake_core.errors import UsageError
from ducklake_dagster.naming import name_list

ChangesFrom: TypeAlias = Literal["last_materialization", "beginning"]
INPUT_KEYS = (
    "columns", "ducklake/where", "ducklake/snapshot", "ducklake/as_of", "ducklake/run_id", "ducklake/changes", "ducklake/production",
)  # fmt: skip
"""Keys of an input's metadata that the IO manager reads."""
_MOMENTS = ("ducklake/snapshot", "ducklake/as_of", "ducklake/run_id", "ducklake/changes")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """One input's metadata.

    Attributes:
        columns: Columns to load, None for all.
        where: The input's own condition, None for none.
        snapshot: Snapshot to read.
        as_of: Time to read at: the last snapshot at or before it.
        run_id: Run whose materialisation of the upstream asset is read, as it was.
        changes: Load what changed instead of the rows: since what the asset's last materialisation read, or from the beginning.
        production: Read production whatever the branch has.
    """

    columns: tuple[str, ...] | None = None
    where: str | None = None
    snapshot: int | None = None
    as_of: datetime | None = None
    run_id: str | None = None
    changes: ChangesFrom | None = None
    production: bool = False

    @property
    def names_a_moment(self) -> bool:
        """Whether the metadata says itself which snapshot is read."""
        return self.snapshot is not None or self.as_of is not None or self.run_id is not None


def ducklake_input(
    *,
    columns: str | Sequence[str] = (),
    where: str | None = None,
    snapshot: int | None = None,
    as_of: datetime | str | None = None,
    run_id: str | None = None,
    changes: ChangesFrom | None = None,
    production: bool | None = None,
) -> dict[str, Any]:
    """Metadata of an input, ``AssetIn(metadata=ducklake_input(...))``, spelled as :class:`DuckLakeIOManager` reads it.

    At most one of ``snapshot``, ``as_of``, ``run_id`` and ``changes`` may be given; the newest rows are read without them.

    Args:
        columns: Columns to load; all when empty.
        where: Condition on rows, SQL in DuckDB's dialect; beside the partitions at hand.
        snapshot: Snapshot to read.
        as_of: Time with a zone, or its text in ISO 8601: the last snapshot at or before it is read.
        run_id: Run of this Dagster instance that materialised the upstream asset: its table is read as that run left it.
        changes: Load changes in place of rows, with the columns ``snapshot_id``, ``rowid`` and ``change_type`` before the table's:
            ``last_materialization`` for those since what the last materialisation of this asset read (all rows, as inserts, the first
            time), ``beginning`` for all rows as inserts.
        production: Read production, whatever the manager's branch has.

    Raises:
        UsageError: Two moments, or a time without a zone.
    """
    settings = {
        "columns": list(name_list("columns", columns)) or None,
        "ducklake/where": where,
        "ducklake/snapshot": snapshot,
        "ducklake/as_of": as_of.isoformat() if isinstance(as_of, datetime) else as_of,
        "ducklake/run_id": run_id,
        "ducklake/changes": changes,
        "ducklake/production": production,
    }
    found = {name: value for name, value in settings.items() if value is not None}
    input_settings(found, "ducklake_input")
    return found


def input_settings(metadata: Mapping[str, Any], subject: str) -> InputSettings:
    """Read an input's metadata; keys that are not known are the caller's to refuse.

    Raises:
        UsageError: A value that cannot be, or two keys that name a moment.
    """
    moments = [key for key in _MOMENTS if metadata.get(key) is not None]
    if len(moments) > 1:
        raise UsageError(f"input {subject}: {' and '.join(moments)} each say which moment is read: leave all but one out", input=subject)
    changes = metadata.get("ducklake/changes")
    if changes is not None and changes not in get_args(ChangesFrom):
        choices = " or ".join(map(repr, get_args(ChangesFrom)))
        raise UsageError(f"input {subject}: metadata 'ducklake/changes' must be {choices}, not {changes!r}", input=subject)
    return InputSettings(
        columns=_columns(metadata, subject),
        where=_typed(metadata, "ducklake/where", str, "SQL text", subject),
        snapshot=_typed(metadata, "ducklake/snapshot", int, "a snapshot id", subject),
        as_of=_time(metadata, subject),
        run_id=_typed(metadata, "ducklake/run_id", str, "the id of a run", subject),
        changes=changes,
        production=bool(_typed(metadata, "ducklake/production", bool, "True or False", subject)),
    )


def _time(metadata: Mapping[str, Any], subject: str) -> datetime | None:
    value = metadata.get("ducklake/as_of")
    if value is None:
        return None
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(
            f"input {subject}: metadata 'ducklake/as_of' must be a time with a zone, such as '2026-03-01T00:00:00+00:00', not {value!r}",
            input=subject,
        )
    return found


def _typed(metadata: Mapping[str, Any], key: str, kind: type, what: str, subject: str) -> Any:
    value = metadata.get(key)
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise UsageError(f"input {subject}: metadata {key!r} must be {what}, not {value!r}", input=subject)
    return value


def _columns(metadata: Mapping[str, Any], subject: str) -> tuple[str, ...] | None:
    columns = metadata.get("columns")
    if columns is None:
        return None
    if not isinstance(columns, Sequence) or isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"input {subject}: metadata 'columns' must be a list of names, not {columns!r}", input=subject)
    return tuple(columns)
