"""UPDATE, DELETE and MERGE in the language of the verbs, which this process and Spark carry out alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.sql_trees import parse_text
from ducklake_core.format.types.names import folded, quoted_path, split_path
from ducklake_core.sql.parts import refuse, requalified, unsupported, without_qualifier
from ducklake_core.sql.row_clauses import Branch, RowStatement, source_name
from ducklake_core.sql.row_statements import DEFAULT, value_text

if TYPE_CHECKING:
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.merge_builder import MergeClause


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """An UPDATE, DELETE or MERGE in the language of the verbs, as far as its parts are; engines alike.

    Args:
        statement: It, taken apart.
        table: ``schema.table``.
        schema: The table's columns.
    """

    statement: RowStatement
    table: str
    schema: Schema

    def where(self) -> str | None:
        """The condition of an UPDATE or DELETE.

        Raises:
            UnsupportedFeatureError: Other tables are named.
            UsageError: It cannot be parsed.
        """
        kind, other = self.statement.kind, self.statement.other
        if self.statement.prefix:
            refuse(f"WITH before {kind}")
        if other is not None:
            refuse(f"{kind} ... {'FROM' if kind == 'UPDATE' else 'USING'}", "MERGE does the same")
        return None if self.statement.where is None else self._of_table(self.statement.where)

    def assignments(self) -> dict[str, object]:
        """Values by column of an UPDATE."""
        values = self.statement.branches[0].values
        assert not isinstance(values, str | tuple)
        return {name: self._of_table(value_text(text, self.schema.column(name))) for name, text in values.items()}

    def _of_table(self, text: str) -> str:
        return without_qualifier(parse_text(text), *self._qualifiers()).sql("duckdb")

    def _qualifiers(self) -> list[tuple[str, ...]]:
        target, alias = self.statement.target, self.statement.alias
        if folded(alias) != folded(target[-1]):
            return [(alias,)]
        return [tuple(split_path(self.table))[start:] for start in range(len(split_path(self.table)))]

    @property
    def source(self) -> str:
        """The query of a MERGE's source.

        Raises:
            UnsupportedFeatureError: A WITH clause, a source without a name or under the table's.
        """
        if self.statement.prefix:
            refuse("WITH before MERGE")
        if folded(self._source_name()[1]) == folded(self.statement.alias):
            refuse("MERGE of a table with itself under one name")
        return f"FROM {self.statement.other}"

    def _source_name(self) -> tuple[tuple[str, ...], str]:
        named = source_name(self.statement.other or "")
        if named is None:
            raise unsupported("a source of MERGE without a name")
        return named

    def on(self) -> str | list[str]:
        """What rows of both sides have in common."""
        on = self.statement.on
        return self._of_sides(on) if isinstance(on, str) else list(on)

    def _of_sides(self, text: str, only: str | None = None, names: Sequence[str] = ()) -> str:
        """An expression over ``t`` and ``s``; of one side only, where the other has no row."""
        written, alias = self._source_name()
        sides = {written[start:]: ("s",) for start in range(len(written))} if folded(alias) == folded(written[-1]) else {(alias,): ("s",)}
        sides |= dict.fromkeys(self._qualifiers(), ("t",))
        return requalified(parse_text(text), sides, of_side=(only, names)).sql("duckdb")

    def clauses(self, source: Schema) -> list[MergeClause]:
        """The branches of a MERGE.

        Args:
            source: The source's columns.

        Raises:
            UnsupportedFeatureError: An action that no verb does.
        """
        found: list[MergeClause] = []
        nothing: dict[str, list[str]] = {}
        for branch in self.statement.branches:
            side, names = {"matched": (None, ()), "not matched": ("s", source.names)}.get(branch.when, ("t", self.schema.names))
            parts = [] if branch.condition is None else [f"({self._of_sides(branch.condition, side, names)})"]
            match branch.then:
                case "nothing" if parts:
                    nothing.setdefault(branch.when, []).append(f"{parts[0]} IS NOT TRUE")
                case "nothing":
                    pass
                case "error":
                    refuse("ERROR in MERGE")
                case then:
                    condition = " AND ".join([*nothing.get(branch.when, ()), *parts]) or None
                    values = None if then == "delete" else self._values(branch, source, side, names)
                    found.append((branch.when, then, values, condition))
        return found

    def _values(self, branch: Branch, source: Schema, side: str | None, names: Sequence[str]) -> dict[str, object]:
        values = by_column(branch, self.schema, source.names, "s")
        return {name: self._of_sides(value_text(text, self.schema.column(name)), side, names) for name, text in values.items()}


def by_column(branch: Branch, target: Schema, source: Sequence[str], alias: str) -> dict[str, str]:
    """The values of a branch by column, as texts.

    Args:
        branch: It updates or inserts.
        target: The table's columns.
        source: Names of the source's.
        alias: What the source is called.

    Raises:
        UsageError: Not as many columns as the table has, where they are taken by their places.
        NotFoundError: A column that the table does not have.
    """
    match branch.values:
        case "by name":
            pairs = [(name, quoted_path((alias, name))) for name in source]
        case "by position":
            if len(source) != len(target):
                raise UsageError(f"the source of MERGE has {len(source)} columns, for {len(target)} of the table: BY NAME, or name them")
            pairs = [(name, quoted_path((alias, theirs))) for name, theirs in zip(target.names, source, strict=True)]
        case "defaults":
            pairs = [(name, DEFAULT) for name in target.names]
        case tuple(values):
            if len(values) != len(target):
                raise UsageError(f"INSERT has {len(values)} values, for {len(target)} columns of the table")
            pairs = list(zip(target.names, values, strict=True))
        case values:
            pairs = list(values.items())
    return {target.column(name).name: text for name, text in pairs}
