"""Open, read, write, define and maintain a lake: the class :class:`DuckLake`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from ducklake_core.catalog.database.bootstrap import create_catalog, open_catalog, open_or_create
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.failures import CallRetries, RetryPolicy
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.catalog.reading.definitions import Macro, macros, view, views
from ducklake_core.catalog.reading.options import ScopedOption, delete_option, scoped_options, store_option
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.request import checked_commit_id
from ducklake_core.errors import AlreadyExistsError, CatalogVersionError, CommitConflictError, NotFoundError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.paths import as_directory, check_allowed, printable
from ducklake_core.format.options import Options, check_option_scope, normalize_option, option_name
from ducklake_core.format.state import LakeInfo, SchemaState, Snapshot, TableState
from ducklake_core.format.types.names import join_name, schemas_meant, split_name, storable
from ducklake_core.format.values.temporal import in_zone
from ducklake_core.format.versions import migration_target, writable_version
from ducklake_core.planning.table_info import (
    FILES,
    OPTIONS,
    PARTITIONS,
    SNAPSHOTS,
    TABLES,
    as_table,
    earliest_values,
    file_rows,
    option_row,
    partition_rows,
    snapshot_row,
    table_rows,
    table_size,
    table_sizes,
)
from ducklake_core.results import LakeChanges, LakeSettings, LakeStatistics, TableInfo, TransactionResult, WriteResult, single_result
from ducklake_core.staging.arguments import (
    At,
    CommitOptions,
    ConcurrentAppends,
    FrameLike,
    MissingColumns,
    Partitions,
    SchemaEvolution,
    SqlParameters,
    Where,
    WriteMode,
    WriteRequest,
    resolve_at,
)
from ducklake_core.staging.context import LakeContext, TableStateCache
from ducklake_core.staging.lake_files import find_lake
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_core.table import Table
from ducklake_core.view import View, ViewDefinition

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_core.commit.request import CommitMessage
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.macro_definitions import MacroKind
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
    from ducklake_core.maintenance.checkpoint import CheckpointResult, PurgeResult
    from ducklake_core.maintenance.cleanup import CleanupResult
    from ducklake_core.maintenance.expire import ExpiryResult, Holds
    from ducklake_core.maintenance.flush import FlushResult
    from ducklake_core.maintenance.health import LakeHealth
    from ducklake_core.maintenance.merge import MergeResult
    from ducklake_core.maintenance.migrate import MigrationResult
    from ducklake_core.maintenance.moving import CopyResult, MoveResult
    from ducklake_core.maintenance.orphans import OrphansResult
    from ducklake_core.maintenance.request import ProgressCallback, ProgressMeter, TableRequest
    from ducklake_core.maintenance.rewrite import RewriteResult
    from ducklake_core.scan import Scan
    from ducklake_core.sql.query import Query
    from ducklake_core.staging.adding import Paths
    from ducklake_core.transaction import Transaction


_RESTORES = RetryPolicy(max_attempts=4)
"""Attempts to restore a whole lake; every other commit meanwhile makes an attempt fail."""


@arguments.none_means_default
class DuckLake:
    """A DuckLake: one catalog database and the data path that it points to.

    Objects are cheap, thread-safe, and picklable: they hold addresses and open connections when needed. Every call reads the newest
    snapshot unless ``at`` names another one. No method starts Spark; methods with a ``spark`` parameter use the session that you pass.
    """

    @classmethod
    def create(
        cls,
        catalog: str | os.PathLike[str],
        *,
        data_path: str | os.PathLike[str] | None = None,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        relative_data_path: bool = False,
        encrypted: bool = False,
        indexes: bool = True,
        allowed_paths: Paths = (),
        version: Literal["1.0", "1.1"] = "1.0",
    ) -> DuckLake:
        """Create a new lake with an empty schema ``main``.

        Args:
            catalog: SQLAlchemy URL (``sqlite:///lake.sqlite``, ``postgresql+psycopg://...``, ``mysql+pymysql://...``,
                ``duckdb:///lake.ducklake``) or a DuckDB ATTACH target (``ducklake:sqlite:lake.sqlite``, ``ducklake:postgres:dbname=lake
                host=...``, ``ducklake:mysql:db=lake host=...``, ``ducklake:lake.ducklake``). A ``pathlib.Path`` is a SQLite or DuckDB
                file; the name of a new SQLite file ends with ``.sqlite``, ``.sqlite3`` or ``.db``.
            data_path: Directory or object store prefix for data files. A relative path is resolved against the working directory and
                stored as an absolute path. Required, except with a DuckDB file, where it defaults to ``<file>.files/``.
            metadata_schema: Schema of the PostgreSQL database or DuckDB file that holds the catalog tables. Default: ``public`` or
                ``main``.
            storage_options: fsspec options by protocol, such as ``{"s3": {"key": ...}}``. Values are masked in every repr.
            relative_data_path: Whether to store a relative ``data_path`` as it is written, as DuckDB does. Each client resolves it
                against its own working directory, so all clients must run in the same directory. Default: False.
            encrypted: Whether to encrypt every file with its own key. The catalog stores the keys. This cannot be changed later.
                Default: False.
            indexes: Whether to create indexes that the format does not require (:meth:`create_indexes`). Default: True.
            allowed_paths: Further path prefixes that the catalog may name, as in :meth:`connect`. Applies to this object only.
            version: Version of the format. DuckDB 1.5 reads lakes of version 1.0 only; version 1.1 needs DuckDB 2.0 or later
                (docs/how-to/versions.md). Default: ``1.0``.

        Returns:
            The new lake.

        Raises:
            AlreadyExistsError: The database already holds a lake.
            CatalogUnavailableError: The database cannot be reached.
            CatalogVersionError: This library cannot write ``version``.
            UsageError: An argument is invalid, or ``data_path`` is missing.
        """
        arguments.check_flags(relative_data_path=relative_data_path, encrypted=encrypted, indexes=indexes)
        data_path = arguments.optional(arguments.path, "data_path", data_path)
        database = Database(parse_catalog_url(catalog, metadata_schema))
        allowed, options = check_allowed(allowed_paths), _storage_options(storage_options)
        info = create_catalog(
            database,
            data_path,
            relative_data_path=relative_data_path,
            encrypted=encrypted,
            indexes=indexes,
            version=writable_version(version),
        )
        return cls(database, replace(info, allowed_paths=allowed), Storage(options=options))

    @classmethod
    def connect(
        cls,
        catalog: str | os.PathLike[str],
        *,
        data_path: str | os.PathLike[str] | None = None,
        override_data_path: bool = False,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        allowed_paths: Paths = (),
        read_only: bool = False,
    ) -> DuckLake:
        """Open an existing lake. Nothing is created or migrated. Lakes of version 0.1 to 0.4 can be read, but not written.

        Args:
            catalog: Address of the catalog, as in :meth:`create`.
            data_path: Data path to check against the stored one. Default: use the stored one.
            override_data_path: Whether to use ``data_path`` even if the catalog stores another one, for this object only. Default: False.
            metadata_schema: Schema that holds the catalog tables, as in :meth:`create`.
            storage_options: fsspec options by protocol, as in :meth:`create`.
            allowed_paths: Further path prefixes that the catalog may name. Without them, reading or writing a path raises an error if
                the path leaves the data path through ``..`` or is in another kind of store.
            read_only: Whether to reject every call that would change the lake with a :class:`UsageError`, before anything is written.
                Dry runs are allowed. Default: False.

        Returns:
            The lake.

        Raises:
            NotALakeError: The database holds no lake. :meth:`open` can create one.
            CatalogUnavailableError: The database cannot be reached.
            CatalogVersionError: This library does not support the catalog's format version.
            UsageError: ``data_path`` differs from the stored one.
        """
        arguments.check_flags(override_data_path=override_data_path, read_only=read_only)
        data_path = arguments.optional(arguments.path, "data_path", data_path)
        database = Database(parse_catalog_url(catalog, metadata_schema), read_only=read_only)
        allowed, options = check_allowed(allowed_paths), _storage_options(storage_options)
        info = replace(open_catalog(database, data_path, override_data_path), allowed_paths=allowed)
        return cls(database, info, Storage(options=options))

    @classmethod
    def open(
        cls,
        catalog: str | os.PathLike[str],
        *,
        create: bool = False,
        data_path: str | os.PathLike[str] | None = None,
        override_data_path: bool = False,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        relative_data_path: bool = False,
        encrypted: bool = False,
        indexes: bool = True,
        allowed_paths: Paths = (),
        read_only: bool = False,
        version: Literal["1.0", "1.1"] | None = None,
    ) -> DuckLake:
        """Open a lake, and optionally create it if it does not exist.

        Any number of processes may call this at the same time: one of them creates the lake, and all of them open it.

        Args:
            catalog: Address of the catalog, as in :meth:`create`.
            create: Whether to create a lake if the database holds none. Default: False.
            data_path: As in :meth:`connect` for an existing lake, as in :meth:`create` for a new one.
            override_data_path: As in :meth:`connect`; only without ``create``.
            metadata_schema: As in :meth:`create`.
            storage_options: As in :meth:`create`.
            relative_data_path: As in :meth:`create`; applies to a new lake.
            encrypted: As in :meth:`create`. An existing lake must be encrypted, too.
            indexes: As in :meth:`create`; applies to a new lake.
            allowed_paths: As in :meth:`connect`.
            read_only: As in :meth:`connect`; only without ``create``.
            version: Version of a new lake, 1.0 by default. An existing lake must have this version, because it is not migrated.

        Returns:
            The lake.

        Raises:
            NotALakeError: The database holds no lake, and ``create`` is False.
            UsageError: ``data_path`` differs from the stored one, ``encrypted`` is set but the existing lake is not encrypted, or both
                ``create`` and ``read_only`` are set.
            CatalogVersionError: The existing lake has another ``version``, or this library cannot write ``version``.
        """
        arguments.check_flags(create=create, encrypted=encrypted, indexes=indexes)
        if create and read_only:
            raise UsageError("create=True cannot be combined with read_only=True. Remove one of them")
        if not create:
            if encrypted or not indexes:
                raise UsageError("encrypted and indexes apply only to a new lake. Set create, or remove them")
        elif override_data_path:
            raise UsageError("override_data_path applies only to an existing lake. Remove it, or remove create=True")

        def connect() -> DuckLake:
            return cls.connect(
                catalog,
                data_path=data_path,
                override_data_path=override_data_path,
                metadata_schema=metadata_schema,
                storage_options=storage_options,
                allowed_paths=allowed_paths,
                read_only=read_only,
            )

        def make() -> DuckLake:
            return cls.create(
                catalog,
                data_path=data_path,
                metadata_schema=metadata_schema,
                storage_options=storage_options,
                relative_data_path=relative_data_path,
                encrypted=encrypted,
                indexes=indexes,
                allowed_paths=allowed_paths,
                version="1.0" if version is None else version,
            )

        lake = open_or_create(connect, make) if create else connect()
        if encrypted and not lake.info.encrypted:
            raise UsageError(
                f"Lake {lake.database.address} exists and is not encrypted. Encryption cannot be changed after creation. Remove "
                "encrypted=True, or create another lake"
            )
        if version is not None and lake.info.version != writable_version(version).name:
            message = (
                f"Lake {lake.database.address} has version {lake.info.version}, not {version}. Remove version, or migrate the "
                "lake with lake.migrate()"
            )
            raise CatalogVersionError(message, found=lake.info.version, supported=version)
        return lake

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __init__(self, database: Database, info: LakeInfo, storage: Storage) -> None:
        self._database = database
        self._info = info
        self._storage = storage
        self.table_cache = TableStateCache()
        self._variables: dict[str, str] = {}

    def __repr__(self) -> str:
        mode = ", read only" if self.read_only else ""
        return f"<DuckLake {self._database.address} with data path {printable(self._info.data_path)}{mode}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (DuckLake, (self._database, self._info, self._storage))

    def reopen(self, *, data_path: str | os.PathLike[str] | None = None, override_data_path: bool = False) -> DuckLake:
        """Open the lake again with the connections of this object. Reads version, data path and encryption again.

        Args:
            data_path: As in :meth:`connect`.
            override_data_path: As in :meth:`connect`.

        Raises:
            NotALakeError: The database no longer holds a lake.
            UsageError: ``data_path`` differs from the stored one.
        """
        arguments.check_flags(override_data_path=override_data_path)
        data_path = arguments.optional(arguments.path, "data_path", data_path)
        info = replace(open_catalog(self._database, data_path, override_data_path), allowed_paths=self._info.allowed_paths)
        return DuckLake(self._database, info, self._storage)

    def close(self) -> None:
        """Close pooled connections. The lake stays usable: later calls open new connections."""
        self._database.close()

    @property
    def database(self) -> Database:
        """The catalog's database."""
        return self._database

    @property
    def read_only(self) -> bool:
        """Return whether every call that would change the lake is rejected."""
        return self._database.read_only

    @property
    def info(self) -> LakeInfo:
        """Version, data path and encryption of the lake."""
        return self._info

    def has_table(self, name: str, *, at: At = None) -> bool:
        """Return whether ``table`` or ``schema.table`` exists.

        Args:
            name: ``table`` or ``schema.table``.
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).
        """
        try:
            self._state(name, at, suggest=False)
        except NotFoundError:
            return False
        return True

    def table(self, name: str, *, at: At = None) -> Table:
        """Return a table.

        Args:
            name: ``table`` (in schema ``main``) or ``schema.table``. Double-quote names that contain dots.
            at: Snapshot id or time to read at. A table opened with ``at`` cannot be written. Default: the newest snapshot.

        Raises:
            NotFoundError: The snapshot has no such table. Open a view with :meth:`view`.
        """
        return Table(self._context, self._state(name, at), at=at)

    def progress(self, callback: ProgressCallback | None) -> AbstractContextManager[None]:
        """Report the progress of writes, updates, merges, restores and undrops in a block: ``with lake.progress(print): ...``.

        Counts rows while this process writes them to files; Spark reports its own progress. Maintenance operations, :meth:`copy_to` and
        :meth:`move_data` report their steps to their argument ``progress``.

        Args:
            callback: Called with a :class:`Progress` for each step of at most 65,536 rows. None reports nothing. An exception that it
                raises ends the operation, which then changes nothing.

        Raises:
            UsageError: ``callback`` is not a function.
        """
        from ducklake_core.maintenance.request import ProgressMeter

        meter = ProgressMeter(callback)
        return nullcontext() if callback is None else _counting_rows(meter)

    @property
    def holds(self) -> Holds:
        """Named holds on snapshots. A held snapshot does not expire. Read it by name: ``lake.table("t", at="month end")``."""
        from ducklake_core.maintenance.expire import Holds

        return Holds(self._database, self._info)

    def write(  # noqa: PLR0913 - one call describes one commit
        self,
        name: str,
        data: FrameLike,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        partitions: Partitions | None = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        comment: str | None = None,
        inline: bool | None = None,
        concurrent_appends: ConcurrentAppends | None = None,
        read_at: int | None = None,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, object] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Write a frame to a table in exactly one commit. Creates the table or adds columns where the arguments allow it.

        Args:
            name: ``table`` or ``schema.table``. If the table is created, a missing schema is created, too.
            data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, pandas, polars, DuckDB relations), a list of
                dicts, or a Spark DataFrame (classic, Connect, pandas-on-Spark); the session of a Spark DataFrame does the work. A
                stream, such as a RecordBatchReader, is read once; an upsert reads all of it first. If the data has no rows, its columns
                are ignored: nothing is added, an overwrite deletes the rows that it replaces, and a missing table is created only if
                all columns have types. Frames with at most ``data_inlining_row_limit`` rows are stored in the catalog itself
                (docs/concepts/inlining.md).
            mode: ``append`` adds rows. ``overwrite`` replaces the rows that match ``where``, or all rows without it. ``upsert``
                replaces the rows that have the same values in the ``on`` columns. Default: ``append``.
            where: Condition of the rows to replace; for ``overwrite`` only. Every new row must match it, too.
            partitions: Partitions to replace, instead of ``where``; for ``overwrite`` only. See :meth:`Table.overwrite`.
            on: Key columns; for ``upsert`` only. Keys in ``data`` must be unique and not NULL.
            create: Whether to create a missing table, with ``partition_by`` and ``comment``. An existing table must have the same
                partition keys and comment, if they are given. Default: True.
            partition_by: Partition keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.
            schema_evolution: ``strict`` rejects columns and types that the table does not have, except integers of other widths whose
                values fit the column (docs/reference/types.md). ``additive`` adds new columns and widens types in the same commit.
                Columns are never dropped or narrowed. Default: ``strict``.
            missing_columns: Treatment of columns and struct fields that the table has, that have no default, and that ``data`` lacks:
                ``error`` raises :class:`SchemaError`, ``null`` writes NULL to new rows. Columns with a default get the default. Rows
                that an upsert matches keep their values. Default: ``error`` under ``strict``, ``null`` under ``additive``.
            comment: Comment on a new table.
            inline: Whether to store few rows in the catalog (docs/concepts/inlining.md): None for Arrow data only, True for Spark
                DataFrames, too, False for none. Default: None.
            concurrent_appends: Treatment of rows that another writer commits meanwhile to the slice that an overwrite replaces:
                ``fail`` raises :class:`CommitConflictError`, ``replace`` replaces them, too. See :meth:`Table.overwrite`. Default:
                ``fail``.
            read_at: Id of the snapshot from which ``data`` was computed; for ``overwrite`` only. See :meth:`Table.overwrite`.
            author: Author, stored with the snapshot.
            message: Message, stored with the snapshot.
            extra_info: String or mapping, stored with the snapshot. A mapping is stored as JSON.
            commit_id: Makes a repeated write safe: if a snapshot already has this id, nothing is written, and the result has
                ``repeated`` set. Works until that snapshot expires. Use a separate id for each table and each kind of work.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            SchemaError: Data and table do not match; the message lists every difference.
            UsageError: A row does not match ``where``, a key is NULL or repeated, the existing table has other partition keys or
                another comment, or ``commit_id`` belongs to other work.
            CommitConflictError: Another writer changed the table's columns meanwhile, or all attempts conflicted with other writers.
            CommitOutcomeUnknownError: The connection was lost at COMMIT, and the catalog could not be read afterwards.
        """
        request = WriteRequest(
            name=name,
            mode=mode,
            where=where,
            partitions=partitions,
            on=on,
            create=create,
            partition_by=partition_by,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            comment=comment,
            inline=inline,
            concurrent_appends=concurrent_appends,
            read_at=read_at,
        )
        commit = {"author": author, "message": message, "extra_info": extra_info, "commit_id": commit_id}
        from ducklake_core.transaction import write

        return write(self._context, data, request, commit)

    def add_data_files(
        self,
        table: str,
        paths: Paths,
        *,
        hive_partitioning: bool | None = None,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        allow_duplicates: bool = False,
        for_duckdb: bool = True,
        spark: SparkSession | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Add existing Parquet files to a table without copying them. See :meth:`Table.add_data_files` for what happens to the files.

        Args:
            table: ``table`` or ``schema.table``.
            paths: Path, glob pattern or list of both, as in :meth:`Table.add_data_files`.
            hive_partitioning: As in :meth:`Table.add_data_files`. Default: detect.
            allow_missing: Whether files may lack columns of the table. Default: False.
            ignore_extra_columns: Whether files may have columns that the table lacks. Default: False.
            allow_duplicates: Whether a file may be added that the table already has. Default: False.
            for_duckdb: Whether DuckDB must be able to read the files, as in :meth:`Table.add_data_files`. Default: True.
            spark: Spark session whose executors read the footers. Default: this process reads them.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the files.

        Raises:
            NotFoundError: There is no such table or file.
            SchemaError: The columns of a file do not match the table.
            UsageError: A file was added before, or has deleted rows.
        """
        return self.table(table).add_data_files(
            paths,
            hive_partitioning=hive_partitioning,
            allow_missing=allow_missing,
            ignore_extra_columns=ignore_extra_columns,
            allow_duplicates=allow_duplicates,
            for_duckdb=for_duckdb,
            spark=spark,
            **commit,
        )

    def transaction(
        self,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, object] | None = None,
        commit_id: str | None = None,
    ) -> Transaction:
        """Open a transaction: several changes to any number of tables in one snapshot.

        The transaction commits when the block ends. An exception inside the block discards all changes and their files.

        Args:
            author: Author, stored with the snapshot.
            message: Message, stored with the snapshot.
            extra_info: String or mapping, stored with the snapshot. A mapping is stored as JSON.
            commit_id: Makes a repeated transaction safe: if a snapshot already has this id, the transaction changes nothing.
        """
        self._database.check_not_read_only()
        from ducklake_core.transaction import Transaction

        return Transaction(self._context, author=author, message=message, extra_info=extra_info, commit_id=commit_id, is_one_call=False)

    def _state(self, name: str, at: At, *, suggest: bool = True) -> TableState:
        # Catalogs of earlier versions are read only and have other tables, so that a cache would not pay off.
        if at is None and self._database.layout is None:
            return self.table_cache.table(self._database, self.info, self.reader, *split_name(name), suggest=suggest)
        with self.reader() as reader:
            return reader.table(*split_name(name), resolve_at(reader, at).id, suggest=suggest)

    # Inspect

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Open a reader of the catalog. It uses one short transaction, so that everything it reads is consistent."""
        with self._database.read() as connection:
            yield CatalogReader(connection, self._info, self._database.tables)

    @property
    def _context(self) -> LakeContext:
        """Handles of this lake for internal modules."""
        return LakeContext(
            database=self._database, info=self._info, storage=self._storage, table_cache=self.table_cache, variables=self._variables
        )

    @property
    def storage(self) -> Storage:
        """Access to the lake's files; picklable."""
        return self._storage

    def snapshot(self, at: At = None) -> Snapshot:
        """Return a snapshot: by default the newest, otherwise the one with an id or the last one before a time.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`) for the last snapshot at or before it. Default: the newest snapshot.

        Raises:
            NotFoundError: The snapshot does not exist or has expired.
        """
        with self.reader() as reader:
            return resolve_at(reader, at)

    def find_commit(self, commit_id: str, *, snapshot_id: int | None = None) -> Snapshot | None:
        """Return the snapshot that was committed with a commit id, None if there never was one.

        Args:
            commit_id: The commit id.
            snapshot_id: The only snapshot that can have the id, as reported by a :class:`CommitOutcomeUnknownError`. With it, the
                result is reliable even if other snapshots have expired.

        Raises:
            CommitOutcomeUnknownError: No snapshot has the id, but snapshots have expired, and one of them may have had it.
        """
        from ducklake_core.commit.committer import Committer

        only = arguments.optional(arguments.whole_number, "snapshot_id", snapshot_id)
        return Committer(self._database).find_commit_or_raise(checked_commit_id(commit_id), only)

    def snapshots(self, *, last: int | None = None) -> list[Snapshot]:
        """Return snapshots that have not expired, by ascending id. ``snapshot.change_set`` contains the changes of each.

        Args:
            last: Maximum number of snapshots, the newest ones, which takes the same time however long the history is. Default: all.
        """
        most = arguments.optional(arguments.row_count, "last", last)
        with self.reader() as reader:
            return reader.snapshots() if most is None else reader.last_snapshots(most)

    def changed_tables(
        self,
        after: int,
        until: int | None = None,
        *,
        tables: Mapping[str, Sequence[str]] | None = None,
        most_snapshots: int | None = None,
    ) -> LakeChanges:
        """Find the tables whose rows may differ between two snapshots, with the files and bounds of those rows.

        Compares the rows that are visible at both snapshots. So flushing, merging and rewriting files are not changes, and rows that
        were inserted and deleted in between do not count. The result comes from the catalog alone: all rows of a changed file count,
        with the bounds of the whole file. The result includes every change. If snapshots have expired, or a commit does not name a table
        that it changed, so that the catalog does not have the information, the table's ``unknown`` contains the reason. The
        number of catalog queries does not depend on the number of snapshots or tables, except for one more query for every 200 tables with
        inlined rows.

        Args:
            after: Id of the earlier snapshot. It may have expired.
            until: Id of the later snapshot. Default: the newest.
            tables: Tables to compare, each with the columns whose bounds to return. Default: all tables, without bounds.
            most_snapshots: Maximum number of snapshots to cover. Default: all up to ``until``.

        Raises:
            NotFoundError: There is no snapshot ``until``.
            UsageError: A table name is invalid.
        """
        from ducklake_core.planning.lake_changes import plan_lake_changes

        first, last = arguments.whole_number("after", after), arguments.optional(arguments.whole_number, "until", until)
        wanted = arguments.optional(arguments.names_by_key, "tables", tables)
        most = arguments.optional(arguments.whole_number, "most_snapshots", most_snapshots)
        with self.reader() as reader:
            return plan_lake_changes(reader, first, last, tables=wanted, most=most)

    def statistics(self, tables: Mapping[str, Sequence[str]]) -> LakeStatistics:
        """Return the statistics of tables that the catalog stores: rows, deletes, NULLs and bounds of each data file.

        Covers the newest snapshot and every earlier one that has not expired. Inlined rows are counted by their values of the columns.
        No file is opened. The number of catalog queries does not depend on the number of tables or snapshots, except for one more query
        for every 200 tables with inlined rows.

        Args:
            tables: Tables, each with the columns whose bounds and NULL counts to return. Names without a table are skipped.
        """
        from ducklake_core.planning.table_info import read_statistics

        wanted = arguments.names_by_key("tables", tables)
        with self.reader() as reader:
            return read_statistics(reader, wanted)

    def at(self, at: At) -> LakeAtSnapshot:
        """Return the whole lake at one snapshot, read only. Tables, views and listings all show the same state.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`) for the last snapshot at or before it; None for the newest.

        Raises:
            NotFoundError: The snapshot does not exist or has expired.
        """
        with self.reader() as reader:
            return LakeAtSnapshot(self, resolve_at(reader, at))

    @property
    def inspect(self) -> Inspection:
        """Return the contents of the catalog as Arrow tables: ``lake.inspect.snapshots()``, ``lake.inspect.files("t")``."""
        return Inspection(self)

    def __getitem__(self, name: str) -> Table:
        """Return the table for ``lake["t"]``; see :meth:`table`."""
        return self.table(name)

    def __contains__(self, name: str) -> bool:
        """Return whether the table exists, for ``"t" in lake``."""
        return self.has_table(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tables (``schema.table``) at the newest snapshot."""
        return iter(self.at(None))

    def schemas(self, *, at: At = None) -> list[SchemaState]:
        """Return all schemas by name.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            return reader.schemas(resolve_at(reader, at).id)

    def tables(self, schema: str | None = None, *, at: At = None, after: str | None = None, limit: int | None = None) -> list[TableInfo]:
        """Return tables with their sizes, by schema and name. The number of catalog queries does not depend on the number of tables.

        Sizes are sums over data files, so the call takes longer in a lake with very many of them. Read such a lake in pages::

            page = lake.tables(limit=100)
            page = lake.tables(limit=100, after=page[-1].table)

        Files are opened only where a file also holds rows or deletes of later snapshots (:meth:`table_info`).

        Args:
            schema: Name of the schema. Default: all schemas.
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).
            after: ``table`` or ``schema.table``; only tables that follow this name. It need not exist. Default: from the first.
            limit: Maximum number of tables. Default: all.

        Raises:
            NotFoundError: There is no such schema.
        """
        start = split_name(after) if after is not None else None
        most = arguments.optional(arguments.row_count, "limit", limit)
        with self.reader() as reader:
            sizes = table_sizes(reader, resolve_at(reader, at).id, schema, after=start, most=most)
        context = self._context
        return [context.counted(size) for size in sizes]

    def table_info(self, name: str, *, at: At = None) -> TableInfo:
        """Return the number of rows, files and bytes of a table.

        The numbers come from the catalog. Files are opened only if files were merged after the snapshot: then a file also holds rows or
        deletes of later snapshots, and the catalog does not store how many.

        Args:
            name: ``table`` or ``schema.table``.
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).

        Raises:
            NotFoundError: There is no such table at the snapshot.
        """
        with self.reader() as reader:
            snapshot = resolve_at(reader, at)
            size = table_size(reader, reader.table(*split_name(name), snapshot.id))
        return self._context.counted(size)

    def views(self, *, at: At = None) -> list[View]:
        """Return all views by schema and name.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            return [View(self._context, state) for state in views(reader, resolve_at(reader, at).id)]

    def view(self, name: str, *, at: At = None) -> View:
        """Return a view.

        Args:
            name: ``view`` (in schema ``main``) or ``schema.view``.
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).

        Raises:
            NotFoundError: There is no such view at the snapshot.
        """
        with self.reader() as reader:
            return View(self._context, view(reader, *split_name(name), resolve_at(reader, at).id))

    def macros(self, *, at: At = None) -> list[Macro]:
        """Return all macros by schema and name, with their definitions. DuckDB evaluates them, also for :meth:`DuckLake.sql`.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`); the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            return macros(reader, resolve_at(reader, at).id)

    def options(self, table: str | None = None) -> Mapping[str, str]:
        """Return the effective options of the lake or a table, by lower-case name. A table's option overrides the schema's and the lake's.

        Args:
            table: ``table`` or ``schema.table``. Default: the options of the lake.

        Raises:
            NotFoundError: There is no such table.
        """
        with self.reader() as reader:
            if table is None:
                return reader.options()
            return reader.table(*split_name(table), reader.latest_snapshot().id).options

    def scoped_options(self) -> list[ScopedOption]:
        """Return every option that is set, with its scope, by name and scope.

        Options have no history: every snapshot has the current ones. The list includes the settings that were stored at creation.
        """
        with self.reader() as reader:
            return scoped_options(reader, reader.latest_snapshot().id)

    def settings(self) -> LakeSettings:
        """Return the settings of the lake. Reads the data path that the catalog stores now, which :meth:`move_data` changes."""
        from ducklake_core.catalog.migrations.copying import stored_data_path

        with self._database.read() as connection:
            stored = stored_data_path(connection, self._database.tables)
        return LakeSettings(
            catalog_type=self._database.address.url.get_backend_name(),
            version=self._info.version,
            data_path=as_directory(stored),
            encrypted=self._info.encrypted,
            created_by=self._info.created_by,
        )

    # Define

    def create_schema(self, name: str, *, if_not_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Create a schema.

        Args:
            name: Name of the schema.
            if_not_exists: Whether to do nothing if the schema exists. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if nothing changed.

        Raises:
            AlreadyExistsError: The schema exists.
        """
        try:
            with self._autocommit(commit) as tx:
                tx.create_schema(name, if_not_exists=if_not_exists)
            return tx.result.snapshot
        except AlreadyExistsError:
            # Another writer may have created it first.
            if if_not_exists:
                return None
            raise

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a schema.

        Args:
            name: Name of the schema.
            cascade: Whether to drop its tables, views and macros, too. Default: False, which requires an empty schema.
            if_exists: Whether to do nothing if the schema does not exist. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if nothing changed.

        Raises:
            NotFoundError: There is no such schema.
            UsageError: The schema is not empty, and ``cascade`` is False.
        """
        with self._autocommit(commit) as tx:
            tx.drop_schema(name, cascade=cascade, if_exists=if_exists)
        return tx.result.snapshot

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema | Mapping[str, TypeLike],
        *,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> Table:
        """Create an empty table.

        Args:
            name: ``table`` or ``schema.table``.
            schema: Columns, as a :class:`Schema`, an Arrow schema, a mapping of names to types, or a frame whose columns to use (Arrow
                table, Spark DataFrame).
            partition_by: Partition keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``. Default: none.
            comment: Comment on the table. Default: none.
            or_replace: Whether to drop an existing table of this name in the same snapshot. Default: False.
            if_not_exists: Whether to keep an existing table of this name. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The table.

        Raises:
            AlreadyExistsError: The table exists, or a view has the name.
            NotFoundError: The schema does not exist.
            SchemaError: A column or partition key is not valid in a DuckLake table.
        """
        if not (if_not_exists and self.has_table(name)):
            try:
                with self._autocommit(commit) as tx:
                    tx.create_table(name, schema, partition_by=partition_by, comment=comment, or_replace=or_replace)
            except AlreadyExistsError:
                # A view may have the name.
                if not (if_not_exists and self.has_table(name)):
                    raise
        return self.table(name)

    def create_table_as(
        self,
        name: str,
        data: FrameLike,
        *,
        schema: Schema | pa.Schema | Mapping[str, TypeLike] | FrameLike | None = None,
        partition_by: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Create a table with the columns and rows of a frame, in one snapshot.

        Args:
            name: ``table`` or ``schema.table``.
            data: Rows, as in :meth:`DuckLake.write`, such as those of a scan: ``lake.table("t").scan(...).to_reader()``.
            schema: Columns, as in :meth:`create_table`. Default: the columns of the data.
            partition_by: Partition keys, as in :meth:`create_table`. Default: none.
            comment: Comment on the table. Default: none.
            or_replace: Whether to drop an existing table of this name in the same snapshot. The frame may read from it. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            Snapshot id, rows, files and bytes of the write.

        Raises:
            AlreadyExistsError: The table exists, or a view has the name.
            NotFoundError: The schema does not exist.
            SchemaError: The data does not match ``schema``.
        """
        with self._autocommit(commit) as tx:
            tx.create_table_as(name, data, schema=schema, partition_by=partition_by, comment=comment, or_replace=or_replace)
        return single_result(tx.result, name, 0)

    def rename_table(self, name: str, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a table within its schema.

        Args:
            name: ``table`` or ``schema.table``.
            new_name: New name, without a schema.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: There is no such table.
            AlreadyExistsError: A table or view has the new name.
        """
        with self._autocommit(commit) as tx:
            tx.rename_table(name, new_name)
        return tx.result.snapshot

    def drop_table(self, name: str, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a table. Earlier snapshots keep it until they expire.

        Args:
            name: ``table`` or ``schema.table``.
            if_exists: Whether to do nothing if the table does not exist. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if nothing changed.

        Raises:
            NotFoundError: There is no such table.
        """
        with self._autocommit(commit) as tx:
            tx.drop_table(name, if_exists=if_exists)
        return tx.result.snapshot

    def undrop_table(
        self,
        name: str,
        *,
        at: At = None,
        new_name: str | None = None,
        spark: SparkSession | None = None,
        **commit: Unpack[CommitOptions],
    ) -> Table:
        """Re-create a dropped table with its definition, rows and row ids.

        The result is a new table with its own id. Its files are written again, because the files of the dropped table are deleted once
        the snapshots that show it expire. Options of the table are restored with their current values.

        Args:
            name: ``table`` or ``schema.table``: the name when it was dropped, or at the snapshot ``at``.
            at: Snapshot id or time to take the table from. Default: the last snapshot that shows it.
            new_name: New name in the same schema, without a schema. Default: the old name.
            spark: Spark session whose executors write the files. Default: this process writes them.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The table.

        Raises:
            NotFoundError: No table of this name was dropped, every snapshot that shows it has expired, or its schema was dropped.
            AlreadyExistsError: A table or view has the name, or the table was not dropped.
        """
        with self._autocommit(commit) as tx:
            tx.undrop_table(name, at=at, new_name=new_name, spark=spark)
        return self.table(name if new_name is None else join_name(split_name(name)[0], new_name))

    def restore(self, at: At, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Restore the whole lake to an earlier snapshot. Commits a new snapshot, so that later snapshots can be restored, too.

        Tables get back their rows, columns, names, keys, sort orders, comments and tags. Objects created since are dropped. Dropped
        tables (as in :meth:`undrop_table`), schemas, views and macros come back. Options keep their current values. Changes that other
        writers commit while the restore runs are undone as well.

        Args:
            at: Snapshot id, time or name of a hold (:data:`At`) for the last snapshot at or before it.
            spark: Spark session whose executors write files. Default: this process writes them.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if the lake already has this state.

        Raises:
            NotFoundError: The snapshot does not exist or has expired.
            CommitConflictError: Other writers committed during every attempt.
        """
        retries = CallRetries(replans=_RESTORES.attempts())
        return self._run_again(lambda tx: tx.restore_lake(at=at, spark=spark), commit, retries).snapshot

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> View:
        """Create a view from a SELECT in DuckDB's SQL.

        Args:
            name: ``view`` or ``schema.view``.
            sql: One SELECT; see :meth:`Transaction.create_view`.
            columns: Names of the first columns, instead of those of the query. Default: the names of the query.
            comment: Comment on the view. Default: none.
            or_replace: Whether to replace an existing view of this name. Default: False.
            if_not_exists: Whether to keep an existing view of this name. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The view.

        Raises:
            AlreadyExistsError: A view or table has the name.
            NotFoundError: The schema, or a table or view in the query, does not exist.
            UsageError: ``sql`` is not exactly one SELECT.
        """
        with self._autocommit(commit) as tx:
            tx.create_view(name, sql, columns=columns, comment=comment, or_replace=or_replace, if_not_exists=if_not_exists)
        return self.view(name)

    def create_macro(
        self,
        name: str,
        definitions: Mapping[str, str],
        *,
        kind: MacroKind = "scalar",
        or_replace: bool = False,
        if_not_exists: bool = False,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Create a macro for DuckDB: an expression, or with ``kind="table"`` a SELECT, for each list of parameters.

        Example: ``lake.create_macro("late", {"minutes, least INTEGER := 15": "minutes > least"})``. See :meth:`Transaction.create_macro`.

        Args:
            name: ``macro`` or ``schema.macro``.
            definitions: SQL by list of parameters.
            kind: ``scalar`` for expressions, ``table`` for SELECTs. Default: ``scalar``.
            or_replace: Whether to replace an existing macro of this name. Default: False.
            if_not_exists: Whether to keep an existing macro of this name. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if nothing changed.

        Raises:
            AlreadyExistsError: A macro of this kind has the name.
            NotFoundError: The schema does not exist.
            UsageError: DuckDB does not accept the parameters or the SQL.
        """
        with self._autocommit(commit) as tx:
            tx.create_macro(name, definitions, kind=kind, or_replace=or_replace, if_not_exists=if_not_exists)
        return tx.result.snapshot

    def drop_macro(
        self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Drop a macro with all of its definitions.

        Args:
            name: ``macro`` or ``schema.macro``.
            kind: ``scalar`` or ``table``. Default: ``scalar``.
            if_exists: Whether to do nothing if the macro does not exist. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if nothing changed.

        Raises:
            NotFoundError: There is no such macro of this kind.
        """
        with self._autocommit(commit) as tx:
            tx.drop_macro(name, kind=kind, if_exists=if_exists)
        return tx.result.snapshot

    def rename_view(self, name: str, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a view within its schema.

        Args:
            name: ``view`` or ``schema.view``.
            new_name: New name, without a schema.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: There is no such view.
            AlreadyExistsError: A view or table has the new name.
        """
        with self._autocommit(commit) as tx:
            tx.rename_view(name, new_name)
        return tx.result.snapshot

    def drop_view(self, name: str, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a view.

        Args:
            name: ``view`` or ``schema.view``.
            if_exists: Whether to do nothing if the view does not exist. Default: False, which raises an error.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Returns:
            The new snapshot, None if nothing changed.

        Raises:
            NotFoundError: There is no such view.
        """
        with self._autocommit(commit) as tx:
            tx.drop_view(name, if_exists=if_exists)
        return tx.result.snapshot

    def set_comment(
        self, name: str, text: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Set or delete the comment on a table, a view or a column.

        Args:
            name: Name of the table or view.
            text: The comment; None deletes it.
            column: Name of a column, or path of a field. Default: the table or view itself.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: There is no such table, view or column.
        """
        with self._autocommit(commit) as tx:
            tx.set_comment(name, text, column=column)
        return tx.result.snapshot

    def set_tag(
        self, name: str, key: str, value: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Set or delete a tag, a string under a key, on a table, a view or a column.

        The tag ``comment`` is the comment. DuckDB shows no other tags, and columns can have no other tags.

        Args:
            name: Name of the table or view.
            key: Key of the tag.
            value: Value of the tag; None deletes the tag.
            column: Name of a column, or path of a field. Default: the table or view itself.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: There is no such table, view or column.
            UnsupportedFeatureError: ``column`` is given, and ``key`` is not ``comment``: DuckDB cannot attach a lake with such a tag.
        """
        with self._autocommit(commit) as tx:
            tx.set_tag(name, key, value, column=column)
        return tx.result.snapshot

    def set_schema_comment(self, name: str, text: str | None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Set or delete the comment on a schema. DuckDB neither writes nor shows comments on schemas.

        Args:
            name: Name of the schema.
            text: The comment; None deletes it.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: There is no such schema.
        """
        with self._autocommit(commit) as tx:
            tx.set_schema_comment(name, text)
        return tx.result.snapshot

    def set_schema_tag(self, name: str, key: str, value: str | None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Set or delete a tag, a string under a key, on a schema. Read tags with :meth:`schemas`.

        Args:
            name: Name of the schema.
            key: Key of the tag.
            value: Value of the tag; None deletes the tag.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: There is no such schema.
        """
        with self._autocommit(commit) as tx:
            tx.set_schema_tag(name, key, value)
        return tx.result.snapshot

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None, schema: str | None = None) -> None:
        """Set an option for the lake, a schema or a table. Creates no snapshot.

        Args:
            name: Name of the option (docs/reference/options.md).
            value: Value of the option.
            table: Table to set it for. Default: the lake.
            schema: Schema to set it for. Default: the lake.

        Raises:
            UsageError: There is no such option, or the value is invalid.
            NotFoundError: There is no such table or schema.
        """
        checked = arguments.option_value("value", value)
        key, stored = normalize_option(name, checked)
        check_option_scope(key, is_lake=table is None and schema is None)
        self._change_option(
            f"set the option {key}",
            table,
            schema,
            lambda connection, *scope: store_option(connection, self._database.tables, key, stored, *scope),
        )

    def unset_option(self, name: str, *, table: str | None = None, schema: str | None = None) -> bool:
        """Remove an option of the lake, a schema or a table. The option of the wider scope, or the default, is effective again.

        Creates no snapshot.

        Args:
            name: Name of the option.
            table: Table for which it is set. Default: the lake.
            schema: Schema for which it is set. Default: the lake.

        Returns:
            Whether the option was set.

        Raises:
            UsageError: There is no such option.
            NotFoundError: There is no such table or schema.
        """
        self._database.check_writable()
        key = option_name(name)
        was_set: list[bool] = []
        self._change_option(
            f"unset the option {key}",
            table,
            schema,
            lambda connection, *scope: was_set.append(delete_option(connection, self._database.tables, key, *scope)),
        )
        return any(was_set)

    def _change_option(self, what: str, table: str | None, schema: str | None, change: Callable[..., None]) -> None:
        """Call a function with a connection, and kind and id of the scope, until it commits."""
        from ducklake_core.maintenance.groups import run_write

        arguments.one_scope(table, schema)

        def attempt() -> None:
            with self._database.write() as connection:
                reader = CatalogReader(connection, self._info, self._database.tables)
                scope: tuple[str | None, int | None] = (None, None)
                if table is not None:
                    scope = "table", reader.table(*split_name(table), reader.latest_snapshot().id).id
                elif schema is not None:
                    scope = "schema", reader.schema(*schemas_meant(schema), snapshot_id=reader.latest_snapshot().id).id
                change(connection, *scope)

        run_write(attempt, what)
        self.table_cache.forget_options()

    def _forget_definitions(self) -> None:
        self.table_cache.forget()

    # SQL

    def sql(
        self,
        sql: str,
        parameters: SqlParameters = None,
        *,
        spark: SparkSession | None = None,
        at: At = None,
        timezone: str | None = None,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, object] | None = None,
        commit_id: str | None = None,
        files: bool = False,
        **frames: FrameLike,
    ) -> Query | TransactionResult:
        """Run SQL in DuckDB's dialect. docs/reference/sql.md lists the supported statements.

        A query returns an object that computes the rows on request (``to_arrow()``, ``to_pandas()``, ``to_spark()``, or as an Arrow
        stream). It reads all tables at one snapshot, which is fixed by this call. Any other statement runs immediately, as one commit.
        Of several statements, each is a commit of its own, and the result is that of the last one.

        Args:
            sql: ``SELECT``, ``INSERT``, ``UPDATE``, ``DELETE``, ``MERGE``, ``CREATE``, ``DROP``, ``ALTER`` or ``COMMENT``.
            parameters: Values of parameters: a list for ``?`` and ``$1``, a dict for ``$name``. Default: no parameters.
            spark: Spark session that runs the statement. Default: this process runs it. Queries of more than columns of one table then
                need DuckDB (``pip install 'ducklake-dagster[duckdb]'``).
            at: Snapshot id or time to query; for queries only. Use ``t AT (VERSION => 3)`` for single tables. Default: the newest snapshot.
            timezone: Time zone, such as ``Europe/Berlin``, for casts and parts of ``timestamptz`` values and for timestamps without a
                zone that become ``timestamptz``. Default: the session's zone with ``spark``, otherwise the machine's, as in DuckDB.
                With ``spark`` it must equal the session's zone.
            author: Author, stored with the snapshot.
            message: Message, stored with the snapshot.
            extra_info: String or mapping, stored with the snapshot. A mapping is stored as JSON.
            commit_id: Makes a repeated statement safe: if a snapshot already has this id, the statement does nothing.
            files: Whether the SQL may read and write files of this machine (``read_parquet``, ``COPY``). Default: False.
            **frames: Frames that the SQL uses as tables, by name. Their rows are held in memory.

        Returns:
            A :class:`Query` for queries, a :class:`TransactionResult` for other statements.

        Raises:
            UsageError: ``sql`` is not a valid statement, several statements have parameters or a commit id, a parameter has no value, an
                argument is not a frame, or ``timezone`` is unknown or differs from the session's zone.
            NotFoundError: There is no such table.
            UnsupportedFeatureError: The statement uses a feature that is not supported, or DuckDB is not installed.
        """
        from ducklake_core.sql.parameters import each_statement, run_each
        from ducklake_core.sql.time_travel import is_query

        storable("sql", sql, nul=True)
        arguments.optional(storable, "timezone", timezone)
        options = {"author": author, "message": message, "extra_info": extra_info, "commit_id": commit_id}
        commit = {name: value for name, value in options.items() if value is not None}
        arguments.check_commit(commit)
        each = each_statement(sql, parameters, frames, commit_id=commit_id)

        def run(one: str, named: Mapping[str, FrameLike]) -> Query | TransactionResult:
            own = {} if len(each) > 1 and is_query(one) else commit
            return self._run_statement(one, parameters, named, spark, at=at, timezone=timezone, files=files, commit=own)

        return run_each(each, run)

    def _run_statement(
        self,
        sql: str,
        parameters: SqlParameters,
        frames: Mapping[str, FrameLike],
        spark: SparkSession | None,
        *,
        at: At,
        timezone: str | None,
        files: bool,
        commit: Mapping[str, Any],
    ) -> Query | TransactionResult:
        from ducklake_core.sql.functions import Caller, copy_to_file, replaced, set_variable, uses_lake
        from ducklake_core.sql.parameters import frame_sources, with_parameters
        from ducklake_core.sql.query import Query, statement_zone
        from ducklake_core.sql.time_travel import is_query

        zone = statement_zone(timezone, spark)
        sql = with_parameters(sql, parameters)
        sources = frame_sources(sql, frames)
        with in_zone(zone):
            caller = Caller(lake=self._context, at=at, operations=self, files=files)
            sql, results = replaced(sql, caller)
        sources = (*sources, *results)

        def query(text: str) -> Query:
            with self.reader() as reader:
                return Query(self._context, text, resolve_at(reader, at).id, spark, timezone, sources, files=files)

        if is_query(sql):
            if commit:
                raise UsageError(f"A query commits nothing. Remove {', '.join(commit)}")
            return query(sql).checked()
        if uses_lake(sql, caller) or set_variable(sql, self._variables, query) or copy_to_file(sql, query, files=files):
            return TransactionResult(snapshot=None)
        if at is not None:
            raise UsageError("at applies only to queries; other statements change the newest snapshot. Remove it")
        with in_zone(zone):
            return self._run_again(lambda tx: tx._run(sql, spark, sources, files=files), commit, CallRetries())  # noqa: SLF001

    def _autocommit(self, commit: Mapping[str, Any], retries: CallRetries | None = None) -> Transaction:
        """Return the transaction of a method that makes one change. A process that only reads does not import the code for writing."""
        from ducklake_core.transaction import autocommit

        return autocommit(self._context, commit, retries)

    def _run_again(self, work: Callable[[Transaction], object], commit: Mapping[str, Any], retries: CallRetries) -> TransactionResult:
        """Run some work in a transaction, and again in a new transaction after a conflict."""
        while True:
            try:
                with self._autocommit(commit, retries) as tx:
                    work(tx)
                return tx.result
            except CommitConflictError:
                if not retries.replans.again():
                    raise

    def register(
        self, spark: SparkSession, *, schema: str | None = None, tables: Sequence[str] | None = None, at: At = None
    ) -> dict[str, str | None]:
        """Register the tables and views of a schema as temporary views in a Spark session, for use in ``spark.sql``.

        Reads the catalog once for each table. Files are opened when a query runs. Spark reads only the columns that a query needs, and
        skips files by their own statistics, not by the catalog as :meth:`sql` does. The views stay at one snapshot; call this method
        again for a newer one. Existing temporary views of the same names are replaced.

        Args:
            spark: Spark session, classic or Connect.
            schema: Schema. Default: ``main``.
            tables: Names of tables and views of the schema. Default: all.
            at: Snapshot id or time. Default: the newest snapshot.

        Returns:
            By name: None for a registered table or view, otherwise the reason why Spark cannot read the view.

        Raises:
            NotFoundError: There is no such schema or table.
        """
        from ducklake_core.sql.query import register, statement_zone

        wanted = arguments.optional(arguments.names, "tables", tables)
        with in_zone(statement_zone(None, spark)):
            return register(self._context, spark, schema, wanted, at)

    # Maintain: files

    def merge_adjacent_files(  # noqa: PLR0913 - by name all of them
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        max_compacted_files: int | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        cluster_by: Sequence[str] = (),
        max_input_bytes: int | None = None,
        max_files: int | None = None,
        max_seconds: float | None = None,
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        partial_progress: bool = False,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> MergeResult:
        """Merge small files into larger ones of up to the option ``target_file_size`` bytes. Commits one snapshot per table, or one for
        several small tables.

        Rows, row ids and earlier snapshots do not change. Rows of the new files have the table's sort order. The merged files are
        scheduled for deletion immediately: run :meth:`cleanup_old_files` with an age that is longer than any running query. Deleted rows
        that no snapshot shows any more are left out, and a delete file hides the others. Skipped are files that
        :meth:`rewrite_data_files` rewrites, tables with ``auto_compact = false``, and tables with a sort order that Arrow does not
        support. Without ``min_file_size`` and ``max_file_size``, a file above 8 MiB is also skipped if it is more than twice as large as
        all smaller files of its partition together, so that a few new rows do not rewrite a large file. A table that fails, or that
        another writer changes meanwhile, is reported in the result and does not stop the other tables.

        Args:
            table: ``table`` or ``schema.table``. Default: all tables.
            schema: Process only the tables of this schema.
            tables: Table names with wildcards, instead of ``table`` and ``schema``: ``*`` matches any characters, ``?`` one character,
                in the schema and in the table, such as ``["sales.*", "main.order_?"]``. A name without wildcards must exist. A pattern
                that matches no table is reported as skipped.
            max_compacted_files: Maximum number of new files per table. Default: no limit.
            min_file_size: Bytes. Smaller files are skipped. Default: none is skipped.
            max_file_size: Bytes. Files of this size or larger are skipped. Default: ``target_file_size``.
            cluster_by: Up to 8 columns of ``table`` (or ``tables``). Rows of each new file are ordered along a Hilbert curve over these
                columns (one column: by the column) instead of the table's sort order, so that a range of any of them is in few row
                groups. :meth:`rewrite_data_files` clusters across files. Default: none.
            max_input_bytes: Maximum number of bytes of files to read, over all tables. Default: no limit. Files beyond the limit are
                reported as skipped; the next call continues with them.
            max_files: Maximum number of files to read, over all tables. Default: no limit.
            max_seconds: Seconds after which no further file is started. Finished files are committed. Default: no limit.
            spark: Spark session. Its executors process one group of files per task. Default: this process does the work.
            max_concurrency: Maximum number of groups that run at the same time, as threads of this process or as Spark jobs. Default: 1
                in this process; on Spark one job for all groups of a table.
            partial_progress: Whether to commit each group of files as soon as it is done, as a separate snapshot. Then an interrupted
                run keeps its finished groups, and the next run does the rest. Default: False, which commits all groups of a table
                together.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to change nothing and only return the plan, with a reason for each skipped file. Default: False.
            **commit: Author, message and extra_info of the snapshots (:class:`CommitMessage`). The default message describes the work.

        Returns:
            Merged and skipped files by table; printing it shows them.

        Raises:
            NotFoundError: There is no such table or schema.
            UsageError: The size limits contradict each other, ``cluster_by`` has more than 8 columns, or ``table`` is missing with it.
            UnsupportedFeatureError: A column of ``cluster_by`` has a type without bounds.
        """
        from ducklake_core.maintenance.groups import Execution
        from ducklake_core.maintenance.merge import MergeLimits, merge_adjacent_files

        arguments.check_flags(partial_progress=partial_progress, dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        limits = MergeLimits(
            max_compacted_files=max_compacted_files,
            min_file_size=min_file_size,
            max_file_size=max_file_size,
            cluster_by=_columns(cluster_by, table, tables),
        )
        request = _request(
            table, schema, tables, commit, progress, dry_run, max_input_bytes=max_input_bytes, max_files=max_files, max_seconds=max_seconds
        )
        execution = Execution(spark=spark, max_concurrency=max_concurrency, partial_progress=partial_progress)
        return merge_adjacent_files(self._database, self._info, self._storage, request, limits=limits, execution=execution)

    def flush_inlined_data(
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        max_rows: int | None = None,
        max_seconds: float | None = None,
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> FlushResult:
        """Write inlined rows and deletes, which the catalog stores, to files. Commits one snapshot per table that has any.

        Rows, row ids, earlier snapshots and the change feed do not change. The files have the partition keys of the time at which the
        rows were inserted, and the table's sort order where Arrow supports it. Tables with ``auto_compact = false`` are skipped. A
        table that fails is reported in the result and does not stop the other tables. Rows that other writers add meanwhile stay
        inlined; if they change inlined rows, the table is planned again.

        Args:
            table: ``table`` or ``schema.table``. Default: all tables.
            schema: Process only the tables of this schema.
            tables: Table names with wildcards, instead of ``table`` and ``schema``, as in :meth:`merge_adjacent_files`.
            max_rows: Number of rows and deletes after which no further table is started. Tables are always flushed completely. Default:
                no limit.
            max_seconds: Seconds after which no further table is started. Default: no limit.
            spark: Spark session whose executors write the files of tables with at least 100,000 inlined rows and deletes. This process
                reads the rows and writes all other files. Default: this process writes all files.
            max_concurrency: Maximum number of parts of a table that are written at the same time, as threads of this process or as
                Spark jobs.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to change nothing and only return the plan, with a reason for each skipped table. Default: False.
            **commit: Author, message and extra_info of the snapshots (:class:`CommitMessage`). The default message describes the work.

        Returns:
            Flushed and skipped tables; printing it shows them.

        Raises:
            NotFoundError: There is no such table or schema.
            UsageError: An argument is invalid.
        """
        from ducklake_core.maintenance.flush import flush_inlined_data
        from ducklake_core.maintenance.groups import Execution

        arguments.check_flags(dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        request = _request(table, schema, tables, commit, progress, dry_run, max_rows=max_rows, max_seconds=max_seconds)
        execution = Execution(spark=spark, max_concurrency=max_concurrency)
        return flush_inlined_data(self._database, self._info, self._storage, request, execution=execution)

    def rewrite_data_files(  # noqa: PLR0913 - by name all of them
        self,
        table: str | None = None,
        *,
        schema: str | None = None,
        tables: str | Sequence[str] | None = None,
        delete_threshold: float | None = None,
        cluster_by: Sequence[str] = (),
        max_compacted_files: int | None = None,
        max_input_bytes: int | None = None,
        max_files: int | None = None,
        max_seconds: float | None = None,
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        partial_progress: bool = False,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> RewriteResult:
        """Rewrite data files that have many deleted rows, without these rows. Commits one snapshot per table that has such files.

        Row ids do not change, earlier snapshots read the old files until they expire, and the change feed shows no changes. Files of
        one partition are written together, up to the option ``target_file_size``, in the table's sort order where Arrow supports it.
        Adjacent small files without deleted rows are included while they fit. Tables with ``auto_compact = false`` are skipped. A table
        that fails is reported in the result and does not stop the other tables. If other writers delete rows of the same files
        meanwhile, the table is planned again; added rows do not matter.

        Args:
            table: ``table`` or ``schema.table``. Default: all tables.
            schema: Process only the tables of this schema.
            tables: Table names with wildcards, instead of ``table`` and ``schema``, as in :meth:`merge_adjacent_files`.
            delete_threshold: Minimum fraction of deleted rows of a file, from 0 to 1; 0 selects every file with a deleted row. Default:
                the option ``rewrite_delete_threshold``, or 0.95.
            cluster_by: Up to 8 columns of ``table`` (or ``tables``). Rewrites all files whose ranges of these columns overlap many
                others: rows are ordered along a Hilbert curve over the columns (one column: by the column) instead of the table's sort
                order. The result contains the gain. Files that an earlier run clustered are skipped. Default: none.
            max_compacted_files: Maximum number of groups of files to rewrite per table. A group becomes one or a few files. Default: no
                limit.
            max_input_bytes: Maximum number of bytes of files to read, over all tables. Default: no limit. Files beyond the limit are
                reported as skipped; the next call continues with them.
            max_files: Maximum number of files to read, over all tables. Default: no limit.
            max_seconds: Seconds after which no further group is started. Finished groups are committed. Default: no limit.
            spark: Spark session. Its executors process one group of files per task. Default: this process does the work.
            max_concurrency: Maximum number of groups that run at the same time, as threads of this process or as Spark jobs. Default: 1
                in this process; on Spark one job for all groups of a table.
            partial_progress: Whether to commit each group of files as soon as it is done, as a separate snapshot. Then an interrupted
                run keeps its finished groups, and the next run does the rest. Default: False, which commits all groups of a table
                together.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to change nothing and only return the plan, with a reason for each skipped file. Default: False.
            **commit: Author, message and extra_info of the snapshots (:class:`CommitMessage`). The default message describes the work.

        Returns:
            Rewritten and skipped files by table; printing it shows them.

        Raises:
            NotFoundError: There is no such table or schema.
            UsageError: ``delete_threshold`` is not between 0 and 1, ``cluster_by`` has more than 8 columns, or ``table`` is missing
                with it.
            UnsupportedFeatureError: A column of ``cluster_by`` has a type without bounds.
        """
        from ducklake_core.maintenance.groups import Execution
        from ducklake_core.maintenance.rewrite import RewriteLimits, rewrite_data_files

        arguments.check_flags(partial_progress=partial_progress, dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        columns = _columns(cluster_by, table, tables)
        limits = RewriteLimits(delete_threshold=delete_threshold, max_compacted_files=max_compacted_files, cluster_by=columns)
        request = _request(
            table, schema, tables, commit, progress, dry_run, max_input_bytes=max_input_bytes, max_files=max_files, max_seconds=max_seconds
        )
        execution = Execution(spark=spark, max_concurrency=max_concurrency, partial_progress=partial_progress)
        return rewrite_data_files(self._database, self._info, self._storage, request, limits=limits, execution=execution)

    def checkpoint(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        max_input_bytes: int | None = None,
        max_files: int | None = None,
        max_seconds: float | None = None,
        keep_last: int | None = None,
        min_age: timedelta | str = timedelta(hours=1),
        spark: SparkSession | None = None,
        max_concurrency: int | None = None,
        partial_progress: bool = False,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> CheckpointResult:
        """Run all recommended maintenance, in DuckDB's order, each operation with its defaults.

        Runs :meth:`flush_inlined_data`, :meth:`expire_snapshots` (if the option ``expire_older_than`` is set or ``keep_last`` is
        given), :meth:`merge_adjacent_files`, :meth:`rewrite_data_files`, :meth:`cleanup_old_files` and :meth:`delete_orphaned_files`.
        The options of the lake, its schemas and its tables control them: ``auto_compact``, ``target_file_size``,
        ``rewrite_delete_threshold``, ``expire_older_than``, ``delete_older_than``. An operation or table that fails is reported in the
        result and does not stop the others.

        Args:
            tables: Tables to flush, merge and rewrite: names with wildcards, as in :meth:`merge_adjacent_files`. The other operations
                always process the whole lake. Default: all tables.
            max_input_bytes: Maximum number of bytes of data files that merging and rewriting read together. Default: no limit.
            max_files: Maximum number of data files that merging and rewriting read together. Default: no limit.
            max_seconds: Seconds after which no further operation, table, file or batch of deletions is started. Default: no limit.
            keep_last: Number of newest snapshots that never expire, at least 1. If the option ``expire_older_than`` is not set, all
                other snapshots that are older than ``min_age`` expire. Default: snapshots expire by the option alone.
            min_age: Minimum age of snapshots to expire and files to delete, as in these operations. Default: 1 hour.
            spark: Spark session whose executors flush, merge and rewrite. Default: this process does the work.
            max_concurrency: As in :meth:`merge_adjacent_files`.
            partial_progress: As in :meth:`merge_adjacent_files`.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to change nothing and only return what each operation would do to the lake as it is now. Default: False.
            **commit: Author, message and extra_info of the snapshots (:class:`CommitMessage`). The default message describes the work.

        Returns:
            The result of each operation; printing it shows them.

        Raises:
            NotFoundError: A name without wildcards matches no table.
        """
        from ducklake_core.maintenance.checkpoint import checkpoint
        from ducklake_core.maintenance.groups import Execution

        arguments.check_flags(partial_progress=partial_progress, dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        request = _request(
            None, None, tables, commit, progress, dry_run, max_input_bytes=max_input_bytes, max_files=max_files, max_seconds=max_seconds
        )
        execution = Execution(spark=spark, max_concurrency=max_concurrency, partial_progress=partial_progress)
        return checkpoint(
            self._database,
            self._info,
            self._storage,
            request,
            keep_last=arguments.optional(arguments.whole_number, "keep_last", keep_last),
            min_age=arguments.age("min_age", min_age),
            execution=execution,
        )

    # Maintain: expire and delete

    def expire_snapshots(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        versions: Iterable[int] | None = None,
        keep_last: int | None = None,
        min_age: timedelta | str = timedelta(hours=1),
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
    ) -> ExpiryResult:
        """Expire old snapshots, and schedule the files that only they use for deletion. Deletes no file; :meth:`cleanup_old_files` does.

        Uses one catalog transaction and runs while other writers commit. The newest snapshot never expires. On PostgreSQL, snapshots
        that an open transaction of another program needs are kept: DuckDB detects conflicts only with snapshots that exist.

        Args:
            older_than: Age (a timedelta, or a string such as ``"7 days"``) or point in time (with a zone). Snapshots older than that
                expire. Default: the option ``expire_older_than``.
            versions: Ids of the snapshots to expire, instead of ``older_than``.
            keep_last: Number of newest snapshots that never expire, at least 1. Without an age, all other snapshots that are older than
                ``min_age`` expire. Default: 1 with an age; without one, nothing expires.
            min_age: Minimum age that protects running queries and writes, a timedelta or a string. Default: 1 hour. A smaller
                ``older_than`` raises an error. Lower it only if nothing else uses the lake; zero disables the check.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to change nothing and only return the snapshots that would expire, with reasons. Default: False.

        Returns:
            Expired and kept snapshots, and the files scheduled for deletion; printing it shows them.

        Raises:
            UsageError: The arguments contradict each other, select snapshots younger than ``min_age``, or name the newest snapshot.
            NotFoundError: A snapshot of ``versions`` does not exist.
        """
        from ducklake_core.maintenance.expire import expire_snapshots
        from ducklake_core.maintenance.request import ProgressMeter

        arguments.check_flags(dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        return expire_snapshots(
            self._database,
            self._info,
            older_than=arguments.optional(arguments.age_or_time, "older_than", older_than),
            versions=arguments.optional(arguments.whole_numbers, "versions", versions),
            keep_last=arguments.optional(arguments.whole_number, "keep_last", keep_last),
            min_age=arguments.age("min_age", min_age),
            dry_run=dry_run,
            progress=ProgressMeter(progress),
        )

    def cleanup_old_files(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        cleanup_all: bool = False,
        min_age: timedelta | str = timedelta(hours=1),
        max_files: int | None = None,
        max_seconds: float | None = None,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
    ) -> CleanupResult:
        """Delete files that expiry and compaction scheduled for deletion. Creates no snapshot.

        A file that is already missing counts as deleted. A file that cannot be deleted is reported and stays scheduled. A file that the
        catalog still uses is kept. A file outside the data path is kept, too, if it does not have a name that DuckLake's writers use
        and is not below one of the ``allowed_paths`` of :meth:`~ducklake_core.lake.DuckLake.connect`. So files of other programs that
        were added with :meth:`Table.add_data_files` are never deleted by accident.

        Args:
            older_than: Time since a file was scheduled (a timedelta, or a string such as ``"7 days"``), or a point in time (with a
                zone). Queries that started earlier may still read the files. Default: the option ``delete_older_than``, or 2 days.
            cleanup_all: Whether to delete all scheduled files regardless of their age. Requires ``min_age="0 seconds"``. Default: False.
            min_age: Minimum age that protects running queries and writes, a timedelta or a string. Default: 1 hour. A smaller
                ``older_than`` raises an error. Lower it only if nothing else uses the lake; zero disables the check.
            max_files: Maximum number of files to delete. The rest is reported as skipped and left to the next call. Default: no limit.
            max_seconds: Seconds after which no further batch of files is deleted. Default: no limit.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to delete nothing and only return the files that would be deleted. Default: False.

        Returns:
            Deleted and kept files; printing it shows them.

        Raises:
            UsageError: ``older_than`` is smaller than ``min_age``, or is combined with ``cleanup_all``.
        """
        from ducklake_core.maintenance.cleanup import cleanup_old_files
        from ducklake_core.maintenance.request import Budget, BudgetMeter, ProgressMeter

        arguments.check_flags(cleanup_all=cleanup_all, dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        return cleanup_old_files(
            self._database,
            self._info,
            self._storage,
            older_than=arguments.optional(arguments.age_or_time, "older_than", older_than),
            cleanup_all=cleanup_all,
            min_age=arguments.age("min_age", min_age),
            dry_run=dry_run,
            progress=ProgressMeter(progress),
            budget=BudgetMeter(Budget(max_files=max_files, max_seconds=max_seconds)),
        )

    def delete_orphaned_files(
        self,
        *,
        older_than: timedelta | str | datetime | None = None,
        cleanup_all: bool = False,
        min_age: timedelta | str = timedelta(hours=1),
        every_parquet: bool = False,
        max_files: int | None = None,
        max_seconds: float | None = None,
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
    ) -> OrphansResult:
        """Delete files below the data path that the catalog does not contain, such as files of killed writers. Creates no snapshot.

        On S3, unfinished uploads of the same age are aborted, so that the store deletes their parts.

        A file is kept if a data file, delete file or scheduled file of the catalog has the same file name, in any directory. So another
        spelling of the data path cannot make live files look orphaned. Files of registered running writes are kept, too. **Files of a
        write that has just started, of a running DuckDB transaction, and of another lake with the same data path look like orphans.**
        Choose an age that is longer than the longest write, and use one data path per lake.

        Args:
            older_than: Time since a file was modified (a timedelta, or a string such as ``"7 days"``), or a point in time (with a
                zone). Choose more than the longest write takes. Default: the option ``delete_older_than``, or 2 days.
            cleanup_all: Whether to delete all orphaned files regardless of their age. Requires ``min_age="0 seconds"``. Default: False.
            min_age: Minimum age that protects running queries and writes, a timedelta or a string. Default: 1 hour. A smaller
                ``older_than`` raises an error. Lower it only if nothing else uses the lake; zero disables the check.
            every_parquet: Whether to include ``.parquet`` files whose names are not those of DuckLake's writers, as DuckDB does.
                Default: False.
            max_files: Maximum number of files to delete. The rest is reported as skipped and left to the next call. Default: no limit.
            max_seconds: Seconds after which no further batch of 500 files is deleted and no further upload is aborted. The first batch
                always runs. Default: no limit.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to delete nothing and only return the files that would be deleted. Default: False.

        Returns:
            Deleted and kept files and aborted uploads; printing it shows them.

        Raises:
            CatalogCorruptError: The catalog's row of a running write or an option is invalid.
            UsageError: ``older_than`` is smaller than ``min_age``, or is combined with ``cleanup_all``.
            StorageError: The data path cannot be listed.
        """
        from ducklake_core.maintenance.orphans import delete_orphaned_files
        from ducklake_core.maintenance.request import Budget, BudgetMeter, ProgressMeter

        arguments.check_flags(cleanup_all=cleanup_all, every_parquet=every_parquet, dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        return delete_orphaned_files(
            self._database,
            self._info,
            self._storage,
            older_than=arguments.optional(arguments.age_or_time, "older_than", older_than),
            cleanup_all=cleanup_all,
            min_age=arguments.age("min_age", min_age),
            every_parquet=every_parquet,
            dry_run=dry_run,
            progress=ProgressMeter(progress),
            budget=BudgetMeter(Budget(max_files=max_files, max_seconds=max_seconds)),
        )

    def purge(
        self,
        table: str,
        where: Where,
        *,
        min_age: timedelta | str = "0 seconds",
        progress: ProgressCallback | None = None,
        dry_run: bool = False,
        **commit: Unpack[CommitMessage],
    ) -> PurgeResult:
        """Delete rows for good: from all snapshots, files, inlined rows, and statistics, for example for an erasure request.

        Deletes the rows, flushes the inlined rows of the table, rewrites its files with deleted rows, reduces the smallest and largest
        values in its statistics to those of the remaining rows, **expires all snapshots of the lake except the newest**, and deletes the
        files that only they used, and orphaned files that are older than the default age. Earlier deleted rows of the table are erased
        too. On local disk, empty directories of the table are removed, because their names contain partition values. A call that is
        interrupted is completed by the same call.

        Args:
            table: ``table`` or ``schema.table``.
            where: Condition on the rows to delete. The rows may be deleted already.
            min_age: Minimum age of snapshots and files to delete, which protects running readers. Until the rest is old enough, the
                result lists it; call again later. Default: 0 seconds, which makes running readers of earlier snapshots fail.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            dry_run: Whether to change nothing and only count the rows. Default: False.
            **commit: Author, message and extra_info of the snapshots (:class:`CommitMessage`). Use no personal data.

        Returns:
            What was done by each operation and what may still contain the rows; printing it shows both.

        Raises:
            UsageError: Holds keep snapshots, or the option ``auto_compact`` of the table is false. Nothing was changed.
            NotFoundError: There is no such table.
        """
        from ducklake_core.maintenance.checkpoint import PurgeResult, holds_in_the_way, purge
        from ducklake_core.maintenance.groups import name_of

        arguments.check_flags(dry_run=dry_run)
        self._database.check_writable(dry_run=dry_run)
        age = arguments.age("min_age", min_age)
        if where is None:
            raise UsageError("purge needs a condition. Pass where='true' to purge all rows", parameter="where")
        opened = self.table(table)
        name = name_of(opened.state)
        request = _request(name, None, None, commit, progress, dry_run)
        if not Options.from_mapping(opened.state.options).auto_compact:
            raise UsageError(
                f"{name} cannot be purged, because its option auto_compact is false. Change it with lake.set_option('auto_compact', True, "
                f"table={name!r})",
                table=name,
            )
        held = holds_in_the_way(self._database)
        if dry_run:
            remains = () if held is None else (held.message,)
            return PurgeResult(dry_run=True, table=name, rows_deleted=opened.scan(where=where).count(), remains=remains)
        if held is not None:
            raise held
        deleted = opened.delete(where, **commit)
        return purge(
            self._database,
            self._info,
            self._storage,
            request,
            opened.state,
            rows_deleted=deleted.rows_deleted,
            min_age=age,
            matching=lambda: self.table(name).scan(where=where).count(),
        )

    # Maintain: the lake

    def create_indexes(self) -> tuple[str, ...]:
        """Create the indexes that :meth:`~ducklake_core.lake.DuckLake.create` creates, in a lake that another program created.

        The indexes are not part of the format, and DuckDB ignores them. With them, planning reads only the statistics of the filtered
        columns, and operations on one table stay fast if the lake has thousands of tables. Does nothing on DuckDB files, where such
        indexes do not help.

        Returns:
            Names of the indexes that exist afterwards.

        Raises:
            CatalogError: The database rejected the statement, for example because a privilege is missing.
        """
        from ducklake_core.catalog.database.tables import create_indexes
        from ducklake_core.maintenance.groups import run_write

        self._database.check_not_read_only()
        if not self._database.abilities.has_useful_indexes:
            return ()

        def attempt() -> tuple[str, ...]:
            with self._database.write() as connection:
                return create_indexes(connection, self._database.tables)

        return run_write(attempt, "create indexes")

    def migrate(
        self, to: Literal["1.0", "1.1"] | None = None, *, allow_history_loss: bool = False, dry_run: bool = False
    ) -> MigrationResult:
        """Migrate the catalog to a later version of the format, in one catalog transaction. This cannot be undone.

        Every snapshot keeps its rows. No data file is written or moved. First call it with ``dry_run``, back up the catalog, and stop
        writers of the old version, which cannot work with the new one. Other lake objects that are open must be opened again; their
        calls raise :class:`CatalogVersionError`.

        Args:
            to: Target version. Default: 1.0 for earlier versions, 1.1 for 1.1-dev1; lakes of 1.0 and 1.1 stay as they are, so migrate
                to 1.1 with ``to="1.1"``.
            allow_history_loss: Whether to migrate even if merged files are missing or do not store the snapshot of each row. Snapshots
                before the merge then show all rows of these files. Default: False.
            dry_run: Whether to change nothing and only return the steps. Default: False.

        Returns:
            The steps; printing it shows them.

        Raises:
            UnsupportedFeatureError: Such files exist and ``allow_history_loss`` is False, a table of inlined rows has a column with a
                name that version 1.1 reserves, or ``to`` is an earlier version. Nothing was changed.
            CatalogVersionError: This library cannot write ``to``, or another client has migrated the lake.
            CatalogCorruptError: The catalog's tables do not match its version. Nothing was changed.
        """
        from ducklake_core.maintenance.migrate import migrate

        arguments.check_flags(allow_history_loss=allow_history_loss, dry_run=dry_run)
        if not dry_run:
            self._database.check_not_read_only()
        target = migration_target(self._database.version) if to is None else writable_version(to)
        result = migrate(self._database, self._info, self._storage, target=target, allow_history_loss=allow_history_loss, dry_run=dry_run)
        if result.done_before or not dry_run:
            self._database.follow(target)
            self._info = replace(self._info, version=target.name)
            # Cached definitions depend on the version.
            self._forget_definitions()
        return result

    def copy_to(
        self,
        catalog: str,
        *,
        data_path: str | None = None,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        indexes: bool = True,
        compare: Literal["catalog", "rows"] = "catalog",
        progress: ProgressCallback | None = None,
    ) -> CopyResult:
        """Copy the lake to an empty catalog database of any kind: all snapshots, inlined rows, options, holds and commit ids.

        Other clients may write to the lake while it is copied; the copy contains the snapshots that exist when the call starts. The copy
        is created in one transaction: after an interruption, the target contains no lake, and the same call copies again. Files that exist
        in ``data_path`` with the size and last 64 KiB of the original are kept, because files of a lake never change and have unique
        names. If other programs may have changed them, pass ``compare="rows"``. SQLite and DuckDB files are copied to the temporary
        directory first.

        Without ``data_path``, both catalogs refer to the same files. Then write and maintain only one of them, because each deletes files
        that only the other one needs.

        Args:
            catalog: Address of the target, as in :meth:`create`.
            data_path: Directory or object store prefix to copy the files to. Files outside of the lake's data path are not copied:
                both lakes refer to them, so run maintenance on only one of the two (``files_elsewhere`` of the result is their
                number). Default: the files stay where they are.
            metadata_schema: Schema of the target for the catalog tables, as in :meth:`create`.
            storage_options: fsspec options by protocol for ``data_path``, in addition to those of this lake.
            indexes: Whether to create indexes, as in :meth:`create`. Default: True.
            compare: ``catalog`` reads all copied catalog rows and inlined rows again and compares them before it commits. ``rows``
                also reads all tables at all snapshots at which they changed from both lakes and compares their rows. Default:
                ``catalog``.
            progress: Callback that receives a :class:`Progress` after each batch of rows and each file. Default: none.

        Returns:
            Numbers of copied snapshots, rows and files; printing it shows them. Open the copy with :meth:`connect`.

        Raises:
            AlreadyExistsError: The target already holds a lake.
            UnsupportedFeatureError: The target cannot store inlined rows of a table. Flush them first.
            CatalogError: The copy differs from the lake.
            CatalogVersionError: The catalog has an earlier version than 1.0. Migrate it first.
            UsageError: An argument is invalid.
        """
        from ducklake_core.maintenance.moving import compare_rows, copy_lake
        from ducklake_core.maintenance.request import ProgressMeter

        arguments.check_flags(indexes=indexes)
        if compare not in ("catalog", "rows"):
            raise UsageError(f"compare must be 'catalog' or 'rows', not {compare!r}", parameter="compare")
        target = Database(parse_catalog_url(catalog, metadata_schema))
        options = StorageOptions(by_protocol={**self._storage.options.by_protocol, **_storage_options(storage_options).by_protocol})
        storage = replace(self._storage, options=options)
        meter = ProgressMeter(progress)
        try:
            result = copy_lake(
                self._database,
                self._info,
                storage,
                target,
                data_path=arguments.optional(storable, "data_path", data_path),
                indexes=indexes,
                progress=meter,
            )
            if compare == "catalog":
                return result
            info = replace(open_catalog(target), allowed_paths=self._info.allowed_paths)
            copy = DuckLake(target, info, storage)
            compared = compare_rows(target, info, copy.snapshots(), _rows_of(self), _rows_of(copy), meter)
            return replace(result, tables_compared=compared)
        finally:
            target.close()

    def move_data(self, data_path: str, *, copy_files: bool = False, progress: ProgressCallback | None = None) -> MoveResult:
        """Store another data path, after the files were moved or copied there. Relative paths of files stay as they are.

        Checks first that all files of all snapshots exist in the new directory with their sizes. Absolute paths below the old data path
        are changed; files elsewhere stay where they are. Other open lake objects and DuckDB sessions keep the old path: writes of this
        library then fail, and DuckDB must attach the lake again.

        Args:
            data_path: New directory or object store prefix. A relative path is resolved against the working directory.
            copy_files: Whether to copy the files first; files with the right size are kept. The old files are not deleted. Default:
                False.
            progress: Callback that receives a :class:`Progress` while files are listed and copied. Default: none.

        Returns:
            The paths and numbers of files; printing it shows them.

        Raises:
            NotFoundError: A file is missing in the new directory, or has another size. Nothing was changed.
            UnsupportedFeatureError: An absolute path below the old data path contains ``..``. Nothing was changed.
            UsageError: ``data_path`` is the present one, or one contains the other.
        """
        from ducklake_core.maintenance.moving import move_data
        from ducklake_core.maintenance.request import ProgressMeter

        arguments.check_flags(copy_files=copy_files)
        given = storable("data_path", data_path)
        meter = ProgressMeter(progress)
        result = move_data(self._database, self._info, self._storage, given, copy_files=copy_files, progress=meter)
        self._info = replace(self._info, data_path=result.new_path, stored_data_path=result.new_path)
        self._forget_definitions()
        return result

    def health(self, *, small_file_size: int = 16 << 20) -> LakeHealth:
        """Measure the state of the lake: small files, deleted and inlined rows, snapshots, scheduled files and faults.

        Reads only the catalog. The number of catalog queries does not depend on the size of the lake.

        Args:
            small_file_size: Size in bytes below which a data file counts as small. Default: 16 MiB.

        Returns:
            The numbers of the newest snapshot; printing it shows them. Export them with ``to_arrow()`` or ``to_openmetrics()``.

        Raises:
            UsageError: ``small_file_size`` is below 1.
        """
        from ducklake_core.maintenance.health import measure_health

        return measure_health(self._database, small_file_size=arguments.whole_number("small_file_size", small_file_size))

    def check(
        self,
        *,
        level: CheckLevel = "catalog",
        repair: bool = False,
        progress: ProgressCallback | None = None,
        **commit: Unpack[CommitMessage],
    ) -> CheckResult:
        """Check a lake for errors, and repair what is safe to repair if requested. Without ``repair`` nothing is changed.

        Args:
            level: ``catalog`` compares the rows of the catalog with each other. ``footers`` also opens every file of the catalog and
                lists other files below the data path. ``rows`` also reads all rows of all live tables, in this process. Default:
                ``catalog``.
            repair: Whether to repair findings with ``is_repairable``, in one transaction. The new snapshot changes no row of a table:
                statistics and bounds that are too narrow are widened or removed, catalog rows without an owner are deleted, files that
                the lake needs are removed from the schedule for deletion, and a dropped schema that is not empty is restored. Files are
                not changed. Default: False.
            progress: Callback that receives a :class:`Progress` after each step. Default: none.
            **commit: Author, message and extra_info of the snapshot of a repair (:class:`CommitMessage`).

        Returns:
            Findings before the repair, and the repairs; printing it shows them.

        Raises:
            UsageError: ``level`` is invalid, the lake is opened read only and ``repair`` is set, or ``commit`` is given without ``repair``.
        """
        from ducklake_core.maintenance.check.run import check_lake
        from ducklake_core.maintenance.request import ProgressMeter

        arguments.check_flags(repair=repair)
        arguments.check_commit(commit, arguments.COMMIT_MESSAGE)
        meter = ProgressMeter(progress)
        return check_lake(self._database, self._info, self._storage, level=level, repair=repair, progress=meter, commit=commit)


@contextmanager
def _counting_rows(meter: ProgressMeter) -> Iterator[None]:
    """Report the rows that writers of the block write, which may be several at a time."""
    from ducklake_core.engines.arrow.writer import ON_ROWS

    lock = Lock()
    meter.begin("write", "write rows", "rows", None)

    def count(rows: int) -> None:
        with lock:
            meter.advance(rows)

    token = ON_ROWS.set(count)
    try:
        yield
    finally:
        ON_ROWS.reset(token)


def _rows_of(lake: DuckLake) -> Callable[[str, int], tuple[Schema, Iterable[pa.RecordBatch]]]:
    def rows(name: str, snapshot_id: int) -> tuple[Schema, Iterable[pa.RecordBatch]]:
        table = lake.table(name, at=snapshot_id)
        return table.schema, table.scan().to_batches()

    return rows


def load_lake(name: str) -> DuckLake:
    """Open a lake by a name that is defined in ``ducklake.toml`` or in environment variables.

    So programs contain no addresses and secrets. The table ``[lakes.<name>]`` of the file and variables ``DUCKLAKE_<NAME>__<SETTING>``,
    which take precedence, contain arguments of :meth:`DuckLake.connect`: ``catalog``, ``data_path``, ``storage_options.s3.key``
    (``..__STORAGE_OPTIONS__S3__KEY``). The file is the one in the working directory, otherwise in the nearest parent directory whose
    file defines the lake, otherwise in ``~/.config``. Relative paths of catalog files are resolved against the directory of the file.

    Args:
        name: Name of the lake.

    Raises:
        NotFoundError: No file or variable defines the lake.
        UsageError: A file cannot be parsed, or contains an unknown setting. Messages never contain values.
    """
    spec = find_lake(arguments.filled("name", name))
    return DuckLake.connect(
        spec.catalog,
        data_path=spec.data_path,
        override_data_path=spec.override_data_path,
        metadata_schema=spec.metadata_schema,
        storage_options=spec.storage_options,
        allowed_paths=spec.allowed_paths,
        read_only=spec.read_only,
    )


def _storage_options(given: Mapping[str, Mapping[str, object]] | None) -> StorageOptions:
    return StorageOptions() if given is None else StorageOptions(by_protocol=given)


def _columns(cluster_by: Sequence[str], table: str | None, tables: str | Sequence[str] | None) -> tuple[str, ...]:
    columns = arguments.names("cluster_by", cluster_by)
    if columns and table is None and tables is None:
        raise UsageError("cluster_by needs table or tables, because it names their columns. Pass one of them", parameter="cluster_by")
    return columns


def _request(
    table: str | None,
    schema: str | None,
    tables: str | Sequence[str] | None,
    commit: CommitMessage,
    progress: ProgressCallback | None,
    dry_run: bool,
    *,
    max_input_bytes: int | None = None,
    max_files: int | None = None,
    max_rows: int | None = None,
    max_seconds: float | None = None,
) -> TableRequest:
    from ducklake_core.maintenance.request import Budget, BudgetMeter, ProgressMeter, TableRequest, TableScope

    arguments.check_commit(commit, arguments.COMMIT_MESSAGE)
    budget = Budget(max_input_bytes=max_input_bytes, max_files=max_files, max_rows=max_rows, max_seconds=max_seconds)
    return TableRequest(
        scope=TableScope(table=table, schema=schema, tables=arguments.optional(arguments.names, "tables", tables)),
        meter=BudgetMeter(budget),
        commit=commit,
        progress=ProgressMeter(progress),
        dry_run=dry_run,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeDefinitions:
    """All tables and views of a lake at one snapshot, by schema and name; returned by :meth:`LakeAtSnapshot.definitions`."""

    snapshot_id: int
    tables: tuple[Table, ...]
    views: tuple[ViewDefinition, ...]


@arguments.none_means_default
class LakeAtSnapshot:
    """A lake at one snapshot, read only; created by :meth:`DuckLake.at`. Later commits do not change it."""

    def __init__(self, lake: DuckLake, snapshot: Snapshot) -> None:
        self._lake = lake
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"<{self._lake!r} at snapshot {self._snapshot.id} of {self._snapshot.time.isoformat()}>"

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot."""
        return self._snapshot

    @property
    def inspect(self) -> Inspection:
        """Return the contents of the catalog at the snapshot, as Arrow tables."""
        return Inspection(self._lake, at=self._snapshot.id)

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: str) -> bool:
        return self.has_table(name)

    def __iter__(self) -> Iterator[str]:
        with self._lake.reader() as reader:
            return iter([join_name(*name) for name in reader.table_names(resolve_at(reader, self._snapshot.id).id).values()])

    def table(self, name: str) -> Table:
        """Return a table at the snapshot, as :meth:`DuckLake.table` does.

        Args:
            name: ``table`` or ``schema.table``.

        Raises:
            NotFoundError: There is no such table at the snapshot.
        """
        return self._lake.table(name, at=self._snapshot.id)

    def has_table(self, name: str) -> bool:
        """Return whether the table exists at the snapshot."""
        return self._lake.has_table(name, at=self._snapshot.id)

    def scan(self, name: str, *, columns: Sequence[str] | None = None, where: Where = None) -> Scan:
        """Return a lazy scan of a table, as :meth:`Table.scan` does.

        Args:
            name: ``table`` or ``schema.table``.
            columns: As in :meth:`Table.scan`.
            where: As in :meth:`Table.scan`.
        """
        return self.table(name).scan(columns=columns, where=where)

    def tables(self, schema: str | None = None) -> list[TableInfo]:
        """Return all tables with their sizes: :meth:`DuckLake.tables`."""
        return self._lake.tables(schema, at=self._snapshot.id)

    def table_info(self, name: str) -> TableInfo:
        """Return rows, files and bytes of a table: :meth:`DuckLake.table_info`."""
        return self._lake.table_info(name, at=self._snapshot.id)

    def schemas(self) -> list[SchemaState]:
        """Return all schemas by name."""
        return self._lake.schemas(at=self._snapshot.id)

    def view(self, name: str) -> View:
        """Return a view by its name.

        Raises:
            NotFoundError: There is no such view at the snapshot.
        """
        return self._lake.view(name, at=self._snapshot.id)

    def views(self) -> list[View]:
        """Return all views by schema and name."""
        return self._lake.views(at=self._snapshot.id)

    def definitions(self) -> LakeDefinitions:
        """Return all tables and views. The number of catalog queries does not depend on their number, and no file is opened."""
        from ducklake_core.catalog.reading.bulk_reader import ManyTablesReader

        context = self._lake._context  # noqa: SLF001 - a lake and its state at a snapshot are one
        with self._lake.reader() as reader:
            at = resolve_at(reader, self._snapshot.id).id
            many = ManyTablesReader.of_lake(reader, at)
            return LakeDefinitions(
                snapshot_id=at,
                tables=tuple(Table(context, many.table_by_id(number, at), at=at) for number in many.table_names(at)),
                views=tuple(View(context, state).definition(many) for state in views(many, at)),
            )

    def earliest_values(self, columns: Mapping[Table, str]) -> dict[str, object]:
        """Return the earliest value of a column of dates or times in each of some tables, from file statistics, in two catalog queries.

        A table without files has the earliest value that was ever written. Tables whose value is unknown are missing.

        Args:
            columns: Column by table, as in ``{lake.table("main.orders"): "day"}``.

        Returns:
            The values by ``schema.table``.
        """
        states = [(table.state, column) for table, column in columns.items()]
        with self._lake.reader() as reader:
            return earliest_values(reader, resolve_at(reader, self._snapshot.id).id, states)

    def macros(self) -> list[Macro]:
        """Return all macros by schema and name."""
        return self._lake.macros(at=self._snapshot.id)


@arguments.none_means_default
class Inspection:
    """The contents of a catalog as Arrow tables with typed columns. Made by ``lake.inspect``; no data file is opened.

    The number of catalog queries does not depend on the number of snapshots, tables and files.
    """

    def __init__(self, lake: DuckLake, at: At = None) -> None:
        self._lake = lake
        self._at = at

    def __repr__(self) -> str:
        return f"<inspection of {self._lake!r}{'' if self._at is None else f' at snapshot {self._at}'}>"

    def snapshots(self) -> pa.Table:
        """Return snapshots that have not expired, by id, with time, author, message and changes; up to that of a lake at a snapshot."""
        with self._lake.reader() as reader:
            until = None if self._at is None else resolve_at(reader, self._at).id
            found = reader.snapshots(until=until)
        return as_table(SNAPSHOTS, map(snapshot_row, found))

    def tables(self, *, at: At = None) -> pa.Table:
        """Return tables by schema and name, with what the catalog counts: rows, files, bytes, deletes, inlined rows.

        Rows are None where a file also holds rows or deletes of later snapshots (see :meth:`DuckLake.table_info`, which counts them).
        """
        with self._lake.reader() as reader:
            snapshot_id = resolve_at(reader, self._moment(at)).id
            listings = reader.tables(snapshot_id)
            inlined = reader.inlined_counts(listings, snapshot_id)
        return as_table(TABLES, table_rows(listings, inlined))

    def files(self, table: str, *, at: At = None) -> pa.Table:
        """Return live data files of a table by id: path, rows, bytes, partition values, deletes, and the snapshot that added them.

        Args:
            table: ``table`` or ``schema.table``.
            at: Snapshot id, time or name of a hold (:data:`At`); that of this object when None (the default).
        """
        state, files = self._files(table, at)
        return as_table(FILES, file_rows(state, files))

    def partitions(self, table: str, *, at: At = None) -> pa.Table:
        """Return the partitions of a table by their values, each with files, rows and bytes. Inlined rows are in no partition.

        Files of earlier partition keys are listed under these keys.

        Args:
            table: ``table`` or ``schema.table``.
            at: Snapshot id, time or name of a hold (:data:`At`); that of this object when None (the default).
        """
        state, files = self._files(table, at)
        return as_table(PARTITIONS, partition_rows(state, files))

    def options(self) -> pa.Table:
        """Return the options that are set, by name and scope. Options have no history."""
        return as_table(OPTIONS, map(option_row, self._lake.scoped_options()))

    def history(self, table: str, *, at: At = None) -> pa.Table:
        """Return the snapshots that changed a table, by id, up to ``at``.

        Args:
            table: ``table`` or ``schema.table``.
            at: Snapshot id, time or name of a hold (:data:`At`); that of this object when None (the default).
        """
        opened = self._lake.table(table, at=self._moment(at))
        found = (snapshot for snapshot in opened.snapshots() if snapshot.id <= opened.snapshot_id)
        return as_table(SNAPSHOTS, map(snapshot_row, found))

    def _files(self, table: str, at: At) -> tuple[TableState, list[DataFile]]:
        opened = self._lake.table(table, at=self._moment(at))
        return opened.state, opened.list_files()

    def _moment(self, at: At) -> At:
        return self._at if at is None else at
