"""Written files and errors as JSON text, for the way from an executor to the driver.

JSON rather than pickle, because driver and executors may run different Python versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from ducklake_core import errors
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.encryption_key import EncryptionKey

_MARK = "ducklake-error:"
_CARRIED = re.compile(_MARK + r'(\{"code".*?\})(?=\s*(?:$|\n))', re.MULTILINE)
_MESSAGE_CHARACTERS = 1500


def file_to_json(file: WrittenFile) -> str:
    """One file as JSON; :func:`file_from_json` gives it back."""
    return json.dumps(asdict(file), separators=(",", ":"))


def file_from_json(text: str) -> WrittenFile:
    """The file that :func:`file_to_json` was given.

    >>> file = WrittenFile(path="a.parquet", record_count=1, file_size_bytes=9, footer_size=5, statistics=(), partition_values=("1", None))
    >>> file_from_json(file_to_json(file)) == file
    True
    """
    fields = json.loads(text)
    fields["statistics"] = tuple(ColumnStatistics(**column) for column in fields["statistics"])
    fields["partition_values"] = tuple(fields["partition_values"])
    if fields["encryption_key"] is not None:
        fields["encryption_key"] = EncryptionKey(**fields["encryption_key"])
    return WrittenFile(**fields)


def error_to_text(error: errors.DuckLakeError) -> str:
    """An error as one line that survives inside another program's error text."""
    return _MARK + json.dumps({"code": error.code, "message": error.message[:_MESSAGE_CHARACTERS]})


@contextmanager
def serialize_errors() -> Iterator[None]:
    """On executors: errors of this library leave the block as errors whose text the driver can turn back into them."""
    try:
        yield
    except errors.DuckLakeError as error:
        raise RuntimeError(error_to_text(error)) from error


@contextmanager
def reraise_remote_errors() -> Iterator[None]:
    """On the driver: errors of executors that :func:`serialize_errors` has sent leave the block as what they were."""
    try:
        yield
    except errors.DuckLakeError:
        raise
    except Exception as error:
        known = error_from_text(str(error))
        if known is None:
            raise
        raise known from error


def error_from_text(text: str) -> errors.DuckLakeError | None:
    """The error that :func:`error_to_text` put into a text, None when there is none.

    >>> carried = error_to_text(errors.SchemaError("column 'a' is NOT NULL"))
    >>> str(error_from_text(f"Job aborted: RuntimeError: {carried}"))
    "column 'a' is NOT NULL [schema]"
    """
    found = _CARRIED.search(text)
    if found is None:
        return None
    carried = json.loads(found[1])
    kinds = {kind.code: kind for kind in _tree(errors.DuckLakeError)}
    return kinds.get(carried["code"], errors.DuckLakeError)(carried["message"])


def _tree(kind: type[errors.DuckLakeError]) -> list[type[errors.DuckLakeError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]
