"""The data source that Spark knows as ``ducklake``."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.spark_source.options import parse_options, user_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

    from ducklake_core.spark_source.options import Purpose, SourceOptions


class DuckLakeDataSource(DataSource):
    """``format("ducklake")``. Spark makes one on the driver for each read and write.

    It pickles the source together with the function that reads, so planning a read takes the options out of it.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options
        # What a read is planned on elsewhere and later has to be what its columns were taken from.
        self._snapshot_id: int | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "ducklake"

    @user_errors
    def schema(self) -> StructType:
        """Return the columns of the table, or of the feed that a stream reads."""
        from ducklake_core.spark_source.readers import feed_columns, table_columns

        # Spark does not say which of the two it is going to be.
        options = self._parsed("schema")
        if options.feed != "insertions":
            return feed_columns(options)
        columns, self._snapshot_id = table_columns(options)
        return columns

    @user_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a snapshot."""
        from ducklake_core.spark_source.readers import ScanReader

        options = self._taken("read")
        if self._snapshot_id is not None:
            options = replace(options, version=self._snapshot_id, timestamp=None)
        return ScanReader(options, schema)

    @user_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of the change feed."""
        from ducklake_core.spark_source.readers import FeedReader

        return FeedReader(self._taken("readStream"), schema)

    @user_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that commits a frame as one snapshot."""
        from ducklake_core.spark_source.committing import connected, plan_write
        from ducklake_core.spark_source.writers import TableWriter

        given = dict(self.options)
        options = self._taken("write")
        with connected(options) as lake:
            return TableWriter(plan_write(lake, options, schema, given, overwrite=overwrite, create=options.create))

    @user_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer that commits each micro-batch as one snapshot."""
        try:
            from ducklake_core.spark_source.writers import StreamWriter
        except ImportError as error:
            raise UnsupportedFeatureError("writing streams with format('ducklake') needs Spark 4.1 or later") from error

        return StreamWriter(self._parsed("writeStream"), schema, overwrite)

    def _parsed(self, purpose: Purpose) -> SourceOptions:
        return parse_options(dict(self.options), purpose)

    def _taken(self, purpose: Purpose) -> SourceOptions:
        parsed = self._parsed(purpose)
        # Parsed options hold addresses and secrets, which must not be pickled with the source.
        self.options = type(self.options)()
        return parsed
