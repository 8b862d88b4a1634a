"""Update, merge and restore rows on Spark executors.

An update whose expressions Arrow can evaluate is one job over groups of files. Everything else is a join in two jobs::

    job 1   target rows | t0 ... | row id | file | position |   join   source rows | s0 ... | mark |
            each task writes its updated and inserted rows, and notes the matched positions in files of its own:
            | file | position | deleted |
    job 2   the noted positions, grouped by file: check that no row was matched twice, write one delete file per data file

The positions go through files instead of the driver, because a merge may touch every row of a table.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

from ducklake_core.engines.arrow.changes import (
    ChangedRows,
    ChangeWriter,
    FilePair,
    change_in_files,
    changed_files,
    matched_twice,
    restore_file,
    restore_inlined,
    with_row_ids,
)
from ducklake_core.engines.arrow.merge import ChangeRequest, MergeSource, RowChange, When, flat_columns
from ducklake_core.engines.arrow.positions import DeleteTarget, Deletions, FileDeletion, collect, physical_rows, write_position_deletes
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import DatasetWriter, file_from_json, file_to_json, reraise_remote_errors, serialize_errors
from ducklake_core.engines.spark.positions import INLINED, RESULT, exact_name, inlined_by_table, packed, target_rows, unpacked
from ducklake_core.engines.spark.read import read_plan
from ducklake_core.engines.spark.scan_schema import arrow_form, spark_schema
from ducklake_core.engines.spark.session import ansi_sql, filtered, local_frame
from ducklake_core.engines.spark.tasks import bin_pack, task_ids
from ducklake_core.engines.spark.types import from_spark_schema, to_spark_form
from ducklake_core.engines.spark.work_units import ATTEMPT_COLUMNS, attempt_columns, awaiting_tasks, may_have_lost
from ducklake_core.engines.spark.write import verify_files
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import needs_sql
from ducklake_core.format.expressions.sql import expression_sql
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.types.data_types import BOOLEAN, INT64, UUID, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import cast_to
from ducklake_core.planning.plan import ScanPlan, ScanProjection, empty_plan, written_plan
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.unfinished import NamedFiles, sweep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_REPORT = f"{ATTEMPT_COLUMNS}, kind string, result binary"

_MAX_TASKS = 512


FILE, POSITION, ROW_ID, FROM_SOURCE = "f", "p", "r", "m"
_POSITIONS = Schema(
    columns=(Field(id=1, name=FILE, type=INT64), Field(id=2, name=POSITION, type=INT64), Field(id=3, name="deleted", type=BOOLEAN))
)


def change_rows(
    plan: ScanPlan,
    request: ChangeRequest,
    target: DeleteTarget,
    state: WriteState,
    session: SparkSession,
    source: MergeSource | None,
    *,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Carry out a change on executors; see :func:`ducklake_core.engines.arrow.changes.change_rows`.

    Expressions that Arrow does not evaluate are evaluated by Spark.

    Args:
        plan: A scan of all columns of the table; its predicate selects the rows that may change.
        request: The change.
        target: Where to write delete files.
        state: How to write data files; it has the same write id.
        session: The session whose executors do the work.
        source: The source of a merge; None for an update.
        named: Reports the files that the catalog names; a sweep after lost tasks keeps them.
    """
    with reraise_remote_errors(), awaiting_tasks(session):
        simple = source is None and not request.for_engine and (plan.predicate is None or not needs_sql(plan.predicate))
        if simple and (plan.inlined is None or not plan.inlined.num_rows):
            return _update_files(plan, request.change(), target, state, session, named)
        return _Join(plan, request, target, state, session, source, named=named).run()


def _update_files(
    plan: ScanPlan, change: RowChange, target: DeleteTarget, state: WriteState, session: SparkSession, named: NamedFiles | None
) -> ChangedRows:
    packed_tasks = tuple(bin_pack(plan.tasks))
    if not packed_tasks:
        return ChangedRows()
    shape = plan.shape

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            with serialize_errors():
                found, updated = change_in_files(packed_tasks[number], shape, change, target, state, threads=False)
            yield _report("update", (found, updated))

    rows = session.range(0, len(packed_tasks), 1, len(packed_tasks)).mapInArrow(run, _REPORT).collect()
    parts = [_result(row) for row in rows]
    updated = tuple(file for _, files in parts for file in files)
    changed = ChangedRows(deletions=collect((one for found, _ in parts for one in found), ()), updated=updated)
    _sweep_lost(rows, changed, state, session, named)
    return changed


def _report(kind: str, value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {**attempt_columns(1), "kind": pa.array([kind]), "result": pa.array([pickle.dumps(value)], pa.binary())}
    )


def _result(row: Any) -> Any:
    return pickle.loads(row["result"])  # noqa: S301 - made by our own function in the same job


def _sweep_lost(rows: Sequence[Any], changed: ChangedRows, state: WriteState, session: SparkSession, named: NamedFiles | None) -> None:
    if may_have_lost(rows, session):
        kept = [file.path for file in (*changed.updated, *changed.inserted)]
        kept += [file.path for file in changed.deletions.delete_files]
        sweep(state.storage, state.directory, state.write_id, named=named, keep=kept)


class _Join:
    """One merge, or an update that needs Spark's SQL."""

    def __init__(
        self,
        plan: ScanPlan,
        request: ChangeRequest,
        target: DeleteTarget,
        state: WriteState,
        session: SparkSession,
        source: MergeSource | None,
        *,
        named: NamedFiles | None,
    ) -> None:
        self.named = named
        self.plan, self.request, self.target, self.state, self.session, self.source = plan, request, target, state, session, source

    def run(self) -> ChangedRows:
        has_sql = self.request.for_engine or self.request.residual is not None
        with ansi_sql(self.session) if has_sql else nullcontext():
            frame, change = self._computed(self._joined())
        rows = frame.mapInArrow(_writer(change, self.state, self.source is not None), _REPORT).collect()
        files: dict[str, list[WrittenFile]] = {"update": [], "insert": [], "positions": []}
        for row in rows:
            files[row["kind"]].append(file_from_json(_result(row)))
        deletions, more = self._hidden(files["positions"])
        changed = ChangedRows(deletions=deletions, updated=tuple(files["update"]), inserted=tuple(files["insert"]))
        self.state.storage.delete([self.state.directory + file.path for file in files["positions"]])
        _sweep_lost([*rows, *more], changed, self.state, self.session, self.named)
        return changed

    def _joined(self) -> DataFrame:
        """Return flat rows: those of the target with their position, those of the source with their mark."""
        places = (ROW_ID, FILE, POSITION)
        keys = None if self.source is None else self.source.keys(self.request)
        columns, used = flat_columns(self.request.target, "t"), self._evaluated("t")
        target = target_rows(self.plan, self.state.storage, self.session, columns, places, keys, evaluated=used)
        if self.plan.predicate is not None and needs_sql(self.plan.predicate):
            named = {column.name: f"t{place}" for place, column in enumerate(self.request.target)}
            back = target.withColumnsRenamed({flat: name for name, flat in named.items()})
            target = filtered(back, self.plan.predicate).withColumnsRenamed(named)
        if self.source is None:
            return target.withColumn(FROM_SOURCE, sf.lit(True))
        source = self._source_rows()
        kinds = {clause.when for clause in self.request.clauses}
        how = {(False, False): "inner", (False, True): "left", (True, False): "right", (True, True): "full"}[
            ("not matched" in kinds, "not matched by source" in kinds)
        ]
        return target.join(source, on=self._condition(), how=how)

    def _source_rows(self) -> DataFrame:
        assert self.source is not None
        schema = self.source.schema
        if self.source.rows is not None:
            frame = self._rows_in_memory(self.source.schema, self.source.rows)
        else:
            plan = written_plan(empty_plan("source", 0, schema), schema.names, self.source.directory, self.source.files)
            # The files hold the rows of a Spark frame, so that Spark's own types hold all their values.
            frame = read_plan(plan, self.state.storage, self.session, exact=False)
            frame = frame.toDF(*(f"s{place}" for place in range(len(schema))))
        return frame.withColumn(FROM_SOURCE, sf.lit(True))

    def _rows_in_memory(self, schema: Schema, rows: pa.Table) -> DataFrame:
        """Return the source's rows, as :func:`~ducklake_core.engines.spark.positions.target_rows` gives those of the target."""
        columns, used = flat_columns(schema, "s"), self._evaluated("s")
        every = frozenset(column.id for column in columns)
        given = every - {columns[place].id for place in used}
        wanted, exact = (spark_schema(Schema(columns=columns), exact=ids) for ids in (given, every))
        again = [place for place in used if wanted[place].dataType != exact[place].dataType]
        for place in again:
            wanted = wanted.add(exact_name(columns[place].name), exact[place].dataType)
        form = arrow_form(wanted)
        parts = [to_spark_form(batch, form, again) for batch in rows.rename_columns([c.name for c in columns]).to_batches()]
        return local_frame(self.session, pa.Table.from_batches(parts, form), wanted)

    def _evaluated(self, letter: str) -> list[int]:
        """Return the indexes of the flat columns of one side that Spark evaluates an expression on."""
        request, side = self.request, 0 if letter == "t" else 1
        found = {key[side] for key in request.keys}
        for expression in (*request.for_engine, *(() if request.residual is None else (request.residual,))):
            # Matches every word of that form, also inside a string: a column too many only costs a copy of it.
            found |= {int(place) for place in re.findall(rf"\b{letter}(\d+)\b", expression.sql)}
        if letter == "t" and self.plan.predicate is not None and needs_sql(self.plan.predicate):
            ids = pruning.columns(self.plan.predicate)
            found |= {place for place, column in enumerate(request.target) if any(node.id in ids for node in column.walk())}
        return sorted(place for place in found if place < len(request.target if letter == "t" else request.source))

    def _condition(self) -> Column:
        parts = []
        for target_key, source_key in self.request.keys:
            left, right = sf.col(f"t{target_key}"), sf.col(f"s{source_key}")
            if self.request.target.columns[target_key].type == UUID:
                # A UUID has several spellings as a string, and Spark compares characters.
                left, right = sf.lower(left), sf.lower(right)
            parts.append(left == right)
        if self.request.residual is not None:
            parts.append(sf.expr(expression_sql(self.request.residual.sql, "spark")))
        condition = parts[0]
        for part in parts[1:]:
            condition = condition & part
        return condition

    def _computed(self, joined: DataFrame) -> tuple[DataFrame, RowChange]:
        """Add the expressions that only Spark evaluates as columns; return the frame, and the change that reads them."""
        expressions = self.request.for_engine
        columns = {f"x{n}": sf.expr(expression_sql(expression.sql, "spark")) for n, expression in enumerate(expressions)}
        frame = joined.withColumns(columns) if columns else joined
        types = [column.type for column in from_spark_schema(frame.select(*columns).schema)] if columns else []
        change = self.request.change(types)
        names = [*change.flat.names, ROW_ID, FILE, POSITION, FROM_SOURCE]
        there = set(frame.columns)
        exact = [sf.col(exact_name(name)).alias(name) if exact_name(name) in there else sf.col(name) for name in names]
        # The join has applied the residual already.
        return frame.select(*exact), replace(change, residual=None)

    def _hidden(self, files: Sequence[WrittenFile]) -> tuple[Deletions, list[Any]]:
        """Return the delete files of the positions that the tasks of the join recorded."""
        if not files:
            return Deletions(), []
        plan = written_plan(empty_plan("positions", 0, _POSITIONS), _POSITIONS.names, self.state.directory, files)
        noted = read_plan(plan, self.state.storage, self.session)
        tasks, shape, target, storage = self.plan.tasks, self.plan.shape, self.target, self.state.storage
        table = self.plan.table

        def hide(rows: pa.Table) -> pa.Table:
            with serialize_errors():
                number = rows.column(FILE)[0].as_py()
                positions = np.sort(rows.column(POSITION).to_numpy())
                if np.any(positions[1:] == positions[:-1]):
                    raise matched_twice(table)
                deleted = np.sort(rows.filter(rows.column("deleted")).column(POSITION).to_numpy())
                if number == INLINED:
                    return pa.Table.from_batches([_report("inlined", deleted.tolist())])
                hidden = write_position_deletes(tasks[number].file, deleted, shape, target, storage) if len(deleted) else None
                return pa.Table.from_batches([_report("file", hidden)])

        results = noted.groupBy(FILE).applyInArrow(hide, _REPORT).collect()
        found = [_result(row) for row in results if row["kind"] == "file"]
        row_ids = {row_id for row in results if row["kind"] == "inlined" for row_id in _result(row)}
        return collect(found, inlined_by_table(self.plan, row_ids)), results


def _writer(change: RowChange, state: WriteState, merging: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    flat = change.flat
    width = len(flat)
    positions_state = replace(state, schema=_POSITIONS, partition_spec=None, defaults=(), row_constraint=None, sort=())

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with serialize_errors(), ChangeWriter(change, state) as writer, DatasetWriter(positions_state) as noted:
            for batch in batches:
                rows = cast_to(pa.RecordBatch.from_arrays(batch.columns[:width], names=list(flat.names)), flat, physical=False)
                row_ids, files, positions, marks = (batch.column(name) for name in (ROW_ID, FILE, POSITION, FROM_SOURCE))
                for when, mask in _kinds(files, marks):
                    chosen = pa.array(np.flatnonzero(mask))
                    if not len(chosen):
                        continue
                    deleted = writer.apply(when, rows.take(chosen), row_ids.take(chosen))
                    if when == "not matched":
                        continue
                    flags = np.zeros(len(chosen), dtype=bool)
                    flags[deleted] = True
                    # Matched rows are noted even if no branch changes them: job 2 has to find rows that are matched twice.
                    kept = np.ones(len(chosen), dtype=bool) if merging and when == "matched" else flags
                    places = chosen.filter(pa.array(kept))
                    arrays = [files.take(places), positions.take(places), pa.array(flags[kept])]
                    noted.write(pa.RecordBatch.from_arrays(arrays, names=list(_POSITIONS.names)))
            updated, inserted = writer.close()
            for kind, found in (("update", updated), ("insert", inserted), ("positions", noted.close())):
                for file in found:
                    yield _report(kind, file_to_json(file))

    return run


def _kinds(files: Any, marks: Any) -> list[tuple[When, np.ndarray]]:
    in_target, in_source = (np.asarray(array.is_valid()) for array in (files, marks))
    return [("matched", in_target & in_source), ("not matched", ~in_target & in_source), ("not matched by source", in_target & ~in_source)]


def restore_rows(
    now: ScanPlan,
    then: ScanPlan,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    session: SparkSession,
    *,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot; as :func:`ducklake_core.engines.arrow.changes.restore_rows`.

    The driver sees one small value for each file, and the inlined rows, which travel in the plan.
    """
    pairs = changed_files(now, then)
    rows: list[Any] = []
    if pairs:
        numbers = session.range(0, len(pairs), 1, min(len(pairs), _MAX_TASKS))
        with reraise_remote_errors(), awaiting_tasks(session):
            rows = numbers.mapInArrow(_worker(pairs, now.shape, then.shape, target, state, storage), RESULT).collect()
    found: list[FileDeletion] = []
    written: list[WrittenFile] = []
    for row in rows:
        value = unpacked(row)
        if isinstance(value, list):
            written += value
        else:
            found.append(value)
    verify_files(tuple(written), state)
    with DatasetWriter(with_row_ids(state)) as writer:
        inlined = restore_inlined(writer, now, then)
        written += writer.close()
    deletions = collect(found, physical_rows(inlined))
    if may_have_lost(rows, session):
        keep = [*(file.path for file in deletions.delete_files), *(file.path for file in written)]
        sweep(storage, target.directory, target.write_id, named=named, keep=keep)
    return ChangedRows(deletions=deletions, inserted=tuple(written))


def _worker(
    pairs: Sequence[FilePair], now: ScanProjection, then: ScanProjection, target: DeleteTarget, state: WriteState, storage: Storage
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    packed_tasks = tuple(pairs)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with serialize_errors(), DatasetWriter(with_row_ids(state)) as writer:
            for number in task_ids(numbers):
                deletion = restore_file(packed_tasks[number], now, then, target, writer, storage)
                if deletion is not None:
                    yield packed(deletion)
            yield packed(list(writer.close()))

    return run
