"""One resource, one lake: where its catalog and its files are, and how to reach them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import dagster as dg
from pydantic import Field, PrivateAttr

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError, CatalogUnavailableError, NotALakeError
from ducklake_dagster.catalogs import SECRET as _SECRET
from ducklake_dagster.catalogs import Catalog, catalog_of


class _Storage(dg.Config):
    data_path: str = Field(description="Directory or prefix that holds the lake's files.")

    @abstractmethod
    def protocols(self) -> tuple[str, ...]:
        """fsspec protocols that the options are for."""

    def options(self) -> dict[str, Any]:
        """fsspec options, without those that are not set."""
        return {}


class LocalStorage(_Storage):
    """Files in a directory that every process sees under the same path."""

    kind: Literal["local"] = "local"

    def protocols(self) -> tuple[str, ...]:
        """fsspec protocols that the options are for."""
        return ()


class S3Storage(_Storage):
    """Amazon S3, or anything that speaks its protocol. Without keys the usual provider chain is asked."""

    kind: Literal["s3"] = "s3"
    access_key_id: str | None = Field(default=None, repr=False, json_schema_extra=_SECRET)
    secret_access_key: str | None = Field(default=None, repr=False, json_schema_extra=_SECRET)
    session_token: str | None = Field(default=None, repr=False, json_schema_extra=_SECRET)
    endpoint_url: str | None = None
    region: str | None = None

    def protocols(self) -> tuple[str, ...]:
        """fsspec protocols that the options are for."""
        return ("s3",)

    def options(self) -> dict[str, Any]:
        """Options of s3fs."""
        named = {
            "key": self.access_key_id,
            "secret": self.secret_access_key,
            "token": self.session_token,
            "endpoint_url": self.endpoint_url,
        }
        options: dict[str, Any] = {key: value for key, value in named.items() if value}
        if self.region:
            options["client_kwargs"] = {"region_name": self.region}
        return options


class GCSStorage(_Storage):
    """Google Cloud Storage. Without a token the usual provider chain is asked."""

    kind: Literal["gcs"] = "gcs"
    project: str | None = None
    token: str | None = Field(
        default=None, repr=False, json_schema_extra=_SECRET, description="Path of a key file, or one of gcsfs's token names."
    )

    def protocols(self) -> tuple[str, ...]:
        """fsspec protocols that the options are for."""
        return ("gs", "gcs")

    def options(self) -> dict[str, Any]:
        """Options of gcsfs."""
        return {key: value for key, value in (("project", self.project), ("token", self.token)) if value}


class AzureStorage(_Storage):
    """Azure Blob Storage or Data Lake Storage. Without keys the usual provider chain is asked."""

    kind: Literal["azure"] = "azure"
    account_name: str | None = None
    account_key: str | None = Field(default=None, repr=False, json_schema_extra=_SECRET)
    connection_string: str | None = Field(default=None, repr=False, json_schema_extra=_SECRET)
    sas_token: str | None = Field(default=None, repr=False, json_schema_extra=_SECRET)
    account_host: str | None = Field(default=None, description="Host of the account, where it does not end in blob.core.windows.net.")

    def protocols(self) -> tuple[str, ...]:
        """fsspec protocols that the options are for."""
        return ("abfs", "abfss", "az")

    def options(self) -> dict[str, Any]:
        """Options of adlfs."""
        names = ("account_name", "account_key", "connection_string", "sas_token", "account_host")
        return {name: value for name in names if (value := getattr(self, name))}


Storage: TypeAlias = LocalStorage | S3Storage | GCSStorage | AzureStorage


class DuckLakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A lake, for assets, ops, checks and sensors. Reading or changing metadata never starts Spark.

    ``catalog`` may be an address too, such as ``"duckdb:///lake.ducklake"``.

    Example:
        ::

            lake = DuckLakeResource(
                catalog=PostgresCatalog(host="db", database="lake", user="etl", password=dg.EnvVar("PGPASSWORD")),
                storage=S3Storage(data_path="s3://bucket/lake/"),
            )
    """

    catalog: Catalog = Field(discriminator="kind")
    storage: Storage = Field(discriminator="kind")
    allowed_paths: list[str] = Field(
        default_factory=list, description="Prefixes of places beside the data path that the catalog may name; see DuckLake.connect."
    )
    create_if_missing: bool = Field(default=False, description="Create the lake on first use when the catalog database holds none.")
    encrypted: bool = Field(default=False, description="Whether a lake that is created here encrypts its files.")

    _lake: DuckLake | None = PrivateAttr(default=None)

    if not TYPE_CHECKING:
        # Type checkers go by the fields. Dagster looks at what it is given before pydantic does, and repeats it in its errors.
        def __init__(self, **data: Any) -> None:
            if isinstance(data.get("catalog"), str):
                data["catalog"] = catalog_of(data["catalog"])
            super().__init__(**data)

    def connect(self) -> DuckLake:
        """The lake; opened on first use, then kept.

        Raises:
            NotALakeError: The database holds no lake, and ``create_if_missing`` is off.
            CatalogUnavailableError: The database cannot be reached.
        """
        if self._lake is None:
            self._lake = self._open()
        return self._lake

    def storage_options(self) -> Mapping[str, Mapping[str, Any]]:
        """fsspec options by protocol."""
        options = self.storage.options()
        return dict.fromkeys(self.storage.protocols(), options) if options else {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Dagster's own state of a resource cannot be pickled; the settings say everything.
        return _rebuild, (type(self), {name: getattr(self, name) for name in type(self).model_fields})

    def _open(self) -> DuckLake:
        try:
            return self._connect()
        except (NotALakeError, CatalogUnavailableError) as error:
            absent = isinstance(error, NotALakeError) or self.catalog.is_missing()
            if not (self.create_if_missing and absent):
                raise
        self.catalog.prepare()
        try:
            return DuckLake.create(
                self.catalog.url(),
                data_path=self.storage.data_path,
                metadata_schema=self.catalog.metadata_schema,
                storage_options=self.storage_options(),
                encrypted=self.encrypted,
            )
        except AlreadyExistsError:
            # Another process of the same deployment was faster.
            return self._connect()

    def _connect(self) -> DuckLake:
        return DuckLake.connect(
            self.catalog.url(),
            data_path=self.storage.data_path,
            metadata_schema=self.catalog.metadata_schema,
            storage_options=self.storage_options(),
            allowed_paths=self.allowed_paths,
        )


def _rebuild(cls: type[DuckLakeResource], settings: dict[str, Any]) -> DuckLakeResource:
    return cls(**settings)
