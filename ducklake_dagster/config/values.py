"""Check values of settings, and replace secrets by placeholders that Dagster may show."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import ValidationError, model_validator

from ducklake_core.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel


SECRET: dict[str, Any] = {"dagster__is_secret": True}
"""Marks a field whose value is a secret."""
# Dagster stores and shows configuration, so a secret never enters it:
#
#   in definitions and events    "******** (password 1)"              hide() makes it, the same one for the same secret
#   when a lake is opened        the secret itself                    reveal() looks it up in this process
#   in another process           the secret itself, by __reduce__     its table of placeholders is another one
#
# Equal secrets have equal placeholders, so that Dagster and open_lake() still see whether two configurations are equal.
_PLACEHOLDER = re.compile(r"\*{8} \(.* \d+\)")
# The user and password of an address, or a parameter that is a password.
_LOGIN = re.compile(r"//[^/?#]*:[^?#]*@|\b\w*(password|passwd|secret|token)\s*=", re.IGNORECASE)
# libpq parameters and fsspec options that are secrets, and names that other libraries give to secrets.
_SECRET_NAMES = re.compile(
    r"password|passwd|pwd|secret|token|passphrase|credential|authorization|cookie|sslkeylog|key$|sas|connection_string", re.IGNORECASE
)
_LOCK = threading.Lock()
_VALUES: dict[str, str] = {}
_PLACEHOLDERS: dict[tuple[str, str], str] = {}


@contextmanager
def rejected_values(kind: type[BaseModel]) -> Iterator[None]:
    """Raise UsageError for values that a configuration does not accept.

    Raises:
        UsageError: The block raised a ValidationError. The values are not repeated: they may be secrets.
    """
    try:
        yield
    except ValidationError as error:
        faults = error.errors()
        parameter = ".".join(map(str, faults[0]["loc"]))
        raise UsageError(f"{kind.__name__}: {'; '.join(map(_fault, faults))}", parameter=parameter) from None


def _fault(fault: Mapping[str, Any]) -> str:
    name, text = ".".join(map(str, fault["loc"])), str(fault["msg"])
    if fault["type"] in ("missing", "model_attributes_type") or fault["input"] is None:
        return f"{name} is required"
    # A validator of this library raises UsageError.
    rejected = fault.get("ctx", {}).get("error")
    if isinstance(rejected, UsageError) or not text.startswith("Input should be "):
        return f"{name}: {rejected.message if isinstance(rejected, UsageError) else text}"
    return f"{name} must be {text.removeprefix('Input should be ')}"


def reject_unknown_fields(kind: type[BaseModel], given: Iterable[str]) -> None:
    """Reject fields that a configuration does not have, which Dagster ignores.

    Raises:
        UsageError: There is such a field.
    """
    shown = {field.alias or name for name, field in kind.model_fields.items()}
    unknown = sorted(set(given) - shown - set(kind.model_fields))
    if unknown:
        near = get_close_matches(unknown[0], shown, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(
            f"{kind.__name__} has no field {', '.join(unknown)}{hint}. Its fields are {', '.join(sorted(shown))}", parameter=unknown[0]
        )


def is_number(value: object) -> bool:
    """Return whether a value is a number other than NaN, which cannot be compared."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - NaN differs from itself


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def reject_no_text(what: str, value: object) -> None:
    """Reject a value that is not a string, or is empty.

    Raises:
        UsageError: The value is not a string, or is empty.
    """
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} must be a non-empty string, not {value!r}", parameter=what)


def age_of(value: timedelta | str, name: str = "max_age") -> timedelta:
    """Return a span of time from a timedelta, or from a string such as ``"26 hours"``.

    Args:
        value: The timedelta or string.
        name: Name of the setting, for the message.

    Raises:
        UsageError: The value is neither.
    """
    if isinstance(value, timedelta):
        return value
    from ducklake_core import parse_age

    try:
        return parse_age(value)
    except (UsageError, TypeError, AttributeError):
        raise UsageError(f"{name} must be a timedelta or a string such as '7 days', not {value!r}", parameter=name) from None


def shown_age(age: timedelta) -> str:
    """Return an age in words.

    >>> shown_age(timedelta(hours=26, minutes=3)), shown_age(timedelta(seconds=90))
    ('1.1 days', '1.5 minutes')
    """
    seconds = age.total_seconds()
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _renew_lock() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it, and would never release it here."""
    global _LOCK  # noqa: PLW0603
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def hide(name: str, value: str) -> str:
    """Return the placeholder of a secret, the same for the same secret. Placeholders and ``dg.EnvVar`` are returned unchanged."""
    if isinstance(value, dg.EnvVar) or not value or _is_mask(value):
        return value
    with _LOCK:
        if (name, value) not in _PLACEHOLDERS:
            number = sum(known == name for known, _ in _PLACEHOLDERS) + 1
            placeholder = f"******** ({name} {number})"
            _PLACEHOLDERS[name, value], _VALUES[placeholder] = placeholder, value
        return _PLACEHOLDERS[name, value]


def reveal(text: str) -> str:
    """Return the secret that a placeholder stands for; any other string is returned unchanged.

    Raises:
        UsageError: The placeholder belongs to another process, or is the mask that Dagster itself shows.
    """
    found = _VALUES.get(text)
    if found is not None:
        return found
    if _is_mask(text):
        raise UsageError(
            f"{text} is a placeholder for a secret, and this process does not know the secret. Remove the field from the run config to use "
            "the value of the definitions, or use dg.EnvVar in the run config"
        )
    return text


def _is_mask(text: str) -> bool:
    return text == "********" or _PLACEHOLDER.fullmatch(text) is not None


def hide_in_text(name: str, value: str) -> str:
    """Return the string, or its placeholder when it is an address with a password."""
    return hide(name, value) if _LOGIN.search(value) else value


class SecretiveConfig(dg.Config):
    """Configuration that stores placeholders instead of secrets and rejects unknown fields."""

    if not TYPE_CHECKING:
        # Type checkers use the fields. Dagster ignores fields that do not exist.
        def __init__(self, **data: Any) -> None:
            reject_unknown_fields(type(self), data)
            with rejected_values(type(self)):
                super().__init__(**data)

    @model_validator(mode="before")
    @classmethod
    def _hide_secrets(cls, data: Any) -> Any:
        return {name: cls._hidden(name, value) for name, value in data.items()} if isinstance(data, Mapping) else data

    @classmethod
    def _hidden(cls, name: str, value: Any) -> Any:
        if isinstance(value, dg.EnvVar):
            return value
        if isinstance(value, Mapping):
            return {key: hide(str(key), one) if _is_secret_option(key, one) else cls._hidden(str(key), one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [hide(name, one) if _is_secret_option(name, one) else cls._hidden(name, one) for one in value]
        if not isinstance(value, str):
            return value
        field = cls.model_fields.get(name)
        extra = field.json_schema_extra if field else None
        return hide(name, value) if isinstance(extra, Mapping) and extra.get("dagster__is_secret") else hide_in_text(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Placeholders have no value in another process.
        return _rebuild, (type(self), {name: revealed(getattr(self, name)) for name in type(self).model_fields})


def _is_secret_option(key: object, value: object) -> bool:
    return isinstance(value, str) and _SECRET_NAMES.search(str(key)) is not None


def revealed(value: Any) -> Any:
    """Return a value of configuration with secrets instead of their placeholders."""
    if isinstance(value, dg.EnvVar):
        return value
    if isinstance(value, Mapping):
        return {key: revealed(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [revealed(one) for one in value]
    return reveal(value) if isinstance(value, str) else value


def _rebuild(cls: type[SecretiveConfig], settings: dict[str, Any]) -> SecretiveConfig:
    return cls(**settings)
