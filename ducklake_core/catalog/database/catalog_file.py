"""What stands where the file of a catalog should be, and whether this user may open it."""

from __future__ import annotations

import os
import stat
from errno import EBADF, ELOOP, ENOENT, ENOTDIR

from ducklake_core.errors import CatalogError, NotALakeError

_ABSENT = frozenset({ENOENT, ENOTDIR, EBADF, ELOOP})


def file_exists(path: str, shown: str) -> bool:
    """Whether the file of a catalog is there.

    Args:
        path: Its path.
        shown: How errors name it.

    Raises:
        NotALakeError: A directory is there.
        CatalogError: The operating system does not say.
    """
    try:
        found = os.stat(path)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise CatalogError(f"cannot look for the catalog file {shown}: {error.strerror}", parameter="catalog", path=path) from error
    if stat.S_ISDIR(found.st_mode):
        raise NotALakeError(f"{shown} is a directory, so it holds no DuckLake catalog: give the path of a file", path=path)
    return True


def forbidden(path: str, shown: str, *, write: bool = False) -> CatalogError | None:
    """The error for a file that this user may not open: trying again does not help. None when the user may, or there is no file.

    Args:
        path: Its path.
        shown: How the error names it.
        write: Whether it is to be written.
    """
    if not os.path.exists(path):
        return None
    for mode, deed in ((os.R_OK, "read"), *(((os.W_OK, "written"),) if write else ())):
        if not os.access(path, mode, effective_ids=os.access in os.supports_effective_ids):
            return CatalogError(
                f"the catalog file {shown} may not be {deed} by this user: check its permissions",
                failure="fatal",
                parameter="catalog",
                path=path,
            )
    return None
