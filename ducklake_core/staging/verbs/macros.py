"""The verbs of a transaction that make and drop macros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ducklake_core.errors import AlreadyExistsError, NotFoundError, UsageError
from ducklake_core.format.types.names import split_name
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from ducklake_core.format.macros import MacroKind


class MacroVerbs(OpenTransaction):
    """Macros staged by a :class:`Transaction`."""

    def create_macro(
        self,
        name: str,
        definitions: Mapping[str, str],
        *,
        kind: MacroKind = "scalar",
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a macro, which DuckDB calls: an expression or a query under a name, with parameters.

        Args:
            name: ``macro`` or ``schema.macro``. A scalar macro and a table macro may have the same name.
            definitions: For each list of parameters the SQL: ``{"x": "x * 2"}``, ``{"a": "a", "a, b INTEGER := 5": "a + b"}``. A
                parameter is a name, with a type and a constant as its default where wanted. DuckDB looks for what the SQL names when
                the macro is called, by the caller's search path.
            kind: ``scalar`` for expressions, ``table`` for SELECTs.
            or_replace: Whether to drop a macro of that name and kind first.
            if_not_exists: Whether to leave a macro of that name and kind as it is.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: Its schema does not exist.
            UsageError: Parameters or SQL that DuckDB would not take.
            UnsupportedFeatureError: What the catalog cannot hold, or cannot be parsed here.
        """
        from ducklake_core.format.macros import implementations

        if self._is_done("create macro", name, kind, dict(definitions)):
            return
        schema_name, macro_name = split_name(name)
        if not macro_name:
            raise UsageError("a macro needs a name")
        owner = self._catalog.schema(schema_name)
        made = implementations(macro_name, definitions, kind)
        found = self._catalog.find_macro(name, kind)
        if found is not None:
            if if_not_exists:
                return
            if not or_replace:
                raise AlreadyExistsError(f"there is a {kind} macro {name} already at snapshot {self._catalog.base.id}", macro=name)
            self._catalog.drop_macro(found)
        self._catalog.create_macro(owner, macro_name, made)

    def drop_macro(self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False) -> None:
        """Drop a macro with all of its definitions.

        Raises:
            NotFoundError: No such macro of that kind.
        """
        if self._is_done("drop macro", name, kind):
            return
        found = self._catalog.find_macro(name, kind)
        if found is not None:
            self._catalog.drop_macro(found)
        elif not if_exists:
            raise NotFoundError(f"there is no {kind} macro {name} at snapshot {self._catalog.base.id}", macro=name)
