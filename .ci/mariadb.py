"""Unpack a MariaDB server, which the tests of MySQL catalogs talk to, next to the virtual environment that runs this.

It comes from Debian's packages, which are downloaded and unpacked without being installed, so that you need not be root. A server that
is installed already (``mariadbd`` on PATH) is taken as it is;
``DUCKLAKE_TEST_MYSQLD`` names another one, such as that of MySQL (tests/support/mysql.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PLACE = Path(sys.prefix) / "mariadb"
PACKAGES = ("mariadb-server-core", "libaio1", "libnuma1", "liburing2")
DONE = "unpacked"


def download(folder: Path) -> list[Path]:
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *PACKAGES]
    if subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        # The lists of packages are missing, or name versions that are gone; only root may renew them.
        subprocess.run(["apt-get", "-q", "update"], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if subprocess.run(command, cwd=folder, check=False, stdout=sys.stderr).returncode:
            raise SystemExit("apt-get could not download MariaDB, the server that the tests of MySQL catalogs need")
    return sorted(folder.glob("*.deb"))


def install() -> None:
    """Nothing is done when it is there; the file that marks it comes last."""
    if (PLACE / DONE).exists() or shutil.which("mariadbd"):
        return
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise SystemExit("neither mariadbd nor apt-get and dpkg are here: the tests of MySQL catalogs need one of them")
    building = PLACE.with_name("mariadb.new")
    shutil.rmtree(building, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for package in download(Path(folder)):
            subprocess.run(["dpkg", "-x", str(package), str(building)], check=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    building.rename(PLACE)
    (PLACE / DONE).touch()


if __name__ == "__main__":
    install()
