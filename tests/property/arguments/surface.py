"""The public surface, found from the signatures: every class that users hold, every method, every parameter, and a call that works."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core import DuckLake, Explanation, Inspection, LakeAtSnapshot, Table, Transaction
from ducklake_core.format.state import Snapshot
from ducklake_core.maintenance.cleanup import CleanupResult
from ducklake_core.maintenance.expire import ExpiryResult, Holds
from ducklake_core.maintenance.merge import MergeResult
from ducklake_core.maintenance.orphans import OrphansResult
from ducklake_core.merge_builder import Merge
from ducklake_core.results import LakeSettings, TableInfo, TransactionResult, WriteResult
from ducklake_core.scan import ChangeFeed, PlannedFeed, PlannedScan, Scan
from ducklake_core.staging.reads import TransactionTable
from ducklake_core.view import View

CLASSES = (DuckLake, Holds, LakeAtSnapshot, Inspection, Table, View, Scan, ChangeFeed, Transaction, TransactionTable, Merge)
RESULTS = (
    WriteResult, TransactionResult, TableInfo, LakeSettings, Snapshot, CleanupResult, ExpiryResult, MergeResult, OrphansResult,
    PlannedScan, PlannedFeed, Explanation,
)  # fmt: skip

# What the data source hands over inside the library, and what makes more than the call itself.
INTERNAL = {"stage_created", "stage_written", "merge_clauses", "reader", "definition"}

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "b": ["x", "y", None],
        "day": pa.array([dt.date(2020, 1, 1), None, dt.date(2021, 5, 1)]),
        "v": pa.array([1.5, None, float("nan")]),
    }
)
FEW = ROWS.slice(0, 1)
_ZERO = dt.timedelta(0)
_NAMED: Mapping[str, Any] = {
    "name": "t",
    "table": "t",
    "column": "b",
    "data": FEW,
    "source": FEW,
    "at": None,
    "start": 0,
    "after": 0,
    "dry_run": True,
}
# Valid arguments of parameters whose name does not determine them.
_VALID: Mapping[str, Mapping[str, Any]] = {
    "connect": {"catalog": None},
    "open": {"catalog": None},
    "create": {"catalog": None, "data_path": None},
    "create_schema": {"name": "new"},
    "drop_schema": {"name": "s"},
    "create_table": {"name": "new", "schema": {"a": "int"}},
    "create_table_as": {"name": "new"},
    "rename_table": {"new_name": "new"},
    "create_view": {"name": "new", "sql": "SELECT id FROM t"},
    "rename_view": {"name": "w", "new_name": "new"},
    "drop_view": {"name": "w"},
    "view": {"name": "w"},
    "create_macro": {"name": "m2", "definitions": {"x": "x + 1"}},
    "drop_macro": {"name": "m"},
    "set_comment": {"text": "c", "column": None},
    "set_tag": {"key": "k", "value": "v", "column": None},
    "set_schema_comment": {"name": "s", "text": "c"},
    "set_schema_tag": {"name": "s", "key": "k", "value": "v"},
    "find_commit": {"commit_id": "c-1"},
    "changed_tables": {"after": 0, "tables": {"t": ["id"]}},
    "statistics": {"tables": {"t": ["id"]}},
    "earliest_values": {"columns": {}},
    "set_option": {"name": "target_file_size", "value": "1MB", "table": None, "schema": None},
    "unset_option": {"name": "target_file_size", "table": None, "schema": None},
    "add": {"name": "new", "snapshot": 1},
    "remove": {"name": "held"},
    "options": {"table": None},
    "tables": {"schema": None},
    "add_column": {"column": "new", "data_type": "int"},
    "rename_column": {"new_name": "new"},
    "set_column_type": {"column": "id", "data_type": "bigint"},
    "set_default": {"value": "d"},
    "set_not_null": {"column": "id"},
    "drop_not_null": {"column": "id"},
    "set_partitioned_by": {"keys": ["id"]},
    "set_sorted_by": {"keys": ["id"]},
    "upsert": {"on": ["id"]},
    "merge": {"on": ["id"]},
    "apply_changes": {"changes": None, "on": ["id"]},
    "sql": {"sql": "DELETE FROM t WHERE id = 1"},
    "progress": {"callback": None},
    "purge": {"where": "id = 1"},
    "copy_to": {"catalog": None},
    "move_data": {"data_path": None, "copy_files": True},
    "register": {"spark": None},
    "delete": {"where": "id = 1"},
    "update": {"values": {"b": "'z'"}},
    "restore": {"at": 1},
    "restore_lake": {"at": 1},
    "undrop_table": {"name": "gone", "new_name": None},
    "when_matched_update": {"values": "all"},
    "when_not_matched_by_source_update": {"values": {"b": "'z'"}},
    "expire_snapshots": {"older_than": dt.timedelta(days=7)},
    "cleanup_old_files": {"older_than": dt.timedelta(days=7)},
    "delete_orphaned_files": {"older_than": dt.timedelta(days=7)},
    "merge_adjacent_files": {"table": None},
    "flush_inlined_data": {"table": None},
    "rewrite_data_files": {"table": None, "delete_threshold": 0.0},
    "to_spark": {"session": None},
    "limit": {"n": 1},
}


@dataclass(frozen=True)
class Method:
    """A public method of one of the classes."""

    cls: type
    name: str

    def __str__(self) -> str:
        return f"{self.cls.__name__}.{self.name}"

    @property
    def function(self) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self.cls, self.name)
        return found

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Without self or cls."""
        static = inspect.getattr_static(self.cls, self.name)
        found = list(inspect.signature(static.__func__ if self.is_class_method else static).parameters.values())
        return found[1:]

    @property
    def is_class_method(self) -> bool:
        return isinstance(inspect.getattr_static(self.cls, self.name), classmethod)

    def valid(self, copy: LakeCopy) -> dict[str, Any]:
        """Arguments for all parameters that have to be given, and for those of the tables above."""
        known = _VALID.get(self.name, {})
        found = {}
        for parameter in self.parameters:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            if parameter.name in known:
                found[parameter.name] = known[parameter.name]
            elif parameter.name == "paths":
                found["paths"] = str(copy.file)
            elif parameter.default is inspect.Parameter.empty or parameter.name == "dry_run":
                found[parameter.name] = _NAMED[parameter.name]
        if "catalog" in found:
            found["catalog"] = copy.url if self.name in ("connect", "open") else copy.url.replace("lake.sqlite", "new.sqlite")
        if "data_path" in found:
            found["data_path"] = str(copy.folder / "new_files")
        return found


def methods() -> list[Method]:
    """All public methods of all classes."""
    return [
        Method(cls, name)
        for cls in CLASSES
        for name in sorted(dir(cls))
        if not name.startswith("_") and name not in INTERNAL and callable(getattr(cls, name)) and not _is_field(cls, name)
    ]


def _is_field(cls: type, name: str) -> bool:
    return name in getattr(cls, "__dataclass_fields__", {})


@dataclass(frozen=True)
class LakeCopy:
    """A copy of the lake that calls are made on."""

    folder: Path
    url: str

    @property
    def file(self) -> Path:
        """A Parquet file that could be added."""
        return self.folder / "other" / "f.parquet"


def build(folder: Path, url: str) -> LakeCopy:
    """The lake: a table with files and inlined rows, a schema, a view, a macro."""
    lake = DuckLake.create(url, data_path=f"{folder}/files/")
    lake.write("t", ROWS, inline=False, commit_id="c-1")
    lake.write("t", FEW, mode="upsert", on="id")
    lake.create_schema("s")
    lake.create_view("w", "SELECT id, b FROM t WHERE id > 1")
    lake.create_macro("m", {"x": "x * 2"})
    lake.holds.add("held", 1)
    lake.create_table("gone", {"a": "int"})
    lake.drop_table("gone")
    lake.close()
    copy = LakeCopy(folder=folder, url=url)
    copy.file.parent.mkdir()
    pq.write_table(ROWS, copy.file)
    return copy


def call(method: Method, lake: DuckLake, arguments: Mapping[str, Any]) -> None:
    """Call a method of an object that the lake gives, and use up what it returns, as its user would."""
    if method.cls is Transaction:
        with lake.transaction() as tx:
            _use(getattr(tx, method.name)(**arguments))
    elif method.cls is TransactionTable:
        with lake.transaction() as tx:
            tx.append("t", FEW)
            _use(getattr(tx.table("t"), method.name)(**arguments))
    else:
        owner = DuckLake if method.is_class_method else _owner(method.cls, lake)
        _use(getattr(owner, method.name)(**arguments))


def _owner(cls: type, lake: DuckLake) -> Any:
    makers: dict[type, Callable[[], Any]] = {
        DuckLake: lambda: lake,
        Holds: lambda: lake.holds,
        LakeAtSnapshot: lambda: lake.at(None),
        Inspection: lambda: lake.inspect,
        Table: lambda: lake.table("t"),
        View: lambda: lake.view("w"),
        Scan: lambda: lake.table("t").scan(),
        ChangeFeed: lambda: lake.table("t").changes(0),
        Merge: lambda: lake.table("t").merge(FEW, on=["id"]),
    }
    return makers[cls]()


def _use(found: Any) -> None:
    if isinstance(found, DuckLake):
        found.close()
    elif isinstance(found, Merge):
        (found if found._clauses else found.when_matched_update()).execute()
    elif isinstance(found, Scan | ChangeFeed):
        found.to_arrow()
        found.plan()
        if isinstance(found, Scan):
            found.count()
    elif isinstance(found, Iterator):
        list(found)
    elif isinstance(found, Transaction):
        with found as tx:
            tx.append("t", FEW)
    elif isinstance(found, pa.RecordBatchReader):
        found.read_all()
    elif isinstance(found, Table | View):
        found.to_arrow() if isinstance(found, View) else _look_at(found)
    else:
        str(found)


def _look_at(table: Table) -> None:
    """Every property and method of a table that takes nothing."""
    for name in ("options", "column_comments", "partition_spec", "sort_keys"):
        getattr(table, name)
    table.scan().to_arrow()
