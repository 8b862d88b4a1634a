"""Every error that ducklake_core raises, in one tree.

::

    DuckLakeError
    |- UsageError                      (also ValueError)   the call itself is wrong
    |- UnsupportedFeatureError         (also NotImplementedError)
    |- NotFoundError                   (also LookupError)
    |- AlreadyExistsError
    |- SchemaError                     (also ValueError)   data and table do not fit
    |- CatalogError                    the metadata database, or what it holds
    |  |- NotALakeError
    |  |- CatalogVersionError
    |  |- CatalogCorruptError
    |  `- CatalogUnavailableError      retriable
    |- StorageError                    a file, or the store that holds it
    |  |- CorruptFileError
    |  `- StoreUnavailableError        retriable
    |- JobFailedError                  retriable            Spark ended a job of a maintenance operation
    `- CommitError                     a transaction that did not become a snapshot
       |- CommitConflictError          retriable after planning again on the new snapshot
       |- CommitRetriesExhaustedError  retriable
       `- CommitOutcomeUnknownError    the outcome cannot be determined

``code`` is stable and documented in docs/reference/errors.md; ``retriable`` states whether the same call may succeed later;
``details`` holds the objects that the error is about.  No message ever contains a password or a key.
"""

from __future__ import annotations

from typing import ClassVar


class DuckLakeError(Exception):
    """Base of all errors of this library.

    Attributes:
        code: Stable identifier, for programs and for docs/reference/errors.md.
        retriable: Whether the same call may succeed when repeated unchanged.
        details: The objects the error is about, by name (table, snapshot_id, path, ...).
    """

    code: ClassVar[str] = "ducklake"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.details))


def _rebuild(cls: type[DuckLakeError], message: str, details: dict[str, object]) -> DuckLakeError:
    return cls(message, **details)


class UsageError(DuckLakeError, ValueError):
    """The call contradicts itself or gives a value outside the documented bounds."""

    code = "usage"


class UnsupportedFeatureError(DuckLakeError, NotImplementedError):
    """The lake or the call uses something that this library does not support; the message names it."""

    code = "unsupported-feature"


class NotFoundError(DuckLakeError, LookupError):
    """A schema, table, column or snapshot of that name or id does not exist."""

    code = "not-found"


class AlreadyExistsError(DuckLakeError):
    """A schema, table, hold or lake of that name exists already."""

    code = "already-exists"


class SchemaError(DuckLakeError, ValueError):
    """The data does not fit the table: a missing column, a type that does not widen, NULL in a column that is NOT NULL."""

    code = "schema"


class CatalogError(DuckLakeError):
    """The metadata database rejected a statement, or holds something that is not valid DuckLake metadata."""

    code = "catalog"


class NotALakeError(CatalogError):
    """The database holds no DuckLake catalog, or the file is not a database."""

    code = "not-a-lake"


class CatalogVersionError(CatalogError):
    """The catalog has a format version that this library does not support."""

    code = "catalog-version"


class CatalogCorruptError(CatalogError):
    """Catalog rows contradict each other; reading on could give wrong rows."""

    code = "catalog-corrupt"


class CatalogUnavailableError(CatalogError):
    """The metadata database cannot be reached, or stayed locked for too long."""

    code = "catalog-unavailable"
    retriable = True


class StorageError(DuckLakeError):
    """A data file, or the store that holds it, cannot be read or written."""

    code = "storage"


class CorruptFileError(StorageError):
    """A file exists but does not match the catalog."""

    code = "corrupt-file"


class StoreUnavailableError(StorageError):
    """An object store does not answer in time, limits the request rate, or rejects credentials that have expired."""

    code = "store-unavailable"
    retriable = True


class JobFailedError(DuckLakeError):
    """A Spark job of a maintenance operation failed or was cancelled. Its files were deleted, and nothing was changed."""

    code = "job-failed"
    retriable = True


class CommitError(DuckLakeError):
    """The transaction did not become a snapshot. Nothing was changed, except where a subclass documents otherwise."""

    code = "commit"


class CommitConflictError(CommitError):
    """Another writer committed changes that conflict with those of this transaction."""

    code = "commit-conflict"
    retriable = True


class CommitRetriesExhaustedError(CommitError):
    """Other writers won every attempt; the transaction's own files were deleted."""

    code = "commit-retries-exhausted"
    retriable = True


class CommitOutcomeUnknownError(CommitError):
    """The outcome of a commit is unknown: the connection was lost at COMMIT, or the snapshots that could prove it were expired."""

    code = "commit-outcome-unknown"
