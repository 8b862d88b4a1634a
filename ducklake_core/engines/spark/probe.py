"""Read footers and probe the environment on Spark executors."""

from __future__ import annotations

import json
import pickle
import platform
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.spark.tasks import task_ids
from ducklake_core.errors import DuckLakeError
from ducklake_core.storage.added_files import AddingRules, inspect_file
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.files.name_mapping import AddedFile


_CONTENT = b"doctor"

_FILES_OF_A_TASK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorProbe:
    """The findings of one executor.

    Attributes:
        python: Version of its Python.
        packages: Versions of the requested packages that are installed.
        size: Size of the requested file in bytes, None without a file.
        reading: Why the store cannot be read, None when it can.
        writing: Why the store cannot be written, None when it can or was not tried.
    """

    python: str
    packages: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None
    reading: str | None = None
    writing: str | None = None


def installed(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed in this process."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def written_and_deleted(storage: Storage, directory: str) -> str | None:
    """Write a small file, check its size and delete it; return the reason of a failure, None on success."""
    path = f"{directory}ducklake-doctor-{uuid.uuid4()}.tmp"
    try:
        with storage.reporting("write", path), storage.open_output(path) as sink:
            sink.write(_CONTENT)
        size = storage.size(path)
    except DuckLakeError as error:
        return error.message
    failed = storage.delete([path]).failed
    if failed:
        return failed[0][1]
    return None if size == len(_CONTENT) else f"read {size} bytes instead of {len(_CONTENT)}"


def probe_executor(
    session: SparkSession, storage: Storage, data_path: str, file: str | None, *, write: bool, packages: Sequence[str]
) -> ExecutorProbe:
    """Let one executor inspect its environment and the store.

    Args:
        session: The session, classic or Connect.
        storage: The lake's storage; it travels to the executor.
        data_path: The lake's data path.
        file: A file whose size to read; None to check only that the data path exists.
        write: Whether to write a small file and delete it.
        packages: Names of the packages whose versions to report.
    """
    look = _looking(storage, data_path, file, tuple(packages), write=write)
    rows = session.range(0, 1, 1, 1).mapInArrow(look, "found string").collect()
    return ExecutorProbe(**json.loads(rows[0]["found"]))


def _looking(
    storage: Storage, data_path: str, file: str | None, packages: Sequence[str], *, write: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def look(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            found = look_here(storage, data_path, file, packages, write=write)
            yield pa.RecordBatch.from_pydict({"found": [json.dumps(asdict(found))]})

    return look


def look_here(storage: Storage, data_path: str, file: str | None, packages: Sequence[str], *, write: bool) -> ExecutorProbe:
    """Return the findings of this process."""
    size, reading = None, None
    try:
        if file is None:
            storage.exists(data_path)
        else:
            size = storage.size(file)
    except DuckLakeError as error:
        reading = error.message
    return ExecutorProbe(
        python=platform.python_version(),
        packages=installed(packages),
        size=size,
        reading=reading,
        writing=written_and_deleted(storage, data_path) if write else None,
    )


def inspect_on_executors(storage: Storage, paths: Sequence[str], rules: AddingRules, session: SparkSession) -> list[AddedFile]:
    """Inspect every path, in order, as :func:`ducklake_core.storage.added_files.inspect_file` does.

    Raises:
        DuckLakeError: The error of the first file, in order, that cannot be added.
    """
    if not paths:
        return []
    groups = tuple(tuple(paths[start : start + _FILES_OF_A_TASK]) for start in range(0, len(paths), _FILES_OF_A_TASK))
    numbers = session.range(0, len(groups), 1, len(groups))
    rows = numbers.mapInArrow(_inspector(storage, groups, rules), "number long, result binary").collect()
    by_number = {row["number"]: pickle.loads(row["result"]) for row in rows}  # noqa: S301 - made by our own function in the same job
    found: list[AddedFile] = []
    for number in range(len(groups)):
        for outcome in by_number[number]:
            if isinstance(outcome, DuckLakeError):
                raise outcome
            found.append(outcome)
    return found


def _inspector(
    storage: Storage, groups: Sequence[tuple[str, ...]], rules: AddingRules
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            outcomes = [_outcome(storage, path, rules) for path in groups[number]]
            yield pa.RecordBatch.from_pydict({"number": [number], "result": pa.array([pickle.dumps(outcomes)], pa.binary())})

    return run


def _outcome(storage: Storage, path: str, rules: AddingRules) -> AddedFile | DuckLakeError:
    try:
        return inspect_file(storage, path, rules)
    except DuckLakeError as error:
        return error
