"""A server of MySQL catalogs, one for the whole test run, with one database per lake.

It is MariaDB of Debian's packages (.ci/mariadb.py), or the program that the environment variable ``DUCKLAKE_TEST_MYSQLD`` names: the
``mysqld`` of MySQL, a script that starts it with options of its own after those that it is given, or another ``mariadbd``.
"""

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

from ducklake_core.catalog.database.abilities import MARIADB, MYSQL
from tests.support import supervisor
from tests.support.folders import folder_in_memory
from tests.support.oracle import LakeAddress
from tests.support.servers import serving

_numbers = itertools.count(1)
_CHOSEN = "DUCKLAKE_TEST_MYSQLD"
_UNPACKED = Path(sys.prefix) / "mariadb"
_MEMORY_BYTES = 6 << 30
_SCRIPTS = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
# Small files, and nothing is waited for on the disk: the server dies with this process.
_SETTINGS = (
    "--no-defaults",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--max-allowed-packet=16M",
    # As servers may be set up: nothing of it may show in a lake.
    "--character-set-server=latin1",
    "--default-time-zone=+05:30",
    "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
)
_OF_MARIADB = ("--innodb-log-file-size=16M",)
_OF_MYSQL = ("--innodb-redo-log-capacity=64M", "--mysqlx=OFF", "--secure-file-priv=NULL")


@dataclass
class MySQLServer:
    """A running server.

    Attributes:
        is_mariadb: MariaDB rather than MySQL.
        made: Databases, and the test file that each is for.
    """

    socket: str
    port: int
    is_mariadb: bool
    made: dict[str, str] = field(default_factory=dict)

    @property
    def collation(self) -> str:
        """Collation of the strings of catalogs."""
        return (MARIADB if self.is_mariadb else MYSQL).binary_collation

    def session(self, database: str | None = None, user: str = "root") -> pymysql.Connection:
        """A session whose statements are committed one by one."""
        return pymysql.connect(unix_socket=self.socket, user=user, database=database, autocommit=True, charset="utf8mb4", ssl_disabled=True)

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

    def inlined_tables(self, database: str) -> set[str]:
        """Tables of inlined rows and deletes that are there, registered or not."""
        names = {str(name) for (name,) in self.rows("SHOW TABLES", database)}
        return {name for name in names if name.startswith("ducklake_inlined_d")} - {"ducklake_inlined_data_tables"}

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
        source, target = (str(make_url(lake.url).database) for lake in (address, other))
        with self.session() as session:
            copy_tables(session, source, target)

    def lake(self, folder: Path) -> LakeAddress:
        """A lake with a fresh database as catalog and files in a folder."""
        name = self.new_database()
        url = f"mysql+pymysql://root@localhost/{name}?unix_socket={quote(self.socket, safe='')}"
        attach = f"ducklake:mysql:db={name} user=root socket={self.socket}"
        return LakeAddress(url, attach, f"{folder / 'files'}/", "mysql")


def tables_of(session: pymysql.Connection, database: str) -> list[str]:
    """The names of a database's tables."""
    with session.cursor() as cursor:
        cursor.execute(f"SHOW TABLES FROM {database}")
        return [str(name) for (name,) in cursor.fetchall()]


def copy_tables(session: pymysql.Connection, source: str, target: str) -> None:
    """Give an empty database the tables of another one."""
    with session.cursor() as cursor:
        for name in tables_of(session, source):
            cursor.execute(f"CREATE TABLE {target}.{name} LIKE {source}.{name}")
            cursor.execute(f"INSERT INTO {target}.{name} SELECT * FROM {source}.{name}")


@dataclass(frozen=True)
class Program:
    """A server's program.

    Attributes:
        command: With the options that every start of it has.
        environment: Its variables.
        scripts: Where MariaDB has the statements that set a server up; None for MySQL, which does it by itself.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    scripts: Path | None = None

    def set_up(self, data: Path) -> None:
        """Make what a server needs to start with, in an empty folder."""
        if self.scripts is not None:
            # It reads statements that end with their line.
            script = "CREATE DATABASE mysql;\nUSE mysql;\n" + "".join((self.scripts / name).read_text() for name in _SCRIPTS)
            self._run([f"--datadir={data}", "--sql-mode=", "--bootstrap"], script)
        else:
            self._run([f"--datadir={data}", "--sql-mode=", "--initialize-insecure"])

    def _run(self, options: list[str], script: str = "") -> None:
        command = [*self.command, *options]
        ended = subprocess.run(
            command, input=script.encode(), env=self.environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout.decode(errors='replace')[-4000:]}"


def program() -> Program:
    """The server's program.

    Raises:
        AssertionError: There is none.
    """
    user = () if os.getuid() else ("--user=root",)
    found = Path(os.environ.get(_CHOSEN) or _mariadb())
    libraries = found.parents[1] / f"lib/{os.uname().machine}-linux-gnu"
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    version = subprocess.run([found, "--version"], env=environment, check=True, capture_output=True, text=True).stdout
    if "MariaDB" not in version:
        return Program((str(found), *_SETTINGS, *_OF_MYSQL, *user), dict(os.environ))
    shared = found.parents[2] / "usr/share/mysql"
    directories = (f"--lc-messages-dir={shared}", f"--character-sets-dir={shared / 'charsets'}")
    return Program((str(found), *_SETTINGS, *_OF_MARIADB, *directories, *user), environment, shared)


def _mariadb() -> Path:
    unpacked = _UNPACKED / "usr/sbin/mariadbd"
    found = unpacked if unpacked.exists() else shutil.which("mariadbd")
    assert found, "MariaDB is not here, which the tests of MySQL catalogs need: `make install` unpacks it where apt-get and dpkg are"
    return Path(found)


@contextmanager
def mysql_server() -> Iterator[MySQLServer]:
    """A server that ends with the block."""
    server = program()
    with tempfile.TemporaryDirectory(prefix="ducklake-my-", dir=folder_in_memory(_MEMORY_BYTES)) as folder:
        data, socket = Path(folder) / "data", f"{folder}/s"
        data.mkdir()
        supervisor.watch_folder(Path(folder))
        server.set_up(data)

        def command(port: int) -> list[str]:
            own = [f"--datadir={data}", f"--socket={socket}", f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/pid"]
            return [*server.command, *own]

        is_mariadb = server.scripts is not None
        with serving("MariaDB" if is_mariadb else "MySQL", command, environment=server.environment) as running:
            yield MySQLServer(socket, running.port, is_mariadb)
