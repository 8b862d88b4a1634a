"""The verb of a transaction that makes files of other writers part of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.maintenance import mappings_of_table, named_already
from ducklake_core.errors import AlreadyExistsError
from ducklake_core.format.files.paths import file_key
from ducklake_core.staging.adding import Paths, find_files, inspect_files, local_path, refuse_encrypted
from ducklake_core.staging.staged_table import AddDataFiles
from ducklake_core.staging.verbs.base import OpenTransaction
from ducklake_core.storage.added_files import AddingRules
from ducklake_core.storage.filesystems import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from ducklake_core.staging.staged_table import StagedTable


class AdditionVerb(OpenTransaction):
    """Files added by a :class:`Transaction`."""

    def add_data_files(
        self,
        name: str,
        paths: Paths,
        *,
        hive_partitioning: bool | None = None,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        allow_duplicates: bool = False,
        spark: SparkSession | None = None,
    ) -> None:
        """Make Parquet files part of a table as they are; see :meth:`Table.add_data_files`."""
        if self._is_done("add files", name, paths):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            if self._lake.info.encrypted:
                raise refuse_encrypted(staged.name)
            directory = self._lake.info.checked_location(staged.state.path, f"table {staged.name}", table=staged.name)
            rules = AddingRules(
                table=staged.name,
                directory=local_path(directory),
                schema=staged.state.schema,
                partition_spec=staged.state.partition_spec,
                allow_missing=allow_missing,
                ignore_extra_columns=ignore_extra_columns,
                hive_partitioning=hive_partitioning,
            )
            self._coordinator.guard.begin()
            found = find_files(self._lake.storage, paths)
            for path in found:
                self._lake.info.checked_location(path, "the file to add", table=staged.name)
            if not allow_duplicates:
                self._refuse_known(staged, found)
                staged.exclusive |= frozenset(found)
            added = inspect_files(self._lake.storage, found, rules, spark)
            staged.written = True
            if staged.committed is not None and not staged.mappings:
                with self._lake.reader() as reader:
                    staged.mappings = mappings_of_table(reader, staged.committed.id, staged.name)
            # As in DuckDB, a file without rows adds nothing to the table.
            self._stage(staged, AddDataFiles(files=tuple(file for file in added if file.file.record_count)))

    def _refuse_known(self, staged: StagedTable, paths: Sequence[str]) -> None:
        """Two entries of one file would show its rows twice, and the end of one of them would delete the file of both."""
        steps = ((step, table.name) for table in self._catalog.tables for step in table.steps if isinstance(step, AddDataFiles))
        mine = {file_key(added.full_path): name for step, name in steps for added in step.files}
        known = next(((path, f"added to {mine[key]} in this transaction") for path in paths if (key := file_key(path)) in mine), None)
        if known is None:
            with self._lake.reader() as reader:
                known = named_already(reader, paths)
        if known is not None:
            path, how = known
            raise AlreadyExistsError(
                f"{printable(path)} cannot be added to {staged.name}: it is {how} already, and a file belongs to one table once "
                "(allow_duplicates=True adds it all the same)",
                table=staged.name,
                path=printable(path),
            )
