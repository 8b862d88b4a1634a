"""Definitions of macros as the catalog stores them (specification: ducklake_macro_impl, ducklake_macro_parameters)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

MacroKind: TypeAlias = Literal["scalar", "table"]
MACRO_KINDS: tuple[MacroKind, ...] = get_args(MacroKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroParameter:
    """One parameter.

    Attributes:
        type: Type as in ``ducklake_column``; None for any type.
        default: Default value as a string; None if the parameter is required.
        default_type: Type of the default.
    """

    name: str
    type: str | None = None
    default: str | None = None
    default_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroImplementation:
    """A definition of a macro. The arguments of a call select one of its definitions.

    Attributes:
        kind: ``scalar`` for an expression, ``table`` for a query.
        dialect: Language of ``sql``; DuckDB writes ``duckdb``.
        sql: The expression or query.
    """

    kind: MacroKind
    dialect: str
    sql: str
    parameters: tuple[MacroParameter, ...] = ()
