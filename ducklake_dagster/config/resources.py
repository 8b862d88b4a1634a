"""Define the resource of one lake: the location of its catalog and of its files, and the way to reach them."""

from __future__ import annotations

import json
import os
import sys
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr

from ducklake_core.errors import AlreadyExistsError, CatalogUnavailableError, CatalogVersionError, DuckLakeError, NotALakeError, UsageError
from ducklake_dagster.config.catalogs import (
    AddressCatalog,
    Catalog,
    DuckDBCatalog,
    MySQLCatalog,
    PostgresCatalog,
    SqliteCatalog,
    catalog_of,
)
from ducklake_dagster.config.values import SECRET, SecretiveConfig, hide_in_text, reject_unknown_fields, rejected_values, reveal, revealed

if TYPE_CHECKING:
    from ducklake_core import DuckLake


# Each open lake keeps connections to its catalog.
_MAX_OPEN_LAKES = 32
_LOCK = threading.Lock()
_OPEN: OrderedDict[str, DuckLake] = OrderedDict()

# Options of Dagster's commands for the working directory of a code location.
_OPTIONS = ("-d", "--working-directory")
# Fields of the resource that may be variables of the environment, besides those of the catalog and the storage.
_PLAIN_FIELDS = ("allowed_paths", "base_directory")


class _Storage(SecretiveConfig):
    data_path: str | None = Field(
        default=None, description="Directory or URL prefix of the lake's files. Default: the data path that the catalog has stored."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Other options of the fsspec file system, such as config_kwargs of s3fs. They override the fields of this resource.",
    )

    @abstractmethod
    def protocols(self) -> tuple[str, ...]:
        """Return the fsspec protocols of the options."""

    def named_options(self) -> dict[str, Any]:
        """Return the options that are set by fields."""
        return {}

    def fsspec_options(self) -> dict[str, Any]:
        """Return all options of the file system."""
        return _merged(self.named_options(), {name: _plain(value) for name, value in self.options.items()})


class LocalStorage(_Storage):
    """Files in a directory that every process sees under the same path. ``options`` must be empty."""

    kind: Literal["local"] = "local"

    def protocols(self) -> tuple[str, ...]:
        """Return the fsspec protocols of the options."""
        return ()


class S3Storage(_Storage):
    """Amazon S3, or a store with the same protocol. Without keys, s3fs uses the credential chain of boto (environment, profile, role).

    ``options`` are options of s3fs. Stores other than Amazon S3 may need
    ``{"config_kwargs": {"response_checksum_validation": "when_required", "request_checksum_calculation": "when_required"}}``.
    """

    kind: Literal["s3"] = "s3"
    access_key_id: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Access key id.")
    secret_access_key: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Secret access key.")
    session_token: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Token of temporary credentials.")
    endpoint_url: str | None = Field(default=None, description="URL of a store other than Amazon S3, such as http://minio:9000.")
    region: str | None = Field(default=None, description="Region of the bucket, such as eu-central-1.")

    def protocols(self) -> tuple[str, ...]:
        """Return the fsspec protocols of the options."""
        return ("s3",)

    def named_options(self) -> dict[str, Any]:
        """Return options of s3fs."""
        named = {
            "key": self.access_key_id,
            "secret": self.secret_access_key,
            "token": self.session_token,
            "endpoint_url": self.endpoint_url,
        }
        options: dict[str, Any] = {key: reveal(value) for key, value in named.items() if value}
        if self.region:
            options["client_kwargs"] = {"region_name": self.region}
        return options


class GCSStorage(_Storage):
    """Google Cloud Storage. Without a token, gcsfs uses the default credentials of the environment."""

    kind: Literal["gcs"] = "gcs"
    project: str | None = Field(default=None, description="Google Cloud project.")
    token: str | None = Field(
        default=None,
        repr=False,
        json_schema_extra=SECRET,
        description="Path of a key file, or a token name of gcsfs such as cloud or anon.",
    )

    def protocols(self) -> tuple[str, ...]:
        """Return the fsspec protocols of the options."""
        return ("gs", "gcs")

    def named_options(self) -> dict[str, Any]:
        """Return options of gcsfs."""
        return {key: reveal(value) for key, value in (("project", self.project), ("token", self.token)) if value}


class AzureStorage(_Storage):
    """Azure Blob Storage or Data Lake Storage. Without keys, adlfs uses the default credentials of the environment."""

    kind: Literal["azure"] = "azure"
    account_name: str | None = Field(default=None, description="Name of the storage account.")
    account_key: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Key of the storage account.")
    connection_string: str | None = Field(
        default=None, repr=False, json_schema_extra=SECRET, description="Connection string; replaces name and key."
    )
    sas_token: str | None = Field(default=None, repr=False, json_schema_extra=SECRET, description="Shared access signature token.")
    account_host: str | None = Field(default=None, description="Host of the account. Default: <account_name>.blob.core.windows.net.")

    def protocols(self) -> tuple[str, ...]:
        """Return the fsspec protocols of the options."""
        return ("abfs", "abfss", "az")

    def named_options(self) -> dict[str, Any]:
        """Return options of adlfs."""
        names = ("account_name", "account_key", "connection_string", "sas_token", "account_host")
        return {name: reveal(value) for name in names if (value := getattr(self, name))}


Storage: TypeAlias = LocalStorage | S3Storage | GCSStorage | AzureStorage


class DuckLakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A lake as a resource of assets, ops, checks and sensors. Reading or changing metadata never starts Spark.

    ``catalog`` may also be an address, such as ``"duckdb:///lake.ducklake"`` or ``dg.EnvVar("LAKE_ADDRESS")``. Dagster's pages show
    placeholders in place of secrets. All resources of a process that have the same settings share their open connections.

    Example:

        lake = DuckLakeResource(
            catalog=PostgresCatalog(host="db", database="lake", user="etl", password=dg.EnvVar("PGPASSWORD")),
            storage=S3Storage(data_path="s3://bucket/lake/"),
        )
    """

    catalog: Catalog = Field(discriminator="kind", description="Database that stores the metadata of the lake.")
    storage: Storage = Field(discriminator="kind", description="Location of the lake's files, and the credentials to reach it.")
    allowed_paths: list[str] = Field(
        default_factory=list,
        description=(
            "Paths outside of the data path from which files may be read. Each entry allows all paths that begin with it. Default: none."
        ),
    )
    create_if_missing: bool = Field(
        default=False, description="Create the lake on first use if the catalog database has none. Default: raise an error."
    )
    override_data_path: bool = Field(
        default=False, description="Use the data_path of the storage instead of the stored one, for example for a copy of the lake's files."
    )
    encrypted: bool = Field(
        default=False, description="Encrypt the files of a lake that this resource creates. Existing lakes keep their setting."
    )
    version: Literal["1.0", "1.1"] = Field(
        default="1.0",
        description=(
            "DuckLake format version of a lake that this resource creates. Existing lakes keep their version. DuckDB 1.5 cannot open "
            "version 1.1."
        ),
    )

    base_directory: str | None = Field(
        default=None,
        description="Directory at which relative paths of the catalog and of the data path start. Default: the working directory of the "
        "code location.",
    )

    _lake: Any = PrivateAttr(default=None)
    _run: Any = PrivateAttr(default=None)
    _others: Any = PrivateAttr(default=None)

    if not TYPE_CHECKING:
        # Type checkers use the fields. Dagster validates values before pydantic does and repeats them in its errors, secrets included, so
        # everything that may be a secret is replaced before the call of super().
        def __init__(self, **data: Any) -> None:
            reject_unknown_fields(type(self), data)
            _reject_no_places(data)
            for name, kinds in _PLACES.items():
                if isinstance(data.get(name), Mapping):
                    data[name] = _of_kind(name, data[name], kinds)
            if isinstance(data.get("catalog"), dg.EnvVar):
                data["catalog"] = AddressCatalog(address=data["catalog"])
            elif isinstance(data.get("catalog"), str):
                data["catalog"] = catalog_of(data["catalog"])
            if isinstance(data.get("allowed_paths"), str):
                data["allowed_paths"] = [data["allowed_paths"]]
            if isinstance(data.get("allowed_paths"), list):
                data["allowed_paths"] = [hide_in_text("allowed path", path) for path in data["allowed_paths"]]
            with rejected_values(type(self)):
                super().__init__(**data)
            _reject_other_place(self.storage)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Keep the run, which knows the working directory of its code location."""
        self._run = context.run

    def directory(self) -> str:
        """Return the directory at which relative paths of the resource start."""
        return self.base_directory or code_location_directory(self._run)

    def located_catalog(self) -> SqliteCatalog | DuckDBCatalog | PostgresCatalog | MySQLCatalog:
        """Return the catalog, with an absolute path where it is a file."""
        return self.catalog.located(self.directory())

    def connect(self) -> DuckLake:
        """Return the lake, which is opened on first use and then kept.

        Outside of a run, such as in a script, variables of the environment (``dg.EnvVar``) are read here.

        Raises:
            UsageError: A variable of the environment is not set.
            NotALakeError: The database holds no lake, and ``create_if_missing`` is False.
            CatalogUnavailableError: The database cannot be reached.
        """
        if self._lake is None:
            self._lake = self._with_variables()._open()  # noqa: SLF001 - an object of this class
        lake: DuckLake = self._lake
        return lake

    def connect_to_existing(self) -> DuckLake:
        """Return the lake as :meth:`connect` does, but never create it, even with ``create_if_missing``.

        Raises:
            NotALakeError: The database holds no lake.
            CatalogUnavailableError: The database cannot be reached.
        """
        if self._lake is None:
            self._lake = self._with_variables()._connect()  # noqa: SLF001 - an object of this class
        lake: DuckLake = self._lake
        return lake

    def _with_variables(self) -> DuckLakeResource:
        """Return the resource with the values of environment variables; the resource itself if it has none, as in a run.

        Raises:
            UsageError: A variable is not set.
        """
        names = [*_variables([self.catalog, self.storage, *(getattr(self, name) for name in _PLAIN_FIELDS)])]
        unset = [name for name in names if name not in os.environ]
        if unset:
            raise UsageError(
                f"environment variable {unset[0]} of DuckLakeResource is not set. Set it before connect(), or pass the value itself",
                variable=unset[0],
            )
        return self.process_config_and_initialize() if names else self

    def is_known_to_differ_from(self, other: DuckLakeResource) -> bool:
        """Return whether :meth:`keep_as_different_from` was called for the lakes that both resources have open."""
        return None not in (self._lake, other._lake) and self._others == (self._lake, other._lake)

    def keep_as_different_from(self, other: DuckLakeResource) -> None:
        """Remember that the lakes that both resources have open differ: the comparison costs more than a small commit does."""
        self._others = (self._lake, other._lake)

    def shown_catalog(self) -> str:
        """Return the address of the catalog, without passwords."""
        found = self.located_catalog()
        if isinstance(found, (SqliteCatalog, DuckDBCatalog)):
            return f"{found.kind}:///{found.path}"
        return f"{found.kind}://{found.host}:{found.port}/{found.database}"

    def storage_options(self) -> Mapping[str, Mapping[str, Any]]:
        """Return fsspec options by protocol."""
        options = self.storage.fsspec_options()
        if options and not self.storage.protocols():
            raise UsageError(f"storage of kind {self.storage.kind} has no options. Remove {', '.join(options)}", options=sorted(options))
        return dict.fromkeys(self.storage.protocols(), options) if options else {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Dagster's own state of a resource cannot be pickled; the settings are enough to build it again.
        return _rebuild, (type(self), {name: getattr(self, name) for name in type(self).model_fields})

    def _open(self) -> DuckLake:
        try:
            return self._connect()
        except (NotALakeError, CatalogUnavailableError) as error:
            absent = isinstance(error, NotALakeError) or self.located_catalog().is_missing()
            if not absent:
                raise
            if not self.create_if_missing:
                raise NotALakeError(f"{_without_advice(error)}. Set create_if_missing=True on the resource to create a lake") from error
        from ducklake_core import DuckLake

        self._reject_second_lake()
        self.located_catalog().prepare()
        # Two processes of a deployment may find no lake at once: the second one opens what the first one created.
        with suppress(AlreadyExistsError):
            DuckLake.create(
                self.located_catalog().url(),
                data_path=self._located_data_path(),
                metadata_schema=self.catalog.metadata_schema,
                storage_options=self.storage_options(),
                encrypted=self.encrypted,
                allowed_paths=self._allowed_paths(),
                version=self.version,
            ).close()
        return self._connect()

    def _reject_second_lake(self) -> None:
        """Reject the creation of a lake when the same relative path names an existing one in this process's own directory.

        Raises:
            UsageError: The file exists there.
        """
        here, wanted = self.catalog.located(str(Path.cwd())), self.located_catalog()
        if here.url() != wanted.url() and isinstance(here, (SqliteCatalog, DuckDBCatalog)) and not here.is_missing():
            raise UsageError(
                f"There is no lake at {self.shown_catalog()}, but {here.path} exists in the directory in which this process runs. A "
                "relative path of the catalog starts at the working directory of the code location, where create_if_missing would create "
                "an empty lake. Move the catalog and its files there, or set base_directory or an absolute path on the resource",
                path=here.path,
            )

    def _connect(self) -> DuckLake:
        # Processes of a deployment run in different directories, so relative paths start at the directory of the code location.
        # Three data paths must agree:
        #
        #   given on the resource    absolute or none: the catalog compares it with the stored one
        #   stored in the catalog    the same string as a relative given path, or the absolute path that it means
        #   used by this process     the stored path; when it is relative and this process runs elsewhere, its absolute form
        given = self._data_path()
        if given is None or self.override_data_path or not is_relative(given):
            lake = self._opened(self._located_data_path(), override=self.override_data_path)
        else:
            # The stored path may be the same relative one, or the absolute one that it means.
            lake = self._opened(None, override=False)
            if lake.info.data_path.rstrip("/") != given.rstrip("/"):
                lake = self._opened(self._located_data_path(), override=False)
        stored = lake.info.data_path
        if is_relative(stored) and self.directory() != str(Path.cwd()):
            lake = self._opened(os.path.join(self.directory(), stored), override=True)
        return lake

    def _opened(self, data_path: str | None, *, override: bool) -> DuckLake:
        return open_lake(
            self.located_catalog().url(),
            data_path=data_path,
            override_data_path=override,
            metadata_schema=self.catalog.metadata_schema,
            storage_options=self.storage_options(),
            allowed_paths=self._allowed_paths(),
        )

    def _located_data_path(self) -> str | None:
        path = self._data_path()
        return os.path.join(self.directory(), path) if path is not None and is_relative(path) else path

    def _data_path(self) -> str | None:
        _reject_other_place(self.storage)
        return None if self.storage.data_path is None else reveal(self.storage.data_path)

    def _allowed_paths(self) -> list[str]:
        return [reveal(path) for path in self.allowed_paths]


def _reject_no_places(data: Mapping[str, Any]) -> None:
    """Reject values that are not a catalog or a storage. Dagster's own errors for them are hard to read.

    Raises:
        UsageError: A value is neither.
    """
    catalog, storage = data.get("catalog"), data.get("storage")
    # Dagster itself passes mappings, and a resource that is configured at launch has no fields yet.
    if "catalog" in data and not isinstance(catalog, (str, dg.EnvVar, Mapping, *get_args(Catalog))):
        raise UsageError(
            f"catalog must be SqliteCatalog, DuckDBCatalog, PostgresCatalog, MySQLCatalog or an address, not {catalog!r}",
            parameter="catalog",
        )
    if data and not isinstance(storage, (Mapping, *get_args(Storage))):
        raise UsageError(
            f"storage must be LocalStorage, S3Storage, GCSStorage or AzureStorage, not {storage!r}. Use LocalStorage() for a lake that "
            "exists in local files",
            parameter="storage",
        )


def _name_types(resource: type[DuckLakeResource]) -> None:
    """Name the types of ``catalog`` and ``storage`` by their kinds; Dagster's page of a resource shows these names."""
    # Dagster has no public way to name the type of a union: its page would show "Selector." and a hash of the fields. Dagster keeps one
    # object for each hash in a process, so it is enough to name it once.
    for name in _PLACES:
        union = resource.to_fields_dict()[name].config_type
        union.key = f"one of {', '.join(union.fields)}"  # type: ignore[attr-defined]


_PLACES: Mapping[str, Sequence[type[SecretiveConfig]]] = {"catalog": get_args(Catalog), "storage": get_args(Storage)}
_name_types(DuckLakeResource)


def _of_kind(name: str, given: Mapping[str, Any], kinds: Sequence[type[SecretiveConfig]]) -> Any:
    """Return the catalog or storage that a mapping with a ``kind`` describes; other mappings, which Dagster passes, unchanged.

    Raises:
        UsageError: The kind is missing or unknown, or a field does not exist. The message repeats no value, as it may be a secret.
    """
    by_kind = {kind.model_fields["kind"].default: kind for kind in kinds}
    if len(given) == 1 and next(iter(given)) in by_kind:
        return given
    named = given.get("kind")
    kind = by_kind.get(named) if isinstance(named, str) else None
    if kind is None:
        raise UsageError(
            f"{name} has no kind. Set kind to one of {', '.join(by_kind)}, as in {{'kind': '{next(iter(by_kind))}', ...}}", parameter=name
        )
    return kind(**given)


def _reject_other_place(storage: Storage) -> None:
    """Reject a data path of another kind of storage; a path from the environment is checked when a run begins.

    Raises:
        UsageError: The data path belongs to another kind of storage.
    """
    path = storage.data_path
    if path is None or isinstance(path, dg.EnvVar):
        return
    place = reveal(path)
    scheme = place.partition("://")[0] if "://" in place else ""
    wanted = storage.protocols() or ("", "file")
    if scheme not in wanted:
        shown = " or ".join(f"{one}://" if one else "a directory" for one in wanted)
        given = f"{scheme}://" if scheme else "a directory"
        raise UsageError(f"data_path of {type(storage).__name__} must be {shown}, not {given}", parameter="data_path")


def _plain(value: Any) -> Any:
    """Return an option with its secrets and environment variables. Dagster resolves environment variables only in fields."""
    if isinstance(value, Mapping):
        # Dagster turns an EnvVar inside a mapping into {"env": name}.
        named = value.get("env") if len(value) == 1 else None
        return _plain(dg.EnvVar(named)) if isinstance(named, str) else {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return _value_of(value) if isinstance(value, dg.EnvVar) else revealed(value)


def _value_of(variable: dg.EnvVar) -> str:
    value = variable.get_value()
    if value is None:
        name = variable.env_var_name
        raise UsageError(
            f"environment variable {name} in an option of the storage is not set. Set it for the processes of this deployment",
            variable=name,
        )
    return value


def _variables(value: Any) -> Iterator[str]:
    """Yield the names of the environment variables in a setting."""
    # dg.EnvVar is a string, and dg.EnvVar.int(...) a number of a class that is not public.
    if isinstance(value, (str, int)) and hasattr(value, "env_var_name"):
        yield value.env_var_name
    elif isinstance(value, BaseModel):
        yield from _variables({name: getattr(value, name) for name in type(value).model_fields})
    elif isinstance(value, Mapping):
        yield from _variables(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _variables(one)


def _merged(fields: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options merged over fields; where both are mappings, such as ``client_kwargs``, their entries are merged.

    >>> _merged({"key": "a", "client_kwargs": {"region_name": "eu"}}, {"client_kwargs": {"verify": False}})
    {'key': 'a', 'client_kwargs': {'region_name': 'eu', 'verify': False}}
    """
    merged = dict(fields)
    for name, value in options.items():
        known = merged.get(name)
        merged[name] = {**known, **value} if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return merged


def _without_advice(error: DuckLakeError) -> str:
    """Return the message of an error without its advice, which addresses callers of the Python API."""
    return error.message.partition(". Create a lake ")[0]


def _rebuild(cls: type[DuckLakeResource], settings: dict[str, Any]) -> DuckLakeResource:
    return cls(**settings)


def _renew_lock() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it, and would never release it here."""
    global _LOCK  # noqa: PLW0603
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def open_lake(
    catalog: str,
    *,
    data_path: str | None,
    override_data_path: bool,
    metadata_schema: str | None,
    storage_options: Mapping[str, Mapping[str, Any]],
    allowed_paths: Sequence[str],
) -> DuckLake:
    """Return a lake as :meth:`DuckLake.connect` does, and reuse the connections of an earlier call with the same arguments.

    Its settings are read from the catalog each time, so a lake that was re-created in the same database is not mistaken for the former one.
    The most recently used lakes keep their connections; those of others are closed. Arguments are those of :meth:`DuckLake.connect`.
    """
    from ducklake_core import DuckLake

    # A relative path is another lake in another working directory.
    arguments = [_working_directory(), catalog, data_path, override_data_path, metadata_schema, storage_options, list(allowed_paths)]
    key = json.dumps(arguments, sort_keys=True, default=repr)
    with _LOCK:
        known = _OPEN.get(key)
    lake = _reopened(known, data_path, override_data_path) or DuckLake.connect(
        catalog,
        data_path=data_path,
        override_data_path=override_data_path,
        metadata_schema=metadata_schema,
        storage_options=storage_options,
        allowed_paths=allowed_paths,
    )
    with _LOCK:
        # Opening takes long, so the lock is not held meanwhile: two threads may have opened the lake, and the last one is kept.
        _OPEN[key] = lake
        _OPEN.move_to_end(key)
        unused = [_OPEN.popitem(last=False)[1] for _ in range(len(_OPEN) - _MAX_OPEN_LAKES)]
    for other in unused:
        other.close()
    return lake


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        # The directory was deleted, so no relative path is valid.
        return ""


def _reopened(lake: DuckLake | None, data_path: str | None, override_data_path: bool) -> DuckLake | None:
    try:
        return None if lake is None else lake.reopen(data_path=data_path, override_data_path=override_data_path)
    except CatalogVersionError:
        # The catalog was migrated since, so the open lake has the wrong version: connect again.
        return None


def code_location_directory(run: Any = None) -> str:
    """Return the working directory of the code location; that of this process when there is no code location.

    A run contains the directory of its code location. A code server, which runs sensors and schedules, has it on its command line. The
    deployment chooses both, and the process itself may run in another directory.

    Args:
        run: Run of Dagster, None outside of runs.
    """
    origin = getattr(run, "job_code_origin", None)
    pointer = getattr(getattr(origin, "repository_origin", None), "code_pointer", None)
    found = getattr(pointer, "working_directory", None) or _of_code_server()
    return os.path.abspath(found) if found else str(Path.cwd())


def is_relative(path: str) -> bool:
    """Return whether a path of a file or directory depends on the working directory.

    >>> is_relative("files/"), is_relative("/lake/files/"), is_relative("s3://lake/files/")
    (True, False, False)
    """
    return "://" not in path and not path.startswith("file:") and not os.path.isabs(path)


def _of_code_server() -> str | None:
    if not any(Path(part).name.startswith("dagster") for part in Path(sys.argv[0]).parts[-2:]):
        return None
    for option, value in zip(sys.argv[1:], sys.argv[2:], strict=False):
        if option in _OPTIONS:
            return value
    return os.environ.get("DAGSTER_WORKING_DIRECTORY")


def overridden_lakes(context: dg.InitResourceContext) -> dict[str, str]:
    """Return fields of an IO manager whose lake is a resource that the run's configuration changes, each with the key of that resource.

    Dagster initialises a configured resource inside another one from its definition alone. A resource of ``configure_at_launch()`` follows
    the run's configuration in both places.

    Args:
        context: Context in which Dagster initialises the IO manager.
    """
    given = _resource_config(context)
    nested = getattr(context.resource_def, "nested_resources", None) or {}
    if not given or not nested:
        return {}
    found = {}
    for field, inner in nested.items():
        if not isinstance(inner, DuckLakeResource):
            continue
        for key, settings in given.items():
            outer = context.all_resource_defs.get(key)
            if outer is not None and _is_same(outer, inner) and _changes(outer, settings):
                found[field] = key
    return found


def _resource_config(context: dg.InitResourceContext) -> dict[str, Any]:
    run = context.run
    resources = run.run_config.get("resources") if run is not None and isinstance(run.run_config, dict) else None
    return {key: one["config"] for key, one in (resources or {}).items() if isinstance(one, dict) and one.get("config") is not None}


def _is_same(outer: dg.ResourceDefinition, inner: DuckLakeResource) -> bool:
    """Return whether a resource is the one inside the IO manager, or another object with the same settings."""
    own = inner.get_resource_definition()
    if outer is own:
        return True
    is_lake = issubclass(getattr(outer, "configurable_resource_cls", type(None)), DuckLakeResource)
    return is_lake and _defined(outer) is not None and _defined(outer) == _defined(own)


def _changes(outer: dg.ResourceDefinition, settings: Any) -> bool:
    """Return whether settings of a run differ from those of the definition, which the launchpad may repeat unchanged."""
    return bool(_resolved(outer, settings) != _defined(outer))


def _defined(resource: dg.ResourceDefinition) -> Any:
    return _resolved(resource, resource.config_schema.default_value if resource.config_schema.default_provided else {})


def _resolved(resource: dg.ResourceDefinition, settings: Any) -> Any:
    """Return settings with defaults filled in and environment variables read, None where they are not valid."""
    from dagster._config import process_config

    found = process_config(resource.config_schema.config_type, settings)
    return found.value if found.success else None
