"""Errors as Dagster shows them: the first line says what to do, and what no retry can mend is not tried again."""

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
"""Variable of the environment with the address of the documentation, such as a site that ``make docs`` has built."""


@contextmanager
def final_failures(about: str, kind: Kind = "table") -> Iterator[None]:
    """Turn errors that would come again into a failure that Dagster does not retry; others leave the block as they are.

    Args:
        about: The table that the block is about, or the asset where the table is not known yet; an error that names neither says it.
        kind: Which of them it is.

    Raises:
        dg.Failure: Its cause is the error; its metadata says table or asset, snapshot and error code.
    """
    try:
        yield
    except DuckLakeError as error:
        if may_pass(error):
            raise
        raise _final_failure(error, about, kind) from error


def may_pass(error: DuckLakeError) -> bool:
    """Whether trying again may help: the store may be back, and a commit without an answer is found by its id."""
    if error.retriable or isinstance(error, CommitOutcomeUnknownError):
        return True
    return isinstance(error, StorageError) and not isinstance(error, CorruptFileError)


def _final_failure(error: DuckLakeError, about: str, kind: Kind) -> dg.Failure:
    if error.details.get("table"):
        about, kind = str(error.details["table"]), "table"
    named = re.search(rf"(?<![\w.]){re.escape(about)}(?!\w|\.\w)", error.message)
    metadata: dict[str, dg.MetadataValue] = {
        kind: dg.MetadataValue.text(about),
        "error_code": dg.MetadataValue.text(error.code),
        "documentation": documentation("dagster/troubleshooting.md"),
    }
    snapshot = error.details.get("snapshot_id")
    if isinstance(snapshot, int):
        metadata["snapshot"] = dg.MetadataValue.int(snapshot)
    text = str(error) if named else f"{kind} {about}: {error}"
    return dg.Failure(description=text, metadata=metadata, allow_retries=False)


def documentation(page: str) -> dg.MetadataValue:
    """A page of the documentation: a link where the environment says where the site is, otherwise the page's path in the sources.

    Args:
        page: Path of the page below ``docs/``.
    """
    site = os.environ.get(SITE, "").strip().rstrip("/")
    return dg.MetadataValue.url(f"{site}/{page.removesuffix('.md')}.html") if site else dg.MetadataValue.text(f"docs/{page}")
