"""Files that Spark's reader must not take: it matches columns by their field ids and gives NULL for those that lack one.

No footer is opened to plan, so it is looked at when the files are given to Spark: here when that is a handful, in the very job
that reads them otherwise.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.engines.arrow.conform import field_id
from ducklake_core.engines.spark.sessions import is_connect
from ducklake_core.engines.spark.task_ids import task_ids
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.parquet_input import read_schema
from ducklake_core.storage.second_look import read_twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

READER_CONF = "spark.ducklake.read.files"
"""Session setting: "native" (the default) leaves to Spark's own Parquet reader what it reads exactly, "arrow" leaves it nothing."""
_FILES_PER_PARTITION = 4096
_AT_ONCE = 16
FILES_LOOKED_AT_HERE = 64
"""As many footers take some milliseconds here, once, where a task of executors takes fifty in each action."""
_MOST_REMEMBERED = 1 << 16

_looked_at: dict[tuple[Storage, str], Mapping[int, str]] = {}
"""Files that were looked at here, with what :func:`check_ids` found: none is written again under its name."""


def wants_native(session: SparkSession) -> bool:
    """Whether Spark's own reader may read files.

    Raises:
        UsageError: The setting has another value.
    """
    wanted = str(session.conf.get(READER_CONF, "native")).lower()
    if wanted not in ("native", "arrow"):
        raise UsageError(f"{READER_CONF} is {wanted!r}: set it to 'native' or 'arrow', or unset it")
    return wanted == "native"


def refusal(
    tasks: Sequence[FileTask], read: Schema, table: str, schema: StructType, storage: Storage, session: SparkSession
) -> DataFrame | None:
    """Look whether files have field ids, at one of each commit, as a commit has one writer.

    Args:
        read: The columns that are read.
        schema: Those of the frame that looks.

    Returns:
        A frame without rows that looks when it runs, and fails with what this raises; None when they were looked at here, where
        they are few and the session is not a client of Spark Connect, which need not reach them.

    Raises:
        UnsupportedFeatureError: A file lacks field ids.
        CorruptFileError: A file is no Parquet file.
        NotFoundError: There is no such file.
    """
    of_each = {(task.file.begin_snapshot, task.file.partial_max): task.file.path for task in tasks}.values()
    ids = frozenset(column.id for column in read)
    paths = [path for path in of_each if not _is_known(_looked_at.get((storage, path)), ids)]
    if len(paths) <= FILES_LOOKED_AT_HERE and not is_connect(session):
        found = _check_all(paths, ids, table, storage)
        if len(_looked_at) + len(paths) > _MOST_REMEMBERED:
            _looked_at.clear()
        _looked_at.update(((storage, path), without) for path, without in zip(paths, found, strict=True))
        return None
    parts = [paths[start : start + _FILES_PER_PARTITION] for start in range(0, len(paths), _FILES_PER_PARTITION)]
    slices = tuple(pickle.dumps(part) for part in parts)
    return session.range(0, len(slices), 1, len(slices)).mapInArrow(_checker(slices, ids, table, storage), schema)


def _is_known(without: Mapping[int, str] | None, read: frozenset[int]) -> bool:
    return without is not None and read.isdisjoint(without)


def _checker(
    slices: tuple[bytes, ...], read: frozenset[int], table: str, storage: Storage
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def check(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_ids(numbers):
            _check_all(pickle.loads(slices[number]), read, table, storage)  # noqa: S301 - made by our own function in the same job
        yield from ()

    return check


def _check_all(paths: Sequence[str], read: frozenset[int], table: str, storage: Storage) -> list[Mapping[int, str]]:
    # Stores take their time to answer.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda path: read_twice(lambda: check_ids(path, read, table, storage)), paths))


def check_ids(path: str, read: frozenset[int], table: str, storage: Storage) -> Mapping[int, str]:
    """Look whether every column of a file has an id, and all that is in those that are read.

    Args:
        read: Ids of the columns that are read.

    Returns:
        Ids and names of other columns with something in them that has none, as variants have.

    Raises:
        UnsupportedFeatureError: One has none.
        CorruptFileError: The file is no Parquet file.
    """
    where = printable(path)
    lacking = [(field_id(field), field.name) for field in read_schema(storage, path, table=table) if _lacks_id(field)]
    without = next((name for number, name in lacking if number is None or number in read), None)
    if without is not None:
        raise UnsupportedFeatureError(
            f"column {without!r} of {where} of table {table} lacks a field id, so that Spark's own reader would give NULL for it; set "
            f"{READER_CONF} to 'arrow' in the session, or register the file with a name mapping (add_data_files)",
            path=where,
            table=table,
            column=without,
        )
    return {number: name for number, name in lacking if number is not None}


def _lacks_id(field: pa.Field[Any]) -> bool:
    children: list[pa.Field[Any]] = []
    if pa.types.is_map(field.type):
        children = [field.type.key_field, field.type.item_field]
    elif pa.types.is_struct(field.type) or pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        children = [field.type.field(place) for place in range(field.type.num_fields)]
    return field_id(field) is None or any(_lacks_id(child) for child in children)
