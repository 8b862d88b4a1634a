"""Modules and functions of the packages that one warm call enters, and the frames from ``table.delete`` to the delete file.

Run with ``python -m benchmarks.call_paths``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dagster as dg
import pyarrow as pa

import ducklake_core
import ducklake_dagster
from ducklake_core import DuckLake
from ducklake_core.storage import delete_files
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage

PACKAGES = tuple(str(Path(package.__file__).parent) for package in (ducklake_core, ducklake_dagster) if package.__file__)
LIMITS = {"append": 58, "delete": 81, "load and scan": 59, "merge files": 69, "Dagster output": 102}
"""The largest number of modules for each call."""


def entered(call: Callable[[], object]) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the modules and functions of the packages that a call enters, in all threads of this process."""
    modules: set[str] = set()
    functions: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGES):
            modules.add(name)
            functions.add((name, frame.f_code.co_qualname))

    import threading

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return modules, functions


def frames_to_delete_file(call: Callable[[], object]) -> list[str]:
    """Return the functions of the packages on the stack when a delete file is stored."""
    found: list[str] = []
    store = delete_files._store

    def stored(*arguments: Any) -> None:
        frame: FrameType | None = None if found else sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGES):
                found.append(frame.f_code.co_qualname)
            frame = frame.f_back
        store(*arguments)

    delete_files._store = stored
    try:
        call()
    finally:
        delete_files._store = store
    return found[::-1]


def main() -> None:
    """Print the counts."""
    with tempfile.TemporaryDirectory() as folder:
        lake = DuckLake.create(f"sqlite:///{folder}/lake.sqlite", data_path=f"{folder}/files")
        rows = pa.table({"n": range(5000), "s": ["x"] * 5000})
        lake.write("t", rows, inline=False)

        @dg.asset
        def orders() -> pa.Table:
            return rows

        resource = DuckLakeResource(catalog=f"sqlite:///{folder}/lake.sqlite", storage=LocalStorage())
        manager = {"io_manager": DuckLakeIOManager(lake=resource)}
        numbers = iter(range(100))
        calls: dict[str, Callable[[], object]] = {
            "append": lambda: lake.write("t", rows, inline=False),
            "delete": lambda: lake.table("t").delete(f"n = {next(numbers)}"),
            "load and scan": lambda: lake.table("t").scan(["n"], where="n > 4000").to_arrow(),
            "upsert": lambda: lake.table("t").upsert(rows.slice(0, 100), on="n"),
            "merge files": lambda: lake.merge_adjacent_files("t"),
            "Dagster output": lambda: dg.materialize([orders], resources=manager),
        }
        for name, call in calls.items():
            call()
            if name == "merge files":
                for _ in range(2):
                    lake.write("t", rows, inline=False)
            modules, functions = entered(call)
            limit = f" (at most {LIMITS[name]})" if name in LIMITS else ""
            print(f"{name}: {len(modules)} modules{limit}, {len(functions)} functions")
        frames = frames_to_delete_file(lambda: lake.table("t").delete("n > 100 AND n < 3000"))
        print(f"table.delete: {len(frames)} frames (at most 9): {' > '.join(frames)}")


if __name__ == "__main__":
    main()
