"""A caller's Spark DataFrame: its columns, and the operations that its session carries out on its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ducklake_core.engines.arrow.frame import check_index
from ducklake_core.engines.spark.types import from_spark_schema, type_parts
from ducklake_core.errors import UsageError
from ducklake_core.format.evolution.reconciliation import with_adopted_types, with_types_for_nulls
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import empty_plan, written_plan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.engines.arrow.merge import MergeSource
    from ducklake_core.engines.arrow.positions import DeleteTarget, Deletions
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.files.data_files import WrittenFile
    from ducklake_core.format.state import TableState
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.storage.filesystems import Storage
    from ducklake_core.storage.unfinished import NamedFiles


OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
"""The setting that decides whether overwrites of Spark's own sources replace all partitions (static) or those of the data (dynamic)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFrame:
    """A DataFrame, classic or Connect; made by :func:`spark_frame`. Spark computes it each time that its rows are needed.

    Attributes:
        data: The DataFrame.
        schema: The columns, without ids.
        is_seen: False, because its values are not known before they are written.
        is_small: False, because its size is unknown before it is computed; the same holds for ``is_surely_empty``.
        kind: Name of the data for messages.
        inlines_by_default: Whether few rows go into the catalog by default: False, because counting them may compute the frame twice.
    """

    data: DataFrame
    schema: Schema
    is_seen: ClassVar[bool] = False
    is_small: ClassVar[bool] = False
    is_surely_empty: ClassVar[bool] = False
    kind: ClassVar[str] = "Spark DataFrame"
    inlines_by_default: ClassVar[bool] = False

    @property
    def session(self) -> SparkSession:
        """Return the session that does the work."""
        return self.data.sparkSession

    @property
    def is_typed(self) -> bool:
        """Return whether there are columns, and each of them has a type of its own."""
        from pyspark.sql.types import NullType

        return bool(self.data.columns) and not any(isinstance(column.dataType, NullType) for column in self.data.schema)

    def checked_empty(self) -> tuple[bool, SparkFrame]:
        """Return whether there are no rows, and the frame, which is computed until it has one."""
        return self.data.isEmpty(), self

    def check_overwrites_all(self, table: TableState) -> None:
        """Raise where the session's setting contradicts an overwrite of all rows.

        Raises:
            UsageError: The table is partitioned, and ``spark.sql.sources.partitionOverwriteMode`` is ``dynamic``.
        """
        if table.partition_spec is None:
            return
        if (self.session.conf.get(OVERWRITE_MODE, "static") or "static").lower() == "dynamic":
            raise UsageError(
                f"the overwrite would replace all rows of {table.qualified_name}, but the Spark session sets {OVERWRITE_MODE} to dynamic, "
                "which replaces only the partitions of the data. Set it to static to replace all rows, or write with "
                "partitions='in_data' to replace only these partitions",
                table=table.qualified_name,
                setting=OVERWRITE_MODE,
            )

    def schema_for(self, table: Schema) -> Schema:
        """Return the columns, where those of Spark's type void take the type of the table's column."""
        return with_adopted_types(self.typed_like(table).schema, table, lambda column, _: column.type)

    def typed_like(self, table: Schema) -> SparkFrame:
        """Return the frame; columns, elements and fields of Spark's type void take the table's types."""
        given = {field.name: field.dataType for field in self.data.schema}
        return replace(self, schema=with_types_for_nulls(self.schema, table, given, type_parts))

    def replayable(self) -> SparkFrame:
        """Return the frame itself."""
        return self

    def few_rows(self, limit: int, most_bytes: int) -> tuple[pa.Table | None, SparkFrame]:
        """Return the rows as a table in this process, None above the limit of rows or bytes; and the frame."""
        from ducklake_core.engines.spark.write import few_rows

        return few_rows(self.data, limit, most_bytes), self

    def write(self, state: WriteState, named: NamedFiles | None = None) -> tuple[WrittenFile, ...]:
        """Write all rows to new files of a table on executors. On failure the files are deleted.

        Here and below, ``named`` reports the files that the catalog names: they are never swept.
        """
        from ducklake_core.engines.spark.write import write_frame

        return write_frame(self.data, state, named)

    def delete_by_key(
        self,
        plan_where: Callable[[Predicate | None], ScanPlan],
        key_columns: Schema,
        written: Sequence[WrittenFile],
        target: DeleteTarget,
        storage: Storage,
        named: NamedFiles | None = None,
    ) -> Deletions:
        """Write delete files for the rows of a table whose key columns equal those of a row of the frame.

        Args:
            plan_where: Returns a scan of the key columns of the rows that may satisfy a predicate.
            key_columns: Those of the table.
            written: The files that the frame was written to, below the target's directory.
            target: Where to write delete files.
            storage: How to reach files.
            named: Reports the files that the catalog names.

        Raises:
            UsageError: A key of the frame is NULL or repeated.
        """
        from ducklake_core.engines.arrow.merge import key_bounds
        from ducklake_core.engines.spark.positions import few_keys, find_key_positions, find_positions
        from ducklake_core.engines.spark.read import read_plan

        # A frame may return different rows each time that it is computed. The keys must be those of the rows that were written.
        rows = written_plan(empty_plan("upsert", 0, key_columns), key_columns.names, target.directory, written)
        few = few_keys(rows, storage, self.session)
        known = few.values() if few is not None else [None] * len(key_columns.names)
        within = plan_where(key_bounds(key_columns.columns, known, written))
        if few is not None:
            return find_positions(within, target, storage, self.session, named, few)
        return find_key_positions(
            within, target, storage, read_plan(rows, storage, self.session, exact=False), key_columns.names, named=named
        )

    def merge_source(self, state: WriteState, named: NamedFiles | None = None, columns: Schema | None = None) -> MergeSource:
        """Return the rows as the source of a merge: computed once, in files next to the table's.

        They have the frame's own columns, or ``columns``, which the frame has by name.
        """
        from ducklake_core.engines.arrow.merge import MergeSource, source_ids

        schema = source_ids(self.schema if columns is None else columns)
        plain = replace(state, schema=schema, partition_spec=None, row_constraint=None, sort=())
        files = self.write(plain, named)
        return MergeSource(schema=schema, files=files, directory=state.directory, session=self.session, storage=state.storage)

    def empty_source(self, columns: Schema, state: WriteState) -> MergeSource:
        """Return the source of a merge that has columns and no rows."""
        from ducklake_core.engines.arrow.merge import MergeSource, source_ids

        return MergeSource(schema=source_ids(columns), directory=state.directory, session=self.session, storage=state.storage)


def spark_frame(data: DataFrame) -> SparkFrame:
    """Return the frame of a DataFrame.

    Raises:
        UnsupportedFeatureError: A column of a type that cannot be carried.
    """
    return SparkFrame(data=data, schema=from_spark_schema(data.schema))


def of_pandas_on_spark(data: Any) -> DataFrame:
    """Return the DataFrame of a pandas-on-Spark frame.

    Raises:
        UsageError: Its index is named: it was a column, which would be lost.
    """
    check_index(data, "pandas-on-Spark DataFrame")
    found: DataFrame = data.spark.frame()
    return found
