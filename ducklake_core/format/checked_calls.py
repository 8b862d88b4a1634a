"""Public methods whose arguments are checked, and whose errors name the call that the user made.

A class decorated with :func:`checked` has its public methods wrapped, inherited ones included.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, TypeVar

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.argument_checks import check_for
from ducklake_core.format.types.message_text import read_only_message

Class = TypeVar("Class", bound=type)

_BLOCK = ("__enter__", "__exit__")


def checked(cls: Class) -> Class:
    """Check the arguments of all public methods of a class; where its ``with`` block begins and ends, nesting alone."""
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") and name not in _BLOCK:
            continue
        if inspect.isfunction(found):
            setattr(cls, name, _wrapped(found, cls.__name__))
        elif isinstance(found, classmethod):
            setattr(cls, name, classmethod(_wrapped(found.__func__, cls.__name__)))
    return cls


def _wrapped(function: Callable[..., Any], owner: str) -> Callable[..., Any]:
    if hasattr(function, "__wrapped__") or getattr(function, "__isabstractmethod__", False):
        return function
    name_of = function.__name__
    # By the class that users know, wherever the method is written.
    whole_name = f"{owner}.{name_of}"
    arguments = _Arguments(inspect.signature(function), name_of)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not arguments.plainly_fit(args, kwargs):
            args, kwargs = arguments.bound(args, kwargs, whole_name)
        elif arguments.checks:
            args, kwargs = arguments.checked(args, kwargs)
        try:
            found = function(*args, **kwargs)
        except RecursionError as error:
            raise _nested(whole_name) from error
        except UnsupportedFeatureError as error:
            # The call that the user made is the outermost one.
            if not error.details.get("nested"):
                raise
            raise _nested(whole_name) from error.__cause__
        except UsageError as error:
            # The refusal to change a lake that is read only names the call that its user made, which is the outermost one, too.
            lake = error.details.get("read_only")
            if lake is None:
                raise
            raise UsageError(read_only_message(f"{whole_name}()", str(lake)), read_only=lake, call=whole_name) from None
        return _iterated(found, whole_name) if inspect.isgenerator(found) else found

    return call


class _Arguments:
    """The parameters of a method, with the checks of those that have one.

    ``Signature.bind`` takes as long as a small call itself, so that the usual ways of passing arguments are told without it.
    """

    def __init__(self, signature: inspect.Signature, name_of: str) -> None:
        self._signature = signature
        self._positional = [
            name for name, found in signature.parameters.items() if found.kind in (found.POSITIONAL_ONLY, found.POSITIONAL_OR_KEYWORD)
        ]
        self._place = {name: place for place, name in enumerate(self._positional)}
        self._keywords = frozenset(
            name for name, found in signature.parameters.items() if found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)
        )
        single = (found for found in signature.parameters.values() if found.kind not in (found.VAR_POSITIONAL, found.VAR_KEYWORD))
        self._required = tuple(found.name for found in single if found.default is found.empty)
        self.checks = {} if name_of in _BLOCK else {name: check for name in signature.parameters if (check := check_for(name_of, name))}

    def plainly_fit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether each argument surely is that of one parameter, and none is missing."""
        count = len(args)
        if count > len(self._positional) or not self._keywords.issuperset(kwargs):
            return False
        if any(self._place.get(name, count) < count for name in kwargs):
            return False
        return all(self._place.get(name, count) < count or name in kwargs for name in self._required)

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that plainly fit, as the checks give them back."""
        return (
            tuple(self._check(name, value) for name, value in zip(self._positional, args, strict=False)),
            {name: self._check(name, value) for name, value in kwargs.items()},
        )

    def _check(self, name: str, value: Any) -> Any:
        check = self.checks.get(name)
        return value if check is None or value is self._signature.parameters[name].default else check(name, value)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any], whole_name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Any arguments, as the checks give them back.

        Raises:
            TypeError: They are not those of the method.
        """
        try:
            found = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{whole_name}(): {error}") from None
        for name, value in found.arguments.items():
            found.arguments[name] = self._check(name, value)
        return found.args, found.kwargs


def _nested(method: str) -> UnsupportedFeatureError:
    """Types, expressions and queries are trees, which are walked in many places."""
    message = f"{method}(): something that was given, or that the catalog holds, is nested too deeply"
    return UnsupportedFeatureError(message, nested=True, call=method)


def _iterated(rows: Iterator[Any], method: str) -> Iterator[Any]:
    try:
        yield from rows
    except RecursionError as error:
        raise _nested(method) from error
    except UnsupportedFeatureError as error:
        if not error.details.get("nested"):
            raise
        raise _nested(method) from error.__cause__
