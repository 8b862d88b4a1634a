"""Check arguments at the start of public methods. Each check takes the name and value of a parameter and returns the value to use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from ducklake_core.errors import UsageError
from ducklake_core.format.expressions.conditions import Combinable, Condition, foreign_kind
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.text import in_utc, parse_age, shown
from ducklake_core.format.values.temporal import zoned

_TIME = "a datetime with a zone or a time such as '2026-01-31 12:00:00'"
COMMIT_MESSAGE = ("author", "message", "extra_info")
COMMIT_OPTIONS = (*COMMIT_MESSAGE, "commit_id")
# Ids and counts are BIGINT in every catalog database.
_MAX_NUMBER = 2**63 - 1
_NUMBER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)

Checked = TypeVar("Checked")
Decorated = TypeVar("Decorated", bound=type)


def none_means_default(cls: Decorated) -> Decorated:
    """Let the public methods of a class treat None like an optional argument that is not given.

    Configurations and wrappers pass on None for what they do not set. Methods whose defaults are None handle it themselves.
    """
    for name, member in list(vars(cls).items()):
        function = member.__func__ if isinstance(member, classmethod) else member
        if name.startswith("_") or not isinstance(function, FunctionType):
            continue
        code, given = function.__code__, function.__defaults__ or ()
        positional = code.co_varnames[: code.co_argcount]
        defaults = dict(zip(positional[len(positional) - len(given) :], given, strict=True)) | (function.__kwdefaults__ or {})
        if any(default is not None for default in defaults.values()):
            wrapped = _with_defaults(function, positional, defaults)
            setattr(cls, name, classmethod(wrapped) if isinstance(member, classmethod) else wrapped)
    return cls


def _with_defaults(function: Callable[..., Any], positional: tuple[str, ...], defaults: Mapping[str, Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        # Not ``None in args``: frames compare their values.
        if any(value is None for value in args):
            names = zip(positional, args, strict=False)
            args = (*(defaults.get(name) if value is None else value for name, value in names), *args[len(positional) :])
        if any(value is None for value in options.values()):
            options = {name: defaults.get(name) if value is None else value for name, value in options.items()}
        return function(*args, **options)

    return call


def _wrong(name: str, expected: str, value: object) -> UsageError:
    return UsageError(f"{name} must be {expected}, not {shown(value)}", parameter=name)


def optional(check: Callable[[str, Any], Checked], name: str, value: object) -> Checked | None:
    """Return None for None, and what the check returns for anything else.

    >>> optional(names, "columns", "a"), optional(names, "columns", None)
    (('a',), None)
    """
    return None if value is None else check(name, value)


def flag(name: str, value: object) -> bool:
    """Return True or False. Other values are rejected, such as the string "false", which is true in Python."""
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def check_flags(**flags: object) -> None:
    """Raise unless each argument is True or False.

    Raises:
        UsageError: An argument is neither True nor False.
    """
    for name, value in flags.items():
        flag(name, value)


def filled(name: str, value: object) -> str:
    """Return a string that is not empty."""
    if not storable(name, value):
        raise UsageError(f"{name} is empty", parameter=name)
    return str(value)


def names(name: str, value: object) -> tuple[str, ...]:
    """Return the names as a tuple; one string is one name, not its letters.

    >>> names("on", "ab"), names("on", ["a", "b"])
    (('ab',), ('a', 'b'))

    Raises:
        UsageError: The value is neither a string nor several strings.
    """
    if isinstance(value, str):
        return (storable(name, value),)
    return tuple(storable(name, one) for one in _items(name, "a name or a list of names", value))


def paths(name: str, value: object) -> tuple[str, ...]:
    """Return paths as strings; one path is a list of one."""
    given = (value,) if isinstance(value, str | os.PathLike) else _items(name, "a path or a list of paths", value)
    return tuple(filled(name, os.fspath(one) if isinstance(one, os.PathLike) else one) for one in given)


def path(name: str, value: object) -> str:
    """Return a path, given as a string or as a ``pathlib.Path``, as a string."""
    return storable(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


# A generator: the check runs when the caller iterates, which every caller does before it returns.
def _items(name: str, expected: str, value: object) -> Iterator[object]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _wrong(name, expected, value)
    yield from value


def whole_number(name: str, value: object, *, least: int | None = None) -> int:
    """Return an integer of 64 bits, at least ``least``; True and False are not numbers.

    >>> whole_number("limit", 5, least=0)
    5

    Raises:
        UsageError: The value is not such a number.
    """
    # Integers of NumPy have __index__ without being int. Floats have none, so 5.0 is rejected as well.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(name, "a whole number", value)
    number = int(value.__index__())
    if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
        raise _wrong(name, "a whole number of 64 bits", value)
    if least is not None and number < least:
        raise UsageError(f"{name} must be at least {least}, not {number}", parameter=name)
    return number


def row_count(name: str, value: object) -> int:
    """Return a number of rows, zero or more."""
    return whole_number(name, value, least=0)


def whole_numbers(name: str, value: object) -> tuple[int, ...]:
    """Return the integers as a tuple; one integer is a list of one."""
    given = (value,) if isinstance(value, int) else _items(name, "a list of whole numbers", value)
    return tuple(whole_number(name, one) for one in given)


def seconds(name: str, value: object) -> float:
    """Return a number of seconds, zero or more."""
    # Not ``value < 0``: NaN compares false with every number, and has to be rejected.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _wrong(name, "a number of seconds", value)
    return value


def fraction(name: str, value: object) -> float:
    """Return a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _wrong(name, "a number between 0 and 1", value)
    return value


def option_value(name: str, value: object) -> str | int | float:
    """Return a value that an option can have: a string, a number, True or False."""
    if isinstance(value, str):
        return storable(name, value)
    if not isinstance(value, int | float):
        raise _wrong(name, "a string, a number, True or False", value)
    return value if isinstance(value, bool | float) else whole_number(name, value)


def one_scope(table: str | None, schema: str | None) -> None:
    """Reject both a table and a schema."""
    if table is not None and schema is not None:
        raise UsageError("table and schema cannot be combined. Pass the table as schema.table, or remove one of them")


def mapping(name: str, value: object) -> dict[str, Any]:
    """Return a mapping whose keys are strings as a dictionary."""
    if not isinstance(value, Mapping):
        raise _wrong(name, "a mapping", value)
    return {storable(f"a key of {name}", key): one for key, one in value.items()}


def choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return a string that is one of the choices.

    Raises:
        UsageError: The value is not one of the choices.
    """
    if not isinstance(value, str) or value not in choices:
        raise _wrong(name, " or ".join(map(repr, choices)), value)
    return value


def time(name: str, value: object) -> datetime:
    """Return a time in UTC, given as a datetime with a zone or as a string such as "2026-01-31 12:00:00"."""
    found = _time_of_text(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise _wrong(name, _TIME, value)
    return in_utc(found)


def snapshot(name: str, value: object) -> int | datetime:
    """Return the id of a snapshot, or a time in UTC.

    A string without a zone is a time in the effective zone (``TZ``, otherwise that of the machine), as in SQL; a date is its midnight.

    >>> snapshot("at", 7), snapshot("at", "2026-01-31 12:00:00+02:00").isoformat()
    (7, '2026-01-31T10:00:00+00:00')

    Raises:
        UsageError: The value is neither an id nor a time, or it is a datetime without a zone.
    """
    found = _time_of_text(value) if isinstance(value, str) else value
    if isinstance(found, datetime):
        return in_utc(found)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(name, f"the id of a snapshot, {_TIME}", value)
    return whole_number(name, value)


def _time_of_text(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found if found.tzinfo is not None else zoned(found)


def names_hold(text: str) -> bool:
    """Return whether a string that names a snapshot is the name of a hold, and not a number or a time.

    >>> names_hold("month end"), names_hold("7"), names_hold("2026-01-31")
    (True, False, False)
    """
    return _NUMBER.fullmatch(text) is None and _time_of_text(text) is None


def age(name: str, value: object) -> timedelta:
    """Return an age, from a timedelta or a string such as "7 days".

    >>> age("min_age", "7 days")
    datetime.timedelta(days=7)

    Raises:
        UsageError: The value is not an age, or is negative.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise UsageError(f"{name} must not be negative, not {value}", parameter=name)
        return value
    try:
        return parse_age(storable(name, value))
    except UsageError:
        raise _wrong(name, "a timedelta or a string such as '7 days'", value) from None


def age_or_time(name: str, value: object) -> timedelta | datetime:
    """Return an age as :func:`age` does, or a time in UTC as :func:`time` does."""
    found = _time_of_text(value) if isinstance(value, str) else value
    return in_utc(found) if isinstance(found, datetime) else age(name, value)


def condition(name: str, value: object) -> str | Predicate | Condition:
    """Return a condition: SQL text, or one built with :func:`ducklake_core.col`.

    Raises:
        UsageError: The value is not a condition, for example an expression of another library.
    """
    if isinstance(value, Combinable):
        return value.as_condition()
    if isinstance(value, Predicate):
        return value
    foreign = foreign_kind(value)
    if foreign is not None:
        raise UsageError(
            f"{name} is {foreign}, which cannot be read. Write ducklake_core.col('a') > 5, or SQL text 'a > 5'", parameter=name
        )
    if not isinstance(value, str):
        raise _wrong(name, "a condition: SQL text, or one built with ducklake_core.col", value)
    # NUL may occur in a condition, which is compared and never stored.
    return storable(name, value, nul=True)


def sql_condition(name: str, value: object) -> str:
    """Return the condition of a branch of a merge, which reads two tables, so that only SQL text can be one."""
    if not isinstance(value, str):
        raise _wrong(name, "SQL text over t.column and s.column", value)
    return storable(name, value, nul=True)


def names_by_key(name: str, value: object) -> dict[str, tuple[str, ...]]:
    """Return a mapping whose values are names, with each of them as a tuple.

    >>> names_by_key("tables", {"t": "ab", "u": ["a", "b"]})
    {'t': ('ab',), 'u': ('a', 'b')}
    """
    return {key: names(f"{name}[{key!r}]", one) for key, one in mapping(name, value).items()}


def check_commit(given: Mapping[str, Any], known: Collection[str] = COMMIT_OPTIONS) -> None:
    """Raise for options of a commit that do not exist or have a value that no snapshot can store.

    Args:
        given: Values of the options by name.
        known: Names of the options that the caller accepts. Maintenance does not accept a commit id.

    Raises:
        UsageError: A name is unknown, or a value has the wrong type.
    """
    for name, value in given.items():
        if name not in known:
            options = f"{', '.join(list(known)[:-1])} and {list(known)[-1]}"
            raise UsageError(f"Unexpected argument {name!r}. Commit options are {options}", parameter=name)
        # The only commit option that is also accepted as a mapping.
        if name == "extra_info" and value is not None and not isinstance(value, str):
            mapping(name, value)
        else:
            optional(filled if name == "commit_id" else storable, name, value)
