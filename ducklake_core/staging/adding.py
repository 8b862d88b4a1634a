"""Resolve the paths of files to add, and check that the lake may name the files and that they match the table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files.paths import file_key, local_part, protocol_of, spelled_like
from ducklake_core.storage.added_files import AddingRules, inspect_file
from ducklake_core.storage.filesystems import Storage, printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.format.files.name_mapping import AddedFile

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

THREADS = 16
"""Maximum number of footers that this process reads in parallel: they are small, and waiting for the store takes most of the time."""

_PATTERN = frozenset("*?[")


def find_files(storage: Storage, paths: Paths) -> list[str]:
    """Return full paths of the files of a request, each once, in order. Files of a folder or pattern are sorted.

    A path is a file, a folder with everything below it, or a pattern (``*``, ``?``, ``[...]``, ``**``). In a folder, names that begin
    with ``_`` or ``.`` are skipped, as Spark does (``_SUCCESS``, checksums, ``_temporary``), except for directories ``_key=value``.

    Args:
        storage: Opens the store.
        paths: Path, or several.

    Raises:
        NotFoundError: A path does not exist, or matches no file.
        UsageError: A folder contains files that are not Parquet files.
    """
    wanted = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not wanted:
        raise UsageError("The list of files to add is empty. Pass at least one path")
    found: dict[str, str] = {}
    for path in wanted:
        mine = list(_expanded(storage, os.fspath(path)))
        if not mine:
            raise NotFoundError(
                f"No file to add was found at {printable(os.fspath(path))}. Check the path or the pattern", path=printable(os.fspath(path))
            )
        for file in mine:
            found.setdefault(file_key(file), file)
    return list(found.values())


def inspect_files(storage: Storage, paths: Sequence[str], rules: AddingRules, spark: SparkSession | None = None) -> list[AddedFile]:
    """Check that each file matches the table, in order. Footers are read in parallel, in this process or on executors.

    Args:
        storage: Opens the store.
        paths: Full paths of the files.
        rules: The table and the options of the request.
        spark: Spark session whose executors read the footers; None for threads of this process.

    Raises:
        DuckLakeError: As :func:`inspect_file`, for the first file in order that does not match.
    """
    if spark is not None:
        from ducklake_core.engines.spark.probe import inspect_on_executors

        return inspect_on_executors(storage, paths, rules, spark)
    with ThreadPoolExecutor(max_workers=max(1, min(THREADS, len(paths))), thread_name_prefix="footers") as pool:
        try:
            return list(pool.map(lambda path: inspect_file(storage, path, rules), paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _expanded(storage: Storage, path: str) -> Iterator[str]:
    filesystem, inside = storage.filesystem(path)
    is_local = protocol_of(path) == "file"

    def full(found: str) -> str:
        return os.path.abspath(found) if is_local else spelled_like(path, found)

    with storage.reporting("list", path):
        if filesystem.isfile(inside):
            yield full(inside)
            return
        if filesystem.isdir(inside):
            folder = full(inside).rstrip("/") + "/"
        elif _PATTERN & set(inside):
            yield from sorted(full(str(found)) for found in filesystem.glob(inside) if filesystem.isfile(found))
            return
        else:
            return
    for file in sorted(stored.path for stored in storage.list(folder)):
        parts = file.removeprefix(folder).split("/")
        if any(_is_hidden(part) for part in parts):
            continue
        if not file.lower().endswith((".parquet", ".parq", ".pq")):
            raise UsageError(
                f"Folder {printable(folder)} contains {printable(file)}, which does not have the name of a Parquet file. Pass a "
                "pattern for "
                f"the files to add, such as {printable(folder)}*.parquet",
                path=printable(file),
            )
        yield file


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def encrypted_files_rejection(table: str) -> UnsupportedFeatureError:
    """Return the error for adding plain files to an encrypted lake, where readers expect a key for each file."""
    return UnsupportedFeatureError(
        f"Files cannot be added to {table}, because the lake is encrypted and the files have no keys. Read them, and append their rows",
        table=table,
    )


def local_path(path: str) -> str:
    """Return a directory of the lake in the form of :func:`find_files`: local paths are absolute."""
    if protocol_of(path) != "file":
        return path
    return os.path.abspath(local_part(path)) + "/"
