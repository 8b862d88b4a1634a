"""Catalogs in MySQL: names and strings that the server would change, values that it cannot hold, reads by DuckDB's extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pymysql
import pytest
from duckdb_extensions import import_extension

from ducklake_core import DuckLake
from ducklake_core.catalog.database import server_connections
from ducklake_core.errors import CatalogError, CatalogUnavailableError, UnsupportedFeatureError
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress

NAMES = ["a", "a ", "ä", "Ä", "`\"'", "🦆", "key", "x" * 63, "select"]
STRINGS = ["a", "A", "a ", "ä", "Ä", "", " ", "\0", "\\", "%_", "'\"`", "🦆", "ß", "ss", None]


@pytest.fixture
def address(mysql: MySQLServer, tmp_path: object) -> LakeAddress:
    return mysql.lake(tmp_path)  # type: ignore[arg-type]


@pytest.fixture
def lake(address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(address.url, data_path=address.data_path)
    yield made
    made.close()


def database_of(address: LakeAddress) -> str:
    return address.attach.partition("db=")[2].split()[0]


def test_names_that_differ_by_little(lake: DuckLake) -> None:
    for number, name in enumerate(NAMES):
        quoted = '"{}"'.format(name.replace('"', '""'))
        lake.write(quoted, pa.table({name: [number]}))
        assert lake.table(quoted).scan().to_arrow().to_pylist() == [{name: number}]
    assert len(lake.tables()) == len(NAMES)
    lake.flush_inlined_data()
    assert [lake.table('"{}"'.format(name.replace('"', '""'))).scan().to_arrow()[name].to_pylist() for name in NAMES] == [
        [number] for number in range(len(NAMES))
    ]


@pytest.mark.parametrize("inlining", [20, 0], ids=["inlined", "files"])
def test_strings_that_differ_by_little(lake: DuckLake, inlining: int) -> None:
    lake.set_option("data_inlining_row_limit", inlining)
    rows = pa.table({"n": range(len(STRINGS)), "v": pa.array(STRINGS, pa.string())})
    lake.create_table("t", rows.schema)
    for number in range(len(STRINGS)):
        lake.table("t").append(rows.slice(number, 1))
    table = lake.table("t")
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"]) == rows.to_pylist()
    for text in STRINGS:
        if text is not None and "\0" not in text:
            where = "v = '{}'".format(text.replace("'", "''"))
            assert table.scan(where=where).to_arrow()["v"].to_pylist() == [text]
    table.delete("v = 'a'")
    left = [text for text in STRINGS if text != "a"]
    assert sorted(lake.table("t").scan().to_arrow()["v"].to_pylist(), key=STRINGS.index) == left


def test_rows_too_large_for_innodb_go_to_files(lake: DuckLake) -> None:
    wide = pa.table({f"c{number}": ["x"] for number in range(177)})
    assert lake.write("fits", wide).rows_inlined == 1
    wider = wide.append_column("one_more", pa.array(["x"]))
    assert lake.write("wide", wider).rows_inlined == 0
    assert lake.table("wide").scan().to_arrow().num_rows == lake.table("fits").scan().to_arrow().num_rows == 1
    for number, names in enumerate((["ä", "Ä"], ["é", "e\u0301"], ["blank "], ["🦆"])):
        rows, name = pa.table({name: [1] for name in names}), f"odd_{number}"
        assert lake.write(name, rows).rows_inlined == 0
        assert lake.table(name).scan().to_arrow().to_pylist() == rows.to_pylist()


def test_a_value_that_is_too_large_for_a_packet(mysql: MySQLServer, lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": [1, 2], "v": ["x", "z"]}))
    assert mysql.rows("SELECT @@global.max_allowed_packet") == [(16 << 20,)]
    big = pa.table({"n": [3], "v": ["y" * (15 << 20)]})
    assert lake.table("t").append(big).rows_inlined == 0
    longer = pa.table({"n": [1], "v": ["w" * 1_000_000]})
    lake.table("t").merge(longer, on=["n"]).when_matched_update().execute()
    found = {row["n"]: len(row["v"]) for row in lake.table("t").scan().to_arrow().to_pylist()}
    assert found == {1: 1_000_000, 2: 1, 3: 15 << 20}


def test_the_server_s_settings_do_not_show(mysql: MySQLServer, address: LakeAddress, lake: DuckLake) -> None:
    rows = pa.table({"at": pa.array([datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)]), "v": ["back\\slash || 'quote'"]})
    lake.write("t", rows)
    assert lake.table("t").scan().to_arrow().to_pylist() == rows.to_pylist()
    age = datetime.now(UTC) - lake.snapshot().time
    assert abs(age.total_seconds()) < 3600
    kinds = mysql.rows(
        f"SELECT DISTINCT engine, table_collation <> '' FROM information_schema.tables WHERE table_schema = '{database_of(address)}'"
    )
    assert kinds == [("InnoDB", 1)]
    odd = mysql.rows(
        "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = 'longtext' "
        f"AND collation_name <> '{mysql.collation}' AND table_schema = '{database_of(address)}'"
    )
    assert odd == []


def test_duckdb_reads_it_by_its_own_extension(address: LakeAddress, lake: DuckLake) -> None:
    rows = pa.table({"n": range(len(STRINGS)), "v": pa.array(STRINGS, pa.string()), "f": [float("nan"), *([-0.5] * (len(STRINGS) - 1))]})
    lake.write("files", rows, inline=False)
    lake.write("inlined", rows.slice(0, 7))
    lake.table("inlined").delete("n = 3")
    lake.table("files").delete("n = 5")
    connection = duckdb.connect(config={"threads": 1})
    for extension in ("ducklake", "mysql_scanner"):
        import_extension(extension, con=connection)
        connection.execute(f"LOAD {extension}")
    connection.execute(f"ATTACH '{address.attach}' AS lake (READ_ONLY)")
    for name in ("files", "inlined"):
        by_duckdb = connection.execute(f"SELECT n, v, f::VARCHAR FROM lake.{name} ORDER BY n").fetchall()
        own = sorted(lake.table(name).scan().to_arrow().to_pylist(), key=lambda row: row["n"])
        assert [(n, v) for n, v, _ in by_duckdb] == [(row["n"], row["v"]) for row in own]
        assert [f for _, _, f in by_duckdb] == [str(row["f"]) for row in own]
    connection.execute("DETACH lake")
    # Once its connector can write, the oracle can work on these lakes without a copy (tests/support/mysql_copy.py).
    connection.execute(f"ATTACH '{address.attach}' AS lake")
    with pytest.raises(duckdb.Error, match="only simple deletes"):
        connection.execute("INSERT INTO lake.inlined VALUES (100, 'x', 1)")
    # Nor can it flush: rows need no detour to files here (decision 44).
    with pytest.raises(duckdb.Error, match="only simple deletes"):
        connection.execute("CALL ducklake_flush_inlined_data('lake')")
    connection.close()
    assert lake.table("inlined").scan().to_arrow().num_rows == 6


def test_rows_of_sorted_tables_are_inlined_and_flushed(lake: DuckLake) -> None:
    """DuckDB's flush, which would delete other rows of a table that is sorted by what is kept as text, does not work here."""
    rows = pa.table({"k": range(2), "v": pa.array([9, 10], pa.decimal128(9, 2))})
    lake.create_table("sorted", rows.schema)
    lake.table("sorted").set_sorted_by(["v"])
    assert lake.write("sorted", rows).rows_inlined == 2
    lake.table("sorted").delete("k = 0")
    assert lake.flush_inlined_data().rows_flushed == 2
    assert lake.table("sorted").scan().to_arrow().column("k").to_pylist() == [1]


def test_reserved_words_of_the_server(mysql: MySQLServer, lake: DuckLake) -> None:
    words = sorted(str(word).lower() for (word,) in mysql.rows("SELECT DISTINCT word FROM information_schema.keywords"))
    words = [word for word in words if word.isidentifier()]
    assert len(words) > 500
    for start in range(0, len(words), 170):
        rows = pa.table({word: [1] for word in words[start : start + 170]})
        name = f"of_{start}"
        assert lake.write(name, rows).rows_inlined == 1
        lake.table(name).delete(f'"{rows.column_names[-1]}" = 0')
        assert lake.table(name).scan(where=f'"{rows.column_names[0]}" = 1').to_arrow().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("ssl_mode", ["disabled", "preferred", "required"])
def test_a_user_with_a_password(mysql: MySQLServer, address: LakeAddress, ssl_mode: str) -> None:
    """MySQL wants a password encrypted as long as it does not know the user yet: by TLS, or with a key that it sends."""
    name, password = database_of(address), "ge heim/ü"
    mysql.run("DROP USER IF EXISTS known", f"CREATE USER known IDENTIFIED BY '{password}'", f"GRANT ALL ON {name}.* TO known")
    url = f"mysql+pymysql://known:{quote(password, safe='')}@127.0.0.1:{mysql.port}/{name}?ssl_mode={ssl_mode}"
    if ssl_mode == "required" and mysql.is_mariadb:
        # As of 10.11 the server makes no certificate by itself.
        with pytest.raises(CatalogError, match="SSL"):
            DuckLake.create(url, data_path=address.data_path)
        return
    with closing(DuckLake.create(url, data_path=address.data_path)) as lake, lake.reader() as reader:
        (_, cipher) = reader.connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").one()
        assert bool(cipher) == (ssl_mode != "disabled" and not mysql.is_mariadb)
    with pytest.raises(CatalogError) as rejected:
        DuckLake.connect(url.replace(":ge", ":no"))
    assert rejected.value.details["mysql_error"] == 1045


@pytest.fixture
def setting(mysql: MySQLServer) -> Iterator[Callable[[str], bool]]:
    """Switch a setting of the server on until the end of the test; MariaDB has none of these settings."""
    chosen: list[str] = []

    def switch_on(name: str) -> bool:
        if mysql.is_mariadb:
            with pytest.raises(pymysql.OperationalError, match="Unknown system variable"):
                mysql.run(f"SET GLOBAL {name} = ON")
            return False
        mysql.run(f"SET GLOBAL {name} = ON")
        chosen.append(name)
        return True

    yield switch_on
    for name in chosen:
        mysql.run(f"SET GLOBAL {name} = OFF")


def test_a_server_where_every_table_has_a_primary_key(mysql: MySQLServer, address: LakeAddress, setting: Callable[[str], bool]) -> None:
    if not (setting("sql_generate_invisible_primary_key") and setting("sql_require_primary_key")):
        return
    rows = pa.table({"n": [1, 2], "v": ["x", None]})
    with closing(DuckLake.create(address.url, data_path=address.data_path)) as lake:
        lake.write("t", rows)
        lake.table("t").add_column("w", "int")
        lake.table("t").append(pa.table({"n": [3], "v": ["y"], "w": [4]}))
        lake.table("t").delete("n = 1")
        left = [{"n": 2, "v": None, "w": None}, {"n": 3, "v": "y", "w": 4}]
        assert lake.table("t").scan().to_arrow().to_pylist() == left
        lake.flush_inlined_data()
        lake.table("t").delete("n = 3")
        assert lake.table("t").scan().to_arrow().to_pylist() == left[:1]
        lake.create_indexes()
        assert lake.check().findings == ()
    keys = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'my_row_id' AND table_schema = '{}'"
    assert mysql.rows(keys.format(database_of(address))) > [(20,)]
    # An existing catalog is found by every client.
    DuckLake.open(address.url, create=True, data_path=address.data_path).close()


def test_a_server_under_maintenance(
    mysql: MySQLServer, address: LakeAddress, lake: DuckLake, setting: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connections, "KNOWN_SECONDS", 0.2)
    mysql.run("DROP USER IF EXISTS plain@localhost", "CREATE USER plain@localhost")
    mysql.run(f"GRANT ALL ON {database_of(address)}.* TO plain@localhost")
    with closing(DuckLake.connect(address.url.replace("root@", "plain@"))) as other:
        if not setting("offline_mode"):
            return
        with pytest.raises(CatalogUnavailableError) as caught:
            other.database.write().__enter__()
    assert (caught.value.details["mysql_error"], caught.value.details["failure"]) == (3032, "unavailable")


def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'ducklake-dagster\[mysql\]'"):
        DuckLake.connect("mysql://me@127.0.0.1:1/lake")
