"""MySQL commits at every statement that makes or drops a table: what is killed there, or cut off, happens as a whole or not at all."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database.failures import RetryPolicy
from ducklake_core.errors import CatalogUnavailableError, CommitOutcomeUnknownError, DuckLakeError, NotALakeError
from tests.faults.checks import check_cut_line
from tests.faults.proxy import Cut, Proxy, proxy_to
from tests.faults.work import KILLED, dying_at
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow, spread

COLUMNS = pa.schema([("x", pa.int64()), ("y", pa.string())])
_MAX_STEPS = 200


@pytest.fixture
def address(mysql: MySQLServer, tmp_path: Path) -> LakeAddress:
    return mysql.lake(tmp_path)


@pytest.fixture
def proxy(mysql: MySQLServer) -> Iterator[Proxy]:
    # Names of sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="line-") as folder, proxy_to(mysql, Path(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    """Processes that begin with everything imported, and with no thread of this one."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.faults.work", "ducklake_core.lake", "ducklake_core.engines.arrow.writer", "pymysql", "sqlalchemy"])
    return found


def create(address: LakeAddress) -> None:
    DuckLake.create(address.url, data_path=address.data_path).close()


def add_table(address: LakeAddress) -> None:
    lake = DuckLake.connect(address.url)
    with lake.transaction() as tx:
        tx.create_table("new", COLUMNS)
        tx.append("new", pa.table({"x": [1, 2], "y": ["a", None]}, schema=COLUMNS))
        tx.append("old", pa.table({"x": [7], "y": ["b"]}, schema=COLUMNS))
        tx.delete("kept", "x = 1")
    lake.close()


def write_new_table(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.create_table("new", COLUMNS)
        tx.append("new", pa.table({"x": [1], "y": ["a"]}, schema=COLUMNS))


def expire(address: LakeAddress) -> None:
    lake = DuckLake.connect(address.url)
    lake.expire_snapshots(versions=[one.id for one in lake.snapshots()[:-1]], min_age="0 days")
    lake.close()


def die_of(act: Callable[[LakeAddress], None], address: LakeAddress, step: int) -> None:
    with dying_at(step):
        act(address)


def killed(context: multiprocessing.context.ForkServerContext, act: Callable[[LakeAddress], None], address: LakeAddress, step: int) -> bool:
    """Do something in a process that dies at a step; whether it did."""
    process = context.Process(target=die_of, args=(act, address, step))
    process.start()
    process.join(240)
    assert process.exitcode in (0, KILLED), f"step {step}"
    return process.exitcode == KILLED


def physical(mysql: MySQLServer, address: LakeAddress) -> set[str]:
    """Tables of inlined rows and deletes that are there."""
    return mysql.inlined_tables(make_name(address))


@pytest.mark.slow
def test_a_lake_that_is_created(mysql: MySQLServer, tmp_path: Path, context: multiprocessing.context.ForkServerContext) -> None:
    seen = set()
    for step in range(1, _MAX_STEPS, 3):
        address = mysql.lake(tmp_path)
        if not killed(context, create, address, step):
            break
        try:
            DuckLake.connect(address.url).close()
            seen.add("a lake")
        except NotALakeError:
            seen.add("none")
        lake = DuckLake.open(address.url, data_path=address.data_path, create=True)
        lake.write("t", pa.table({"x": [1]}))
        assert lake.table("t").scan().to_arrow().num_rows == 1
        assert lake.check().findings == ()
        lake.close()
    else:
        raise AssertionError("it never came to its end")
    assert seen == {"a lake", "none"}


@pytest.mark.parametrize("every", [slow(1), 29])
def test_a_table_that_is_created(
    mysql: MySQLServer, address: LakeAddress, context: multiprocessing.context.ForkServerContext, every: int
) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.create_table("old", COLUMNS)
    lake.write("kept", pa.table({"x": list(range(100)), "y": ["z"] * 100}, schema=COLUMNS))
    lake.flush_inlined_data()
    outcomes = set()
    for step in range(1, _MAX_STEPS, every):
        before = lake.snapshot().id
        ended = not killed(context, add_table, address, step)
        arrived = lake.snapshot().id > before
        outcomes.add(arrived)
        names = {table.table.partition(".")[2] for table in lake.tables()}
        assert ("new" in names) == arrived
        assert lake.table("kept").scan().to_arrow().num_rows == 100 - arrived
        assert lake.table("old").scan().to_arrow().num_rows == arrived
        if arrived:
            assert lake.table("new").scan().to_arrow().to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": None}]
            with lake.transaction() as tx:
                tx.drop_table("new")
                tx.delete("old", "x = 7")
                tx.append("kept", pa.table({"x": [1], "y": ["z"]}, schema=COLUMNS))
        if ended:
            break
    else:
        raise AssertionError("it never came to its end")
    assert outcomes == {False, True}
    lake.expire_snapshots(versions=[one.id for one in lake.snapshots()[:-1]], min_age="0 days")
    named = {str(row[0]) for row in mysql.rows("SELECT table_name FROM ducklake_inlined_data_tables", make_name(address))}
    assert {name for name in physical(mysql, address) if "_data_" in name} == named
    assert lake.check().findings == ()


def make_name(address: LakeAddress) -> str:
    return address.attach.partition("db=")[2].split()[0]


@pytest.mark.slow
def test_an_expiry(mysql: MySQLServer, tmp_path: Path, context: multiprocessing.context.ForkServerContext) -> None:
    seen = set()
    for step in range(1, _MAX_STEPS, 2):
        address = mysql.lake(tmp_path)
        lake = DuckLake.create(address.url, data_path=address.data_path)
        for name in ("gone", "stays"):
            lake.write(name, pa.table({"x": [1, 2], "y": ["a", "b"]}, schema=COLUMNS))
        lake.drop_table("gone")
        ended = not killed(context, expire, address, step)
        left = [one.id for one in lake.snapshots()]
        seen.add(len(left))
        assert len(left) in (1, 4)
        assert lake.table("stays").scan().to_arrow().num_rows == 2
        if len(left) > 1:
            assert lake.table("gone", at=left[1]).scan().to_arrow().num_rows == 2
        lake.write("stays", pa.table({"x": [3], "y": ["c"]}, schema=COLUMNS), mode="append")
        lake.expire_snapshots(versions=[one.id for one in lake.snapshots()[:-1]], min_age="0 days")
        assert len(physical(mysql, address)) == 1
        assert lake.check().findings == ()
        lake.close()
        if ended:
            break
    else:
        raise AssertionError("it never came to its end")
    assert seen == {1, 4}


@pytest.mark.parametrize("inlining", spread([0, 10], 1), ids=["files", "inlined"])
@pytest.mark.parametrize("cut", ["after", slow("before")])
def test_a_line_that_is_cut_at_commit(address: LakeAddress, proxy: Proxy, cut: Cut, inlining: int) -> None:
    check_cut_line(address, proxy, cut, inlining)


@pytest.mark.parametrize("cut", spread(["before", "after"], 1))
def test_an_unregistered_table(mysql: MySQLServer, address: LakeAddress, proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table of inlined rows is there whatever became of the COMMIT: it is only dropped when the commit surely failed."""
    monkeypatch.setattr(RetryPolicy, "pause", lambda *_: 0.01)
    create(address)
    lake = DuckLake.connect(proxy.url(address))
    proxy.cut, proxy.dead = cut, True
    with pytest.raises(CommitOutcomeUnknownError):
        write_new_table(lake)
    reachable = DuckLake.connect(address.url)
    assert len(physical(mysql, address)) == 1
    if cut == "after":
        assert reachable.table("new").scan().to_arrow().num_rows == 1
    reachable.create_table("other", COLUMNS)
    reachable.expire_snapshots(versions=[one.id for one in reachable.snapshots()[:-1]], min_age="0 days")
    assert len(physical(mysql, address)) == (2 if cut == "after" else 1)
    assert reachable.check().findings == ()


def test_a_commit_that_fails_leaves_no_table(mysql: MySQLServer, address: LakeAddress) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.create_table("t", COLUMNS)
    before = physical(mysql, address)
    lake.set_option("data_inlining_row_limit", 10)
    name = make_name(address)
    mysql.run(f"CREATE TRIGGER {name}.reject BEFORE INSERT ON {name}.ducklake_snapshot_changes FOR EACH ROW SIGNAL SQLSTATE '45000'")
    with pytest.raises(DuckLakeError, match="rejected a statement"):
        lake.create_table("u", COLUMNS)
    assert physical(mysql, address) == before
    mysql.run(f"DROP TRIGGER {name}.reject")
    lake.create_table("u", COLUMNS)
    assert len(physical(mysql, address)) == len(before) + 1


def test_a_server_that_is_full_or_ends_sessions(mysql: MySQLServer, address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.create_table("t", COLUMNS)
    rows = pa.table({"x": [1], "y": ["a"]}, schema=COLUMNS)
    for (number,) in mysql.rows("SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'root'"):
        mysql.run(f"KILL {number}")
    lake.table("t").append(rows)
    from ducklake_core.catalog.database import server_connections

    monkeypatch.setattr(server_connections, "UNKNOWN_SECONDS", 0.2)
    name = make_name(address)
    mysql.run("DROP USER IF EXISTS narrow@localhost", "CREATE USER narrow@localhost WITH MAX_USER_CONNECTIONS 1")
    mysql.run(f"GRANT ALL ON {name}.* TO narrow@localhost")
    with mysql.session(name, user="narrow"), pytest.raises(CatalogUnavailableError) as caught:
        DuckLake.connect(address.url.replace("root@", "narrow@"))
    assert caught.value.details["mysql_error"] == 1226
    other = DuckLake.connect(address.url.replace("root@", "narrow@"))
    other.table("t").append(rows)
    assert other.table("t").scan().to_arrow().num_rows == 2
    other.close()
    with mysql.session(name) as holder, holder.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT * FROM ducklake_snapshot FOR UPDATE")
        with pytest.raises(CatalogUnavailableError) as locked, lake.database.write() as connection:
            connection.exec_driver_sql("DELETE FROM ducklake_snapshot WHERE snapshot_id = 1")
    assert (locked.value.details["mysql_error"], locked.value.details["failure"]) == (1205, "retry")
