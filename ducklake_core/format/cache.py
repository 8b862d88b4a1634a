"""Caches for what ``functools.lru_cache`` does not fit: values of a limited total size, and values derived from one object."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
MAX_DERIVED = 1024
"""Maximum number of values derived from one object: a list of constants has one for each bucket of a partition."""


class BoundedCache(Generic[Key, Value]):
    """Values by key, up to a total size; the values that were not used for the longest time are dropped first.

    Threads may share a cache. A forked child starts with empty caches.

    >>> cache = BoundedCache[str, list[int]](5, size_of=len)
    >>> cache["a"], cache["b"] = [1, 2], [3, 4]
    >>> cache.get("a")
    [1, 2]
    >>> cache["c"] = [5, 6]
    >>> cache.get("a"), cache.get("b")
    ([1, 2], None)

    Args:
        max_size: Maximum total size of the values that are kept.
        size_of: Size of one value; 1 for each value when None.
    """

    def __init__(self, max_size: int, size_of: Callable[[Value], int] | None = None) -> None:
        self._max_size = max_size
        self._size_of = size_of
        self.clear()
        _caches.add(self)

    def clear(self) -> None:
        """Drop all values."""
        # With the lock: a forked child inherits it as it was, maybe held by a thread that the child does not have.
        self._lock = threading.Lock()
        self._size = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, None when there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def __setitem__(self, key: Key, value: Value) -> None:
        size = 1 if self._size_of is None else self._size_of(value)
        with self._lock:
            replaced = self._values.pop(key, None)
            self._size += size - (0 if replaced is None else replaced[1])
            self._values[key] = value, size
            # A value that is larger than the whole cache empties it and is not kept itself.
            while self._size > self._max_size:
                self._size -= self._values.popitem(last=False)[1][1]

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key, and create it if it is missing. Concurrent threads may create it twice."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        return found


_caches: WeakSet[BoundedCache[Any, Any]] = WeakSet()


def _clear_in_child() -> None:
    for cache in _caches:
        cache.clear()


os.register_at_fork(after_in_child=_clear_in_child)


class Derived(dict[Hashable, Any]):
    """Values computed from one immutable object, kept in a field of the object: they live as long as it and are not pickled with it.

    Hashing a condition with 100,000 constants takes as long as a query, so that such an object cannot be the key of a cache.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[type[Derived], tuple[()]]:
        return Derived, ()

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, and create it if it is missing. Concurrent threads may create it twice."""
        found: Value | None = self.get(key)
        if found is None:
            found = make()
            if len(self) >= MAX_DERIVED:
                # Not one by one: other threads change them meanwhile.
                self.clear()
            self[key] = found
        return found
