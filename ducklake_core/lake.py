"""The lake: where everything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from ducklake_core.catalog.database.bootstrap import create_catalog, open_catalog, open_or_create
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.definitions import Definitions
from ducklake_core.errors import CatalogVersionError, NotFoundError, UsageError
from ducklake_core.format.arguments import checked, given_text
from ducklake_core.format.files.paths import check_allowed, printable
from ducklake_core.format.state import LakeInfo, TableState
from ducklake_core.format.types.names import split_name
from ducklake_core.format.versions import writable_version
from ducklake_core.maintenance.expire import Holds
from ducklake_core.maintenance.verbs import MaintenanceVerbs
from ducklake_core.results import WriteResult
from ducklake_core.staging.arguments import (
    At,
    CommitOptions,
    ConcurrentAppends,
    FrameLike,
    MissingColumns,
    Partitions,
    SchemaEvolution,
    Where,
    WriteMode,
    resolve_at,
)
from ducklake_core.staging.context import TableStateCache
from ducklake_core.staging.lake_files import find_lake
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_core.table import Table
from ducklake_core.transaction import Transaction, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.staging.adding import Paths


@checked
class DuckLake(Definitions, MaintenanceVerbs):
    """A DuckLake: one catalog database and the data path it points to.

    Objects are cheap, picklable (addresses, no connections) and safe to keep. Every call reads the newest snapshot unless told otherwise.
    Nothing here starts Spark.
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
            indexes: Whether to make indexes that the format does not ask for; see :meth:`create_indexes`.
            allowed_paths: As in :meth:`connect`; it holds for this object only.
            version: Of the format. Lakes of 1.1 are for DuckDB 2.0 and later; 1.5 refuses them (docs/versions.md).

        Raises:
            AlreadyExistsError: There is a lake already.
            CatalogUnavailableError: The database cannot be reached.
            CatalogVersionError: There is no such version to write.
        """
        database = Database(parse_catalog_url(catalog, metadata_schema))
        allowed = check_allowed(allowed_paths)
        info = create_catalog(
            database,
            data_path,
            relative_data_path=relative_data_path,
            encrypted=encrypted,
            indexes=indexes,
            version=writable_version(version),
        )
        return cls(database, replace(info, allowed_paths=allowed), Storage(options=StorageOptions(by_protocol=storage_options or {})))

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
            data_path: When given it must be the stored one, unless ``override_data_path``, which holds for this object only.
            allowed_paths: Prefixes of further places that the catalog may name. Without them a path of the catalog that leaves
                the data path through ``..``, or for another kind of store, is refused when it is to be read or written.
            read_only: Refuse every call that would change the lake with a :class:`UsageError` that names it, before anything is
                written. Dry runs are allowed.

        Raises:
            NotALakeError: The database holds no lake; :meth:`open` can make one.
            CatalogVersionError: The catalog's format version is one that this library does not know.
            UsageError: ``data_path`` is not the stored one.
        """
        database = Database(parse_catalog_url(catalog, metadata_schema), read_only=read_only)
        info = replace(open_catalog(database, data_path, override_data_path), allowed_paths=check_allowed(allowed_paths))
        return cls(database, info, Storage(options=StorageOptions(by_protocol=storage_options or {})))

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
            create: Whether to create a lake where there is none, as :meth:`create` does with ``data_path``, ``relative_data_path``,
                ``encrypted`` and ``indexes``.
            data_path: As in :meth:`connect` where there is a lake.
            version: Of a lake that is created, 1.0 when None. A lake that is there must have it: it is not migrated.

        Raises:
            NotALakeError: The database holds no lake, and none is to be created.
            UsageError: ``data_path`` is not the stored one, ``encrypted`` is asked of a lake that is not, or a lake is to be created
                and only read.
            CatalogVersionError: The lake that is there has another ``version``, or there is no such version to write.
        """
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
            said = f"the lake {lake.database.address} exists and has version {lake.info.version}, not {version}; lake.migrate() changes it"
            raise CatalogVersionError(said, found=lake.info.version, supported=version)
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
        """Open the lake again over the connections of this object: its version, data path and encryption are read anew.

        Args:
            data_path: As in :meth:`connect`.
            override_data_path: As in :meth:`connect`.

        Raises:
            NotALakeError: There is no lake any more.
            UsageError: ``data_path`` is not the stored one.
        """
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
        """Whether every call that would change the lake is refused."""
        return self._database.read_only

    @property
    def info(self) -> LakeInfo:
        """Version, data path and encryption of the lake."""
        return self._info

    def has_table(self, name: str, *, at: At = None) -> bool:
        """Whether ``table`` or ``schema.table`` exists."""
        try:
            self._state(name, at, suggest=False)
        except NotFoundError:
            return False
        return True

    def table(self, name: str, *, at: At = None) -> Table:
        """A table by ``table`` (in schema main) or ``schema.table``; names with dots are double-quoted.

        Args:
            at: Snapshot id or time to read at. A table so opened cannot be written.

        Raises:
            NotFoundError: No such table at that snapshot; a view is opened by :meth:`view`.
        """
        try:
            return Table(self._context, self._state(name, at), at=at)
        except NotFoundError:
            self._refuse_view(name, at)
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
                kept in the catalog itself (docs/inlining.md).
            mode: ``append``; ``overwrite`` replaces the rows that match ``where`` (all rows without it); ``upsert`` replaces
                the rows whose ``on`` columns equal those of a new row.
            where: For overwrite only. Every new row must match it too; a row outside is an error before anything is committed.
            partitions: For overwrite only, instead of ``where``: partitions to replace; see :meth:`Table.overwrite`.
            on: Key columns of an upsert. NULL or repeated keys in ``data`` are an error.
            create: Whether a missing table is created, with ``partition_by`` and ``comment``. A table that is there must have these
                partition keys and this comment, where they are given.
            schema_evolution: ``strict`` refuses columns and types the table does not have, but takes integers of any width whose values
                fit the column (docs/types.md); ``additive`` adds new columns and widens types in the same commit. Nothing is ever
                dropped or narrowed.
            missing_columns: What happens when ``data`` lacks columns of the table, or fields of its structs, that have no default:
                ``error`` raises :class:`SchemaError`, ``null`` writes NULL to new rows. Default: ``error`` under ``strict``, ``null`` under
                ``additive``. Columns with a default get it. Rows that an upsert matches keep their values of columns that are missing.
            inline: Whether few rows are kept in the catalog (docs/inlining.md): of Arrow data only when None, of a Spark DataFrame
                too when True, of nothing when False.
            concurrent_appends: For overwrite only: whether rows that another writer commits to the replaced slice meanwhile ``fail`` the
                write, which is the default, or are ``replace``d too; see :meth:`Table.overwrite`.
            read_at: For overwrite only: id of the snapshot that ``data`` was computed from; see :meth:`Table.overwrite`.
            extra_info: A mapping (stored as JSON beside the commit id) or a text.
            commit_id: Makes the write happen once: if a snapshot carries this id already, nothing is written and the result
                says ``repeated``. It holds for as long as that snapshot is not expired. Each table, and each kind of work, needs an id
                of its own.

        Raises:
            SchemaError: Data and table do not fit; the message lists every difference.
            UsageError: A row outside ``where``, keys that are NULL or repeated, or ``partition_by`` or ``comment`` of an existing table
                that are not the table's; the commit id of other work.
            CommitConflictError: Another writer changed the table's columns meanwhile, or kept winning.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be asked.
        """
        return write(
            self._context,
            name,
            data,
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
            author=author,
            message=message,
            extra_info=extra_info,
            commit_id=commit_id,
        )

    def add_data_files(
        self,
        table: str,
        paths: Paths,
        *,
        hive_partitioning: bool | None = None,
        allow_missing: bool = False,
        ignore_extra_columns: bool = False,
        allow_duplicates: bool = False,
        spark: SparkSession | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult:
        """Make Parquet files part of a table as they are: :meth:`Table.add_data_files`, which says what becomes of them."""
        return self.table(table).add_data_files(
            paths,
            hive_partitioning=hive_partitioning,
            allow_missing=allow_missing,
            ignore_extra_columns=ignore_extra_columns,
            allow_duplicates=allow_duplicates,
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
        """
        self._database.check_not_read_only()
        return Transaction(self._context, author=author, message=message, extra_info=extra_info, commit_id=commit_id)

    def _state(self, name: str, at: At, *, suggest: bool = True) -> TableState:
        if at is None and self._database.layout is None:
            return self.table_cache.table(self._database, self.info, self.reader, *split_name(name), suggest=suggest)
        with self.reader() as reader:
            return reader.table(*split_name(name), resolve_at(reader, at).id, suggest=suggest)


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
    spec = find_lake(given_text("name", name))
    return DuckLake.connect(
        spec.catalog,
        data_path=spec.data_path,
        override_data_path=spec.override_data_path,
        metadata_schema=spec.metadata_schema,
        storage_options=spec.storage_options,
        allowed_paths=spec.allowed_paths,
        read_only=spec.read_only,
    )
