"""Values and names of users in the texts of errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from typing import Any

_LONGEST = 120
_LONGEST_LINE = 200
_MOST_ITEMS = 5


def shown(value: object) -> str:
    """A value for a message, however long its text is, and even when it has none.

    >>> shown("a"), shown(10**5000)
    ("'a'", 'a value of type int')
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a number of too many digits, or an object of anybody's class
        return f"a value of type {type(value).__qualname__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def short_repr(value: Any) -> str:
    """A dataclass value by those of its fields that have other values than by default; of many items only how many there are.

    A class whose values are long takes it as its ``__repr__``. Fields that are kept out of reprs stay out of it.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Found:
    ...     name: str
    ...     count: int = 0
    ...     files: tuple[str, ...] = ()
    >>> short_repr(Found("t")), short_repr(Found("t", 3, ("a",) * 10))
    ("Found(name='t')", "Found(name='t', count=3, files=<10 items>)")
    """
    told = (f"{one.name}={_item(getattr(value, one.name))}" for one in fields(value) if one.repr and not _is_default(value, one))
    return f"{type(value).__name__}({', '.join(told)})"


def _is_default(value: Any, one: Field[Any]) -> bool:
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    return default is not MISSING and bool(getattr(value, one.name) == default)


def _item(value: object) -> str:
    if isinstance(value, tuple | list | dict | frozenset | set) and len(value) > _MOST_ITEMS:
        return f"<{len(value):,} items>"
    return repr(value)


def one_line(text: str) -> str:
    """A text of a user or of the catalog in one line, as far as it shows what it is.

    >>> one_line("a  b\\n\\x1b[31mc"), len(one_line("x" * 1000))
    ('a  b\\\\n\\\\x1b[31mc', 203)
    """
    return visible(text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}...")


def visible(text: str) -> str:
    """A whole text without what would end its line or steer a terminal: names and paths may hold anything.

    >>> visible("a\\tb"), visible("é")
    ('a\\\\tb', 'é')
    """
    return text if text.isprintable() else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def similar(name: str, candidates: Iterable[str]) -> str:
    """The names most like one that does not exist, as a question; empty when none is.

    >>> similar("Flihgts", ["flights", "planes"]), similar("x", ["flights"])
    ("did you mean 'flights'?", '')
    """
    found = nearest(name, candidates)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


def nearest(name: str, candidates: Iterable[str]) -> list[str]:
    """At most three of the names, those most like one, the nearest first."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    return [by_folded[one] for one in get_close_matches(name.casefold(), by_folded, n=3)]


def similar_in_brackets(name: str, candidates: Iterable[str]) -> str:
    """The same in parentheses, after a space, to stand behind the name.

    >>> similar_in_brackets("dely", ["delay"])
    " (did you mean 'delay'?)"
    """
    found = similar(name, candidates)
    return f" ({found})" if found else ""


def read_only_message(call: str, lake: str) -> str:
    """What a call that would change a lake says of one that was opened to be read only."""
    return f"{call} would change the lake {lake}, which was opened as read_only; nothing was changed. Open it again without it to write"
