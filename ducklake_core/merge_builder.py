"""Build a MERGE branch by branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

from ducklake_core.engines.arrow.merge import Action, When
from ducklake_core.errors import UsageError
from ducklake_core.format import arguments
from ducklake_core.format.types.text import visible

MergeClause: TypeAlias = tuple[When, Action, Any, str | None]
"""One branch: kind of rows, action, values and condition."""

Values: TypeAlias = Mapping[str, Any] | Literal["all"]

Result = TypeVar("Result")


@arguments.none_means_default
class Merge(Generic[Result]):
    """A merge under construction, created by :meth:`Table.merge` and :meth:`Transaction.merge`. Nothing happens before :meth:`execute`.

    For each row, the branches are tested in the order in which they were added, and the first branch that applies is used. Rows without
    a branch do not change. Conditions and values are SQL text (DuckDB's dialect) over ``t.column`` for the table's row and ``s.column``
    for the source's row. The prefix is optional if only one of them has the column.

    Args:
        table: ``schema.table``, for messages.
        carry_out: Executes the branches.
    """

    def __init__(self, table: str, carry_out: Callable[[Sequence[MergeClause]], Result]) -> None:
        self._table = table
        self._carry_out = carry_out
        self._clauses: list[MergeClause] = []
        self._done = False

    def __repr__(self) -> str:
        return f"<Merge into {visible(self._table)} with {len(self._clauses)} branches>"

    def when_matched_update(self, values: Values = "all", *, where: str | None = None) -> Self:
        """Add a branch that updates rows that match a row of the source.

        Args:
            values: Values by column, as in :meth:`Table.update`, or ``"all"`` to set every column that the source has. Default: ``"all"``.
            where: Additional condition. Default: none.

        Returns:
            This merge, for chaining.
        """
        return self._add("matched", "update", values, where)

    def when_matched_delete(self, *, where: str | None = None) -> Self:
        """Add a branch that deletes rows that match a row of the source.

        Args:
            where: Additional condition. Default: none.
        """
        return self._add("matched", "delete", None, where)

    def when_not_matched_insert(self, values: Values = "all", *, where: str | None = None) -> Self:
        """Add a branch that inserts a row for each row of the source without a match.

        Args:
            values: Values by column; other columns get their default. ``"all"`` inserts every column that the source has. Default:
                ``"all"``.
            where: Additional condition. Default: none.
        """
        return self._add("not matched", "insert", values, where)

    def when_not_matched_by_source_update(self, values: Mapping[str, object], *, where: str | None = None) -> Self:
        """Add a branch that updates rows that no row of the source matches.

        Args:
            values: Values by column, as in :meth:`Table.update`.
            where: Additional condition. Default: none.
        """
        return self._add("not matched by source", "update", values, where)

    def when_not_matched_by_source_delete(self, *, where: str | None = None) -> Self:
        """Add a branch that deletes rows that no row of the source matches.

        Args:
            where: Additional condition. Default: none.
        """
        return self._add("not matched by source", "delete", None, where)

    def execute(self) -> Result:
        """Run the merge.

        Raises:
            UsageError: Several rows of the source match one row of the table, there is no branch, or the merge has already run.
            UnsupportedFeatureError: Arrow cannot evaluate an expression. Pass a Spark DataFrame as the source.
            SchemaError: A value does not fit its column, or a NOT NULL column would get NULL.
        """
        if self._done:
            raise UsageError(f"The merge into {self._table} has already run. Call merge(...) again for another one", table=self._table)
        self._done = True
        return self._carry_out(tuple(self._clauses))

    def _add(self, when: When, action: Action, values: Values | None, where: str | None) -> Self:
        is_all = isinstance(values, str) and values == "all"
        plain = values if values is None or is_all else arguments.mapping("values", values)
        self._clauses.append((when, action, plain, arguments.optional(arguments.sql_condition, "where", where)))
        return self
