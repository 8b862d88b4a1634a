"""The lake: where everything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ducklake_core.catalog.bootstrap import create_catalog, open_catalog
from ducklake_core.catalog.database import Database
from ducklake_core.catalog.option_rows import StoredOptions, store_option
from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import LakeInfo, Snapshot, TableState
from ducklake_core.catalog.url import parse_catalog_url
from ducklake_core.commit.committer import Committer
from ducklake_core.engines import is_in_memory
from ducklake_core.errors import CommitConflictError, NotFoundError, SchemaError, UsageError
from ducklake_core.format.locations import check_allowed
from ducklake_core.format.names import join_name, split_name
from ducklake_core.format.options import normalize_option
from ducklake_core.known_tables import KnownTables
from ducklake_core.lake_definitions import Definitions
from ducklake_core.lake_listing import At, resolve_at
from ducklake_core.lake_maintenance import MaintenanceVerbs
from ducklake_core.results import TransactionResult, WriteResult, single_result
from ducklake_core.storage.filesystems import Storage, StorageOptions
from ducklake_core.table import Table
from ducklake_core.transaction import Transaction

if TYPE_CHECKING:
    from ducklake_core.adding import Paths
    from ducklake_core.format.predicates import Predicate

Where: TypeAlias = "str | Predicate | None"
Partitions: TypeAlias = "Sequence[Mapping[str, object]]"
WriteMode: TypeAlias = Literal["append", "overwrite", "upsert"]
SchemaEvolution: TypeAlias = Literal["strict", "additive"]


class DuckLake(Definitions, MaintenanceVerbs):
    """A DuckLake: one catalog database and the data path it points to.

    Objects are cheap, picklable (they carry addresses, not connections) and safe to keep: every call reads the newest
    snapshot unless told otherwise.  Nothing here starts Spark; a Spark DataFrame brings its own session along.
    """

    @classmethod
    def create(
        cls,
        catalog: str,
        *,
        data_path: str | None = None,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        encrypted: bool = False,
        indexes: bool = True,
    ) -> DuckLake:
        """Create a new lake with an empty schema ``main``.

        Args:
            catalog: SQLAlchemy URL (``sqlite:///lake.sqlite``, ``postgresql+psycopg://...``, ``duckdb:///lake.ducklake``) or a
                DuckDB ATTACH target (``ducklake:sqlite:lake.sqlite``, ``ducklake:postgres:dbname=lake host=...``,
                ``ducklake:lake.ducklake``).
            data_path: Directory or object store prefix for data files; relative paths mean the working directory of
                each reader, as in the reference. Only with a DuckDB file it may be left out: ``<file>.files/``.
            metadata_schema: Schema of a PostgreSQL database or DuckDB file that holds the catalog tables; ``public`` or
                ``main`` when not given.
            storage_options: fsspec options by protocol, e.g. ``{"s3": {"key": ...}}``; masked in every repr.
            encrypted: Whether all files are encrypted, each under a key of its own that the catalog keeps; fixed for good.
            indexes: Whether to make indexes that the format does not ask for; see :meth:`create_indexes`.

        Raises:
            AlreadyExistsError: There is a lake already.
            CatalogUnavailableError: The database cannot be reached.
        """
        database = Database(parse_catalog_url(catalog, metadata_schema))
        info = create_catalog(database, data_path, encrypted=encrypted, indexes=indexes)
        return cls(database, info, Storage(options=StorageOptions(by_protocol=storage_options or {})))

    @classmethod
    def connect(
        cls,
        catalog: str,
        *,
        data_path: str | None = None,
        override_data_path: bool = False,
        metadata_schema: str | None = None,
        storage_options: Mapping[str, Mapping[str, Any]] | None = None,
        allowed_paths: Sequence[str] = (),
    ) -> DuckLake:
        """Open an existing lake. Nothing is created or migrated: a lake of an earlier version (0.1 to 0.4) can be read, not written.

        Args:
            data_path: When given it must be the stored one, unless ``override_data_path``, which holds for this object only.
            allowed_paths: Prefixes of further places that the catalog may name. Without them a path of the catalog that leaves
                the data path through ``..``, or for another kind of store, is refused when it is to be read or written.

        Raises:
            NotALakeError: The database holds no lake.
            CatalogVersionError: The catalog's format version is one that this library does not know.
            UsageError: ``data_path`` is not the stored one.
        """
        database = Database(parse_catalog_url(catalog, metadata_schema))
        info = replace(open_catalog(database, data_path, override_data_path), allowed_paths=check_allowed(allowed_paths))
        return cls(database, info, Storage(options=StorageOptions(by_protocol=storage_options or {})))

    def __init__(self, database: Database, info: LakeInfo, storage: Storage) -> None:
        self._database = database
        self._info = info
        self._storage = storage
        self.known_tables = KnownTables()

    def __repr__(self) -> str:
        return f"<DuckLake {self._database.address} with data path {self._info.data_path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (DuckLake, (self._database, self._info, self._storage))

    def close(self) -> None:
        """Close pooled connections; the lake can still be used afterwards."""
        self._database.close()

    @property
    def database(self) -> Database:
        """The catalog's database."""
        return self._database

    @property
    def info(self) -> LakeInfo:
        """Version, data path and encryption of the lake."""
        return self._info

    def snapshot(self, at: At = None) -> Snapshot:
        """The newest snapshot, the one with an id, or the last one committed at or before a time (aware datetime).

        Raises:
            NotFoundError: There is none, or it was expired.
        """
        with self.reader() as reader:
            return resolve_at(reader, at)

    def find_commit(self, commit_id: str) -> Snapshot | None:
        """The snapshot that was committed with ``commit_id``, None when there is none (or it was expired)."""
        return Committer(self._database).find_commit(commit_id)

    def has_table(self, name: str, *, at: At = None) -> bool:
        """Whether ``table`` or ``schema.table`` exists."""
        try:
            self._state(name, at)
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
            return Table(self, self._state(name, at), at=at)
        except NotFoundError:
            self._refuse_view(name, at)
            raise

    def set_option(self, name: str, value: str | int | bool, *, table: str | None = None, schema: str | None = None) -> None:
        """Store an option for the lake, a schema or a table. Makes no snapshot.

        Raises:
            UsageError: Unknown option or a value it cannot have.
        """
        key, text = normalize_option(name, value)
        with self._database.write() as connection:
            reader = CatalogReader(connection, self._info, self._database.tables)
            scope: tuple[Literal["schema", "table"] | None, int | None] = (None, None)
            if table is not None and schema is not None:
                raise UsageError("an option belongs to a table or to a schema, not to both")
            if table is not None:
                scope = "table", reader.table(*split_name(table), reader.latest_snapshot().id).id
            elif schema is not None:
                scope = "schema", reader.schema(schema, reader.latest_snapshot().id).id
            store_option(connection, self._database.tables, key, text, *scope)
        self.known_tables.forget_newest()

    def write(  # noqa: PLR0913 - one call says everything about one commit
        self,
        name: str,
        data: Any,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        partitions: Partitions | None = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        comment: str | None = None,
        inline: bool | None = None,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, Any] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Write a frame to a table in exactly one commit: create the table or widen it where allowed, replace or add rows.

        Args:
            name: ``table`` or ``schema.table``. A missing schema is created together with the table.
            data: pyarrow Table or RecordBatchReader, or a Spark DataFrame (classic or Connect), whose session does the work.
                Arrow data of up to ``data_inlining_row_limit`` rows is kept in the catalog itself (docs/inlining.md).
            mode: ``append``; ``overwrite`` replaces the rows that match ``where`` (all rows without it); ``upsert`` replaces
                the rows whose ``on`` columns equal those of a new row.
            where: For overwrite only. Every new row must match it too; a row outside is an error before anything is committed.
            partitions: For overwrite only, instead of ``where``: partitions to replace; see :meth:`Table.overwrite`.
            on: Key columns of an upsert. NULL or repeated keys in ``data`` are an error.
            create: Whether a missing table is created, with ``partition_by`` and ``comment``, which are otherwise unused.
            schema_evolution: ``strict`` refuses columns and types the table does not have; ``additive`` adds new columns and
                widens types in the same commit. Nothing is ever dropped or narrowed.
            inline: Whether few rows are kept in the catalog (docs/inlining.md): of Arrow data only when None, of a Spark DataFrame
                too when True, of nothing when False.
            extra_info: A mapping (stored as JSON beside the commit id) or a text.
            commit_id: Makes the write happen once: if a snapshot carries this id already, nothing is written and the result
                says ``repeated``.

        Raises:
            SchemaError: Data and table do not fit; the message lists every difference.
            UsageError: A row outside ``where``, or keys that are NULL or repeated.
            CommitConflictError: Another writer changed the table's columns meanwhile, or kept winning.
            CommitOutcomeUnknownError: The connection was lost at COMMIT and the catalog could not be asked.
        """

        def write_on(base: tuple[Snapshot, StoredOptions] | None) -> TransactionResult:
            with Transaction(self, author=author, message=message, extra_info=extra_info, commit_id=commit_id, base=base) as tx:
                tx.write(
                    name,
                    data,
                    mode=mode,
                    where=where,
                    partitions=partitions,
                    on=on,
                    create=create,
                    partition_by=partition_by,
                    schema_evolution=schema_evolution,
                    comment=comment,
                    inline=inline,
                )
            return tx.result

        in_memory = mode == "append" and commit_id is None and is_in_memory(data)
        recent = self.known_tables.recent(*split_name(name)) if in_memory else None
        try:
            result = write_on(recent)
        except (CommitConflictError, SchemaError, UsageError):
            if recent is None:
                raise
            # What is in the way, or missing, may have come before this call: only the newest snapshot decides.
            result = write_on(None)
        if result.repeated:
            return single_result(result, *self._written_then(name, result.snapshot))
        return single_result(result, name, 0)

    def add_data_files(self, table: str, paths: Paths, **how: Any) -> WriteResult:
        """Make Parquet files part of a table as they are: :meth:`Table.add_data_files`, which says what becomes of them."""
        return self.table(table).add_data_files(paths, **how)

    def transaction(
        self,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, Any] | None = None,
        commit_id: str | None = None,
    ) -> Transaction:
        """Several changes, to any number of tables, as one snapshot.

        The commit happens when the block ends; an exception inside the block discards everything, files included.
        """
        return Transaction(self, author=author, message=message, extra_info=extra_info, commit_id=commit_id)

    def _written_then(self, name: str, snapshot: Snapshot | None) -> tuple[str, int]:
        """Name and id of the table that an earlier commit wrote; it may have been dropped or renamed since."""
        try:
            state = self._state(name, snapshot.id if snapshot is not None else None)
        except NotFoundError:
            return join_name(*split_name(name)), 0
        return join_name(state.schema_name, state.name), state.id

    def _state(self, name: str, at: At) -> TableState:
        with self.reader() as reader:
            return reader.table(*split_name(name), resolve_at(reader, at).id)
