"""Run DuckDB in a second thread, so that a signal interrupts a query at once.

DuckDB notices a signal during a query of the main thread, but waits for its other threads before it raises. They stop only when the
connection is interrupted, which nothing can do meanwhile::

    main thread      wait for the result | KeyboardInterrupt -> connection.interrupt(), wait for the end of the query, raise it
    second thread    connection.execute(...)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Result = TypeVar("Result")

_INTERRUPT_SECONDS = 0.1


def run_interruptibly(connection: DuckDBPyConnection, work: Callable[[], Result]) -> Result:
    """Run work on a connection, and interrupt it when a signal handler raises an exception.

    Only the main thread receives signals; in another thread the work runs as it is.

    Args:
        connection: Connection that the work uses. Interrupt-safe use requires that nothing else uses it meanwhile.
        work: Function that runs queries on the connection.

    Returns:
        The result of the work.

    Raises:
        BaseException: What the signal handler raised, or what the work raised.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="ducklake-duckdb") as pool:
        future = pool.submit(copy_context().run, work)
        try:
            return future.result()
        finally:
            _end(connection, future)


def _end(connection: DuckDBPyConnection, future: Future[Result]) -> None:
    # Work of several queries begins the next one after an interruption, so that one is not enough.
    while not future.done():
        connection.interrupt()
        wait([future], timeout=_INTERRUPT_SECONDS)
