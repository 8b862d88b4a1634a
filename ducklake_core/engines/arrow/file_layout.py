"""Where the columns of a scan are in a file, and which of them are decoded first: worked out once for all files that are alike.

A table of a thousand small files mostly has one Arrow schema, and reading such a file takes little more than working this out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ducklake_core.engines.arrow.columns import InFile, Source, find_columns
from ducklake_core.engines.arrow.conform import field_id, same_shape
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.expressions.remembered import remembered
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID
from ducklake_core.format.types.arrow_types import to_arrow_schema
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import FileTask, ScanProjection
from ducklake_core.planning.virtual import VIRTUAL_SCHEMA, needed_virtual

_MOST_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class DecodingPasses:
    """Which columns of a file are decoded, by their places: first those that say which rows are wanted, then the others.

    Attributes:
        first: Columns of the first pass; all of them when there is no second.
        rest: Columns of the second pass.
        named: Whether columns are asked for by name; else all are decoded.
    """

    first: tuple[int, ...]
    rest: tuple[int, ...]
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The columns of a scan in files of one Arrow schema.

    Attributes:
        schema: The files' Arrow schema.
        is_filtered: Whether rows are left out by the scan's condition; not where the catalog says that all satisfy it.
        filters_snapshots: Whether rows of some snapshots are hidden.
        read_schema: The columns to read.
        sources: By id, the columns to read and where they come from.
        unchanged: By id, those whose values are passed on as they are: place in the file and type.
        row_id_place: Place of the column of row ids, None where there is none.
        snapshot_id_place: Place of the column of snapshot ids likewise.
        asked: Columns that the predicate reads.
        asked_virtual: Virtual columns that it reads.
        passes: Which columns are decoded when.
        output_schema: The batches to return.
        is_common: Whether it holds for every file of this Arrow schema: columns are found by their ids alone.
    """

    schema: pa.Schema
    is_filtered: bool
    filters_snapshots: bool
    read_schema: Schema
    sources: Mapping[int, tuple[Field, Source]]
    unchanged: Mapping[int, tuple[int, Any]]
    row_id_place: int | None
    snapshot_id_place: int | None
    asked: Schema
    asked_virtual: tuple[str, ...]
    passes: DecodingPasses
    output_schema: pa.Schema
    is_common: bool

    @property
    def places(self) -> list[int | None]:
        """Place in the file of each column to read, None where its values are not in it."""
        return [_place(self.sources, column) for column in self.read_schema]

    def asked_schema(self) -> pa.Schema:
        """The columns that the predicate reads, for its evaluation."""
        return _asked_schema(self.asked, self.asked_virtual)

    def fits(self, schema: pa.Schema, task: FileTask, is_filtered: bool) -> bool:
        """Whether it is that of a file of the same scan with this Arrow schema, too."""
        return (
            self.is_common
            and task.file.mapping_id is None
            and self.filters_snapshots == (task.snapshot_filter is not None)
            and self.is_filtered == is_filtered
            # Field ids are metadata.
            and self.schema.equals(schema, check_metadata=True)
        )


@dataclass(slots=True)
class _Recent:
    """The layouts that a scan met last; replaced as a whole, so that threads need no lock: one that gets lost is made again."""

    layouts: tuple[FileLayout, ...] = ()


@remembered
def _recent_of(_shape: ScanProjection) -> _Recent:
    return _Recent()


def layout_of(schema: pa.Schema, task: FileTask, shape: ScanProjection) -> FileLayout:
    """The layout of a file with this Arrow schema.

    Raises:
        CatalogCorruptError: The file's name mapping did not come along.
        CorruptFileError: The file's path lacks the value of a column.
    """
    recent, is_filtered = _recent_of(shape), shape.predicate is not None and not task.all_rows_match
    found = next((layout for layout in recent.layouts if layout.fits(schema, task, is_filtered)), None)
    if found is None:
        found = _made(schema, task, shape)
        if found.is_common:
            recent.layouts = (found, *recent.layouts[: _MOST_REMEMBERED - 1])
    return found


def _made(schema: pa.Schema, task: FileTask, shape: ScanProjection) -> FileLayout:
    ids = [field_id(field) for field in schema]
    by_id = {number: place for place, number in enumerate(ids) if number is not None}
    sources = {
        column.id: (column, source) for column, source in zip(shape.read_schema, find_columns(schema, task.file, shape), strict=True)
    }
    predicate = None if task.all_rows_match else shape.predicate
    asked = Schema(columns=tuple(_asked_columns(shape.read_schema, predicate)))
    asked_virtual = needed_virtual(predicate)
    system = {"rowid": by_id.get(ROW_ID_FIELD_ID), "snapshot_id": by_id.get(SNAPSHOT_ID_FIELD_ID)}
    out = {_place(sources, column) for column in shape.schema} | {system.get(name) for name in shape.virtual}
    first = {_place(sources, column) for column in asked} | {system.get(name) for name in asked_virtual}
    if task.snapshot_filter is not None:
        first.add(system["snapshot_id"])
    if predicate is None:
        first |= out
    return FileLayout(
        schema=schema,
        is_filtered=predicate is not None,
        filters_snapshots=task.snapshot_filter is not None,
        read_schema=shape.read_schema,
        sources=sources,
        unchanged={number: found for number, (column, source) in sources.items() if (found := _unchanged(column, source))},
        row_id_place=system["rowid"],
        snapshot_id_place=system["snapshot_id"],
        asked=asked,
        asked_virtual=asked_virtual,
        passes=_passes(schema.names, first, out),
        output_schema=shape.arrow_schema(),
        is_common=task.file.mapping_id is None and None not in ids,
    )


def _unchanged(column: Field, source: Source) -> tuple[int, Any] | None:
    if isinstance(source, InFile) and same_shape(source.field, column):
        return source.place, source.field.type
    return None


def _place(sources: Mapping[int, tuple[Field, Source]], column: Field) -> int | None:
    _, source = sources[column.id]
    return source.place if isinstance(source, InFile) else None


def _passes(names: list[str], first: set[int | None], out: set[int | None]) -> DecodingPasses:
    # With two columns of one name in the file, only reading all of them keeps the places right.
    if len(set(names)) < len(names) or any("." in name for name in names):
        return DecodingPasses(tuple(range(len(names))), (), named=False)
    return DecodingPasses(_ascending(first), _ascending(out - first), named=True)


def _ascending(places: set[int | None]) -> tuple[int, ...]:
    return tuple(sorted(place for place in places if place is not None))


def _asked_columns(read_schema: Schema, predicate: Predicate | None) -> list[Field]:
    """Columns that the predicate reads, by any of their fields."""
    needed = frozenset() if predicate is None else pruning.columns(predicate)
    return [column for column in read_schema if any(node.id in needed for node in column.walk())]


@lru_cache(maxsize=64)
def _asked_schema(asked: Schema, virtual: tuple[str, ...]) -> pa.Schema:
    fields = [*to_arrow_schema(asked), *to_arrow_schema(VIRTUAL_SCHEMA.select(virtual))]
    return pa.schema([field.with_nullable(True) for field in fields])
