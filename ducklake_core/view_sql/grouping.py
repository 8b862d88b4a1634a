"""ROLLUP, CUBE and GROUPING SETS.

Spark groups by them as DuckDB does, but for one thing: the set without keys, the total, is a row of DuckDB's answer also when there are
no rows, and none of Spark's. Where there is such a set, Spark groups one row more, which no aggregate counts and no other group shows::

    SELECT c1, count(*) FILTER (WHERE here)
    FROM (SELECT c1, TRUE AS here FROM t WHERE ...  UNION ALL  SELECT NULL, FALSE)
    GROUP BY GROUPING SETS ((c1), ())  HAVING count(*) FILTER (WHERE here) > 0 OR grouping_id() = 1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

from ducklake_core.format.types.data_types import INT64
from ducklake_core.planning.virtual import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.view_sql.parsing import only, shown
from ducklake_core.view_sql.scopes import Scope
from ducklake_core.view_sql.typed import Refused, Typed

Keys = tuple[exp.Expression, ...]
_MOST = 4096
"""Sets of one query; DuckDB takes 65535."""


def grouping_sets(group: exp.Group | None) -> list[Keys] | None:
    """The keys of each set that a query groups by, None when it has one list of keys.

    >>> from ducklake_core.view_sql.parsing import parse_query
    >>> found = grouping_sets(parse_query("SELECT 1 FROM t GROUP BY a, ROLLUP (b, (c, d))").args["group"])
    >>> [[key.sql() for key in keys] for keys in found]
    [['a', 'b', 'c', 'd'], ['a', 'b'], ['a']]

    Raises:
        Refused: They are too many.
    """
    parts = [] if group is None else _parts(group)
    if not any(isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets) for part in parts):
        return None
    found: list[Keys] = [()]
    for part in parts:
        own = list(_sets(part))
        if len(found) * len(own) > _MOST:
            raise Refused(f"it has more than {_MOST} grouping sets")
        found = [(*before, *keys) for before, keys in product(found, own)]
    return found


def _parts(group: exp.Group) -> list[exp.Expression]:
    """What is listed after GROUP BY; earlier versions of sqlglot keep each kind of sets by itself."""
    kinds = ("expressions", "rollup", "cube", "grouping_sets")
    return [part for kind in kinds for part in group.args.get(kind) or ()]


def _sets(part: exp.Expression) -> Iterator[Keys]:
    match part:
        case exp.Rollup():
            elements = [_keys(one) for one in part.expressions]
            yield from (_joined(elements[:length]) for length in range(len(elements), -1, -1))
        case exp.Cube():
            elements = [_keys(one) for one in part.expressions]
            if 2 ** len(elements) > _MOST:
                raise Refused(f"it has more than {_MOST} grouping sets")
            for chosen in product((True, False), repeat=len(elements)):
                yield _joined([keys for keys, is_in in zip(elements, chosen, strict=True) if is_in])
        case exp.GroupingSets():
            for one in part.expressions:
                yield from _sets(one)
        case _:
            yield _keys(part)


def _keys(part: exp.Expression) -> Keys:
    return tuple(part.expressions) if isinstance(part, exp.Tuple) else (part.this,) if isinstance(part, exp.Paren) else (part,)


def _joined(elements: Sequence[Keys]) -> Keys:
    return tuple(key for keys in elements for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The sets of one query in Spark SQL.

    Attributes:
        sets: The texts of the keys of each.
        here: The column that tells the rows from the one that is added; None when none is, as there is no total.
    """

    sets: tuple[tuple[str, ...], ...]
    here: str | None

    @property
    def clause(self) -> str:
        """GROUP BY."""
        sets = (f"({', '.join(keys)})" for keys in self.sets)
        return f" GROUP BY GROUPING SETS ({', '.join(sets)})"

    @property
    def has_twins(self) -> bool:
        """Whether a set is there twice: then Spark does not know ``grouping_id`` in HAVING."""
        return len({frozenset(keys) for keys in self.sets}) < len(self.sets)

    @property
    def is_group(self) -> str:
        """The condition on groups that there are without the row that is added; nothing without such a row."""
        if self.here is None:
            return ""
        every = len({key for keys in self.sets for key in keys})
        return f"(count(*) FILTER (WHERE {self.here}) > 0 OR grouping_id() = {2**every - 1})"

    def source(self, text: str, scope: Scope, texts: Sequence[str]) -> str:
        """FROM and WHERE, with the row that is added.

        Args:
            text: FROM and WHERE of the rows.
            scope: The names of the query.
            texts: All texts that stand over the rows.
        """
        if self.here is None:
            return text
        if scope.uses_outer:
            raise Refused("it has ROLLUP, CUBE or GROUPING SETS within a correlated query")
        mentioned = set(re.findall(r"\bc\d+\b", " ".join([*texts, self.clause])))
        columns = []
        for relation in scope.relations:
            hidden = (relation.virtual(column.name) for column in VIRTUAL_SCHEMA if column != FILE_INDEX)
            for column in (*relation.columns, *(one for one in hidden if one is not None)):
                if column.sql in mentioned and column.sql not in columns:
                    relation.touched(column)
                    columns.append(column.sql)
        added = ", ".join([*("NULL" for _ in columns), "FALSE"])
        return f" FROM (SELECT {', '.join([*columns, f'TRUE AS {self.here}'])}{text} UNION ALL SELECT {added})"


def grouping_of(sets: Sequence[Keys], typed: Callable[[exp.Expression], Typed], here: str | None) -> Grouping:
    """The sets with the texts of their keys.

    Raises:
        Refused: A key that is a constant, which Spark would not tell from the same constant elsewhere; or there are no keys at all.
    """
    found = []
    for keys in sets:
        texts = []
        for key in keys:
            one = typed(key)
            if one.constant is not None:
                raise Refused(f"it has the constant {shown(key)} in ROLLUP, CUBE or GROUPING SETS")
            texts.append(one.sql)
        found.append(tuple(dict.fromkeys(texts)))
    if not any(found):
        raise Refused("it has GROUPING SETS without keys")
    return Grouping(sets=tuple(found), here=here)


def grouping_number(name: str, node: exp.Anonymous, parts: Sequence[Typed]) -> Typed:
    """``grouping(a, b)``: a bit for each key, which is 1 where the set of the row is without it."""
    only(node, "this", "expressions")
    if not parts:
        raise Refused(f"it calls {name} without arguments")
    bits = [f"CAST(grouping({part.sql}) AS BIGINT) * {2**place}" for place, part in enumerate(reversed(parts))]
    return Typed(sql=f"({' + '.join(bits)})", type=INT64)
