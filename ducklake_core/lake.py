"""The lake: where everything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from ducklake_core.catalog.database.bootstrap import create_catalog, open_catalog, open_or_create
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.failures import CallRetries, RetryPolicy
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.catalog.reading.definitions import Macro, find_view, macros, view, views
from ducklake_core.catalog.reading.options import ScopedOption, scoped_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.request import checked_commit_id
from ducklake_core.errors import AlreadyExistsError, CatalogVersionError, CommitConflictError, NotFoundError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.paths import check_allowed, printable
from ducklake_core.format.state import LakeInfo, SchemaState, Snapshot, TableState
from ducklake_core.format.types.names import join_name, split_name, storable
from ducklake_core.format.values.temporal import in_zone
from ducklake_core.format.versions import migration_target, writable_version
from ducklake_core.maintenance import lake_options
from ducklake_core.maintenance.expire import Holds
from ducklake_core.planning.table_info import (
    FILES,
    OPTIONS,
    PARTITIONS,
    SNAPSHOTS,
    TABLES,
    as_table,
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
from ducklake_core.transaction import Transaction, autocommit, write
from ducklake_core.view import View

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_core.commit.request import CommitMessage
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.format.macros import MacroKind
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.format.types.type_parser import TypeLike
    from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
    from ducklake_core.maintenance.checkpoint import CheckpointResult
    from ducklake_core.maintenance.cleanup import CleanupResult
    from ducklake_core.maintenance.expire import ExpiryResult
    from ducklake_core.maintenance.flush import FlushResult
    from ducklake_core.maintenance.health import LakeHealth
    from ducklake_core.maintenance.merge import MergeResult
    from ducklake_core.maintenance.migrate import MigrationResult
    from ducklake_core.maintenance.orphans import OrphansResult
    from ducklake_core.maintenance.request import ProgressCallback, TableRequest
    from ducklake_core.maintenance.rewrite import RewriteResult
    from ducklake_core.scan import Scan
    from ducklake_core.sql.query import Query
    from ducklake_core.staging.adding import Paths


_RESTORES = RetryPolicy(max_attempts=4)
"""Restores of a whole lake, each of which any other commit stops."""


class DuckLake:
    """A DuckLake: one catalog database and the data path it points to.

    Objects are cheap, picklable (addresses, no connections) and safe to keep. Every call reads the newest snapshot unless ``at``
    names another one. Nothing here starts Spark.
    """

    @classmethod
    def create(
        cls,
        catalog: str,
        *,
        data_path: str | None = None,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        relative_data_path: bool = False,
        encrypted: bool = False,
        indexes: bool = True,
        allowed_paths: str | Sequence[str] = (),
        version: Literal["1.0", "1.1"] = "1.0",
    ) -> DuckLake:
        """Create a new lake with an empty schema ``main``.

        Args:
            catalog: SQLAlchemy URL (``sqlite:///lake.sqlite``, ``postgresql+psycopg://...``, ``mysql+pymysql://...``,
                ``duckdb:///lake.ducklake``) or a DuckDB ATTACH target (``ducklake:sqlite:lake.sqlite``,
                ``ducklake:postgres:dbname=lake host=...``, ``ducklake:mysql:db=lake host=...``, ``ducklake:lake.ducklake``).
            data_path: Directory or object store prefix for data files. A relative path means the working directory of this call and is
                stored absolute. Only with a DuckDB file it may be left out: ``<file>.files/``.
            metadata_schema: Schema of a PostgreSQL database or DuckDB file that holds the catalog tables; ``public`` or
                ``main`` when not given.
            storage_options: fsspec options by protocol, e.g. ``{"s3": {"key": ...}}``; masked in every repr.
            relative_data_path: Whether a relative ``data_path`` is stored as it is written, as DuckDB does. It then means the working
                directory of each client, so all of them have to run in one directory.
            encrypted: Whether all files are encrypted, each under a key of its own that the catalog keeps; fixed for good.
            indexes: Whether to make indexes that the format does not require; see :meth:`create_indexes`.
            allowed_paths: As in :meth:`connect`; it holds for this object only.
            version: Of the format. Lakes of 1.1 are for DuckDB 2.0 and later; 1.5 rejects them (docs/how-to/versions.md).

        Raises:
            AlreadyExistsError: There is a lake already.
            CatalogUnavailableError: The database cannot be reached.
            CatalogVersionError: There is no such version to write.
        """
        arguments.check_flags(relative_data_path=relative_data_path, encrypted=encrypted, indexes=indexes)
        data_path = arguments.optional(storable, "data_path", data_path)
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
        catalog: str,
        *,
        data_path: str | None = None,
        override_data_path: bool = False,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        allowed_paths: str | Sequence[str] = (),
        read_only: bool = False,
    ) -> DuckLake:
        """Open an existing lake. Nothing is created or migrated: a lake of an earlier version (0.1 to 0.4) can be read, not written.

        Args:
            catalog: Address of the catalog, as in :meth:`create`.
            data_path: When given it must be the stored one, unless ``override_data_path``, which holds for this object only.
            allowed_paths: Prefixes of further places that the catalog may name. Without them a path of the catalog that leaves
                the data path through ``..``, or for another kind of store, is rejected when it is to be read or written.
            read_only: Reject every call that would change the lake with a :class:`UsageError` that names it, before anything is
                written. Dry runs are allowed.

        Raises:
            NotALakeError: The database holds no lake; :meth:`open` can make one.
            CatalogVersionError: The catalog's format version is one that this library does not know.
            UsageError: ``data_path`` is not the stored one.
        """
        arguments.check_flags(override_data_path=override_data_path, read_only=read_only)
        data_path = arguments.optional(storable, "data_path", data_path)
        database = Database(parse_catalog_url(catalog, metadata_schema), read_only=read_only)
        allowed, options = check_allowed(allowed_paths), _storage_options(storage_options)
        info = replace(open_catalog(database, data_path, override_data_path), allowed_paths=allowed)
        return cls(database, info, Storage(options=options))

    @classmethod
    def open(
        cls,
        catalog: str,
        *,
        create: bool = False,
        data_path: str | None = None,
        override_data_path: bool = False,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, object]] | None = None,
        relative_data_path: bool = False,
        encrypted: bool = False,
        indexes: bool = True,
        allowed_paths: str | Sequence[str] = (),
        read_only: bool = False,
        version: Literal["1.0", "1.1"] | None = None,
    ) -> DuckLake:
        """Open a lake, which is created first if it does not exist and ``create`` says so.

        Any number of processes may do so at once: one of them creates the lake, all of them open it.

        Args:
            catalog: Address of the catalog, as in :meth:`create`. Arguments that are not listed here are those of :meth:`create` and
                :meth:`connect`.
            create: Whether to create a lake where there is none, as :meth:`create` does with ``data_path``, ``relative_data_path``,
                ``encrypted`` and ``indexes``.
            data_path: As in :meth:`connect` where there is a lake.
            version: Of a lake that is created, 1.0 when None. A lake that is there must have it: it is not migrated.

        Raises:
            NotALakeError: The database holds no lake, and none is to be created.
            UsageError: ``data_path`` is not the stored one, ``encrypted`` is set for a lake that is not, or a lake is to be created
                and only read.
            CatalogVersionError: The lake that is there has another ``version``, or there is no such version to write.
        """
        arguments.check_flags(create=create, encrypted=encrypted, indexes=indexes)
        if create and read_only:
            raise UsageError("a lake cannot be created with read_only=True: leave one of create and read_only out")
        if not create:
            if encrypted or not indexes:
                raise UsageError("encrypted and indexes are for a lake that is created: pass create=True")
        elif override_data_path:
            raise UsageError("override_data_path is for a lake that exists: leave create out")

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
            raise UsageError(f"the lake {lake.database.address} exists and is not encrypted, which is fixed when a lake is created")
        if version is not None and lake.info.version != writable_version(version).name:
            message = (
                f"the lake {lake.database.address} exists and has version {lake.info.version}, not {version}; lake.migrate() changes it"
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

    def __repr__(self) -> str:
        mode = ", read only" if self.read_only else ""
        return f"<DuckLake {self._database.address} with data path {printable(self._info.data_path)}{mode}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (DuckLake, (self._database, self._info, self._storage))

    def reopen(self, *, data_path: str | None = None, override_data_path: bool = False) -> DuckLake:
        """Open the lake again over the connections of this object: its version, data path and encryption are read again.

        Args:
            data_path: As in :meth:`connect`.
            override_data_path: As in :meth:`connect`.

        Raises:
            NotALakeError: There is no lake any more.
            UsageError: ``data_path`` is not the stored one.
        """
        arguments.check_flags(override_data_path=override_data_path)
        data_path = arguments.optional(storable, "data_path", data_path)
        info = replace(open_catalog(self._database, data_path, override_data_path), allowed_paths=self._info.allowed_paths)
        return DuckLake(self._database, info, self._storage)

    def close(self) -> None:
        """Close pooled connections; the lake can still be used afterwards."""
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
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).
        """
        try:
            self._state(name, at, suggest=False)
        except NotFoundError:
            return False
        return True

    def table(self, name: str, *, at: At = None) -> Table:
        """Return a table by ``table`` (in schema main) or ``schema.table``; names with dots are double-quoted.

        Args:
            name: ``table`` (in schema main) or ``schema.table``.
            at: Snapshot id or time to read at. A table so opened cannot be written.

        Raises:
            NotFoundError: No such table at that snapshot; a view is opened by :meth:`view`.
        """
        try:
            return Table(self._context, self._state(name, at), at=at)
        except NotFoundError:
            self._reject_view(name, at)
            raise

    @property
    def holds(self) -> Holds:
        """Names on snapshots that must not expire."""
        return Holds(self._database, self._info)

    def write(  # noqa: PLR0913 - one call says everything about one commit
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
        """Write a frame to a table in exactly one commit: create the table or widen it where allowed, replace or add rows.

        Args:
            name: ``table`` or ``schema.table``. A missing schema is created together with the table.
            data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, pandas, polars, DuckDB relations), a list of
                dicts, or a Spark DataFrame (classic, Connect, pandas-on-Spark), whose session does the work. A stream, such as a
                RecordBatchReader, is read once, and whole only for an upsert. Without rows its columns do not matter: nothing is added,
                an overwrite deletes what it would replace, and a missing table is created only when all columns have types, as those of
                Arrow, polars and Spark have and those of pandas have not. Up to ``data_inlining_row_limit`` rows of this process are
                kept in the catalog itself (docs/concepts/inlining.md).
            mode: ``append``; ``overwrite`` replaces the rows that match ``where`` (all rows without it); ``upsert`` replaces
                the rows whose ``on`` columns equal those of a new row.
            where: For overwrite only. Every new row must match it too; a row outside is an error before anything is committed.
            partitions: For overwrite only, instead of ``where``: partitions to replace; see :meth:`Table.overwrite`.
            on: Key columns of an upsert. NULL or repeated keys in ``data`` are an error.
            create: Whether a missing table is created, with ``partition_by`` and ``comment``. A table that is there must have these
                partition keys and this comment, where they are given.
            schema_evolution: ``strict`` rejects columns and types the table does not have, but takes integers of any width whose values
                fit the column (docs/reference/types.md); ``additive`` adds new columns and widens types in the same commit. Nothing is ever
                dropped or narrowed.
            missing_columns: What happens when ``data`` lacks columns of the table, or fields of its structs, that have no default:
                ``error`` raises :class:`SchemaError`, ``null`` writes NULL to new rows. Default: ``error`` under ``strict``, ``null`` under
                ``additive``. Columns with a default get it. Rows that an upsert matches keep their values of columns that are missing.
            inline: Whether few rows are kept in the catalog (docs/concepts/inlining.md): of Arrow data only when None, of a Spark DataFrame
                too when True, of nothing when False.
            concurrent_appends: For overwrite only: whether rows that another writer commits to the replaced slice meanwhile ``fail`` the
                write, which is the default, or are ``replace``d too; see :meth:`Table.overwrite`.
            read_at: For overwrite only: id of the snapshot that ``data`` was computed from; see :meth:`Table.overwrite`.
            extra_info: A mapping (stored as JSON with the commit id) or a string.
            commit_id: Makes the write happen once: if a snapshot carries this id already, nothing is written and the result
                says ``repeated``. It holds for as long as that snapshot is not expired. Each table, and each kind of work, needs an id
                of its own.

        Raises:
            SchemaError: Data and table do not fit; the message lists every difference.
            UsageError: A row outside ``where``, keys that are NULL or repeated, or ``partition_by`` or ``comment`` of an existing table
                that are not the table's; the commit id of other work.
            CommitConflictError: Another writer changed the table's columns meanwhile, or kept winning.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be queried.
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
        """Make Parquet files part of a table as they are: :meth:`Table.add_data_files`, which describes what happens to them.

        Args:
            table: ``table`` or ``schema.table``. The other arguments are those of :meth:`Table.add_data_files`.
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
        """Open a transaction: several changes, to any number of tables, as one snapshot.

        The commit happens when the block ends; an exception inside the block discards everything, files included.

        Args:
            author: Stored with the snapshot, as are ``message`` and ``extra_info``.
            message: Why the change is made.
            extra_info: A mapping (stored as JSON with the commit id) or a string.
            commit_id: Makes the transaction happen once: if a snapshot carries this id already, the calls do nothing.
        """
        self._database.check_not_read_only()
        return Transaction(self._context, author=author, message=message, extra_info=extra_info, commit_id=commit_id)

    def _state(self, name: str, at: At, *, suggest: bool = True) -> TableState:
        # Catalogs of earlier versions (with a layout of their own) are read only, and not worth a cache.
        if at is None and self._database.layout is None:
            return self.table_cache.table(self._database, self.info, self.reader, *split_name(name), suggest=suggest)
        with self.reader() as reader:
            return reader.table(*split_name(name), resolve_at(reader, at).id, suggest=suggest)

    # Inspect

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Open a reader of the catalog: one short read transaction that sees one state of it."""
        with self._database.read() as connection:
            yield CatalogReader(connection, self._info, self._database.tables)

    @property
    def _context(self) -> LakeContext:
        """The handles of this lake that internals take instead of the lake itself."""
        return LakeContext(database=self._database, info=self._info, storage=self._storage, table_cache=self.table_cache)

    @property
    def storage(self) -> Storage:
        """Access to the lake's files; picklable."""
        return self._storage

    def snapshot(self, at: At = None) -> Snapshot:
        """Return the newest snapshot, the one with an id, or the last one committed at or before a time (aware datetime).

        Args:
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).

        Raises:
            NotFoundError: It does not exist, or was expired.
        """
        with self.reader() as reader:
            return resolve_at(reader, at)

    def find_commit(self, commit_id: str, *, snapshot_id: int | None = None) -> Snapshot | None:
        """Return the snapshot that was committed with ``commit_id``, None when there surely never was one.

        Args:
            commit_id: The id.
            snapshot_id: The one snapshot that it can have become, as a :class:`CommitOutcomeUnknownError` names it: then it does not
                matter whether others were expired.

        Raises:
            CommitOutcomeUnknownError: No snapshot carries the id, but the one that did may have been expired.
        """
        only = arguments.optional(arguments.whole_number, "snapshot_id", snapshot_id)
        return Committer(self._database).find_commit_or_raise(checked_commit_id(commit_id), only)

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots that were not expired, by id ascending; ``snapshot.change_set`` contains what each of them changed."""
        with self.reader() as reader:
            return reader.snapshots()

    def changed_tables(
        self,
        after: int,
        until: int | None = None,
        *,
        tables: Mapping[str, Sequence[str]] | None = None,
        most_snapshots: int | None = None,
    ) -> LakeChanges:
        """Find the tables whose rows may differ between two snapshots, with the files and bounds of those rows.

        What is visible at both snapshots is compared, so that a flush, a merge or a rewrite changes nothing, and rows that came and
        went in between do not count. No file is opened: of a file that changed, all rows count, with the bounds of the whole file.
        Nothing that changed is left out: where snapshots were expired, so that the catalog has forgotten what was visible, a table
        has ``unknown``. The number of statements depends on neither snapshots nor tables, but for one more with every 200 tables
        that hold rows in the catalog.

        Args:
            after: Id of the earlier snapshot; it may have been expired.
            until: Id of the later one, the newest when None.
            tables: Names of tables to compare, each with the columns whose bounds are wanted; all tables and no bounds when None.
            most_snapshots: Stop at a snapshot so many commits after ``after``, instead of the newest.

        Raises:
            NotFoundError: There is no snapshot ``until``.
            UsageError: A name that cannot be read.
        """
        from ducklake_core.planning.lake_changes import plan_lake_changes

        first, last = arguments.whole_number("after", after), arguments.optional(arguments.whole_number, "until", until)
        wanted = arguments.optional(arguments.names_by_key, "tables", tables)
        most = arguments.optional(arguments.whole_number, "most_snapshots", most_snapshots)
        with self.reader() as reader:
            return plan_lake_changes(reader, first, last, tables=wanted, most=most)

    def statistics(self, tables: Mapping[str, Sequence[str]]) -> LakeStatistics:
        """Get what the catalog knows of the rows of tables, at the newest snapshot and at every earlier one that is kept.

        That is rows, deletes, NULLs and bounds of each data file, and inlined rows by the values of those columns. No file is opened;
        the number of statements depends on neither tables nor snapshots, but for one more with every 200 tables with inlined rows.

        Args:
            tables: Names of tables, each with the columns whose bounds and NULLs are wanted. Names that are not there are left out.
        """
        from ducklake_core.planning.table_info import read_statistics

        wanted = arguments.names_by_key("tables", tables)
        with self.reader() as reader:
            return read_statistics(reader, wanted)

    def at(self, at: At) -> LakeAtSnapshot:
        """Return the whole lake as it was at one snapshot, to be read only: its tables, views and listings all show the same moment.

        Args:
            at: Snapshot id, a time with a zone (the last snapshot at or before it), or None for what is the newest snapshot now.

        Raises:
            NotFoundError: There is no such snapshot, or it was expired.
        """
        with self.reader() as reader:
            return LakeAtSnapshot(self, resolve_at(reader, at))

    @property
    def inspect(self) -> Inspection:
        """Return the contents of the catalog as Arrow tables: ``lake.inspect.snapshots()``, ``lake.inspect.files("t")``."""
        return Inspection(self)

    def __getitem__(self, name: str) -> Table:
        """Return the table for ``lake["t"]``, as :meth:`table` opens it."""
        return self.table(name)

    def __contains__(self, name: str) -> bool:
        """Return whether the table exists, for ``"t" in lake``."""
        return self.has_table(name)

    def __iter__(self) -> Iterator[str]:
        """Return names of all tables, ``schema.table``, at the newest snapshot; nothing else is read from the catalog."""
        return iter(self.at(None))

    def schemas(self, *, at: At = None) -> list[SchemaState]:
        """Return all schemas by name.

        Args:
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            return reader.schemas(resolve_at(reader, at).id)

    def tables(self, schema: str | None = None, *, at: At = None) -> list[TableInfo]:
        """Return all tables, of the lake or of one schema, which must exist, by name, with their sizes: few queries whatever their number.

        Files are opened for those tables alone of which a file also holds rows or deletes of later snapshots (see :meth:`table_info`).

        Args:
            schema: Name of the schema; all schemas when None (the default).
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            sizes = table_sizes(reader, resolve_at(reader, at).id, schema)
        return [self._context.counted(size) for size in sizes]

    def table_info(self, name: str, *, at: At = None) -> TableInfo:
        """Return rows, files and bytes of a table, from the catalog alone, with one exception.

        When files were merged after the snapshot, a file also holds rows of later snapshots, or a delete file deletes of later ones,
        and the catalog does not contain how many: those files are opened to count.

        Args:
            name: ``table`` or ``schema.table``.
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            snapshot = resolve_at(reader, at)
            size = table_size(reader, reader.table(*split_name(name), snapshot.id))
        return self._context.counted(size)

    def views(self, *, at: At = None) -> list[View]:
        """Return all views by schema and name.

        Args:
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            return [View(self._context, state) for state in views(reader, resolve_at(reader, at).id)]

    def view(self, name: str, *, at: At = None) -> View:
        """Return a view by ``view`` (in schema main) or ``schema.view``.

        Args:
            name: ``view`` or ``schema.view``.
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).

        Raises:
            NotFoundError: No such view at that snapshot.
        """
        with self.reader() as reader:
            return View(self._context, view(reader, *split_name(name), resolve_at(reader, at).id))

    def macros(self, *, at: At = None) -> list[Macro]:
        """Return all macros by schema and name, with their definitions. DuckDB runs them, also in process for :meth:`DuckLake.sql`.

        Args:
            at: Snapshot id, or a time with a zone; the newest snapshot when None (the default).
        """
        with self.reader() as reader:
            return macros(reader, resolve_at(reader, at).id)

    def options(self, table: str | None = None) -> Mapping[str, str]:
        """Return effective options of the lake, or of a table (table over schema over lake), by lower-case name.

        Args:
            table: ``table`` or ``schema.table``; the lake when None (the default).
        """
        with self.reader() as reader:
            if table is None:
                return reader.options()
            return reader.table(*split_name(table), reader.latest_snapshot().id).options

    def scoped_options(self) -> list[ScopedOption]:
        """Return every option that was set, with its scope, by name and scope.

        Options have no history: they are as they are now, whatever the snapshot. The lake's own settings are stored, and
        listed, among them.
        """
        with self.reader() as reader:
            return scoped_options(reader, reader.latest_snapshot().id)

    def settings(self) -> LakeSettings:
        """Get the settings that the lake has had since it was created."""
        return LakeSettings(
            catalog_type=self._database.address.url.get_backend_name(),
            version=self._info.version,
            data_path=self._info.data_path,
            encrypted=self._info.encrypted,
            created_by=self._info.created_by,
        )

    def _reject_view(self, name: str, at: At) -> None:
        """Raise for a name that is no table, with advice when it is a view."""
        with self.reader() as reader:
            found = find_view(reader, *split_name(name), resolve_at(reader, at).id)
        if found is not None:
            where = f"{found.schema_name}.{found.name}"
            message = f"{where} is a view, not a table, at snapshot {found.snapshot_id}; read it by SQL, or open it with lake.view(...)"
            raise NotFoundError(message, view=where, snapshot_id=found.snapshot_id)

    # Define

    def create_schema(self, name: str, *, if_not_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Create a schema.

        Args:
            name: Name of the schema.
            if_not_exists: Whether to do nothing when it exists, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            AlreadyExistsError: It exists.
        """
        try:
            with autocommit(self._context, commit) as tx:
                tx.create_schema(name, if_not_exists=if_not_exists)
            return tx.result.snapshot
        except AlreadyExistsError:
            # Another writer may have been faster.
            if if_not_exists:
                return None
            raise

    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a schema, which must be empty unless ``cascade`` drops its tables, views and macros too.

        Args:
            name: Name of the schema.
            cascade: Whether to drop everything in it too. Default: False.
            if_exists: Whether to do nothing when there is no such schema, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty.
        """
        with autocommit(self._context, commit) as tx:
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
            schema: Columns of DuckLake, an Arrow schema, a mapping of names to types, or anything with rows whose columns are
                taken (Arrow table, Spark DataFrame).
            partition_by: Partition keys: ``"carrier"``, ``"month(day)"``, ``"bucket(8, id)"``.
            or_replace: Whether to drop a table of that name in the same snapshot.
            if_not_exists: Whether to leave a table of that name as it is.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
            SchemaError: A column or partition key that no DuckLake table can have.
        """
        if not (if_not_exists and self.has_table(name)):
            try:
                with autocommit(self._context, commit) as tx:
                    tx.create_table(name, schema, partition_by=partition_by, comment=comment, or_replace=or_replace)
            except AlreadyExistsError:
                # It may also be a view that has the name.
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
        """Create a table of the columns and rows of a frame, in one snapshot.

        Args:
            name: ``table`` or ``schema.table``.
            schema: Columns of the table, as for :meth:`create_table`; those of the data when None.
            data: Rows as :meth:`DuckLake.write` takes them, such as those of a scan: ``lake.table("t").scan(...).to_reader()``.
            or_replace: Whether to drop a table of that name in the same snapshot; the frame may still read from it.

        Raises:
            AlreadyExistsError: It exists, or a view has the name.
            NotFoundError: Its schema does not.
        """
        with autocommit(self._context, commit) as tx:
            tx.create_table_as(name, data, schema=schema, partition_by=partition_by, comment=comment, or_replace=or_replace)
        return single_result(tx.result, name, 0)

    def rename_table(self, name: str, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a table within its schema; ``new_name`` is the name as it is, without a schema.

        Args:
            name: ``table`` or ``schema.table``.
            new_name: The new name, without a schema.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such table.
            AlreadyExistsError: A table or view has the new name.
        """
        with autocommit(self._context, commit) as tx:
            tx.rename_table(name, new_name)
        return tx.result.snapshot

    def drop_table(self, name: str, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a table. Earlier snapshots keep it until they expire.

        Args:
            name: ``table`` or ``schema.table``.
            if_exists: Whether to do nothing when there is no such table, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such table.
        """
        with autocommit(self._context, commit) as tx:
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
        """Re-create a table that was dropped, with the definition, rows and row ids that it had.

        It is a new table, with an id of its own: its files are written again, because those of the dropped table are deleted once the
        snapshots that show it expire. Options that were set for the table come back as they are now.

        Args:
            name: ``table`` or ``schema.table``, as it was called when it was dropped (or at the snapshot ``at``).
            at: Snapshot to take it from, by id or time; the last one that shows it when None.
            new_name: Its name in the same schema from now on, without a schema; the old one when None.
            spark: A Spark session, whose executors do the work. Without it the work is done in this process.

        Raises:
            NotFoundError: No table of that name was dropped, every snapshot that shows it was expired, or its schema was dropped.
            AlreadyExistsError: A table or view has the name, or the table was not dropped.
        """
        with autocommit(self._context, commit) as tx:
            tx.undrop_table(name, at=at, new_name=new_name, spark=spark)
        return self.table(name if new_name is None else join_name(split_name(name)[0], new_name))

    def restore(self, at: At, *, spark: SparkSession | None = None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Restore the whole lake to an earlier snapshot, as a new snapshot: history stays, and later snapshots can be restored too.

        Tables have the rows, columns, names, keys, sort orders, comments and tags that they had. What was made since is dropped, what
        was dropped comes back: tables as by :meth:`undrop_table`, schemas, views and macros too. Options have no history and stay.
        Changes that another writer commits meanwhile are undone too.

        Args:
            at: Id of the snapshot, or a time with a zone, which means the last snapshot at or before it.
            spark: A Spark session, whose executors do the work. Without it the work is done in this process.

        Returns:
            The snapshot, None when the lake is as it was.

        Raises:
            NotFoundError: There is no such snapshot, or it was expired.
            CommitConflictError: Other writers committed something in between every time.
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
        """Create a view: a SELECT in DuckDB's SQL under a name, with the names of its columns if they shall not be the query's.

        Args:
            name: ``view`` or ``schema.view``.
            sql: One SELECT; see :meth:`Transaction.create_view`.
            columns: Names of the first columns, in place of those of the query.
            comment: The view's comment.
            or_replace: Whether to drop a view of that name first. Default: False.
            if_not_exists: Whether to do nothing when it exists, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            AlreadyExistsError: A view or table has the name.
            NotFoundError: Its schema does not exist, or something that it reads.
            UsageError: Not one SELECT.
        """
        with autocommit(self._context, commit) as tx:
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
        """Create a macro for DuckDB: for each list of parameters an expression, or with ``kind="table"`` a SELECT.

        ``lake.create_macro("late", {"minutes, least INTEGER := 15": "minutes > least"})``; see :meth:`Transaction.create_macro`.

        Args:
            name: ``macro`` or ``schema.macro``.
            definitions: SQL by list of parameters.
            kind: ``scalar`` (the default) for expressions, ``table`` for SELECTs.
            or_replace: Whether to drop a macro of that name first. Default: False.
            if_not_exists: Whether to do nothing when it exists, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            AlreadyExistsError: A macro of that kind has the name.
            NotFoundError: Its schema does not exist.
            UsageError: Parameters or SQL that DuckDB would not take.
        """
        with autocommit(self._context, commit) as tx:
            tx.create_macro(name, definitions, kind=kind, or_replace=or_replace, if_not_exists=if_not_exists)
        return tx.result.snapshot

    def drop_macro(
        self, name: str, *, kind: MacroKind = "scalar", if_exists: bool = False, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Drop a macro with all of its definitions.

        Args:
            name: ``macro`` or ``schema.macro``.
            kind: ``scalar`` (the default) or ``table``.
            if_exists: Whether to do nothing when there is no such macro, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such macro of that kind.
        """
        with autocommit(self._context, commit) as tx:
            tx.drop_macro(name, kind=kind, if_exists=if_exists)
        return tx.result.snapshot

    def rename_view(self, name: str, new_name: str, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Rename a view within its schema; ``new_name`` is the name as it is, without a schema.

        Args:
            name: ``view`` or ``schema.view``.
            new_name: The new name, without a schema.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such view.
            AlreadyExistsError: A view or table has the new name.
        """
        with autocommit(self._context, commit) as tx:
            tx.rename_view(name, new_name)
        return tx.result.snapshot

    def drop_view(self, name: str, *, if_exists: bool = False, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Drop a view.

        Args:
            name: ``view`` or ``schema.view``.
            if_exists: Whether to do nothing when there is no such view, instead of raising. Default: False.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such view.
        """
        with autocommit(self._context, commit) as tx:
            tx.drop_view(name, if_exists=if_exists)
        return tx.result.snapshot

    def set_comment(
        self, name: str, text: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Comment on a table, a view or a column of a table; None takes the comment away.

        Args:
            name: Name of the table or view.
            text: The comment; None deletes it.
            column: Name of a column, or path of a field; the table or view itself when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such table, view or column.
        """
        with autocommit(self._context, commit) as tx:
            tx.set_comment(name, text, column=column)
        return tx.result.snapshot

    def set_tag(
        self, name: str, key: str, value: str | None, *, column: ColumnName | None = None, **commit: Unpack[CommitOptions]
    ) -> Snapshot | None:
        """Give a table or a view a tag: a string under a key; None takes the tag away.

        The tag ``comment`` is the comment, which is the only one that DuckDB shows, and the only one that a column can have.

        Args:
            name: Name of the table or view.
            key: Key of the tag.
            value: The value; None deletes the tag.
            column: Name of a column, or path of a field; the table or view itself when None (the default).
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such table, view or column.
            UnsupportedFeatureError: Another tag of a column than its comment: DuckDB cannot attach a lake that has one.
        """
        with autocommit(self._context, commit) as tx:
            tx.set_tag(name, key, value, column=column)
        return tx.result.snapshot

    def set_schema_comment(self, name: str, text: str | None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Comment on a schema; None takes the comment away. DuckDB neither writes nor shows comments on schemas.

        Args:
            name: Name of the schema.
            text: The comment; None deletes it.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such schema.
        """
        with autocommit(self._context, commit) as tx:
            tx.set_schema_comment(name, text)
        return tx.result.snapshot

    def set_schema_tag(self, name: str, key: str, value: str | None, **commit: Unpack[CommitOptions]) -> Snapshot | None:
        """Give a schema a tag: a string under a key; None takes the tag away. :meth:`schemas` gives them.

        Args:
            name: Name of the schema.
            key: Key of the tag.
            value: The value; None deletes the tag.
            **commit: Commit options (:class:`CommitOptions`): author, message, extra_info and commit_id.

        Raises:
            NotFoundError: No such schema.
        """
        with autocommit(self._context, commit) as tx:
            tx.set_schema_tag(name, key, value)
        return tx.result.snapshot

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None, schema: str | None = None) -> None:
        """Store an option for the lake, a schema or a table. Makes no snapshot.

        Args:
            name: Name of the option (docs/reference/options.md).
            value: Its value.
            table: Table to set it for.
            schema: Schema to set it for. Without table and schema it is set for the lake.

        Raises:
            UsageError: Unknown option or a value it cannot have.
        """
        checked = arguments.option_value("value", value)
        lake_options.set_option(self._database, self._info, name, checked, table=table, schema=schema)
        self.table_cache.forget_options()

    def unset_option(self, name: str, *, table: str | None = None, schema: str | None = None) -> bool:
        """Take away an option that was set for the lake, a schema or a table: what holds for more, or the default, is effective again.

        Makes no snapshot.

        Args:
            name: Name of the option.
            table: Table that it was set for.
            schema: Schema that it was set for. Without table and schema it is that of the lake.

        Returns:
            Whether the option was set there.

        Raises:
            UsageError: Unknown option.
            NotFoundError: No such table or schema.
        """
        self._database.check_writable()
        was_set = lake_options.unset_option(self._database, self._info, name, table=table, schema=schema)
        self.table_cache.forget_options()
        return was_set

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
        **frames: FrameLike,
    ) -> Query | TransactionResult:
        """Run one statement of SQL in DuckDB's dialect; docs/reference/sql.md lists the supported statements.

        A query returns its rows when they are requested (``to_arrow()``, ``to_pandas()``, ``to_spark()``, or as an Arrow stream). All
        tables are read at one snapshot, which is fixed by the call. Any other statement runs now, as one commit.

        Args:
            sql: ``SELECT ...``, or ``INSERT``, ``UPDATE``, ``DELETE``, ``MERGE``, ``CREATE``, ``DROP``, ``ALTER``, ``COMMENT``.
            parameters: Values of the parameters: a list for ``?`` and ``$1``, a dict for ``$name``; None for SQL without parameters.
            spark: A session that does the work. Without one, this process reads columns of one table itself, and DuckDB runs every other
                query in this process (``pip install 'ducklake-dagster[duckdb]'``).
            at: The snapshot to query, the newest when None; single tables by ``t AT (VERSION => 3)``.
            timezone: Time zone of the statement, such as ``Europe/Berlin``, for timestamps without a zone next to ``timestamptz`` values,
                for casts, and for parts of a ``timestamptz``. By default that of the Spark session, else the machine's, as in DuckDB. With
                ``spark`` it must be the session's.
            author: Author of the commit.
            message: Commit message.
            extra_info: A mapping, stored as JSON, or a string.
            commit_id: Makes the commit happen once: if a snapshot has this id already, the statement does nothing.
            frames: Frames that the SQL names as tables, each as an argument of that name; their rows are held in memory.

        Raises:
            UsageError: The text is not one statement, or the engine rejects it; a parameter has no value; an argument is no frame;
                ``timezone`` is no zone, or not that of the session.
            NotFoundError: A table that does not exist.
            UnsupportedFeatureError: Something that is not supported, by its name; or no engine for a query.
        """
        from ducklake_core.sql.parameters import frame_sources, with_parameters
        from ducklake_core.sql.query import Query, statement_zone
        from ducklake_core.sql.time_travel import is_query

        storable("sql", sql, nul=True)
        arguments.optional(storable, "timezone", timezone)
        options = {"author": author, "message": message, "extra_info": extra_info, "commit_id": commit_id}
        commit = {name: value for name, value in options.items() if value is not None}
        arguments.check_commit(commit)
        zone = statement_zone(timezone, spark)
        sql = with_parameters(sql, parameters)
        sources = frame_sources(sql, frames)
        if is_query(sql):
            if commit:
                raise UsageError(f"a query commits nothing, so {', '.join(commit)} cannot be given")
            with self._context.reader() as reader:
                return Query(self._context, sql, resolve_at(reader, at).id, spark, timezone, sources)
        if at is not None:
            raise UsageError("at is for queries: a statement changes the newest snapshot")
        with in_zone(zone):
            return self._run_again(lambda tx: tx._run(sql, spark, sources), commit, CallRetries())  # noqa: SLF001

    def _run_again(self, work: Callable[[Transaction], object], commit: Mapping[str, Any], retries: CallRetries) -> TransactionResult:
        """Do some work in a transaction, and again in another one after a conflict: it is as if it had begun after the other writers."""
        while True:
            try:
                with autocommit(self._context, commit, retries) as tx:
                    work(tx)
                return tx.result
            except CommitConflictError:
                if not retries.replans.again():
                    raise

    def register(
        self, spark: SparkSession, *, schema: str | None = None, tables: Sequence[str] | None = None, at: At = None
    ) -> dict[str, str | None]:
        """Make a temporary view in a Spark session of every table and view of a schema, so that ``spark.sql`` finds them.

        The catalog is queried once for each, and no file is opened before a query runs. Spark then reads the columns that the query needs,
        but leaves out files by what it finds in them, not by the catalog, as :meth:`sql` does. The views stay at one snapshot: call
        it again for a newer one. Temporary views of the same names are replaced.

        Args:
            spark: The session, classic or Connect.
            schema: The schema, ``main`` when None.
            tables: Names of its tables and views, all of them when None.
            at: The snapshot, the newest when None.

        Returns:
            Each name, with the reason why it was left out where Spark cannot read a view, else None.

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
        """Merge small files into larger ones, up to the option ``target_file_size``: one snapshot per table that has work, or for several
        small ones together.

        Rows, row ids and what earlier snapshots show stay as they are; rows follow the table's sort order. The sources are scheduled
        for deletion at once, so run :meth:`cleanup_old_files` only with an age that running queries do not exceed. Files with deletes
        are left alone, and so are tables whose option ``auto_compact`` is false, or that are sorted by what Arrow cannot sort by. A
        table that fails, or whose files another writer changes meanwhile, is reported in the result and does not stop the others.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            tables: Instead of both, names with ``*`` (any letters) and ``?`` (one letter) in the schema and in the table, such as
                ``["sales.*", "main.order_?"]``. A name without them must exist; a pattern that matches nothing is a skipped step.
            max_compacted_files: Maximum number of files to make for each table.
            min_file_size: Bytes; smaller files are left alone.
            max_file_size: Bytes; files of this size or larger are left alone.
            cluster_by: Columns, at most 8, of ``table`` (or ``tables``): rows of each new file lie along a Hilbert curve (in the order of
                the column, where it is one) instead of the table's sort order, so that a range of any of them is in few of its row
                groups. :meth:`rewrite_data_files` clusters across files.
            max_input_bytes: Maximum bytes of files to read, over all tables. What does not fit is a skipped step, and left to the next
                call, which finds the smallest files first.
            max_files: Maximum number of files to read, over all tables.
            max_seconds: Seconds after which no further file is made; those that were made are committed.
            spark: Session whose executors do the work, a group of files each; without it this process does.
            max_concurrency: Maximum number of groups at a time, on threads of this process or as jobs of Spark. When not given, one in
                this process, and on Spark all groups of a table as one job.
            partial_progress: Commit each group of files as soon as it is done, as a snapshot of its own, instead of all groups of a
                table together. What is committed stays when the run is interrupted, and the next run does the rest.
            progress: Progress callback (:class:`Progress`).
            dry_run: Change nothing; the result lists what would be merged, and why what is left alone is.
            **commit: Author, message and extra information of the snapshots (:class:`CommitMessage`); the message states what was merged
                when none is given.

        Raises:
            NotFoundError: No such table or schema.
            UsageError: Bounds that contradict each other; columns to cluster by without a table, or too many of them.
            UnsupportedFeatureError: Columns to cluster by of a type that files have no bounds for.
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
        """Move rows and deletes that the catalog itself holds to files: one snapshot per table that has any.

        Rows, row ids, what earlier snapshots show and the change feed stay as they are. Files follow the partition keys that the rows
        were inserted under, and the table's sort order as far as Arrow can sort by it. A table whose option ``auto_compact`` is false
        is left alone. A table that fails is reported in the result and does not stop the others; rows that other writers add
        meanwhile stay inlined, and when they change some, the table is planned again.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            tables: Instead of both, names with wildcards, as in :meth:`merge_adjacent_files`.
            max_rows: Rows and deletes after which no further table is begun; a table is flushed as a whole.
            max_seconds: Seconds after which no further table is begun.
            spark: Session whose executors write the files of tables with 100,000 inlined rows and deletes or more; this process reads
                the rows in any case, and writes those of other tables.
            max_concurrency: Maximum number of parts of a table at a time, on threads of this process or as jobs of Spark.
            progress: Progress callback (:class:`Progress`).
            dry_run: Change nothing; the result lists what would be flushed, and why what is left alone is.
            **commit: As in :meth:`merge_adjacent_files`.

        Raises:
            NotFoundError: No such table or schema.
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
        """Rewrite files that have many deleted rows, without these rows: one snapshot per table that has such files.

        Row ids stay as they are, earlier snapshots keep reading the old files until they expire, and the change feed shows no changes.
        Files of one partition are written together, up to the option ``target_file_size``, in the table's sort order as far as Arrow
        can sort by it; small files without deleted rows that lie next to them join, as long as they fit into that size. A table whose
        option ``auto_compact`` is false is left alone. A table that fails is reported in the result and does not stop the others. Rows
        that others add meanwhile are no matter; when they delete from the same files, the table is planned again.

        Args:
            table: ``table`` or ``schema.table``; all tables when not given.
            schema: Only tables of this schema.
            tables: Instead of both, names with wildcards, as in :meth:`merge_adjacent_files`.
            delete_threshold: Part of a file's rows, 0 to 1, that must be deleted; 0 takes every file with a deleted row. The option
                ``rewrite_delete_threshold`` of the table, schema or lake, or 0.95, when not given.
            max_compacted_files: Maximum number of groups of files to rewrite for each table; a group becomes one file, or a few.
            max_input_bytes: Maximum bytes of files to read, over all tables; what does not fit is a skipped step.
            max_files: Maximum number of files to read, over all tables.
            max_seconds: Seconds after which no further group of files is begun; what was written is committed.
            cluster_by: Columns, at most 8, by which all files of ``table`` (or ``tables``) are rewritten where ranges of them touch
                many more files than they have to: rows lie along a Hilbert curve (in the order of the column, where it is one), in
                place of the table's sort order. The result contains what is gained; a run leaves alone what an earlier one has clustered.
            spark: Session whose executors do the work, a group of files each; without it this process does.
            max_concurrency: Maximum number of groups at a time, on threads of this process or as jobs of Spark. When not given, one in
                this process, and on Spark all groups of a table as one job.
            partial_progress: Commit each group of files as soon as it is done, as a snapshot of its own, instead of all groups of a
                table together. What is committed stays when the run is interrupted, and the next run does the rest.
            progress: Progress callback (:class:`Progress`).
            dry_run: Change nothing; the result lists what would be rewritten, and why what is left alone is.
            **commit: As in :meth:`merge_adjacent_files`.

        Raises:
            NotFoundError: No such table or schema.
            UsageError: A threshold that is not between 0 and 1, columns to cluster by without a table, or too many of them.
            UnsupportedFeatureError: Columns to cluster by of a type that files have no bounds for.
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
        """Run the recommended round of maintenance, in DuckDB's order, each operation with its defaults.

        That is :meth:`flush_inlined_data`, :meth:`expire_snapshots` (if the option ``expire_older_than`` is set),
        :meth:`merge_adjacent_files`, :meth:`rewrite_data_files`, :meth:`cleanup_old_files` and :meth:`delete_orphaned_files`. What
        they do depends on the options of the lake, its schemas and its tables: ``auto_compact``, ``target_file_size``,
        ``rewrite_delete_threshold``, ``expire_older_than``, ``delete_older_than``. A table that fails, or an operation, is reported in the
        result and stops nothing else.

        Args:
            tables: Names with wildcards, as in :meth:`merge_adjacent_files`: the tables to flush, merge and rewrite. The other operations
                are about the whole lake all the same.
            max_input_bytes: Maximum bytes of data files that merging and rewriting read together.
            max_files: Maximum number of data files that they read together.
            max_seconds: Seconds after which nothing further is begun, be it an operation, a table, a file or a batch of deletions.
            keep_last: Number of newest snapshots that stay whatever their age, at least 1. Where the option ``expire_older_than`` is
                not set, all others that are older than ``min_age`` expire. None, the default: snapshots expire by the option alone.
            min_age: Floor under the ages of snapshots and files that go, as in the operations.
            spark: Session whose executors flush, merge and rewrite; without it this process does.
            max_concurrency: As in :meth:`merge_adjacent_files`, as is ``partial_progress``.
            partial_progress: Whether merging and rewriting commit each group of files as soon as it is done.
            progress: Progress callback (:class:`Progress`).
            dry_run: Change nothing; the result lists what each operation would do to the lake as it is now.
            **commit: As in :meth:`merge_adjacent_files`.

        Raises:
            NotFoundError: No table of a name without wildcards.
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
        """Forget old snapshots, and schedule the files that only they read for deletion. No file is deleted yet.

        Everything happens in one catalog transaction, next to writers that are committing. The newest snapshot always stays. On PostgreSQL
        the snapshots that an open transaction of another program needs stay too: DuckDB finds no conflicts with expired snapshots.

        Args:
            older_than: Age (a timedelta, or a string such as ``"7 days"``), or point in time (aware), before which snapshots expire, the
                bound itself excluded. The option ``expire_older_than`` when None.
            versions: Exactly these snapshots instead.
            keep_last: Number of newest snapshots that stay whatever their age, at least 1. Without an age, all others that are older
                than ``min_age`` expire: 1 keeps the newest snapshot alone. None keeps the newest one and selects nothing.
            min_age: Floor under ``older_than`` and the ages of ``versions``: what is nearer is rejected, because running queries and
                writes may use it. Lower it only when you know that nothing runs; zero is no floor.
            progress: Progress callback (:class:`Progress`).
            dry_run: Change nothing; the result lists what would go, and why.

        Raises:
            UsageError: The arguments contradict each other or the floor, or name the newest snapshot.
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
        """Delete the files that expiry and compaction scheduled for deletion long enough ago. Makes no snapshot.

        A file that is missing already counts as deleted; one that cannot be deleted is reported and stays scheduled; one that
        the catalog still names is kept. So is a file outside of the data path that has another name than DuckLake's writers give,
        unless its place is one of the ``allowed_paths`` of :meth:`~ducklake_core.lake.DuckLake.connect`: files of others that were added
        (:meth:`Table.add_data_files`), and whatever another client may have written into the schedule.

        Args:
            older_than: Time since a file was scheduled (a timedelta, or a string such as ``"7 days"``), or a point in time (aware), the
                bound excluded; the option ``delete_older_than``, or 2 days, when not given. Queries that began before then may still
                read the files.
            cleanup_all: Take all of them, whatever their age: needs ``min_age="0 seconds"``.
            min_age: Floor under ``older_than``: a nearer bound is rejected. Lower it only when you know that nothing runs.
            max_files: Maximum number of files to delete; what is beyond it is a skipped step, and left to the next call.
            max_seconds: Seconds after which no further batch of files is deleted; the rest is left to the next call.
            progress: Progress callback (:class:`Progress`).
            dry_run: Delete nothing; the result lists what would go.

        Raises:
            UsageError: The bound is nearer than the floor, or given together with ``cleanup_all``.
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
        """Delete files below the data path that the catalog does not name: what killed writers left behind. Makes no snapshot.

        On S3 uploads that are as old and unfinished are aborted, so that the store deletes the parts that it has of them.

        A file is kept when any data file, delete file or scheduled file of the catalog has its name, in whatever directory, so
        that another spelling of the data path cannot make live files look orphaned. Files of a registered running write stay too.
        **Those of a write that has just begun, or of DuckDB's, look like orphans**, and so do those of another lake with the same data
        path: only their age distinguishes the first, nothing the second.

        Args:
            older_than: Time since a file was last changed (a timedelta, or a string such as ``"7 days"``), or a point in time (aware),
                the bound excluded; the option ``delete_older_than``, or 2 days, when not given. Longer than the longest write takes.
            cleanup_all: Take all of them, whatever their age: needs ``min_age="0 seconds"``.
            min_age: Floor under ``older_than``: a nearer bound is rejected. Lower it only when you know that nothing runs.
            every_parquet: Whether files that are not called as DuckLake's writers name their files go too if they end in ``.parquet``,
                as they do in DuckDB.
            max_files: Maximum number of files to delete; what is beyond it is a skipped step, and left to the next call.
            max_seconds: Seconds after which no further batch of 500 files is deleted and no further upload aborted; the
                first goes even if listing took longer.
            progress: Progress callback (:class:`Progress`).
            dry_run: Delete nothing; the result lists what would go.

        Raises:
            CatalogCorruptError: The row of a running write, or of an option, cannot be read.
            UsageError: The bound is nearer than the floor, or given together with ``cleanup_all``.
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

    # Maintain: the lake

    def create_indexes(self) -> tuple[str, ...]:
        """Make the indexes that :meth:`~ducklake_core.lake.DuckLake.create` makes, in a lake that another program created.

        They are not part of the format; DuckDB ignores them. With them, planning reads the statistics
        of the columns of its predicate alone, and what is done to one table takes no longer when the lake has thousands of
        others. In databases where indexes are of no use (DuckDB files) nothing happens.

        Returns:
            Names of the indexes that are there now.

        Raises:
            CatalogError: The database rejected the statement, perhaps for lack of a privilege.
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
        """Bring the catalog to a later version, in one transaction of the catalog. There is no way back.

        Every snapshot shows the same rows afterwards. No data file is written or moved. Run it with ``dry_run`` first, back up the
        catalog, and stop writers of the old version: they cannot work with the new one. A lake object that was opened before must
        be opened again, except this one: until then its calls fail with :class:`CatalogVersionError`.

        Args:
            to: The version that is wanted. None is 1.0 for a lake of an earlier version, 1.1 for one of 1.1-dev1, and nothing to do for
                the others: a lake is migrated to 1.1 only on request.
            allow_history_loss: Migrate even if merged files (written by an unknown program) do not store the snapshot with each row, or
                are missing: snapshots before the merge then show all of their rows.
            dry_run: Change nothing; the result lists the steps.

        Raises:
            UnsupportedFeatureError: Such files exist, and the loss is not allowed; a table of inlined rows has a column of a name that
                version 1.1 reserves; the version that is wanted is an earlier one. Nothing was changed.
            CatalogVersionError: There is no such version to write, or another client has migrated the lake.
            CatalogCorruptError: The tables are not those of the version that the catalog states; nothing was changed.
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
            # Definitions have the abilities of their version.
            self._forget_definitions()
        return result

    def health(self, *, small_file_size: int = 16 << 20) -> LakeHealth:
        """Count what grows and what slows reads down: small files, deleted and inlined rows, snapshots, scheduled files, and faults.

        Reads the catalog alone, with a number of statements that depends on neither tables nor files nor snapshots.

        Args:
            small_file_size: Bytes below which a data file counts as small.

        Returns:
            The numbers of the newest snapshot, which print themselves; ``to_arrow()`` and ``to_openmetrics()`` give them to others.

        Raises:
            UsageError: A size below 1.
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
        """Check a lake for errors without changing anything, and on request repair what is safe to repair.

        Args:
            level: ``catalog`` holds the rows of the catalog against each other, ``footers`` also opens every file that the catalog
                names and lists what else is below the data path, ``rows`` also reads all rows of all live tables, in this process.
            repair: Repair findings with ``is_repairable``, in one transaction, as a snapshot that changes no row of a
                table: statistics and bounds that leave rows out are widened or forgotten, rows that belong to nothing are deleted,
                files that the lake needs are taken out of the schedule for deletion, and the drop of a schema that is not empty is
                taken back. No file is touched.
            progress: Progress callback (:class:`Progress`).
            **commit: Author, message and extra information of the snapshot of a repair (:class:`CommitMessage`).

        Returns:
            What was found and, with ``repair``, what was done; it prints itself. Findings are those before the repair.

        Raises:
            UsageError: No such level, a repair of a lake that was opened to be read only, or ``commit`` without a repair.
        """
        from ducklake_core.maintenance.check.run import check_lake
        from ducklake_core.maintenance.request import ProgressMeter

        arguments.check_flags(repair=repair)
        arguments.check_commit(commit, arguments.COMMIT_MESSAGE)
        meter = ProgressMeter(progress)
        return check_lake(self._database, self._info, self._storage, level=level, repair=repair, progress=meter, commit=commit)


def load_lake(name: str) -> DuckLake:
    """Open the lake that ``ducklake.toml`` or environment variables know under a name, so that no program holds addresses or secrets.

    The table ``[lakes.<name>]`` of the file, and variables ``DUCKLAKE_<NAME>__<SETTING>``, which win, hold arguments of
    :meth:`DuckLake.connect`: ``catalog``, ``data_path``, ``storage_options.s3.key`` (``..__STORAGE_OPTIONS__S3__KEY``). The file is
    that of the working directory, else of the nearest directory above that names the lake, else of ``~/.config``; a relative path of
    a catalog file in it means the file's own directory.

    Raises:
        NotFoundError: Nothing speaks of the lake.
        UsageError: A file that cannot be read, or a setting that does not exist; no message repeats a value.
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
        raise UsageError("cluster_by names columns of certain tables: give table or tables as well", parameter="cluster_by")
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


class LakeAtSnapshot:
    """A lake at one snapshot. Made by :meth:`DuckLake.at`; nothing of it can be written, and what is committed later never shows."""

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
        """Return a table as :meth:`DuckLake.table` opens it at the snapshot.

        Args:
            name: ``table`` or ``schema.table``.

        Raises:
            NotFoundError: No such table at the snapshot.
        """
        return self._lake.table(name, at=self._snapshot.id)

    def has_table(self, name: str) -> bool:
        """Return whether the table exists at the snapshot."""
        return self._lake.has_table(name, at=self._snapshot.id)

    def scan(self, name: str, *, columns: Sequence[str] | None = None, where: Where = None) -> Scan:
        """Return rows of a table: :meth:`Table.scan`.

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
            NotFoundError: No such view at the snapshot.
        """
        return self._lake.view(name, at=self._snapshot.id)

    def views(self) -> list[View]:
        """Return all views by schema and name."""
        return self._lake.views(at=self._snapshot.id)

    def macros(self) -> list[Macro]:
        """Return all macros by schema and name."""
        return self._lake.macros(at=self._snapshot.id)


class Inspection:
    """The contents of a catalog as Arrow tables with typed columns. Made by ``lake.inspect``; no data file is opened.

    Each answer takes a number of statements that does not depend on how many snapshots, tables or files there are.
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
        """Return live data files of a table by id: path, rows and bytes, partition values, deletes, and the snapshot they came with.

        Args:
            table: ``table`` or ``schema.table``.
            at: Snapshot id, or a time with a zone; that of this object when None (the default).
        """
        state, files = self._files(table, at)
        return as_table(FILES, file_rows(state, files))

    def partitions(self, table: str, *, at: At = None) -> pa.Table:
        """Return partitions of a table by their values, each with its files, rows and bytes; inlined rows are in none of them.

        Files that were written under other partition keys make partitions of their own, under those keys.

        Args:
            table: ``table`` or ``schema.table``.
            at: Snapshot id, or a time with a zone; that of this object when None (the default).
        """
        state, files = self._files(table, at)
        return as_table(PARTITIONS, partition_rows(state, files))

    def options(self) -> pa.Table:
        """Return options that were set, by name, each with the lake, schema or table it holds for. They have no history."""
        return as_table(OPTIONS, map(option_row, self._lake.scoped_options()))

    def history(self, table: str, *, at: At = None) -> pa.Table:
        """Return snapshots whose changes touch a table, by id, up to the one that is requested.

        Args:
            table: ``table`` or ``schema.table``.
            at: Snapshot id, or a time with a zone; that of this object when None (the default).
        """
        opened = self._lake.table(table, at=self._moment(at))
        found = (snapshot for snapshot in opened.snapshots() if snapshot.id <= opened.snapshot_id)
        return as_table(SNAPSHOTS, map(snapshot_row, found))

    def _files(self, table: str, at: At) -> tuple[TableState, list[DataFile]]:
        opened = self._lake.table(table, at=self._moment(at))
        return opened.state, opened.list_files()

    def _moment(self, at: At) -> At:
        return self._at if at is None else at
