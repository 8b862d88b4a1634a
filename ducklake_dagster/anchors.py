"""The directory that relative paths of a resource mean: the working directory of the code location."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_OPTIONS = ("-d", "--working-directory")


def code_location_directory(run: Any = None) -> str:
    """Return the working directory of the code location, and that of this process where there is no code location.

    A run carries the directory of its code location. A code server, in which sensors and schedules run, has it on its command line. Both
    are wherever the deployment says, and the process itself may run elsewhere.

    Args:
        run: Run of Dagster, None outside of runs.
    """
    origin = getattr(run, "job_code_origin", None)
    pointer = getattr(getattr(origin, "repository_origin", None), "code_pointer", None)
    found = getattr(pointer, "working_directory", None) or _of_code_server()
    return os.path.abspath(found) if found else str(Path.cwd())


def is_relative(path: str) -> bool:
    """Return whether a path of a file or directory means another one in another working directory.

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
