"""An UPDATE or a MERGE as a small picklable value, and its outcome for a batch of rows.

Rows travel in one flat form, whatever the columns are called: those of the target as ``t0``, ``t1`` ..., those of the source
as ``s0``, ``s1`` ..., and what an engine has computed beforehand as ``x0`` ....
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ducklake_core.engines.arrow.scalars import SOURCE_IDS, assigned, check_scalar, holds_for
from ducklake_core.format.expressions.scalars import Scalar
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import null_array

When: TypeAlias = Literal["matched", "not matched", "not matched by source"]
Action: TypeAlias = Literal["update", "delete", "insert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One branch of a MERGE; the first that holds for a row is carried out.

    Attributes:
        when: Which rows it is about.
        action: What is done with them.
        condition: Further condition over the flat columns, None for none.
        values: Place of a target column and the value that it gets; columns that are not named keep their value, or get
            their default when a row is inserted.
    """

    when: When
    action: Action
    condition: Scalar | None = None
    values: tuple[tuple[int, Scalar], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A change of rows. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        target: The table's columns.
        source: The source's columns, with ids of their own; empty for an update.
        computed: Flat columns that an engine computes before, empty when there are none.
        keys: Places of a target and a source column that must be equal for a match; NULL equals nothing.
        residual: What else must hold for a match, None for nothing.
        by_row_id: Whether there are no keys, and the source's first column names the row that each of its rows is for; NULL for none.
        clauses: The branches in order.
    """

    target: Schema
    source: Schema
    computed: Schema = Schema(columns=())  # noqa: RUF009 - a frozen value
    keys: tuple[tuple[int, int], ...] = ()
    residual: Scalar | None = None
    by_row_id: bool = False
    clauses: tuple[Clause, ...]

    @property
    def flat(self) -> Schema:
        """The flat columns."""
        return Schema(columns=(*flat_columns(self.target, "t"), *flat_columns(self.source, "s"), *self.computed))

    def about(self, when: When) -> tuple[Clause, ...]:
        """The branches for one kind of rows."""
        return tuple(clause for clause in self.clauses if clause.when == when)

    def check(self) -> None:
        """Refuse before any row is read what Arrow cannot evaluate.

        Raises:
            UnsupportedFeatureError: An expression or a cast that only a SQL engine can do.
            SchemaError: A constant that does not fit its column.
        """
        schema = nullable_schema(self.flat)
        # pyarrow makes no empty array of a list of an extension type from Python values.
        nothing = pa.RecordBatch.from_arrays([null_array(0, field.type) for field in schema], schema=schema)
        if self.residual is not None:
            check_scalar(self.residual, nothing)
        for clause in self.clauses:
            if clause.condition is not None:
                check_scalar(clause.condition, nothing)
            for place, value in clause.values:
                check_scalar(value, nothing, self.target.columns[place])

    def chosen(self, when: When, rows: pa.RecordBatch) -> Iterator[tuple[Clause, np.ndarray, pa.RecordBatch]]:
        """For every branch the places of the rows that it is carried out for, and these rows."""
        places = np.arange(rows.num_rows)
        for clause in self.about(when):
            if not rows.num_rows:
                return
            if clause.condition is None:
                yield clause, places, rows
                return
            holds = holds_for(clause.condition, rows)
            mask = np.asarray(holds)
            if mask.any():
                yield clause, places[mask], rows.filter(holds)
            places, rows = places[~mask], rows.filter(pa.array(~mask))

    def new_rows(self, clause: Clause, rows: pa.RecordBatch) -> tuple[list[str], list[Any]]:
        """Names and values of the target's columns after a branch was carried out; absent columns get their default."""
        values = dict(clause.values)
        names: list[str] = []
        arrays: list[Any] = []
        for place, column in enumerate(self.target):
            if place in values:
                arrays.append(assigned(values[place], column, rows))
            elif clause.action == "update":
                arrays.append(rows.column(f"t{place}"))
            else:
                continue
            names.append(column.name)
        return names, arrays


def flat_columns(schema: Schema, letter: str) -> tuple[Field, ...]:
    """Columns under their flat names."""
    return tuple(replace(column, name=f"{letter}{place}", nullable=True) for place, column in enumerate(schema))


def source_ids(schema: Schema) -> Schema:
    """A source's columns with ids that no table has."""
    from ducklake_core.format.types.schema import with_ids

    return with_ids(schema, SOURCE_IDS)


def nullable_schema(schema: Schema) -> pa.Schema:
    """The logical Arrow schema of columns, all of them nullable."""
    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(schema)])
