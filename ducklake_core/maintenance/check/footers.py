"""Compare files with the catalog, by their sizes and footers. No row is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_float
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.integrity_scan import statistics_of_files, still_there
from ducklake_core.catalog.reading.maintenance import named_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.running_writes import FilesOfWrites, files_of_running_writes
from ducklake_core.errors import CatalogCorruptError, CorruptFileError, DuckLakeError, NotFoundError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, EncryptionKey
from ducklake_core.format.files.paths import file_key, file_name, has_writers_name, join, printable
from ducklake_core.format.files.statistics import truncate_bounds
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts
from ducklake_core.maintenance.check.files import check_row_ids, columns_of_mappings, misses_columns, wrong_mappings
from ducklake_core.maintenance.check.repair import ForgetFileStatistics
from ducklake_core.maintenance.check.statistics import WITHOUT_BOUNDS, bounds_of, is_cut
from ducklake_core.maintenance.request import ProgressMeter, listed_with_progress
from ducklake_core.storage.added_files import ForeignColumn, external_columns, external_statistics
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.footers import Footer
from ducklake_core.storage.parquet_files import read_footer

_AT_ONCE = 16
_FILES_PER_ROUND = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterResult:
    """Facts from the footer of a file; ``code`` and ``problem`` are set if it cannot be read."""

    size: int | None = None
    footer_size: int | None = None
    footer: Footer | None = None
    code: str | None = None
    problem: str = ""


class FooterChecks:
    """Opens every file of the catalog.

    Args:
        facts: Rows of the catalog; collects the findings.
        database: The catalog's database, for statistics, which are read file by file.
        storage: Opens the store.
        progress: Progress callback.
    """

    def __init__(self, facts: Facts, database: Database, storage: Storage, progress: ProgressMeter) -> None:
        self._facts = facts
        self._database = database
        self._storage = storage
        self._progress = progress
        self.unusable: set[tuple[str, int]] = set()
        """Files ("data_file" or "delete_file", id) whose rows cannot be read."""
        self._counting: dict[int, list[CatalogRow]] = {}
        self._mappings = columns_of_mappings(facts)
        self._wrong_mappings = wrong_mappings(facts)

    def run(self) -> None:
        """Check all files, then list other files below the data path."""
        self._data_files()
        self._delete_files()
        known = len(self._facts.findings)
        for table_id, rows in self._counting.items():
            check_row_ids(self._facts, self._facts.tables[table_id], rows)
        # Some faults were found in the catalog already.
        earlier = set(self._facts.findings[:known])
        self._facts.findings[known:] = [one for one in self._facts.findings[known:] if one not in earlier]
        self._report_other_files()

    def _data_files(self) -> None:
        facts = self._facts
        rows = [row for _, row in sorted(facts.files.items()) if row.table_id in facts.tables]
        for batch, results in self._read_footers(rows, "data_file"):
            with self._database.read() as connection:
                statistics = statistics_of_files(connection, self._database.tables, [row.data_file_id for row in batch])
            for row, found in zip(batch, results, strict=True):
                if self._same(row, found, "data", "record_count"):
                    self._contents(facts.tables[row.table_id], row, found, statistics.get(row.data_file_id, []))

    def _delete_files(self) -> None:
        rows = [row for row in self._facts.every.rows("delete_file") if row.table_id in self._facts.tables]
        for batch, results in self._read_footers(rows, "delete_file"):
            for row, found in zip(batch, results, strict=True):
                self._same(row, found, "delete", "delete_count")

    def _read_footers(self, rows: Sequence[CatalogRow], name: str) -> Iterator[tuple[Sequence[CatalogRow], list[FooterResult]]]:
        self._progress.begin("check", f"open each {name.replace('_', ' ')}", "files", len(rows))
        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="footers") as pool:
            for start in range(0, len(rows), _FILES_PER_ROUND):
                batch = rows[start : start + _FILES_PER_ROUND]
                results = []
                for row, found in zip(batch, pool.map(self._one, batch), strict=True):
                    results.append(found)
                    self._progress.advance(size=row.file_size_bytes or 0, table=self._facts.tables[row.table_id].name)
                missing = [row[0] for row, found in zip(batch, results, strict=True) if found.code == "file-missing"]
                if missing:
                    # Another client may have merged or expired them, and cleaned up, since the catalog was read.
                    with self._database.read() as connection:
                        named = still_there(connection, self._database.tables, name, missing)
                    kept = [
                        (row, found) for row, found in zip(batch, results, strict=True) if found.code != "file-missing" or row[0] in named
                    ]
                    batch, results = [row for row, _ in kept], [found for _, found in kept]
                yield batch, results

    def _one(self, row: CatalogRow) -> FooterResult:
        path = self._facts.path_of(row)
        key = EncryptionKey(row.encryption_key) if self._facts.info.encrypted and row.encryption_key else None
        try:
            self._facts.info.checked_location(path, "a file")
            if str(getattr(row, "format", None) or "parquet").lower() == "puffin":
                return FooterResult(size=self._storage.size(path))
            footer = read_footer(self._storage, path, key)
            if key is None:
                return FooterResult(size=footer.file_size_bytes, footer_size=footer.footer_size, footer=footer)
            return FooterResult(size=self._storage.size(path), footer=footer)
        except NotFoundError as error:
            return FooterResult(code="file-missing", problem=error.message)
        except (CorruptFileError, UnsupportedFeatureError, pa.ArrowException) as error:
            return FooterResult(code="footer-unreadable", problem=str(error))
        except DuckLakeError as error:
            return FooterResult(code="file-unreachable", problem=error.message)

    def _same(self, row: CatalogRow, found: FooterResult, kind: str, count: str) -> bool:
        """Compare size, footer and count of a file with its row. Return False if its columns cannot be compared."""
        facts, what = self._facts, f"{kind} file {row[0]}"
        where: dict[str, Any] = {"path": printable(facts.path_of(row)), "data_file_id": row.data_file_id, "table": facts.table_of(row)}
        if found.code is not None:
            self.unusable.add((f"{kind}_file", row[0]))
            # Faults of its path or its key have been reported.
            if not any(one.code in ("path-forbidden", "encryption-key-missing") for one in facts.about_path(where["path"])):
                facts.report(found.code, f"{what}: {found.problem}", **where)
            return False
        if found.size != row.file_size_bytes:
            facts.report("file-size", f"{what} has {found.size:,} bytes, but the catalog states {row.file_size_bytes:,}", **where)
        if found.footer_size is not None and row.footer_size not in (None, found.footer_size):
            facts.report(
                "footer-size", f"{what} has a footer of {found.footer_size:,} bytes, but the catalog states {row.footer_size:,}", **where
            )
        if found.footer is None:
            return False
        number = getattr(row, count)
        if found.footer.record_count != number:
            # Nothing else would match; positions in a delete file are still checked.
            self.unusable.update({("data_file", row[0])} if kind == "data" else ())
            code = "record-count" if kind == "data" else "delete-count"
            facts.report(code, f"{what} contains {counted(found.footer.record_count, 'row')}, but the catalog states {number:,}", **where)
            return False
        return True

    def _contents(self, table: TableFacts, row: CatalogRow, found: FooterResult, statistics: Sequence[CatalogRow]) -> None:
        assert found.footer is not None
        columns = external_columns(found.footer)
        ids = {column.field_id for column in columns}
        where: dict[str, Any] = {"path": printable(self._facts.path_of(row)), "data_file_id": row.data_file_id, "table": table}
        what = f"data file {row.data_file_id}"
        if ROW_ID_FIELD_ID not in ids:
            if row.row_id_start is None:
                self._facts.report("row-ids-missing", what, **where)
                self.unusable.add(("data_file", row.data_file_id))
            else:
                self._counting.setdefault(table.id, []).append(row)
        is_partial = row.partial_max is not None and row.partial_max > row.begin_snapshot
        # Earlier versions of the catalog may store it themselves.
        if SNAPSHOT_ID_FIELD_ID not in ids and is_partial and self._database.layout is None:
            self._facts.report("snapshot-ids-missing", f"{what} has rows of snapshots up to {row.partial_max}", **where)
        groups = getattr(row, "row_group_count", None)
        if groups is not None and groups != len(found.footer.row_groups):
            problem = f"{what} has {counted(len(found.footer.row_groups), 'row group')}, but the catalog states {groups}"
            self._facts.report("row-group-count", problem, **where)
        if row.mapping_id is not None:
            names = [column.name for column in columns]
            problem = misses_columns(self._mappings.get(row.mapping_id, ()), self._facts.path_of(row), names)
            if problem:
                self._facts.report("mapping-invalid", f"{what}: {problem}, which mapping {row.mapping_id} requires", **where)
            is_wrong = any(one.code == "mapping-invalid" for one in self._facts.about_file(row.data_file_id))
            if is_wrong or (row.mapping_id, row.table_id) in self._wrong_mappings:
                self.unusable.add(("data_file", row.data_file_id))
        else:
            bare = [repr(column.name) for column in columns if column.field_id is None]
            if bare:
                problem = f"{what} has no mapping, and no field id for {', '.join(bare)}: all of its columns are read by position"
                self._facts.report("mapping-missing", problem, **where)
            self._bounds(table, row, found.footer, columns, statistics)

    def _bounds(
        self,
        table: TableFacts,
        row: CatalogRow,
        footer: Footer,
        columns: Iterable[ForeignColumn],
        statistics: Sequence[CatalogRow],
    ) -> None:
        leaves = {leaf.field_id: (leaf, is_top) for leaf, is_top in _leaves(columns)}
        found = []
        for one in statistics:
            wanted = table.leaf(one.column_id, row.begin_snapshot)
            if wanted is None or one.column_id not in leaves or wanted.type in WITHOUT_BOUNDS:
                continue
            held, is_top = leaves[one.column_id]
            assert held.leaf is not None
            try:
                problem = external_statistics(footer, held.leaf, wanted)
                bounds = problem.exact_min or problem.min_value, problem.exact_max or problem.max_value
                found.append((one, wanted, problem, is_top, enclosed(one, bounds, wanted), beyond(one, bounds, wanted)))
            except (DuckLakeError, ValueError, ArithmeticError):
                continue
        if report_other_file(self._facts, table, row, [(wanted, wide) for _, wanted, *_, wide in found]):
            self.unusable.add(("data_file", row.data_file_id))
            return
        for one, wanted, problem, is_top, narrow, _ in found:
            if narrow:
                report_statistics(self._facts, "statistics-narrow", f"column {wanted.name!r}: {narrow}", table, row, wanted.id)
            elif is_top and None not in (one.null_count, problem.null_count) and one.null_count != problem.null_count:
                text = f"column {wanted.name!r}: the catalog counts {one.null_count:,} NULLs, but the footer {problem.null_count:,}"
                report_statistics(self._facts, "statistics-counts", text, table, row, wanted.id)

    def _report_other_files(self) -> None:
        facts = self._facts
        known = {file_key(facts.path_of(row)) for row in (*facts.files.values(), *facts.every.rows("delete_file"))}
        for row in facts.every.rows("files_scheduled_for_deletion"):
            known.add(file_key(join(facts.info.data_path, row.path, row.path_is_relative is not False)))
        catalog = Path(str(self._database.address.url.database)).absolute() if self._database.abilities.is_file else None
        try:
            listed = listed_with_progress(self._storage.list(facts.info.data_path), "check", self._progress)
            found = [file for file in listed if file_key(file.path) not in known]
        except DuckLakeError as error:
            what = f"the data path cannot be listed: {error.message}"
            facts.report("file-unreachable", what, path=printable(facts.info.data_path))
            return
        # Files that another writer has committed since the catalog was read.
        with self._database.read() as connection:
            reader = CatalogReader(connection, facts.info, self._database.tables)
            named = named_files(reader, [file.path for file in found]) if found else frozenset()
            try:
                running = files_of_running_writes(connection, self._database.tables, self._database.now(connection))
            except CatalogCorruptError:
                running = FilesOfWrites(())
        broken = {file_name(cell.path) for cell in facts.every.bad if cell.path is not None}
        for file in found:
            is_catalog = catalog is not None and str(Path(file.path).absolute()).startswith(str(catalog))
            if file.path not in named and file_name(file.path) not in broken and not is_catalog and not running.write_of(file.path):
                age = "" if file.modified is None else f", last changed {file.modified:%Y-%m-%d %H:%M:%S} UTC"
                code = "orphaned-file" if has_writers_name(file.path) else "foreign-file"
                facts.report(code, f"{file.size} bytes{age}", path=printable(file.path))


def _leaves(columns: Iterable[ForeignColumn], *, is_top: bool = True) -> Iterator[tuple[ForeignColumn, bool]]:
    for column in columns:
        if column.leaf is not None:
            yield column, is_top
        yield from _leaves(column.children, is_top=False)


def enclosed(row: CatalogRow, held: tuple[str | None, str | None], leaf: Any) -> str:
    """Return a message if the bounds of the catalog exclude values of the file; empty if they do not, or if it is unknown."""
    mine = bounds_of(row.min_value, row.max_value, leaf.type)
    its = bounds_of(*held, leaf.type)
    if mine is None or its is None or row.value_count == 0:
        return ""
    if any(is_cut(text, leaf.type) for text in (row.min_value, row.max_value, *held)):
        return ""
    if its[0] < mine[0] or its[1] > mine[1]:
        return f"{row.min_value!r} to {row.max_value!r}, but the file contains {held[0]!r} to {held[1]!r}"
    return ""


def beyond(row: CatalogRow, held: tuple[str | None, str | None], leaf: Field) -> str:
    """Return a message if no value of the file reaches a bound of the catalog; empty if both are reached, or if it is unknown.

    Writers compute bounds from the file that they write. If the values of the file do not reach them, it is another file.
    """
    mine = bounds_of(row.min_value, row.max_value, leaf.type)
    # The bound of a long string may be short: "b" + 300 times "é" is cut to "c".
    kept = truncate_bounds(*held, leaf.type)
    its = bounds_of(kept.min_value, kept.max_value, leaf.type)
    if mine is None or its is None or row.value_count == 0 or (leaf.type in FLOATS and row.contains_nan is not False):
        return ""
    # A shortened string is not a value of the file.
    is_low = mine[0] < its[0] and not is_cut(row.min_value, leaf.type) and not _is_short(mine[0], its[0], leaf)
    is_high = mine[1] > its[1] and not is_cut(row.max_value, leaf.type) and not _is_short(mine[1], its[1], leaf)
    return f"{row.min_value!r} to {row.max_value!r}, but the file contains {held[0]!r} to {held[1]!r}" if is_low or is_high else ""


def _is_short(bound: Any, held: Any, leaf: Field) -> bool:
    """Return whether a bound is the short string of a FLOAT in the file. DuckDB keeps it when the column becomes DOUBLE."""
    return leaf.type in FLOATS and c_float(bound[1]).value == held[1]


def report_other_file(facts: Facts, table: TableFacts, row: CatalogRow, wide: Iterable[tuple[Field, str]]) -> bool:
    """Add a finding if values do not reach the bounds of a file (by :func:`beyond` for each leaf). Return whether there are any."""
    problems = [f"column {leaf.name!r}: {text}" for leaf, text in wide if text]
    if problems:
        path = printable(facts.path_of(row))
        facts.report("file-differs", "; ".join(problems), table=table, path=path, data_file_id=row.data_file_id)
    return bool(problems)


def report_statistics(facts: Facts, code: str, what: str, table: TableFacts, row: CatalogRow, column_id: int) -> None:
    """Add a finding on the statistics of a column of a file, unless there is one already."""
    if any(one.column_id == column_id for one in facts.about_file(row.data_file_id)):
        return
    repair = ForgetFileStatistics(row.data_file_id, column_id)
    path = printable(facts.path_of(row))
    facts.report(code, what, table=table, path=path, data_file_id=row.data_file_id, column_id=column_id, repair=repair)
