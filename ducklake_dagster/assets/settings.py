"""Read settings of outputs and inputs from the metadata of a run, of an asset and of the IO manager."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

import dagster as dg

from ducklake_core.errors import UsageError

WriteMode: TypeAlias = Literal["overwrite", "append", "upsert", "merge", "error", "ignore"]
SchemaEvolution: TypeAlias = Literal["strict", "additive", "replace"]
WhenMatched: TypeAlias = Literal["update", "ignore", "delete"]
WhenNotMatched: TypeAlias = Literal["insert", "ignore"]
WhenNotMatchedBySource: TypeAlias = Literal["keep", "delete"]
Branches: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
OutOfSlice: TypeAlias = Literal["error", "filter"]
MissingColumns: TypeAlias = Literal["auto", "error", "null"]
ConcurrentAppends: TypeAlias = Literal["fail", "replace"]
_PREFIX = "ducklake/"
OUTPUT_KEYS = (
    "table", "schema", "partition_expr", "partition_by", "sort_by", "write_mode", "upsert_keys", "merge_keys", "merge_on", "when_matched",
    "when_not_matched", "when_not_matched_by_source", "delete_when", "schema_evolution", "missing_columns", "out_of_slice", "shared",
    "concurrent_appends", "audits",
)  # fmt: skip
"""Keys of an asset's metadata that the IO manager reads."""
_CHOICES: Mapping[str, Sequence[Any]] = {
    "write_mode": get_args(WriteMode),
    "when_matched": get_args(WhenMatched),
    "when_not_matched": get_args(WhenNotMatched),
    "when_not_matched_by_source": get_args(WhenNotMatchedBySource),
    "schema_evolution": get_args(SchemaEvolution),
    "missing_columns": get_args(MissingColumns),
    "out_of_slice": get_args(OutOfSlice),
    "shared": (True, False),
    "concurrent_appends": get_args(ConcurrentAppends),
}
_MERGE_KEYS = ("merge_keys", "merge_on", "when_matched", "when_not_matched", "when_not_matched_by_source", "delete_when")
# Actions of branches, by setting. A branch that is a mapping may also update rows that no row of the frame matches.
_ACTIONS: Mapping[str, Sequence[str]] = {
    "when_matched": get_args(WhenMatched),
    "when_not_matched": get_args(WhenNotMatched),
    "when_not_matched_by_source": (*get_args(WhenNotMatchedBySource), "update"),
}
_NO_CHANGE = ("ignore", "keep")

ChangesFrom: TypeAlias = Literal["last_materialization", "beginning"]
INPUT_KEYS = (
    "columns", "ducklake/where", "ducklake/snapshot", "ducklake/as_of", "ducklake/run_id", "ducklake/changes", "ducklake/production",
)  # fmt: skip
"""Keys of an input's metadata that the IO manager reads."""
_MOMENTS = ("ducklake/snapshot", "ducklake/as_of", "ducklake/run_id", "ducklake/changes")

# Shorter settings are not compared: a key such as "tables" may resemble "table" by chance.
_SHORTEST_NEAR = 7
_NEAR = 0.9
# Settings of dagster-deltalake, dagster-delta and dagster-iceberg, with the settings here that mean the same.
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
# Values of "mode" in these libraries. With another value, the key has another purpose.
_MODES = ("error", "append", "overwrite", "ignore", "merge", "create_or_replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBranch:
    """The action of a merge on the rows of a branch for which a condition is true.

    Attributes:
        action: ``update``, ``insert`` or ``delete``; ``ignore`` and ``keep`` leave the rows as they are.
        where: SQL condition on ``t.column`` and ``s.column``; None for all rows.
        values: SQL expression or constant by column of the table; None for the values of the frame.
    """

    action: str
    where: str | None = None
    values: Mapping[str, Any] | None = None

    @property
    def sql(self) -> str:
        """Return the SQL of the branch, which may name columns."""
        return " ".join([self.where or "", *(value for value in (self.values or {}).values() if isinstance(value, str))])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """Settings of a merge: actions on matched and unmatched rows of the frame and of the table.

    For each row, the first branch of its list whose condition is true is used.

    Attributes:
        keys: Columns that are compared to match rows.
        on: SQL condition that matches rows, in place of ``keys``.
        matched: Branches for rows of the table that match a row of the frame.
        not_matched: Branches for rows of the frame without a match.
        not_matched_by_source: Branches for rows of the run's partitions of the table without a match in the frame.
        delete_when: SQL condition on the frame's columns as ``s.column``, such as ``"s.op = 'D'"``. Matched rows for which it is true
            are deleted, and unmatched rows are not inserted. Its columns that the table does not have are not written.
    """

    keys: tuple[str, ...]
    on: str | None = None
    matched: tuple[MergeBranch, ...] = (MergeBranch(action="update"),)
    not_matched: tuple[MergeBranch, ...] = (MergeBranch(action="insert"),)
    not_matched_by_source: tuple[MergeBranch, ...] = ()
    delete_when: str | None = None

    @property
    def branches(self) -> tuple[MergeBranch, ...]:
        """Return all branches."""
        return (*self.matched, *self.not_matched, *self.not_matched_by_source)

    @property
    def inserts_frame(self) -> bool:
        """Return whether new rows have the columns of the frame."""
        return any(branch.action == "insert" and branch.values is None for branch in self.not_matched)

    @property
    def writes_frame(self) -> bool:
        """Return whether a branch writes all columns of the frame."""
        return any(branch.action in ("insert", "update") and branch.values is None for branch in self.branches)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """Settings of one write.

    Attributes:
        write_mode: ``overwrite`` replaces the run's partitions (or the table), ``append`` adds rows,
            ``upsert`` replaces rows with equal keys, ``merge`` follows the settings in ``merge``, ``error`` writes only if the table
            does not exist (or has no rows in the run's partitions), ``ignore`` then skips the write, without an error.
        upsert_keys: Key columns of an upsert.
        merge: Settings of a merge, None for other modes.
        partition_by: Partition keys of the table: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. If the table has other keys,
            the same commit changes them for new files. Empty keeps the keys of the table.
        sort_by: Sort order of new files, ``"day"``, ``"amount DESC"``; it changes in the same way as ``partition_by``.
        schema_evolution: ``strict`` rejects new columns and wider types, ``additive`` adds them to the table in the same commit,
            ``replace`` replaces the table's columns and types by the frame's: for overwrites of whole tables.
        missing_columns: Treatment of columns without a default that the frame lacks: ``error`` fails the step, ``null`` writes NULL to
            new rows and warns, ``auto`` means ``error`` with ``strict`` and ``null`` with ``additive``.
        out_of_slice: Treatment of rows outside of the run's partitions: ``error`` fails the step, ``filter`` leaves them out.
        shared: Whether an overwrite may replace rows that another asset wrote.
        concurrent_appends: Treatment of rows that another writer commits to the run's partitions during an overwrite: ``fail`` fails the
            step with a conflict, ``replace`` deletes these rows, too.
    """

    write_mode: WriteMode = "overwrite"
    upsert_keys: tuple[str, ...] = ()
    merge: MergeSettings | None = None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    schema_evolution: SchemaEvolution = "strict"
    missing_columns: MissingColumns = "auto"
    out_of_slice: OutOfSlice = "error"
    shared: bool = False
    concurrent_appends: ConcurrentAppends = "fail"

    @property
    def rejects_missing_columns(self) -> bool:
        """Return whether a frame that lacks columns without a default fails the step, because its rows would have NULL there."""
        # A merge that does not insert rows of the frame makes no new rows, or makes them of values that the asset sets.
        if self.merge is not None and not self.merge.inserts_frame:
            return False
        if self.missing_columns == "auto":
            return self.schema_evolution == "strict"
        return self.missing_columns == "error"

    @property
    def replaces_rows(self) -> bool:
        """Return whether the write deletes rows that are not in the frame: an overwrite, or a merge that deletes by source."""
        by_source = self.merge.not_matched_by_source if self.merge is not None else ()
        return self.overwrites or any(branch.action == "delete" for branch in by_source)

    @property
    def overwrites(self) -> bool:
        """Return whether the write is an overwrite, which may first check that there is nothing to replace."""
        return self.write_mode in ("overwrite", "error", "ignore")

    @property
    def needs_absence(self) -> bool:
        """Return whether rows are written only where there are none."""
        return self.write_mode in ("error", "ignore")


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without Dagster's wrappers, so that definition metadata and run-time metadata compare equal."""
    return {key: value.value if isinstance(value, dg.MetadataValue) else value for key, value in metadata.items()}


def reject_unknown_keys(metadata: Mapping[str, Any], known: Sequence[str], subject: str) -> None:
    """Reject keys of definition metadata that are misspelled settings of this library.

    Args:
        metadata: Metadata of an asset or an input.
        known: Keys that it may have; unknown keys without the prefix belong to other libraries.
        subject: The asset or input for messages, as in ``asset orders``.

    Raises:
        UsageError: A key that begins with ``ducklake/`` is not known, or a key is another spelling of a setting.
    """
    reject_other_spellings(metadata, known, subject)
    for key in metadata:
        if key.lower().startswith(_PREFIX) and key not in known:
            plain = {name.removeprefix(_PREFIX): name for name in known}
            near = get_close_matches(key.lower().removeprefix(_PREFIX), plain, n=2)
            hint = f" (did you mean {' or '.join(repr(plain[name]) for name in near)}?)" if near else ""
            raise UsageError(
                f"{subject}: unknown metadata key {key!r}{hint}. Keys of DuckLakeIOManager are {', '.join(known)}", metadata=key
            )


def about_settings(subject: str) -> str:
    """Return what messages about settings begin with: the asset, or the call that makes them before they belong to one."""
    return subject if subject == "ducklake_metadata" else f"asset {subject}"


def reject_wrong_choices(metadata: Mapping[str, Any], subject: str) -> None:
    """Reject values of settings that have a fixed set of values.

    Raises:
        UsageError: A value is not in the set.
    """
    for key in _CHOICES:
        if key in metadata:
            _branches(metadata, key, "", subject) if key in _ACTIONS else _choice(metadata, key, None, subject)


def reject_prefixed_settings(run_time: Mapping[str, Any], subject: str) -> None:
    """Reject run-time settings with the prefix of facts about a commit: they would be shown as facts and change nothing.

    Raises:
        UsageError: Run-time metadata has a key such as ``ducklake/write_mode``, or another spelling of a setting.
    """
    reject_other_spellings(run_time, OUTPUT_KEYS, f"asset {subject}")
    for key in run_time:
        setting = key.lower().removeprefix(_PREFIX)
        if setting != key.lower() and setting in OUTPUT_KEYS:
            raise UsageError(
                f"asset {subject} adds {key!r} to its output metadata, but settings have no prefix. Use {setting!r}", metadata=key
            )


def resolve_settings(defaults: WriteSettings, *layers: Mapping[str, Any], subject: str) -> WriteSettings:
    """Return the settings after all layers of metadata; later layers win.

    >>> resolve_settings(WriteSettings(), {"write_mode": "append"}, {"write_mode": "upsert", "upsert_keys": ["id"]}, subject="a").write_mode
    'upsert'

    Raises:
        UsageError: A setting has an invalid value, an upsert or a merge has no keys, the metadata has settings of a merge for another
            mode, or schema_evolution is ``replace`` and the write is not an overwrite.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    mode = _choice(merged, "write_mode", defaults.write_mode, subject)
    settings = WriteSettings(
        write_mode=mode,
        merge=_merge(merged, subject) if mode == "merge" else None,
        sort_by=_names(merged, "sort_by", defaults.sort_by, subject),
        upsert_keys=_names(merged, "upsert_keys", defaults.upsert_keys, subject),
        partition_by=_names(merged, "partition_by", defaults.partition_by, subject),
        schema_evolution=_choice(merged, "schema_evolution", defaults.schema_evolution, subject),
        missing_columns=_choice(merged, "missing_columns", defaults.missing_columns, subject),
        out_of_slice=_choice(merged, "out_of_slice", defaults.out_of_slice, subject),
        shared=_choice(merged, "shared", defaults.shared, subject),
        concurrent_appends=_choice(merged, "concurrent_appends", defaults.concurrent_appends, subject),
    )
    if settings.write_mode == "upsert" and not settings.upsert_keys:
        raise UsageError(f"asset {subject} has write_mode 'upsert' but no upsert_keys. Set upsert_keys to the key columns", asset=subject)
    # Run-time metadata may switch a merging asset to another mode for one run. Its merge settings are then unused, which is not an error.
    given = [key for key in _MERGE_KEYS if merged.get(key) is not None]
    if given and mode != "merge" and not any("write_mode" in layer for layer in layers[1:]):
        raise UsageError(f"asset {subject} has write_mode {mode!r}, but {', '.join(given)} need write_mode 'merge'", asset=subject)
    if settings.schema_evolution == "replace" and mode != "overwrite":
        raise UsageError(
            f"asset {subject} has write_mode {mode!r}, but schema_evolution 'replace' needs write_mode 'overwrite'", asset=subject
        )
    return settings


def reject_replaced_columns(settings: WriteSettings, *, partitioned: bool, subject: str) -> None:
    """Reject the replacement of a partitioned asset's columns: rows of other partitions would lose their values.

    Raises:
        UsageError: The settings replace columns of a partitioned asset.
    """
    if partitioned and settings.schema_evolution == "replace":
        raise UsageError(
            f"asset {subject} is partitioned, so schema_evolution 'replace' would drop columns of rows in other partitions. Use "
            "'additive', or change the table with lake.table(...)",
            asset=subject,
        )


def _merge(metadata: Mapping[str, Any], subject: str) -> MergeSettings:
    keys = _names(metadata, "merge_keys", (), subject)
    on = metadata.get("merge_on")
    if on is not None and (not isinstance(on, str) or not on.strip()):
        raise UsageError(f"asset {subject}: merge_on must be a SQL condition such as 't.id = s.id', not {on!r}", asset=subject)
    if keys and on is not None:
        raise UsageError(f"asset {subject} has merge_keys and merge_on. Set only one of them", asset=subject)
    if not keys and on is None:
        raise UsageError(
            f"asset {subject} has write_mode 'merge' but no merge_keys. Set merge_keys to the columns that identify a row, or merge_on to "
            "a condition such as 't.id = s.id'",
            asset=subject,
        )
    condition = metadata.get("delete_when")
    if condition is not None and (not isinstance(condition, str) or not condition.strip()):
        raise UsageError(f"asset {subject}: delete_when must be a SQL condition on columns such as s.op, not {condition!r}", asset=subject)
    settings = MergeSettings(
        keys=keys,
        on=on,
        matched=_branches(metadata, "when_matched", "update", subject),
        not_matched=_branches(metadata, "when_not_matched", "insert", subject),
        not_matched_by_source=_branches(metadata, "when_not_matched_by_source", "keep", subject),
        delete_when=condition,
    )
    if condition is None and all(branch.action in _NO_CHANGE for branch in settings.branches):
        raise UsageError(
            f"asset {subject}: the merge would change nothing, because every action is ignore or keep. Change one of them", asset=subject
        )
    return settings


def _branches(metadata: Mapping[str, Any], key: str, default: str, subject: str) -> tuple[MergeBranch, ...]:
    """Return the branches of a setting: an action, a mapping of action, where and set, or a list of them."""
    given = metadata.get(key, default)
    if isinstance(given, str):
        return (MergeBranch(action=_choice(metadata, key, default, subject)),)
    parts = list(given) if isinstance(given, Sequence) else [given]
    return tuple(_branch(part if isinstance(part, Mapping) else {"action": part}, key, subject) for part in parts)


def _branch(given: Mapping[str, Any], key: str, subject: str) -> MergeBranch:
    about = about_settings(subject)
    action, where, values = given.get("action"), given.get("where"), given.get("set")
    if unknown := [name for name in given if name not in ("action", "where", "set")]:
        raise UsageError(f"{about}: {key} has unknown key {unknown[0]!r}. Its keys are action, where and set", asset=subject)
    if action not in _ACTIONS[key]:
        raise UsageError(f"{about}: {key} must be one of {', '.join(_ACTIONS[key])}, not {action!r}", asset=subject)
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise UsageError(f"{about}: where of {key} must be a SQL condition such as 's.at > t.at', not {where!r}", asset=subject)
    if values is not None and (not isinstance(values, Mapping) or not values or action not in ("update", "insert")):
        raise UsageError(
            f"{about}: set of {key} must be a mapping of columns to SQL expressions, for action update or insert, not {values!r}",
            asset=subject,
        )
    if values is None and action == "update" and key == "when_not_matched_by_source":
        raise UsageError(f"{about}: {key} with action update needs set, because these rows have no row of the frame", asset=subject)
    return MergeBranch(action=str(action), where=where, values=dict(values) if values is not None else None)


def _choice(metadata: Mapping[str, Any], key: str, default: Any, subject: str) -> Any:
    value, allowed = metadata.get(key, default), _CHOICES[key]
    if value not in allowed:
        raise UsageError(f"{about_settings(subject)}: {key} must be one of {', '.join(map(str, allowed))}, not {value!r}", asset=subject)
    return value


def _names(metadata: Mapping[str, Any], key: str, default: tuple[str, ...], subject: str) -> tuple[str, ...]:
    return name_list(f"asset {subject}: {key}", metadata.get(key, default))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """Settings of one input.

    Attributes:
        columns: Columns to load, None for all.
        where: The input's own condition, None for none.
        snapshot: Id of the snapshot to read, None for the newest.
        as_of: Time to read at: the last snapshot at or before it. None for now.
        run_id: Id of the run whose materialisation of the upstream asset is read; None for no specific run.
        changes: Load changes instead of rows: since the point that the asset's last materialisation read, or from the beginning.
        production: Whether to read production even if the branch has the table.
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
        """Return whether the metadata selects the snapshot to read."""
        return self.snapshot is not None or self.as_of is not None or self.run_id is not None


def about_input(subject: str) -> str:
    """Return what messages about settings begin with: the input, or the call that makes them before they belong to one."""
    return subject if subject == "ducklake_input" else f"input {subject}"


def _key(key: str, subject: str) -> str:
    """Return a key of metadata, or the argument of the call that sets it."""
    return key.removeprefix(_PREFIX) if subject == "ducklake_input" else f"metadata {key!r}"


def input_settings(metadata: Mapping[str, Any], subject: str) -> InputSettings:
    """Read an input's metadata; the caller rejects unknown keys.

    Raises:
        UsageError: A value is invalid, or two keys select a snapshot.
    """
    moments = [key for key in _MOMENTS if metadata.get(key) is not None]
    if len(moments) > 1:
        both = " and ".join(_key(one, subject) for one in moments)
        raise UsageError(f"{about_input(subject)}: {both} both select the snapshot to read. Keep one of them", input=subject)
    changes = metadata.get("ducklake/changes")
    if changes is not None and changes not in get_args(ChangesFrom):
        choices = " or ".join(map(repr, get_args(ChangesFrom)))
        raise UsageError(f"{about_input(subject)}: {_key('ducklake/changes', subject)} must be {choices}, not {changes!r}", input=subject)
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
            f"{about_input(subject)}: {_key('ducklake/as_of', subject)} must be a time with a zone, such as '2026-03-01T00:00:00+00:00', "
            f"not {value!r}",
            input=subject,
        )
    return found


def _typed(metadata: Mapping[str, Any], key: str, kind: type, what: str, subject: str) -> Any:
    value = metadata.get(key)
    # bool is a subclass of int: True must not count as snapshot 1.
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise UsageError(f"{about_input(subject)}: {_key(key, subject)} must be {what}, not {value!r}", input=subject)
    return value


def _columns(metadata: Mapping[str, Any], subject: str) -> tuple[str, ...] | None:
    columns = metadata.get("columns")
    if columns is None:
        return None
    if not isinstance(columns, Sequence) or isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"input {subject}: metadata 'columns' must be a list of names, not {columns!r}", input=subject)
    return tuple(columns)


def reject_other_spellings(metadata: Mapping[str, Any], known: Sequence[str], subject: str) -> None:
    """Reject keys that IO managers of other libraries read for the same purpose, and keys with a typing error.

    Args:
        metadata: Metadata of an asset, a run's output or an input.
        known: Keys that are read.
        subject: The asset or input for messages, as in ``asset orders``.

    Raises:
        UsageError: There is such a key; the message contains the right key.
    """
    for key, value in metadata.items():
        if key in known or "/" in key:
            continue
        meant = _meant(key, value, known)
        if meant:
            raise UsageError(
                f"{subject}: DuckLakeIOManager does not read metadata key {key!r}. Use {' and '.join(map(repr, meant))}. If the key has "
                f"another purpose, add a prefix to its name, such as 'team/{key}'",
                metadata=key,
            )


def _meant(key: str, value: object, known: Sequence[str]) -> Sequence[str]:
    """Return the settings that correspond to a key; none when the key has another purpose."""
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


def name_list(what: str, value: object) -> tuple[str, ...]:
    """Return a list of names; a string is one name.

    >>> name_list("tables", "a"), name_list("tables", ["a", "b"])
    (('a',), ('a', 'b'))

    Raises:
        UsageError: The value is neither a name nor a list of names.
    """
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or not all(isinstance(name, str) and name for name in found):
        raise UsageError(f"{what} must be a name or a list of names, not {value!r}", parameter=what)
    return tuple(found)
