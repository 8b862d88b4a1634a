"""Rows that can be had as a stream of Arrow batches, and from there in every form in which frames come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from ducklake_core.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

DtypeBackend: TypeAlias = Literal["numpy", "numpy_nullable", "pyarrow"]
"""Types of the columns of a pandas frame, as pandas' own readers call them."""

_LEAST_POLARS = 2


class Readable(ABC):
    """What can be read: a table, a scan, a change feed, a view, a table within a transaction.

    It is also an Arrow stream for every library that takes one (``pa.table(x)``, ``pl.DataFrame(x)``, ``duckdb.sql("FROM x")``,
    ``pd.DataFrame.from_arrow(x)``): it streams, so that memory is bounded by a few batches until that library collects them, and it can
    be read as often as one likes.
    """

    __slots__ = ()

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream with a known schema, for writers and engines that take one."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A new stream of the rows in Arrow's PyCapsule protocol; it may ask for another schema that the values can be cast to."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in Arrow batches; memory is bounded by a few batches. Planned when the first batch is asked for."""
        yield from self.to_reader()

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table, in no particular order."""
        return self.to_reader().read_all()

    def head(self, n: int = 5) -> pa.Table:
        """Any ``n`` rows as an Arrow table; reading ends with the batch that has the last of them."""
        reader = self.to_reader()
        return pa.Table.from_batches(first_rows(iter(reader), n), schema=reader.schema)

    def to_pandas(self, *, dtype_backend: DtypeBackend = "numpy") -> pd.DataFrame:
        """All rows as a pandas frame.

        Args:
            dtype_backend: ``"numpy"`` for the types that pyarrow chooses, where whole numbers with NULLs become floats;
                ``"numpy_nullable"`` or ``"pyarrow"`` for types that hold NULL, as pandas' own readers have them.

        Raises:
            UsageError: A column of whole numbers has NULLs and a number that no float holds; take one of the other two.
            UnsupportedFeatureError: Dates before the year 1 or after 9999, or 24:00:00, which ``"pyarrow"`` alone holds.
        """
        from ducklake_core.engines.arrow.pandas_frame import pandas_frame

        return pandas_frame(self.to_arrow(), dtype_backend)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame.

        Integers of 128 bits come as decimals of 38 digits.

        Raises:
            UnsupportedFeatureError: Polars is not installed or older than 2.0, or has no type for the values of a column.
        """
        from ducklake_core.engines.arrow.other_libraries import check_intervals, with_narrow_decimals

        polars = _optional("polars", "to_polars", "pip install 'ducklake-dagster[polars]'")
        if int(polars.__version__.partition(".")[0]) < _LEAST_POLARS:
            # Earlier ones make columns of Python objects of a stream, or texts of nested JSON.
            message = f"to_polars() needs polars {_LEAST_POLARS} or later, not {polars.__version__}: pip install 'ducklake-dagster[polars]'"
            raise UnsupportedFeatureError(message, package="polars")
        reader = self.to_reader()
        check_intervals(reader.schema, "polars")
        narrow = with_narrow_decimals(reader)
        # Errors of a stream that Polars reads are its own.
        frame: pl.DataFrame = polars.DataFrame(reader if narrow is reader else narrow.read_all())
        return frame

    def to_duckdb(self, connection: DuckDBPyConnection | None = None) -> DuckDBPyRelation:
        """The rows as a DuckDB relation, which reads them, as a stream, each time it is run.

        Integers of 128 bits come as decimals of 38 digits.

        Args:
            connection: Where it can be queried; DuckDB's default connection when None.

        Raises:
            UnsupportedFeatureError: DuckDB is not installed.
        """
        from ducklake_core.engines.arrow.other_libraries import NarrowStream

        duckdb = _optional("duckdb", "to_duckdb", "pip install 'ducklake-dagster[duckdb]'")
        relation: DuckDBPyRelation = (duckdb.default_connection() if connection is None else connection).from_arrow(NarrowStream(self))
        return relation


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The first rows of batches; what comes after them is neither asked for nor left open."""
    left = count
    # Generators of files close the file they are at when they are closed; readers of other libraries have nothing to close.
    with closing(_Closable(batches)) as rows:
        while left > 0:
            batch = next(rows.batches, None)
            if batch is None:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows


class _Closable:
    """An iterator that is closed if it can be."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.batches = batches

    def close(self) -> None:
        close = getattr(self.batches, "close", None)
        if close is not None:
            close()


def _optional(package: str, method: str, install: str) -> ModuleType:
    """A library that is no dependency, refused by its name where it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedFeatureError(f"{method}() needs the {package} package: {install}", package=package) from error
