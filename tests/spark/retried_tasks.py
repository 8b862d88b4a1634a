"""A program of its own whose Spark tasks fail once and are tried again; run by test_retried_tasks.

Usage: ``python -m tests.spark.retried_tasks directory``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROWS = 100


def main(directory: str) -> None:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_core import DuckLake
    from ducklake_core.storage.filesystems import Storage

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()

    class FailsOnce(Storage):
        """Every process fails after the first file that any of them finished, once."""

        def open_output(self, path: str) -> pa.NativeFile:
            made = list(Path(directory, "files").rglob("*-delete.parquet"))
            failed = Path(directory, "failed")
            if path.endswith("-delete.parquet") and made and not failed.exists():
                failed.touch()
                raise RuntimeError("the executor was lost")
            return super().open_output(path)

    lake = DuckLake.create(f"sqlite:///{directory}/catalog.sqlite", data_path=f"{directory}/files/")
    lake.set_option("data_inlining_row_limit", 0)
    for start in (0, ROWS):
        lake.write("t", pa.table({"x": pa.array(range(start, start + ROWS), pa.int64())}))
    lake._storage = FailsOnce()
    lake.write("t", session.sql("SELECT * FROM VALUES (5L), (105L) AS v(x)"), mode="upsert", on=["x"])
    assert Path(directory, "failed").exists()
    assert lake.table_info("t").row_count == 2 * ROWS
    assert lake.table_info("t").delete_file_count == 2
    left = list(Path(directory, "files").rglob("*-delete.parquet"))
    assert len(left) == 2, left
    session.stop()
    print("RETRIED AND CHECKED")


if __name__ == "__main__":
    main(*sys.argv[1:])
