"""What was once derived from a condition, remembered for as long as the condition lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

MOST = 1024
"""Most values that are remembered for one condition: a list of constants may be asked about for each bucket of a partition."""

Condition = TypeVar("Condition")
Others = ParamSpec("Others")
Value = TypeVar("Value")


def remembered(derive: Callable[Concatenate[Condition, Others], Value]) -> Callable[Concatenate[Condition, Others], Value]:
    """Call the function once for a condition, its first argument, and each combination of other arguments, which are hashed.

    Conditions are told apart by identity: they may have 100,000 constants, and the same one is asked about for every file and
    batch. They are referred to weakly, so that nothing of them is left once the plan or scan that made them is gone; so the value
    must not refer to the condition itself. Threads may call at once, and then derive twice. Beyond :data:`MOST` values of one condition
    all are forgotten.

    >>> class Values(list): pass
    >>> calls = []
    >>> total = remembered(lambda values: calls.append(len(calls)) or sum(values))
    >>> one = Values([1, 2])
    >>> total(one), total(one), total(Values([1, 2])), calls
    (3, 3, 3, [0, 1])
    """
    found: dict[int, tuple[weakref.ref[Any], dict[tuple[Any, ...], tuple[Value]]]] = {}

    @wraps(derive)
    def call(condition: Condition, /, *others: Others.args, **named: Others.kwargs) -> Value:
        place = id(condition)
        held = found.get(place)
        if held is None or held[0]() is not condition:
            held = found[place] = (weakref.ref(condition, lambda _: found.pop(place, None)), {})
        values, key = held[1], (*others, *named.items())
        kept = values.get(key)
        if kept is None:
            kept = (derive(condition, *others, **named),)
            if len(values) >= MOST:
                # Not one by one: other threads change them meanwhile.
                values.clear()
            values[key] = kept
        return kept[0]

    return call
