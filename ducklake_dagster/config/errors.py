"""Translate errors for Dagster: the first line states what to do, and permanent errors are not retried."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import dagster as dg

from ducklake_core.errors import CommitOutcomeUnknownError, CorruptFileError, DuckLakeError, StorageError

Kind: TypeAlias = Literal["table", "asset"]
SITE = "DUCKLAKE_DOCUMENTATION"
"""Environment variable with the address of the documentation, such as a site that ``make docs`` has built."""
_PAGE = "how-to/dagster/troubleshooting.md"
_JAVA = "Java 17 or newer is needed: install a JDK and set JAVA_HOME, or connect to a Spark Connect server"


@contextmanager
def shown_failures(about: str, kind: Kind = "table") -> Iterator[None]:
    """Turn every error of the block into a failure of Dagster, whose description is the first line that the page of the run shows.

    A retry policy repeats the step unless the error is permanent. Failures and requests to retry that the block itself raises pass
    unchanged.

    Args:
        about: The table of the block, or the asset where the table is not known yet; it is added to errors that do not name it.
        kind: Whether ``about`` is a table or an asset; a table by default.

    Raises:
        dg.Failure: The block raised an error, which is the cause; the metadata contains table or asset, snapshot and error code.
    """
    try:
        yield
    except (dg.Failure, dg.RetryRequested, dg.DagsterError):
        raise
    except DuckLakeError as error:
        raise _failure(error, about, kind) from error
    except Exception as error:
        # A frame that is computed while it is written fails here with the error of the asset's own code.
        lines = str(error).strip().splitlines() or [""]
        text = f"{_JAVA} ({lines[0]})" if "JAVA_GATEWAY_EXITED" in lines[0] else f"{type(error).__name__}: {lines[0]}"
        metadata = {
            kind: dg.MetadataValue.text(about),
            "error_type": dg.MetadataValue.text(type(error).__name__),
            "documentation": documentation(_PAGE),
        }
        raise dg.Failure(description=f"{kind} {about}: {text}", metadata=metadata) from error


def may_pass(error: DuckLakeError) -> bool:
    """Return whether a retry may succeed: the store may be back, and a commit whose outcome is unknown is found by its id."""
    if error.retriable or isinstance(error, CommitOutcomeUnknownError):
        return True
    return isinstance(error, StorageError) and not isinstance(error, CorruptFileError) and not error.details.get("permanent")


def _failure(error: DuckLakeError, about: str, kind: Kind) -> dg.Failure:
    if error.details.get("table"):
        about, kind = str(error.details["table"]), "table"
    # Match whole names: an error about main.orders_2026 does not name main.orders.
    named = re.search(rf"(?<![\w.]){re.escape(about)}(?!\w|\.\w)", error.message)
    metadata: dict[str, dg.MetadataValue] = {
        kind: dg.MetadataValue.text(about),
        "error_code": dg.MetadataValue.text(error.code),
        "documentation": documentation(_PAGE),
    }
    for name in ("sqlstate", "mysql_error", "store_error"):
        if error.details.get(name):
            metadata[name] = dg.MetadataValue.text(str(error.details[name]))
    snapshot = error.details.get("snapshot_id")
    if isinstance(snapshot, int):
        metadata["snapshot"] = dg.MetadataValue.int(snapshot)
    text = str(error) if named else f"{kind} {about}: {error}"
    return dg.Failure(description=text, metadata=metadata, allow_retries=may_pass(error))


def documentation(page: str) -> dg.MetadataValue:
    """Return a page of the documentation: a link where the environment names the site, otherwise the page's path in the sources.

    Args:
        page: Path of the page below ``docs/``.
    """
    site = os.environ.get(SITE, "").strip().rstrip("/")
    return dg.MetadataValue.url(f"{site}/{page.removesuffix('.md')}.html") if site else dg.MetadataValue.text(f"docs/{page}")
