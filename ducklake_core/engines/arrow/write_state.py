"""The settings that all writers of one write share, as one picklable value."""

from __future__ import annotations

from dataclasses import dataclass, field

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.expressions.scalars import Scalar
from ducklake_core.format.files import paths
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.flushing import FlushRule
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.options import Options
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion
from ducklake_core.storage.delete_files import DeletionVectors
from ducklake_core.storage.filesystems import Storage

STATE_VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """One write into one table. It travels to executors, so it knows nothing of the catalog.

    Attributes:
        table: ``schema.table`` for messages.
        directory: Full path of the table's directory, with a trailing slash.
        schema: The table's columns, with final ids, as they will be once the write is committed.
        partition_spec: Keys to split files by, None for none.
        write_id: Mark in the names of all files of this write (``format.paths.write_id``).
        storage: Where the directory is.
        options: The table's options: encoding, target size, hive directories.
        defaults: What columns that the rows lack get instead of a constant, by column id.
        row_constraint: When given, every row must satisfy it, else the write fails.
        encrypted: Whether each file is encrypted, under a key that its writer makes.
        sort: What the rows of each file are sorted by.
        flush: What inlined rows must be like for DuckDB to flush them; None for no rule.
        distribute: Whether rows of one partition are brought together first (Spark), so that each partition gets few files.
        format_version: Version of the lake.
        version: Form of this value; an executor with another version of the library refuses it.
    """

    table: str
    directory: str
    schema: Schema
    partition_spec: PartitionSpec | None = None
    write_id: str = field(default_factory=paths.write_id)
    storage: Storage = field(default_factory=Storage)
    options: Options = field(default_factory=Options)
    defaults: tuple[tuple[int, Scalar], ...] = ()
    row_constraint: Predicate | None = None
    encrypted: bool = False
    sort: tuple[SortOrder, ...] = ()
    flush: FlushRule | None = None
    distribute: bool = True
    format_version: FormatVersion = DEFAULT_VERSION
    version: int = STATE_VERSION

    def check_version(self) -> None:
        """Refuse a value made by another version of the library.

        Raises:
            UnsupportedFeatureError: The driver and this process do not have the same version.
        """
        if self.version != STATE_VERSION:
            raise UnsupportedFeatureError(
                f"the write of {self.table} was planned with write state version {self.version}, this process knows {STATE_VERSION}: "
                "install the same ducklake-dagster on driver and executors"
            )

    @property
    def vectors(self) -> DeletionVectors:
        """Whether deletes are written as deletion vectors."""
        return DeletionVectors.by(self.options, self.format_version, encrypted=self.encrypted)

    @property
    def has_directories(self) -> bool:
        """Whether files of partitions lie in directories that name their values, which an encrypted lake does not show."""
        return self.partition_spec is not None and self.options.hive_file_pattern and not self.encrypted

    def file_path(self, values: tuple[str | None, ...]) -> str:
        """Path of a new file below the table's directory, for rows with these partition values."""
        name = paths.new_file_name(self.write_id)
        if self.partition_spec is None or not self.has_directories:
            return name
        return paths.partition_directory(self.partition_spec, values) + name

    def without_columns(self) -> SchemaError:
        """The error for rows that have no columns: as rows of NULLs they would hide a mistake in the frame."""
        return SchemaError(
            f"cannot write to {self.table}: the data has rows but no columns; give at least one column of the table", table=self.table
        )
