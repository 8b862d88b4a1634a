"""Write Arrow data into a table's files, in this process."""

from __future__ import annotations

import pyarrow as pa

from ducklake_core.engines.arrow.dataset_writer import DatasetWriter
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.format.files.data_files import WrittenFile


def write_table(data: pa.Table | pa.RecordBatchReader, state: WriteState) -> tuple[WrittenFile, ...]:
    """Write all rows; the files are in place but not committed.

    Args:
        data: A table, or a reader that is consumed batch by batch.
        state: The write.

    Returns:
        The files; none when there are no rows.

    Raises:
        SchemaError: The rows do not fit the table.
        UsageError: A row does not satisfy the row_constraint.
        StorageError: A file cannot be written. In every case of failure the files of this write are deleted.
    """
    reader = data.to_reader() if isinstance(data, pa.Table) else data
    with DatasetWriter(state, first_row=0) as writer:
        for batch in reader:
            writer.write(batch)
        return tuple(writer.close())
