"""A lake with hand-made files, to test commits without writers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.catalog.database.bootstrap import create_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.actions import Action, AppendFiles, CreateTable
from ducklake_core.commit.request import CommitRequest, new_commit_id, stored_extra_info
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.state import LakeInfo, Snapshot
from ducklake_core.format.types.data_types import INT32, Field
from ducklake_core.format.types.schema import Schema
from tests.support.oracle import LakeAddress

COLUMNS = Schema(columns=(Field(id=1, name="a", type=INT32),))
_ARROW = pa.schema([pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "1"})])


@dataclass
class HandmadeLake:
    """A new lake; files hold one integer column ``a``."""

    address: LakeAddress
    database: Database = field(init=False)
    info: LakeInfo = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(parse_catalog_url(self.address.url))
        self.info = create_catalog(self.database, self.address.data_path)

    def latest(self) -> Snapshot:
        with self.database.read() as connection:
            return CatalogReader(connection, self.info, self.database.tables).latest_snapshot()

    def file(self, *values: int) -> WrittenFile:
        """A file of the table ``t`` in place, with these values."""
        name = paths.new_file_name(paths.write_id())
        full = Path(self.address.data_path) / "main" / "t" / name
        full.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": list(values)}, schema=_ARROW), full)
        content = full.read_bytes()
        statistics = ColumnStatistics(
            column_id=1, column_size_bytes=40, value_count=len(values), null_count=0, min_value=str(min(values)), max_value=str(max(values))
        )
        return WrittenFile(
            path=name,
            record_count=len(values),
            file_size_bytes=len(content),
            footer_size=int.from_bytes(content[-8:-4], "little"),
            statistics=(statistics,),
        )

    def create(self) -> CreateTable:
        """The creation of ``t``."""
        return CreateTable(
            table_id=-1, schema_id=0, schema_name="main", name="t", uuid=paths.uuid7(), path="t/", schema=COLUMNS, inlined=True
        )

    def append(self, *values: int, table_id: int = 1) -> AppendFiles:
        """An append of one new file."""
        return AppendFiles(table_id=table_id, schema=COLUMNS, files=(self.file(*values),))

    def staged(self, *actions: Action, base: Snapshot | None = None, commit_id: str | None = None) -> CommitRequest:
        """A transaction planned on a snapshot, the newest when none is given."""
        number = commit_id or new_commit_id()
        return CommitRequest(
            base=base or self.latest(), actions=actions, commit_id=number, names={1: "main.t"}, extra_info=stored_extra_info(number)
        )
