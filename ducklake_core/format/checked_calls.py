"""Public methods whose arguments are checked, and whose errors name the call that the user made.

A class decorated with :func:`checked` has its public methods wrapped, inherited ones included.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    signature = inspect.signature(function)
    name_of = function.__name__
    # By the class that users know, wherever the method is written.
    whole_name = f"{owner}.{name_of}"
    checks = {} if name_of in _BLOCK else {name: check for name in signature.parameters if (check := check_for(name_of, name))}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{whole_name}(): {error}") from None
        for name, value in bound.arguments.items():
            check = checks.get(name)
            if check is not None and value is not signature.parameters[name].default:
                bound.arguments[name] = check(name, value)
        with _limited_nesting(whole_name), _named_by_call(whole_name):
            found = function(*bound.args, **bound.kwargs)
        return _iterated(found, whole_name) if inspect.isgenerator(found) else found

    return call


@contextmanager
def _limited_nesting(method: str) -> Iterator[None]:
    """Types, expressions and queries are trees, which are walked in many places."""
    try:
        yield
    except RecursionError as error:
        raise _nested(method) from error
    except UnsupportedFeatureError as error:
        # The call that the user made is the outermost one.
        if not error.details.get("nested"):
            raise
        raise _nested(method) from error.__cause__


def _nested(method: str) -> UnsupportedFeatureError:
    message = f"{method}(): something that was given, or that the catalog holds, is nested too deeply"
    return UnsupportedFeatureError(message, nested=True, call=method)


@contextmanager
def _named_by_call(method: str) -> Iterator[None]:
    """The refusal to change a lake that is read only names the call that its user made, which is the outermost one."""
    try:
        yield
    except UsageError as error:
        lake = error.details.get("read_only")
        if lake is None:
            raise
        raise UsageError(read_only_message(f"{method}()", str(lake)), read_only=lake, call=method) from None


def _iterated(rows: Iterator[Any], method: str) -> Iterator[Any]:
    with _limited_nesting(method):
        yield from rows
