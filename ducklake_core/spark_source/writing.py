"""The executors' part of a write: write Parquet files at their final paths and report them."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import DatasetWriter, file_from_json, file_to_json
from ducklake_core.engines.spark.work_units import UNSEEN_WAIT
from ducklake_core.errors import CommitError
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.storage.unfinished import NamedFiles, sweep

_PREFIX = "ducklake-write-"
# None for the directory that the environment names.
_DIRECTORY: str | None = None

Replaced: TypeAlias = Literal["all", "partitions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """One write into one table, as it goes to executors and comes back with their reports.

    Attributes:
        state: What writers need.
        table_id: The table; ``uuid`` is its uuid.
        replaces: What the rows replace: ``all`` rows of the table, those of the ``partitions`` that they are in, or nothing.
        created: Uuid of the table where the write is to make it.
        note: What planning left for the end of the write.
    """

    state: WriteState
    table_id: int
    uuid: str
    replaces: Replaced | None
    note: SealedWriteOptions
    created: str | None = None

    def sweep(self, named: NamedFiles, keep: Sequence[WrittenFile] = ()) -> None:
        """Delete the files of the write, except some and those that the catalog names."""
        sweep(self.state.storage, self.state.directory, self.state.write_id, named=named, keep=[file.path for file in keep])

    def sweep_aborted(self, named: NamedFiles) -> None:
        """Delete all files of the write, also those of tasks that Spark ends only after it has aborted the write."""
        try:
            self.sweep(named)
            # Spark ends the tasks of an aborted write only after this call, and they may finish a file until then.
            time.sleep(UNSEEN_WAIT)
        finally:
            self.sweep(named)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesMessage(WriterCommitMessage):
    """The files of one task.

    Attributes:
        plan: The write that they are part of.
        files: Their reports.
        attempt: How often the task was tried before.
    """

    plan: WritePlan
    files: tuple[str, ...]
    attempt: int


def write_rows(batches: Iterable[pa.RecordBatch], plan: WritePlan) -> FilesMessage:
    """Write the rows of one task."""
    from pyspark import TaskContext

    with DatasetWriter(plan.state) as writer:
        for batch in batches:
            writer.write(batch)
        files = tuple(file_to_json(file) for file in writer.close())
    context = TaskContext.get()
    return FilesMessage(plan=plan, files=files, attempt=context.attemptNumber() if context is not None else 0)


def reported(messages: Iterable[FilesMessage]) -> tuple[WrittenFile, ...]:
    """Return the files that tasks reported."""
    return tuple(file_from_json(file) for message in messages for file in message.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedWriteOptions:
    """Path of a note, and the key to it.

    Attributes:
        path: The file, readable by its owner alone.
        key: Of its contents.
    """

    path: str
    key: bytes = field(repr=False)

    @classmethod
    def store(cls, contents: Mapping[str, str]) -> SealedWriteOptions:
        """Leave a note in the driver's directory for temporary files."""
        from ducklake_core.storage.encryption.reading import Cipher

        key = secrets.token_bytes(32)
        handle, path = tempfile.mkstemp(prefix=_PREFIX, dir=_DIRECTORY)
        with os.fdopen(handle, "wb") as file:
            file.write(Cipher(key).encrypt_module(json.dumps(dict(contents)).encode()))
        return cls(path=path, key=key)

    def claim(self) -> dict[str, str]:
        """Read the note and take it away; only one caller gets it.

        Raises:
            CommitError: It is missing: the write was committed or aborted before, or this is not the machine where it was planned.
        """
        from ducklake_core.storage.encryption.reading import Cipher

        mine = f"{self.path}.taken"
        try:
            # Of two callers only one can move it.
            Path(self.path).rename(mine)
        except OSError:
            raise CommitError(
                "this write cannot be committed, because its options were deleted from the directory of temporary files of the driver. "
                "Run the write again"
            ) from None
        sealed = Path(mine).read_bytes()
        Path(mine).unlink()
        contents: dict[str, str] = json.loads(Cipher(self.key).decrypt_module(memoryview(sealed), 0)[0])
        return contents

    def withdraw(self) -> bool:
        """Take the note away unread; False when no commit may be undone because one has begun, or the write was ended before."""
        try:
            Path(self.path).unlink()
        except OSError:
            return False
        return True
