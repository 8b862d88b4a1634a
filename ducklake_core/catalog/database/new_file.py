"""Making the file of a catalog that is kept in one: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import EEXIST
from pathlib import Path
from uuid import uuid4

from ducklake_core.catalog.database import duckdb_file
from ducklake_core.catalog.database.connections import Database


@contextmanager
def new_file(database: Database) -> Iterator[Database]:
    """A database under another name, which gets the name of this one when the block ends: nobody ever sees it half made.

    Raises:
        FileExistsError: Somebody else made the file meanwhile; it is not touched.
        OSError: The file cannot be created.
    """
    path = str(database.address.url.database)
    draft = Database(replace(database.address, url=database.address.url.set(database=f"{path}.{uuid4().hex}")))
    draft.follow(database.version)
    name = create_file(draft)
    try:
        yield draft
        draft.close()
        _give_name(name, path)
    finally:
        draft.close()
        for left in (name, f"{name}.wal"):
            Path(left).unlink(missing_ok=True)


def create_file(database: Database) -> str:
    """Create the empty file of a database, and give its name.

    Raises:
        FileExistsError: There is a file already; it is not touched.
        OSError: The file cannot be created.
    """
    path = str(database.address.url.database)
    Path(path).touch(exist_ok=False)
    if database.address.url.get_backend_name() == "duckdb":
        # DuckDB takes no empty file for a database, and makes its own.
        Path(path).unlink()
        duckdb_file.create_database(path)
    return path


def _give_name(draft: str, path: str) -> None:
    """Let a file be found under a name that is still free."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems know no links, and nothing else that leaves alone what another creator makes in this instant.
        if Path(path).exists():
            raise FileExistsError(EEXIST, os.strerror(EEXIST), path) from None
        Path(draft).rename(path)
