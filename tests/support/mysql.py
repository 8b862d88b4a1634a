"""A MariaDB server of Debian's packages (.ci/mariadb.py), one for the whole test run, with one database per lake."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pymysql
from sqlalchemy import make_url

from tests.support.folders import folder_in_memory
from tests.support.oracle import LakeAddress
from tests.support.servers import serving

_numbers = itertools.count(1)
_UNPACKED = Path(sys.prefix) / "mariadb"
_ROOM_IN_MEMORY = 6 << 30
_SCRIPTS = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
# Small files, and nothing is waited for on the disk: the server dies with this process.
_SETTINGS = (
    "--no-defaults",
    "--skip-name-resolve",
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--skip-log-bin",
    # As servers may be set up: nothing of it may show in a lake.
    "--character-set-server=latin1",
    "--default-time-zone=+05:30",
    "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
)


@dataclass
class MySQLServer:
    """A running server.

    Attributes:
        made: Databases, and the test file that each is for.
    """

    socket: str
    port: int
    made: dict[str, str] = field(default_factory=dict)

    def session(self, database: str | None = None, user: str = "root") -> pymysql.Connection:
        """A session whose statements are committed one by one."""
        return pymysql.connect(unix_socket=self.socket, user=user, database=database, autocommit=True, charset="utf8mb4")

    def run(self, *statements: str) -> None:
        """Execute statements as the administrator."""
        with self.session() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str, database: str | None = None) -> list[tuple[object, ...]]:
        """All rows of a query."""
        with self.session(database) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def new_database(self) -> str:
        """Create a database, and give its name. Those of other test files are dropped."""
        name, file = f"lake_{next(_numbers)}", os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        for ended in [other for other, owner in self.made.items() if owner != file]:
            self.run(f"DROP DATABASE {ended}")
            del self.made[ended]
        self.made[name] = file
        self.run(f"CREATE DATABASE {name}")
        return name

    def copy(self, address: LakeAddress, other: LakeAddress) -> None:
        """Give an empty database the tables of another one."""
        source, target = (make_url(lake.url).database for lake in (address, other))
        for (name,) in self.rows("SHOW TABLES", source):
            self.run(f"CREATE TABLE {target}.{name} LIKE {source}.{name}", f"INSERT INTO {target}.{name} SELECT * FROM {source}.{name}")

    def lake(self, folder: Path) -> LakeAddress:
        """A lake with a fresh database as catalog and files in a folder."""
        name = self.new_database()
        url = f"mysql+pymysql://root@localhost/{name}?unix_socket={quote(self.socket, safe='')}"
        attach = f"ducklake:mysql:db={name} user=root socket={self.socket}"
        return LakeAddress(url, attach, f"{folder / 'files'}/", "mysql")


def program() -> Path:
    """The server's program.

    Raises:
        AssertionError: There is none.
    """
    unpacked = _UNPACKED / "usr/sbin/mariadbd"
    found = unpacked if unpacked.exists() else shutil.which("mariadbd")
    assert found, "MariaDB is not here, which the tests of MySQL catalogs need: `make install` unpacks it where apt-get and dpkg are"
    return Path(found)


@contextmanager
def mysql_server() -> Iterator[MySQLServer]:
    """A server that ends with the block."""
    server = program()
    shared = server.parents[2] / "usr/share/mysql"
    libraries = str(server.parents[1] / f"lib/{os.uname().machine}-linux-gnu")
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    with tempfile.TemporaryDirectory(prefix="ducklake-my-", dir=folder_in_memory(_ROOM_IN_MEMORY)) as folder:
        data, socket = Path(folder) / "data", f"{folder}/s"
        data.mkdir()
        user = [] if os.getuid() else ["--user=root"]
        places = [f"--lc-messages-dir={shared}", f"--character-sets-dir={shared / 'charsets'}", f"--datadir={data}"]
        common = [str(server), *_SETTINGS, *places, *user]
        # It reads statements that end with their line.
        script = "CREATE DATABASE mysql;\nUSE mysql;\n" + "".join((shared / name).read_text() for name in _SCRIPTS)
        subprocess.run([*common, "--sql-mode=", "--bootstrap"], input=script.encode(), env=environment, check=True, capture_output=True)

        def command(port: int) -> list[str]:
            return [*common, f"--socket={socket}", f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/pid"]

        with serving("MariaDB", command, environment=environment) as running:
            yield MySQLServer(socket, running.port)
