"""The processes that Spark's Python Data Source API runs, without a JVM: what goes from one to the other is pickled as Spark does it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from ducklake_core.spark_source.source import DuckLakeDataSource
from tests.support.oracle import LakeAddress

ROOT = Path(__file__).parents[3]
EXECUTOR = """
import json, sys
from pathlib import Path
from pyspark.cloudpickle import dumps, loads
import pyarrow as pa
work, argument = (loads(Path(path).read_bytes()) for path in sys.argv[1:3])
done = work(argument)
loaded = sorted({name.split(".")[0] for name in sys.modules} & {"sqlalchemy", "psycopg", "dagster", "duckdb"})
Path(sys.argv[3]).write_bytes(dumps((done, loaded)))
"""


def data_source(address: LakeAddress, table: str | None = "t", **options: str) -> DuckLakeDataSource:
    """A data source as Spark makes it."""
    named = {} if table is None else {"path": table}
    return DuckLakeDataSource(CaseInsensitiveDict({"catalogUrl": address.url, **named, **options}))


def passed_on(value: Any) -> Any:
    """A value after its way from one Python process of the driver to another."""
    return loads(dumps(value))


def read_function(source: DuckLakeDataSource, reader: Any) -> Any:
    """Return the pickled function of a read, which holds the source as well."""

    def read(partition: Any) -> Any:
        return source.name() and list(reader.read(partition))

    return read


def write_function(writer: Any) -> Any:
    """Return the pickled function of a write."""

    def write(batches: Any) -> Any:
        return writer.write(iter(batches))

    return write


def planned(source: DuckLakeDataSource, schema: StructType | None = None) -> tuple[Any, list[Any]]:
    """The function and the partitions of a batch read."""
    columns = source.schema() if schema is None else schema
    source = passed_on(source)
    reader = source.reader(columns)
    return read_function(source, reader), list(reader.partitions())


def read(source: DuckLakeDataSource, schema: StructType | None = None) -> pa.Table:
    """The rows of a batch read, with everything shipped on the way."""
    function, partitions = planned(source, schema)
    return pa.Table.from_batches([batch for part in partitions for batch in passed_on(function)(passed_on(part))])


def on_an_executor(function: Any, argument: Any, folder: Path) -> tuple[Any, list[str]]:
    """Run in a process of its own: the result, and which libraries of the catalog were loaded there."""
    names = [folder / name for name in ("function", "argument", "result")]
    for path, value in zip(names, (function, argument), strict=False):
        path.write_bytes(dumps(value))
    command = [sys.executable, "-c", EXECUTOR, *map(str, names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found: tuple[Any, list[str]] = loads(names[2].read_bytes())
    return found


def schema_of(ddl: str) -> StructType:
    """A Spark schema; Spark's own parser needs a JVM."""
    fields = [
        {"name": name, "type": {"bigint": "long", "int": "integer"}.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in (field.split(" ") for field in ddl.split(", "))
    ]
    return StructType.fromJson(json.loads(json.dumps({"type": "struct", "fields": fields})))
