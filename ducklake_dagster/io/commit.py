"""Write one output as one commit, and protect rows that another asset wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ducklake_core import folded
from ducklake_core.errors import NotFoundError, SchemaError, UsageError
from ducklake_dagster.assets.provenance import AUTHOR, WRITERS, dagster_facts, writer_of
from ducklake_dagster.assets.settings import MergeBranch, MergeSettings, WriteSettings
from ducklake_dagster.assets.tables import Comment, TableAddress
from ducklake_dagster.partitions.predicates import ANYWHERE, SliceBounds, SlicePredicate, read_bounds

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Schema, Snapshot, Table, Transaction, WriteResult


REPLACED_MEANWHILE = "ducklake/replaced_meanwhile"
# A commit of Pipes has no record of earlier writers. Number of commits that are read first to find a record; without one, all are read.
_FEW_COMMITS = 100
# Maximum number of writers in a record. With more, bounds of their rows are not recorded, and every overwrite is rejected.
_MAX_WRITERS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOutput:
    """A commit, and notes about it for the metadata of the event."""

    result: WriteResult
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCommit:
    """The content of one commit: rows, layout, comments and provenance.

    Attributes:
        address: The table.
        frame: Rows; ``columns`` are its columns.
        table: The table as it was before, None when the commit creates it.
        predicate: The run's slice, None for all of the table.
        comments: Comments that differ from those of the table.
        writer: The asset, or the op's output.
        rows: Bounds of the rows that the commit writes.
        writers: The record of assets that may have rows in the table after this commit.
        commit: Author, message, extra_info (which contains ``writers``) and commit id.
    """

    address: TableAddress
    frame: Any
    columns: Schema
    settings: WriteSettings
    table: Table | None
    predicate: SlicePredicate | None
    creates_nothing: bool = False
    comments: Sequence[Comment]
    writer: str
    rows: SliceBounds
    writers: Mapping[str, Any]
    commit: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the table's name as SQL."""
        return self.address.sql

    def run(self, lake: DuckLake, look: Callable[[Transaction], None] | None = None) -> WrittenOutput:
        """Commit it, or find the commit that an earlier attempt made.

        Args:
            lake: The lake.
            look: Called with the transaction when everything is staged; an error that it raises ends the write without a commit.

        Raises:
            SchemaError: Frame and table do not fit.
            UsageError: A setting does not fit the table, or a row lies outside of the slice.
        """
        result = self._committed(lake, look)
        return (
            WrittenOutput(result=result, notes=self._notes_of_repeated(lake, result.snapshot)) if result.repeated else self.written(result)
        )

    def written(self, result: WriteResult) -> WrittenOutput:
        """Return the outcome of a commit of this attempt."""
        notes = self._notes()
        if self.table is not None and self.settings.replaces_rows and not self.settings.shared:
            others = replaced_meanwhile(self.table, self.address, self.writer, self.rows, result.snapshot_id)
            notes |= {REPLACED_MEANWHILE: ", ".join(others)} if others else {}
        return WrittenOutput(result=result, notes=notes)

    def repeated(self, lake: DuckLake, snapshot: Snapshot) -> WrittenOutput:
        """Return the outcome of a commit that an earlier attempt made."""
        return WrittenOutput(result=self._unwritten(snapshot), notes=self._notes_of_repeated(lake, snapshot))

    def _notes_of_repeated(self, lake: DuckLake, snapshot: Snapshot) -> dict[str, Any]:
        # Compare with the table before that commit: the newest table already contains the changes.
        before = replace(self, table=self._table_before(lake, snapshot))
        return before._notes()  # noqa: SLF001 - an object of this class

    def _committed(self, lake: DuckLake, look: Callable[[Transaction], None] | None) -> WriteResult:
        changes = [*self._layout_changes(), *self._replaced()]
        # A plain write commits by itself. Audits, and changes of layout, columns or comments, must be in the same snapshot as the rows.
        is_one_write = self.creates_nothing or (self.settings.merge is None and not (changes or self.comments or self._makes_sorted_table))
        if is_one_write and look is None:
            return lake.write(self.name, self.frame, **self._how, **self.commit)
        with lake.transaction(**self.commit) as tx:
            if tx.repeated is None:
                self.stage(tx)
                if look is not None:
                    look(tx)
            elif self.settings.merge is not None:
                # Rejects a commit id under which something else was done.
                self._merge(tx, self.settings.merge)
        return tx.result.writes[0] if tx.repeated is None else self._repeated(lake, tx.repeated)

    def _notes(self) -> dict[str, Any]:
        """Return a description of changes to the table's layout and columns."""
        notes: dict[str, Any] = {}
        if layout := list(self._layout_changes()):
            notes["ducklake/layout_change"] = "; ".join(layout)
        if replaced := self._replaced():
            notes["ducklake/replaced_columns"] = "\n".join(replaced)
        return notes

    def _table_before(self, lake: DuckLake, snapshot: Snapshot) -> Table | None:
        """Return the table before a commit; None when the commit created it, or the snapshot before it was expired."""
        try:
            return lake.table(self.name, at=snapshot.id - 1)
        except NotFoundError:
            return None

    def _repeated(self, lake: DuckLake, snapshot: Snapshot) -> WriteResult:
        """Return the result of a commit that an earlier attempt made."""
        if self.settings.merge is None:
            return lake.write(self.name, self.frame, **self._how, **self.commit)
        return self._unwritten(snapshot)

    def _unwritten(self, snapshot: Snapshot) -> WriteResult:
        from ducklake_core import WriteResult

        table_id = self.table.state.id if self.table is not None else 0
        return WriteResult(table=self.address.sql, table_id=table_id, snapshot=snapshot, repeated=True)

    def stage(self, tx: Transaction) -> None:
        """Stage everything in an open transaction.

        Raises:
            SchemaError: Frame and table do not fit.
            UsageError: A setting does not fit the table, or a row lies outside of the slice.
        """
        settings = self.settings
        if self.creates_nothing:
            tx.write(self.name, self.frame, **self._how)
            return
        if self.table is None and (self._makes_sorted_table or settings.merge is not None):
            self._create(tx)
        if self.table is not None:
            self._replace_columns(tx, self.table)
            if _differ(settings.partition_by, self.table.info().partition_by):
                tx.set_partitioned_by(self.name, settings.partition_by)
            if _differ(settings.sort_by, _sort_keys(self.table)):
                tx.set_sorted_by(self.name, settings.sort_by)
        if settings.merge is not None:
            if self.table is not None:
                self._evolve(tx, self.table, self._flags(self.table))
            self._merge(tx, settings.merge)
        else:
            tx.write(self.name, self.frame, **self._how)
        for comment in self.comments:
            tx.set_comment(self.name, comment.text, column=comment.column)

    @property
    def _how(self) -> dict[str, Any]:
        if self.creates_nothing:
            return {"mode": "append"}
        mode, predicate = "overwrite" if self.settings.overwrites else self.settings.write_mode, self.predicate
        evolution = self.settings.schema_evolution
        return {
            "mode": mode,
            # The slice is the condition of the overwrite: it deletes these rows, and rejects rows of the frame outside of it.
            "where": predicate.to_condition() if predicate and mode == "overwrite" else None,
            "concurrent_appends": self.settings.concurrent_appends if mode == "overwrite" else None,
            # The check of writers covers only rows up to this snapshot; concurrent_appends decides about later ones.
            "read_at": self.table.snapshot_id if mode == "overwrite" and self.table is not None else None,
            "on": self.settings.upsert_keys if mode == "upsert" else (),
            "partition_by": self.settings.partition_by if self.table is None and not self._makes_sorted_table else (),
            "schema_evolution": "additive" if evolution == "replace" else evolution,
            "missing_columns": "error" if self.settings.rejects_missing_columns else "null",
        }

    @property
    def _makes_sorted_table(self) -> bool:
        return self.table is None and bool(self.settings.sort_by)

    def _create(self, tx: Transaction) -> None:
        from ducklake_core import Schema, dotted, split_path

        around = split_path(self.address.schema)
        for depth in range(1, len(around) + 1):
            tx.create_schema(dotted(around[:depth]), if_not_exists=True)
        left_out = self._flags(None)
        columns = Schema(columns=tuple(column for column in self.columns if column.name not in left_out))
        tx.create_table(self.name, columns, partition_by=self.settings.partition_by)
        if self.settings.sort_by:
            tx.set_sorted_by(self.name, self.settings.sort_by)

    def _layout_changes(self) -> Iterator[str]:
        """Yield descriptions of the differences between the layouts of the asset and the table; none when the asset declares no layout."""
        if self.table is None:
            return
        stays = "existing files keep their layout"
        partitions, order = self.table.info().partition_by, _sort_keys(self.table)
        if _differ(self.settings.partition_by, partitions):
            yield f"partitioned by {', '.join(self.settings.partition_by)}, was by {', '.join(partitions) or 'nothing'}; {stays}"
        if _differ(self.settings.sort_by, order):
            yield f"sorted by {', '.join(self.settings.sort_by)}, was by {', '.join(order) or 'nothing'}; {stays}"

    def _replaced(self) -> list[str]:
        """Return descriptions of the columns that are replaced."""
        if self.table is None or self.settings.schema_evolution != "replace":
            return []
        changes = []
        for column in self.table.schema:
            mine = self.columns.find(column.name)
            if mine is None:
                changes.append(f"column {column.name!r} ({column.type}) was dropped")
            elif str(mine.type) != str(column.type):
                changes.append(f"column {column.name!r} became {mine.type}, was {column.type}")
        return changes

    def _replace_columns(self, tx: Transaction, table: Table) -> None:
        """Replace the table's columns by the frame's. The commit replaces all rows, so none has values in the old columns."""
        if not self._replaced():
            return
        # The keys may contain columns that are dropped below: reset them first, and set them again afterwards. If the asset declares
        # other keys, stage() sets those instead.
        before, order = table.info().partition_by, _sort_keys(table)
        if before:
            tx.reset_partitioned_by(self.name)
        if order:
            tx.reset_sorted_by(self.name)
        # Add new columns first: a table needs at least one column.
        added = [column for column in self.columns if table.schema.find(column.name) is None]
        for column in added:
            tx.add_column(self.name, (column.name,), column.type)
        for column in table.schema:
            mine = self.columns.find(column.name)
            if mine is None:
                tx.drop_column(self.name, (column.name,))
            elif str(mine.type) != str(column.type):
                self._exchange(tx, column.name, mine)
                if (comment := table.column_comments.get(column.name)) is not None:
                    tx.set_comment(self.name, comment, column=(mine.name,))
        if before and not _differ(self.settings.partition_by, before):
            tx.set_partitioned_by(self.name, before)
        if order and not _differ(self.settings.sort_by, order):
            tx.set_sorted_by(self.name, order)

    def _exchange(self, tx: Transaction, old: str, new: Any) -> None:
        # A new column of the same name, with an id of its own: the old id would make readers take values of the old type from files.
        # The old column moves aside first, since two columns cannot have one name.
        aside = f"{old}_replaced"
        while self.columns.find(aside) is not None or (self.table is not None and self.table.schema.find(aside) is not None):
            aside += "_"
        tx.rename_column(self.name, (old,), aside)
        tx.add_column(self.name, (new.name,), new.type)
        tx.drop_column(self.name, (aside,))

    def _merge(self, tx: Transaction, merge: MergeSettings) -> None:
        left_out = self._flags(self.table)
        values = {column.name: f's."{_doubled(column.name)}"' for column in self.columns if column.name not in left_out}
        # The complement under three-valued logic: a row for which delete_when is NULL is not deleted, so it is inserted.
        kept = None if merge.delete_when is None else f"NOT ({merge.delete_when}) OR ({merge.delete_when}) IS NULL"
        inside = self.predicate.to_sql(prefix="t.") if self.predicate is not None else None
        builder = tx.merge(self.name, self.frame, on=merge.on or list(merge.keys))
        if merge.delete_when is not None:
            builder.when_matched_delete(where=merge.delete_when)
        # A row that a branch leaves as it is must not reach the branches after it, which get the complement of the condition.
        for branch, where in _exclusive(merge.matched, None):
            if branch.action == "delete":
                builder.when_matched_delete(where=where)
            else:
                builder.when_matched_update(branch.values or values, where=where)
        for branch, where in _exclusive(merge.not_matched, kept):
            builder.when_not_matched_insert(branch.values or values, where=where)
        for branch, where in _exclusive(merge.not_matched_by_source, inside):
            if branch.action == "delete":
                builder.when_not_matched_by_source_delete(where=where)
            else:
                builder.when_not_matched_by_source_update(branch.values or {}, where=where)
        builder.execute()

    def _flags(self, table: Table | None) -> frozenset[str]:
        """Return columns of the frame that are not written: a condition or value of the merge names them, and the table lacks them."""
        merge = self.settings.merge
        if merge is None:
            return frozenset()
        mentioned = {name for sql in (merge.delete_when or "", *(branch.sql for branch in merge.branches)) for name in _named_columns(sql)}
        stored = {name for branch in merge.branches for name in branch.values or ()}
        stored |= {name for sql in (merge.on or "", *(branch.sql for branch in merge.branches)) for name in _table_columns(sql)}
        keys = {folded(name) for name in (*merge.keys, *self._slice_columns, *stored)}
        return frozenset(
            column.name
            for column in self.columns
            if folded(column.name) in mentioned - keys and (table is None or table.schema.find(column.name) is None)
        )

    @property
    def _slice_columns(self) -> set[str]:
        return {constraint.column for box in self.predicate.boxes for constraint in box} if self.predicate is not None else set()

    def _evolve(self, tx: Transaction, table: Table, left_out: frozenset[str]) -> None:
        if self.settings.merge is not None and not self.settings.merge.writes_frame:
            return
        new = [column for column in self.columns if column.name not in left_out and table.schema.find(column.name) is None]
        if new and self.settings.schema_evolution == "strict":
            names = ", ".join(f"{column.name} ({column.type})" for column in new)
            raise SchemaError(
                f"the data has columns {names} that {self.name} does not have. Drop them, or set schema_evolution to 'additive'",
                table=self.name,
                columns=tuple(column.name for column in new),
            )
        for column in new:
            tx.add_column(self.name, (column.name,), column.type)
        if self.settings.schema_evolution == "strict":
            return
        for column in self.columns:
            stored = table.schema.find(column.name)
            if stored is not None and str(stored.type) != str(column.type):
                try:
                    tx.set_column_type(self.name, (stored.name,), column.type)
                except SchemaError:
                    # Do not widen: the table's type is wider, or the merge itself rejects values that do not fit.
                    continue


def _named_columns(condition: str) -> Iterator[str]:
    r"""Yield names in a condition that may be columns, folded: no string literals, and no functions.

    >>> list(_named_columns("lower(s.op) = 'it''s gone' OR s.\"op code\" IN ('D')"))
    ['s', 'op', 'or', 's', 'op code', 'in']
    """
    for quoted, bare in re.findall(r"""'(?:[^']|'')*'|"((?:[^"]|"")+)"|\b(\w+)\b(?!\()""", condition):
        if quoted or bare:
            yield folded(quoted.replace('""', '"') or bare)


def _table_columns(sql: str) -> Iterator[str]:
    '''Yield names of columns that have the prefix of the table.

    >>> list(_table_columns("""s.at > t.at AND t."Is It" AND 't.no' <> ''"""))
    ['at', 'is it']
    '''
    for quoted, bare in re.findall(r"""'(?:[^']|'')*'|\bt\s*\.\s*(?:"((?:[^"]|"")+)"|(\w+))""", sql, re.IGNORECASE):
        if quoted or bare:
            yield folded(quoted.replace('""', '"') or bare)


def _exclusive(branches: Sequence[MergeBranch], within: str | None) -> Iterator[tuple[MergeBranch, str | None]]:
    """Yield the branches that change rows, each with its condition: within the given rows, and outside of branches that keep rows."""
    kept: list[str] = []
    for branch in branches:
        if branch.action in ("ignore", "keep"):
            if branch.where is None:
                return
            kept.append(f"({branch.where}) IS NOT TRUE")
            continue
        parts = [f"({part})" for part in (within, *kept, branch.where) if part is not None]
        yield branch, " AND ".join(parts) or None


def _sort_keys(table: Table) -> tuple[str, ...]:
    """Return sort keys as users write them."""
    return tuple(f"{key.expression} {key.direction} {key.null_order.replace('_', ' ')}" for key in table.sort_keys)


def _differ(wanted: Sequence[str], present: Sequence[str]) -> bool:
    """Return whether the asset declares a layout that differs from the layout of the table."""
    return bool(wanted) and tuple(map(_bare, present)) != tuple(map(_bare, wanted))


def _bare(key: str) -> str:
    """Return a partition or sort key in a normal form. Keys that still differ may be equal; the catalog compares them.

    >>> _bare('"Day" DESC'), _bare("day desc NULLS LAST"), _bare("lower(a) ASC NULLS LAST"), _bare("year( day )")
    ('day desc nulls last', 'day desc nulls last', 'lower(a)', 'year(day)')
    """
    text = " ".join(folded(key.replace('"', "")).split())
    match = re.fullmatch(r"(.+?)(?: (asc|desc))?(?: nulls (first|last))?", text)
    assert match is not None
    expression, direction, nulls = match.groups()
    expression = re.sub(r"\s*([(),])\s*", r"\1", expression)
    direction, nulls = direction or "asc", nulls or "last"
    return expression if (direction, nulls) == ("asc", "last") else f"{expression} {direction} nulls {nulls}"


def _doubled(name: str) -> str:
    return name.replace('"', '""')


# Which assets may have rows in a table is known without reading rows. Every commit of an asset stores the answer for its own snapshot, in
# extra_info:
#
#   snapshot  writer               record
#      7      asset a, days 1-3    {at: 6, wrote: days 1-3, slices: {a: days 1-3}}
#      8      asset b, day 4       {at: 7, wrote: day 4,    slices: {a: days 1-3, b: day 4}}
#      9      DuckDB               none: its rows belong to no asset, and any asset may replace them
#     10      a process of Pipes   no slices: the records before it are read until one has them
#
# So the newest record is enough, with the commits between its ``at`` and itself: these were made while its writer worked, which has not
# seen them. Bounds may cover rows that do not exist, and never the reverse, so an overwrite may be rejected unnecessarily.


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWriters:
    """Assets (and outputs of ops) that may have rows in a table, as recorded by unexpired snapshots.

    Attributes:
        slices: Bounds of the rows of each.
        snapshot: The snapshot of the table that was read; None when the table does not exist.
        newest: The newest known commit of any of them; None without one.
    """

    slices: Mapping[str, SliceBounds] = field(default_factory=dict)
    snapshot: int | None = None
    newest: Snapshot | None = None

    def reject_to_replace_rows_of_others(self, address: TableAddress, writer: str, replaced: SliceBounds) -> None:
        """Reject an overwrite of rows that another asset may have written.

        Args:
            address: The table.
            writer: The asset, or the op's output, that is about to replace rows.
            replaced: The rows.

        Raises:
            UsageError: Another asset may have rows there.
        """
        others = sorted(name for name, written in self.slices.items() if name != writer and written.meets(replaced))
        if not others or self.newest is None:
            return
        more = f" and {len(others) - 1} others" if len(others) > 1 else ""
        raise UsageError(
            f"{writer} would overwrite rows of table {address} that {others[0]}{more} wrote (as of snapshot {self.newest.id}). Set "
            "another table= or schema= in the metadata of one of them. If they share the table on purpose, or the asset was renamed, set "
            "shared=True in the metadata of this asset",
            table=str(address),
            snapshot_id=self.newest.id,
            writer=others[0],
        )

    def after(self, writer: str, written: SliceBounds, *, overwrites: bool) -> dict[str, Any]:
        """Return the record that the commit of an asset stores about the table.

        Args:
            writer: The asset.
            written: Bounds of the rows that it writes.
            overwrites: Whether the commit replaces all rows within these bounds.
        """
        kept = ((name, found.without(written) if overwrites else found) for name, found in self.slices.items())
        slices = {name: found for name, found in kept if found is not None}
        slices[writer] = slices[writer].union(written) if writer in slices else written
        if len(slices) > _MAX_WRITERS:
            slices = dict.fromkeys(sorted(slices)[:_MAX_WRITERS], ANYWHERE)
        known = {} if self.snapshot is None else {"at": self.snapshot}
        return {**known, "wrote": written.to_json(), "slices": {name: found.to_json() for name, found in slices.items()}}


def table_writers(table: Table | None, address: TableAddress) -> TableWriters:
    """Return the assets that may have rows in a table.

    Runs one catalog statement; one more when other commits were made at the same time as the newest one, and one or two more when the
    newest commit came from Pipes. Commits of other programs, such as DuckDB, belong to no asset. A commit of an early version of this
    library has no record of the commits before it, so only its own asset is known.

    Args:
        table: The table, None when it does not exist yet.
        address: Its name.
    """
    if table is None:
        return TableWriters()
    newest = table.last_row_change(author=AUTHOR)
    if newest is None:
        return TableWriters(snapshot=table.snapshot_id)
    name = str(address)
    commits = table.row_changes(author=AUTHOR, limit=_FEW_COMMITS) if _is_of_pipes(newest) else [newest]
    if len(commits) == _FEW_COMMITS and all(map(_is_of_pipes, commits)):
        commits = table.row_changes(author=AUTHOR)
    recorded = next((commit for commit in commits if not _is_of_pipes(commit)), None)
    record = _record(recorded, name) if recorded is not None else None
    if recorded is not None:
        commits = [commit for commit in commits if commit.id >= recorded.id]
        if record is not None and record.misses_commits_before(recorded, table):
            commits = table.row_changes(-1 if record.snapshot is None else record.snapshot, author=AUTHOR)
    slices = dict(record.slices) if record is not None else {}
    for writer, written in filter(None, (_written(commit, name) for commit in commits)):
        slices[writer] = slices[writer].union(written) if writer in slices else written
    return TableWriters(slices=slices, snapshot=table.snapshot_id, newest=newest)


def replaced_meanwhile(table: Table, address: TableAddress, writer: str, replaced: SliceBounds, commit: int) -> list[str]:
    """Return commits of other assets that an overwrite replaced although they were made after it had read the writers.

    Args:
        table: The table, as it was when its writers were read.
        address: Its name.
        writer: The asset that has overwritten rows.
        replaced: The rows.
        commit: Its snapshot.
    """
    if commit <= table.snapshot_id + 1:
        return []
    between = [other for other in reversed(table.row_changes(table.snapshot_id, author=AUTHOR)) if other.id < commit]
    found = ((other.id, _written(other, str(address))) for other in between)
    return [f"{one[0]} (snapshot {number})" for number, one in found if one is not None and one[0] != writer and one[1].meets(replaced)]


def makes_table(commit: Snapshot, table: Table) -> bool:
    """Return whether a commit created a table under the name that it has now."""
    name = (folded(table.state.schema_name), folded(table.state.name))
    return any((folded(made.schema), folded(made.name)) == name for made in commit.change_set.created_table)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The record of a commit: bounds of its own rows, and of the rows of every writer up to ``snapshot`` and of itself."""

    snapshot: int | None
    wrote: SliceBounds
    slices: Mapping[str, SliceBounds]

    def misses_commits_before(self, commit: Snapshot, table: Table) -> bool:
        """Return whether there may be commits before this one that the record does not contain."""
        return not makes_table(commit, table) if self.snapshot is None else commit.id > self.snapshot + 1


def _record(commit: Snapshot, table: str) -> _Record | None:
    """Return the record of a commit, None when it has none or an invalid one: any client may store any string there."""
    facts = dagster_facts(commit)
    found = facts.get(WRITERS)
    if isinstance(facts.get("assets"), dict) and isinstance(found, dict):
        found = found.get(writer_of(commit, table))
    slices = found.get("slices") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(slices, dict):
        return None
    at = found.get("at")
    return _Record(
        snapshot=at if isinstance(at, int) else None,
        wrote=read_bounds(found.get("wrote")),
        slices={name: read_bounds(one) for name, one in slices.items()},
    )


def _is_of_pipes(commit: Snapshot) -> bool:
    return dagster_facts(commit).get("pipes") is True


def _written(commit: Snapshot, table: str) -> tuple[str, SliceBounds] | None:
    """Return the asset of a commit and the bounds of its rows; None for a commit without an asset."""
    writer, record = writer_of(commit, table), _record(commit, table)
    return None if writer is None else (writer, record.wrote if record is not None else ANYWHERE)
