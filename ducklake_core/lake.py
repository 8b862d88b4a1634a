"""The lake: where everything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.catalog.state import LakeInfo, SchemaState, Snapshot
    from ducklake_core.format.predicates import Predicate
    from ducklake_core.format.schema import Schema
    from ducklake_core.results import TableInfo, WriteResult
    from ducklake_core.table import Table
    from ducklake_core.transaction import Transaction

At: TypeAlias = "int | datetime | None"
Where: TypeAlias = "str | Predicate | None"
WriteMode: TypeAlias = Literal["append", "overwrite", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]


class DuckLake:
    """A DuckLake: one catalog database and the data path it points to.

    Objects are cheap, picklable (they carry addresses, not connections) and safe to keep: every call reads the newest
    snapshot unless told otherwise.  Nothing here starts Spark; a Spark DataFrame brings its own session along.
    """

    @classmethod
    def create(
        cls,
        catalog: str,
        *,
        data_path: str,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> DuckLake:
        """Create a new lake with an empty schema ``main``.

        Args:
            catalog: SQLAlchemy URL (``sqlite:///lake.sqlite``, ``postgresql+psycopg://...``) or a DuckDB ATTACH target
                (``ducklake:sqlite:lake.sqlite``, ``ducklake:postgres:dbname=lake host=...``).
            data_path: Directory or object store prefix for data files; relative paths mean the working directory of
                each reader, as in the reference.
            metadata_schema: PostgreSQL schema that holds the catalog tables; ``public`` when not given.
            storage_options: fsspec options by protocol, e.g. ``{"s3": {"key": ...}}``; masked in every repr.

        Raises:
            AlreadyExistsError: There is a lake already.
            CatalogUnavailableError: The database cannot be reached.
        """
        raise NotImplementedError

    @classmethod
    def connect(
        cls,
        catalog: str,
        *,
        data_path: str | None = None,
        override_data_path: bool = False,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> DuckLake:
        """Open an existing lake. Nothing is created or migrated.

        Args:
            data_path: When given it must be the stored one, unless ``override_data_path``, which holds for this object only.

        Raises:
            NotALakeError: The database holds no lake.
            CatalogVersionError: The catalog's format version is not 1.0.
            UsageError: ``data_path`` is not the stored one.
        """
        raise NotImplementedError

    @property
    def info(self) -> LakeInfo:
        """Version, data path and encryption of the lake."""
        raise NotImplementedError

    def snapshot(self, at: At = None) -> Snapshot:
        """The newest snapshot, the one with an id, or the last one committed at or before a time (aware datetime).

        Raises:
            NotFoundError: There is none, or it was expired.
        """
        raise NotImplementedError

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that were not expired, by id ascending."""
        raise NotImplementedError

    def find_commit(self, commit_id: str) -> Snapshot | None:
        """The snapshot that was committed with ``commit_id``, None when there is none (or it was expired)."""
        raise NotImplementedError

    def schemas(self, *, at: At = None) -> list[SchemaState]:
        """All schemas by name."""
        raise NotImplementedError

    def tables(self, schema: str | None = None, *, at: At = None) -> list[TableInfo]:
        """All tables, of one schema or of the lake, by schema and name, with their sizes: one query whatever their number."""
        raise NotImplementedError

    def has_table(self, name: str, *, at: At = None) -> bool:
        """Whether ``table`` or ``schema.table`` exists."""
        raise NotImplementedError

    def table(self, name: str, *, at: At = None) -> Table:
        """A table by ``table`` (in schema main) or ``schema.table``; names with dots are double-quoted.

        Args:
            at: Snapshot id or time to read at. A table so opened cannot be written.

        Raises:
            NotFoundError: No such table at that snapshot.
        """
        raise NotImplementedError

    def table_info(self, name: str, *, at: At = None) -> TableInfo:
        """Rows, files and bytes of a table, from the catalog alone."""
        raise NotImplementedError

    def options(self, table: str | None = None) -> Mapping[str, str]:
        """Options in force: for the lake, or for a table (table over schema over lake), by lower-case name."""
        raise NotImplementedError

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None, schema: str | None = None) -> None:
        """Store an option for the lake, a schema or a table. Makes no snapshot.

        Raises:
            UsageError: Unknown option or a value it cannot have.
        """
        raise NotImplementedError

    def create_schema(self, name: str, *, if_not_exists: bool = False) -> Snapshot | None:
        """Create a schema; None when it existed and that is allowed.

        Raises:
            AlreadyExistsError: It exists.
        """
        raise NotImplementedError

    def drop_schema(self, name: str, *, cascade: bool = False) -> Snapshot:
        """Drop a schema, which must be empty unless ``cascade`` drops its tables too.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty.
        """
        raise NotImplementedError

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create an empty table.

        Args:
            schema: DuckLake columns, an Arrow schema, or anything with rows whose schema is taken (Arrow table, Spark DataFrame).
            partition_by: Partition keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: Its schema does not.
            SchemaError: A column or partition key that no DuckLake table can have.
        """
        raise NotImplementedError

    def drop_table(self, name: str, *, if_exists: bool = False) -> Snapshot | None:
        """Drop a table. Earlier snapshots keep it until they expire."""
        raise NotImplementedError

    def write(
        self,
        name: str,
        data: Any,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        comment: str | None = None,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, Any] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Write a frame to a table in exactly one commit: create the table or widen it where allowed, replace or add rows.

        Args:
            name: ``table`` or ``schema.table``. A missing schema is created together with the table.
            data: pyarrow Table or RecordBatchReader, or a Spark DataFrame (classic or Connect), whose session does the work.
            mode: ``append``; ``overwrite`` replaces the rows that match ``where`` (all rows without it); ``upsert`` replaces
                the rows whose ``on`` columns equal those of a new row.
            where: For overwrite only. Every new row must match it too; a row outside is an error before anything is committed.
            on: Key columns of an upsert. NULL or repeated keys in ``data`` are an error.
            create: Whether a missing table is created, with ``partition_by`` and ``comment``, which are otherwise unused.
            schema_evolution: ``strict`` refuses columns and types the table does not have; ``additive`` adds new columns and
                widens types in the same commit. Nothing is ever dropped or narrowed.
            extra_info: A mapping (stored as JSON beside the commit id) or a text.
            commit_id: Makes the write happen once: if a snapshot carries this id already, nothing is written and the result
                says ``repeated``.

        Raises:
            SchemaError: Data and table do not fit; the message lists every difference.
            UsageError: A row outside ``where``, or keys that are NULL or repeated.
            CommitConflictError: Another writer changed the table's columns meanwhile, or kept winning.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be asked.
        """
        raise NotImplementedError

    def transaction(
        self,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, Any] | None = None,
        commit_id: str | None = None,
    ) -> AbstractContextManager[Transaction]:
        """Several changes, to any number of tables, as one snapshot.

        The commit happens when the block ends; an exception inside the block discards everything, files included.
        """
        raise NotImplementedError
