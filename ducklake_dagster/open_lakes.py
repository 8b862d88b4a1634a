"""Lakes that this process has open, so that runs and sensor ticks share connections instead of leaving one each behind."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import CatalogVersionError

if TYPE_CHECKING:
    from ducklake_core import DuckLake

_MOST = 32
_LOCK = threading.Lock()
_OPEN: OrderedDict[str, DuckLake] = OrderedDict()


def _renew_lock() -> None:
    """A thread of the parent may have held it when this child was forked."""
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
    """A lake as :meth:`DuckLake.connect` opens it, over the connections of an earlier call with the same arguments.

    Its settings are read from the catalog each time, so a lake that was made anew at the same place is not taken for the former one.
    The lakes used last keep their connections; those of others are closed.
    """
    from ducklake_core import DuckLake

    # Relative paths mean another lake in another working directory.
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
        # Two threads may have opened it at once: the connections of one of them are kept.
        _OPEN[key] = lake
        _OPEN.move_to_end(key)
        unused = [_OPEN.popitem(last=False)[1] for _ in range(len(_OPEN) - _MOST)]
    for other in unused:
        other.close()
    return lake


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        # It was deleted: then no relative path means anything.
        return ""


def _reopened(lake: DuckLake | None, data_path: str | None, override_data_path: bool) -> DuckLake | None:
    try:
        return None if lake is None else lake.reopen(data_path=data_path, override_data_path=override_data_path)
    except CatalogVersionError:
        # It was migrated since, and is another one now.
        return None
