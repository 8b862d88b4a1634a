"""An input that is what changed in a table since the asset last read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core import ChangeFeed, Condition, Scan, Table
    from ducklake_dagster.read_points import ReadPoint

_FEED = ("snapshot_id", "rowid", "change_type")


@dataclass(frozen=True, slots=True)
class AllRowsAsInserts:
    """Every row of a table as an insert, with the columns of a change feed: what a reader sees that has seen nothing yet.

    Attributes:
        scan: Reads ``snapshot_id`` (of the row's last change), ``rowid``, then the table's columns.
    """

    scan: Scan

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        import pyarrow as pa

        rows = self.scan.to_reader()
        kind = pa.field(_FEED[2], pa.string())
        schema = rows.schema.insert(2, kind)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                inserts = pa.repeat(pa.scalar("insert"), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns[:2], inserts, *batch.columns[2:]], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def to_arrow(self) -> pa.Table:
        """The rows, in memory."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """The rows, in memory."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The rows, in memory."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_spark(self, session: SparkSession) -> DataFrame:
        """The rows as a lazy frame."""
        from pyspark.sql import functions as F  # noqa: N812

        frame = self.scan.to_spark(session)
        names = [F.col("`" + name.replace("`", "``") + "`") for name in frame.columns]
        return frame.select(*names[:2], F.lit("insert").alias(_FEED[2]), *names[2:])


def changed_rows(
    table: Table, since: ReadPoint | None, columns: tuple[str, ...] | None, where: Condition | str | None, subject: str
) -> ChangeFeed | AllRowsAsInserts:
    """What changed after a snapshot up to the table's own; everything when nothing was read yet.

    Args:
        table: At the snapshot to read.
        since: What was read last.
        columns: The table's columns to load, None for all.
        where: Condition on rows.
        subject: The input, for messages.

    Raises:
        UsageError: The table is another one than that which was read.
        NotFoundError: Snapshots after the one that was read last were expired, so that changes would be missing.
    """
    names = list(columns) if columns is not None else [column.name for column in table.schema]
    if since is None:
        return AllRowsAsInserts(table.scan([*_FEED[:2], *names], where))
    anew = "materialise the asset once with ducklake_input(changes='beginning') on its input"
    if since.table_id != table.state.id:
        raise UsageError(f"input {subject}: {table.name} was dropped and made anew since it was read last; {anew}", table=table.name)
    if since.snapshot >= table.snapshot_id:
        # Nobody has committed anything since, and the feed has no snapshot to begin with.
        return AllRowsAsInserts(table.scan([*_FEED[:2], *names], "FALSE"))
    feed = table.changes(since.snapshot + 1, columns=[*_FEED, *columns] if columns is not None else None, where=where)
    try:
        feed.plan()
    except NotFoundError as error:
        raise NotFoundError(
            f"input {subject}: {table.name} was read last at snapshot {since.snapshot}, and later ones were expired: "
            f"{error.message}; {anew}",
            table=table.name,
            snapshot_id=since.snapshot,
        ) from error
    return feed
