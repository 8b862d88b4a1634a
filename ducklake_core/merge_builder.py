"""Builds a MERGE branch by branch."""

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


class Merge(Generic[Result]):
    """A merge that is being built. Made by :meth:`Table.merge` and :meth:`Transaction.merge`; nothing happens before :meth:`execute`.

    Branches for the same kind of rows are tried in the order they are named in, and the first whose condition is true is
    carried out; a row that none is for stays as it is. Conditions and values are SQL text (DuckDB dialect) over ``t.column``,
    the table's row, and ``s.column``, the source's; a name that only one of them has needs no prefix.

    Args:
        table: ``schema.table`` for messages.
        carry_out: What is done with the branches in the end.
    """

    def __init__(self, table: str, carry_out: Callable[[Sequence[MergeClause]], Result]) -> None:
        self._table = table
        self._carry_out = carry_out
        self._clauses: list[MergeClause] = []
        self._done = False

    def __repr__(self) -> str:
        return f"<Merge into {visible(self._table)} with {len(self._clauses)} branches>"

    def when_matched_update(self, values: Values = "all", *, where: str | None = None) -> Self:
        """Change a row that a row of the source matches.

        Args:
            values: Values by column as in :meth:`Table.update`, or ``"all"``: each column gets the value of the source's
                column of that name, and columns that the source does not have keep theirs.
            where: Further condition.
        """
        return self._add("matched", "update", values, where)

    def when_matched_delete(self, *, where: str | None = None) -> Self:
        """Delete a row that a row of the source matches."""
        return self._add("matched", "delete", None, where)

    def when_not_matched_insert(self, values: Values = "all", *, where: str | None = None) -> Self:
        """Add a row for a row of the source that matches none; columns that are not named get their default."""
        return self._add("not matched", "insert", values, where)

    def when_not_matched_by_source_update(self, values: Mapping[str, object], *, where: str | None = None) -> Self:
        """Change a row that no row of the source matches."""
        return self._add("not matched by source", "update", values, where)

    def when_not_matched_by_source_delete(self, *, where: str | None = None) -> Self:
        """Delete a row that no row of the source matches."""
        return self._add("not matched by source", "delete", None, where)

    def execute(self) -> Result:
        """Run the merge.

        Raises:
            UsageError: A row of the table that several rows of the source match; no branch; the second call.
            UnsupportedFeatureError: An expression that only a SQL engine can evaluate, with a source in memory.
            SchemaError: A value that does not fit its column, NULL in a NOT NULL column.
        """
        if self._done:
            raise UsageError(f"the merge into {self._table} was executed already", table=self._table)
        self._done = True
        return self._carry_out(tuple(self._clauses))

    def _add(self, when: When, action: Action, values: Values | None, where: str | None) -> Self:
        is_all = isinstance(values, str) and values == "all"
        plain = values if values is None or is_all else arguments.mapping("values", values)
        self._clauses.append((when, action, plain, arguments.optional(arguments.sql_condition, "where", where)))
        return self
