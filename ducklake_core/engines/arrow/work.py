"""Work units of maintenance: a picklable task and the function that carries it out, in this process, on a thread or on an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

Task_contra = TypeVar("Task_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

Stopped: TypeAlias = Callable[[], bool]
"""Tells a thread whether to give up."""


class Work(Protocol[Task_contra, Result_co]):
    """Carries out tasks of one kind. What it writes is in place but not committed; when it fails it has deleted its files."""

    def __call__(self, task: Task_contra, /, *, threads: bool = True, stopped: Stopped | None = None) -> Result_co:
        """Carry out a task.

        Args:
            task: What to do. It travels to executors, so it knows nothing of the catalog.
            threads: Whether to decode columns in parallel; executors have one core for a task.
            stopped: Asked for every batch of rows.

        Raises:
            DuckLakeError: Why the task could not be carried out.
            KeyboardInterrupt: It was stopped.
        """


def until_stopped(batches: Iterable[pa.RecordBatch], stopped: Stopped | None) -> Iterator[pa.RecordBatch]:
    """The batches, as long as nobody stops the thread, which is then interrupted as Ctrl-C interrupts the main one."""
    for batch in batches:
        if stopped is not None and stopped():
            raise KeyboardInterrupt
        yield batch
