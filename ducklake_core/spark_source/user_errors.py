"""Errors of the data source as Spark shows them to its user: the error itself, without the frames of this library."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ducklake_core.errors import DuckLakeError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def user_errors(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Raise errors of this library without their inner frames: Spark puts the whole traceback into the message that users see."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except DuckLakeError as error:
            raise error.with_traceback(None) from None

    return call


def error_while_pickling(error: DuckLakeError) -> DuckLakeError:
    """Return the error in a form that Spark passes on while it pickles.

    Spark turns every error that is raised while it pickles into "Could not serialize object", except errors of pickling themselves, so the
    returned error is both. Its class has the name of the error's own.
    """
    own = type(error)
    both = type(own.__name__, (own, pickle.PicklingError), {"__module__": own.__module__, "__qualname__": own.__qualname__})
    found: DuckLakeError = both(error.message, **error.details)
    return found
