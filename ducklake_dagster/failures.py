"""Errors as Dagster shows them: the first line says what to do, and what no retry can mend is not tried again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from ducklake_core.errors import CommitOutcomeUnknownError, CorruptFileError, DuckLakeError, StorageError

SITE = "DUCKLAKE_DOCUMENTATION"
"""Variable of the environment with the address of the documentation, such as a site that ``make docs`` has built."""


@contextmanager
def final_failures(table: str) -> Iterator[None]:
    """Turn errors that would come again into a failure that Dagster does not retry; others leave the block as they are.

    Args:
        table: The table that the block is about; an error that names none says it.

    Raises:
        dg.Failure: Its cause is the error; its metadata says table, snapshot and error code.
    """
    try:
        yield
    except DuckLakeError as error:
        if may_pass(error):
            raise
        raise final_failure(error, table) from error


def may_pass(error: DuckLakeError) -> bool:
    """Whether trying again may help: the store may be back, and a commit without an answer is found by its id."""
    if error.retriable or isinstance(error, CommitOutcomeUnknownError):
        return True
    return isinstance(error, StorageError) and not isinstance(error, CorruptFileError)


def final_failure(error: DuckLakeError, table: str) -> dg.Failure:
    """The failure of a step."""
    about = str(error.details.get("table") or table)
    named = about in error.message or about.rpartition(".")[2] in error.message
    metadata: dict[str, dg.MetadataValue] = {
        "table": dg.MetadataValue.text(about),
        "error_code": dg.MetadataValue.text(error.code),
        "documentation": documentation("dagster/troubleshooting"),
    }
    snapshot = error.details.get("snapshot_id")
    if isinstance(snapshot, int):
        metadata["snapshot"] = dg.MetadataValue.int(snapshot)
    text = str(error) if named else f"table {about}: {error}"
    return dg.Failure(description=text, metadata=metadata, allow_retries=False)


def documentation(page: str) -> dg.MetadataValue:
    """A page of the documentation: a link where the environment says where the site is, otherwise the page's path in the sources.

    Args:
        page: Path of the page below ``docs/``, without its suffix.
    """
    site = os.environ.get(SITE, "").strip().rstrip("/")
    return dg.MetadataValue.url(f"{site}/{page}.html") if site else dg.MetadataValue.text(f"docs/{page}.md")
