"""Settings of databases, roles, environments and addresses do not change what a lake stores and shows."""

# ruff: noqa: DTZ001 - columns without a time zone have values without one
from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import make_url

from ducklake_core import DuckLake
from tests.faults.pooler import pooler_to
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.support.postgres import PostgresServer

ROWS = pa.table(
    {
        "n": pa.array(range(6), pa.int64()),
        "f": pa.array([0.1 + 0.2, 1 / 3, math.pi * 1e300, -5e-324, math.nan, None], pa.float64()),
        "g": pa.array([0.1, 1 / 3, 3.4028235e38, 1e-45, math.inf, None], pa.float32()),
        "d": pa.array(
            [Decimal("0.000000001"), Decimal("-99999999999.999999999"), None, Decimal(1), Decimal(2), Decimal(3)], pa.decimal128(20, 9)
        ),
        "t": pa.array(
            [datetime(2024, 3, 10, 2, 30, 0, 1), datetime(1, 1, 1), datetime(9999, 12, 31), None, None, None], pa.timestamp("us")
        ),
        "z": pa.array(
            [datetime(2024, 3, 31, 1, 30, tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC), None, None, None, None], pa.timestamp("us", "UTC")
        ),
        "o": pa.array([time(23, 59, 59, 999999), time(0), None, None, None, None], pa.time64("us")),
        "y": pa.array([date(2024, 2, 3), date(1, 1, 1), None, None, None, None], pa.date32()),
        "s": pa.array(["a\\b'\"%:", "Ä", "ä", "😀", "a ", None], pa.string()),
        "b": pa.array([b"\x00\\x41\xff", b"\\", b"'", b"", b"\\000", None], pa.binary()),
        "l": pa.array([[0.1, None], [], None, [1e22], [1.0], [2.5]], pa.list_(pa.float64())),
        "m": pa.array([{"k": "x"}, None, None, None, None, None], pa.struct([("k", pa.string())])),
    }
)
POSTGRES = {
    "extra_float_digits": "0",
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "America/New_York",
    "bytea_output": "escape",
    "search_path": "evil, public",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "xmlbinary": "hex",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "gin_fuzzy_search_limit": "1",
    "exit_on_error": "on",
}
POSTGRES_TIMEOUTS = {"statement_timeout": "5s", "lock_timeout": "1ms", "transaction_timeout": "5s"}
MYSQL = {
    "sql_select_limit": "2",
    "sql_safe_updates": "1",
    "completion_type": "2",
    "max_join_size": "2",
    "sql_big_selects": "0",
    "group_concat_max_len": "4",
    "div_precision_increment": "0",
    "sql_auto_is_null": "1",
    "foreign_key_checks": "0",
    "unique_checks": "0",
    "sql_quote_show_create": "0",
    "autocommit": "0",
    "max_sort_length": "64",
    "time_zone": "'-07:00'",
    "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION'",
    "collation_connection": "'latin1_german1_ci'",
    "character_set_results": "'latin1'",
    "character_set_client": "'latin1'",
    "lc_time_names": "'de_DE'",
    "lock_wait_timeout": "1",
}
MARIADB = {
    "tx_read_only": "1",
    "tx_isolation": "'SERIALIZABLE'",
    "max_statement_time": "0.0001",
    "check_constraint_checks": "0",
    "old_mode": "'ZERO_DATE_TIME_CAST'",
}


def history(url: str, data_path: str) -> list[dict[str, object]]:
    """Create a lake, change it in many ways, and give what its snapshots show, with inlined rows in the catalog and then in files."""
    with DuckLake.create(url, data_path=data_path) as lake:
        lake.write("t", ROWS, inline=True)
        lake.table("t").delete("n = 5")
        lake.table("t").update({"f": "f / 3"}, where="n = 1")
        lake.table("t").append(ROWS.slice(0, 3), inline=False)
        lake.table("t").delete("n = 2")
        lake.write("Ä", pa.table({"a": [1]}), inline=True)
        lake.table("t").add_column("late", "double", default=0.1 + 0.2)
        lake.table("t").append(ROWS.slice(3, 2).append_column("late", pa.array([1 / 7, None], pa.float64())), inline=True)
        shown = [shows(lake)]
        lake.flush_inlined_data()
        shown.append(shows(lake))
        lake.rewrite_data_files("t", delete_threshold=0.0)
        lake.expire_snapshots(older_than=timedelta(0), min_age=timedelta(0))
        lake.cleanup_old_files(cleanup_all=True, min_age=timedelta(0))
        lake.delete_orphaned_files(cleanup_all=True, min_age=timedelta(0))
        shown.append(shows(lake))
        assert lake.check(level="rows").is_sound
    return shown


def shows(lake: DuckLake) -> dict[str, object]:
    rows = lake.table("t").scan().to_arrow()
    return {
        "rows": repr(rows.sort_by([("n", "ascending"), ("f", "ascending")]).to_pylist()),
        "tables": [one.table for one in lake.tables()],
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    address = sqlite_lake(tmp_path_factory.mktemp("default"))
    return history(address.url, address.data_path)


def run(postgres: PostgresServer, database: str, *statements: str) -> None:
    with psycopg.connect(f"host={postgres.socket} user={postgres.user} dbname={database}", autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement)


def known(postgres: PostgresServer) -> dict[str, str]:
    """The settings that this server has."""
    with psycopg.connect(f"host={postgres.socket} user={postgres.user} dbname=postgres") as admin:
        names = {str(name).lower() for (name,) in admin.execute("SELECT name FROM pg_settings")}
    return {name: value for name, value in POSTGRES.items() if name in names}


@pytest.mark.parametrize("by", ["database", "role", "environment", "address"])
def test_postgresql_settings_change_no_value(
    postgres: PostgresServer, tmp_path: Path, expected: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    address = postgres.lake(tmp_path)
    url, database = make_url(address.url), str(make_url(address.url).database)
    settings = known(postgres)
    # A function and an operator of another schema that stand in for PostgreSQL's own.
    run(
        postgres,
        database,
        "CREATE SCHEMA evil",
        "CREATE FUNCTION evil.never(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never)",
    )
    settings["search_path"] = "evil,pg_catalog,public"
    everything = settings | (POSTGRES_TIMEOUTS if by in ("database", "role") else {})
    escaped = {name: value.replace(" ", "\\ ") for name, value in everything.items()}
    options = " ".join(f"-c {name}={value}" for name, value in escaped.items())
    if by == "database":
        run(postgres, "postgres", *(f"ALTER DATABASE {database} SET {name} = {literal(value)}" for name, value in everything.items()))
    elif by == "role":
        run(postgres, "postgres", f"CREATE ROLE r_{database} LOGIN SUPERUSER")
        run(postgres, "postgres", *(f"ALTER ROLE r_{database} SET {name} = {literal(value)}" for name, value in everything.items()))
        url = url.set(username=f"r_{database}")
    elif by == "environment":
        monkeypatch.setenv("PGOPTIONS", options)
        monkeypatch.setenv("PGTZ", "Asia/Kathmandu")
        monkeypatch.setenv("PGDATESTYLE", "German")
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        url = url.update_query_dict({"options": options, "client_encoding": "latin1"})
    try:
        assert history(url.render_as_string(), address.data_path) == expected
    finally:
        monkeypatch.undo()
        run(postgres, "postgres", f"ALTER DATABASE {database} RESET ALL")
        if by == "role":
            run(postgres, database, f"REASSIGN OWNED BY r_{database} TO {postgres.user}", f"DROP OWNED BY r_{database}")
            run(postgres, "postgres", f"DROP ROLE r_{database}")


def literal(value: str) -> str:
    """A value of ALTER ... SET: a list is several values."""
    return ", ".join(f"'{part.strip()}'" for part in value.split(","))


def test_postgresql_settings_hold_behind_a_pooler(postgres: PostgresServer, tmp_path: Path, expected: list[dict[str, object]]) -> None:
    address = postgres.lake(tmp_path)
    database = str(make_url(address.url).database)
    run(postgres, "postgres", *(f"ALTER DATABASE {database} SET {name} = {literal(value)}" for name, value in known(postgres).items()))
    folder = tmp_path / "p"
    folder.mkdir()
    with pooler_to(postgres, address, folder) as pooler:
        assert history(pooler.url(address), address.data_path) == expected
        # Other clients of the pooler's sessions find them as the database has them.
        with psycopg.connect(host=str(folder), user=postgres.user, dbname=database, prepare_threshold=None, autocommit=True) as other:
            assert {other.execute("SHOW extra_float_digits").fetchone() for _ in range(8)} == {("0",)}
            assert {other.execute("SHOW search_path").fetchone() for _ in range(8)} == {("evil, public",)}


def test_timeouts_of_the_database_end_no_statement(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    database = make_url(address.url).database
    run(postgres, "postgres", *(f"ALTER DATABASE {database} SET {name} = '{value}'" for name, value in POSTGRES_TIMEOUTS.items()))
    with DuckLake.create(address.url, data_path=address.data_path) as lake, lake.database.read() as connection:
        assert {connection.exec_driver_sql(f"SHOW {name}").scalar() for name in POSTGRES_TIMEOUTS} == {"0"}


def test_timeouts_of_the_address_stay(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    DuckLake.create(address.url, data_path=address.data_path).close()
    chosen = make_url(address.url).update_query_dict({"options": "-c statement_timeout=77s"})
    with DuckLake.connect(chosen.render_as_string()) as lake, lake.database.read() as connection:
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "77s"
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "0"


def of_mysql(mysql: MySQLServer) -> dict[str, str]:
    return MYSQL | (MARIADB if mysql.is_mariadb else {"transaction_read_only": "1", "max_execution_time": "1"})


@contextmanager
def global_settings(mysql: MySQLServer, settings: dict[str, str]) -> Iterator[None]:
    with mysql.session() as session, session.cursor() as cursor:
        before: dict[str, object] = {}
        for name in settings:
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            before[name] = cursor.fetchone()[0]  # type: ignore[index]
        try:
            for name, value in settings.items():
                cursor.execute(f"SET GLOBAL {name} = {value}")
            yield
        finally:
            for name, value in before.items():
                cursor.execute(f"SET GLOBAL {name} = %s", [value])


def plain_user(mysql: MySQLServer, address: LakeAddress) -> LakeAddress:
    """The address for a user to whom ``init_connect`` applies, unlike an administrator."""
    database = make_url(address.url).database
    mysql.run(f"CREATE OR REPLACE USER plain_{database}@localhost" if mysql.is_mariadb else f"CREATE USER plain_{database}@localhost")
    mysql.run(f"GRANT ALL ON {database}.* TO plain_{database}@localhost")
    return replace(address, url=make_url(address.url).set(username=f"plain_{database}").render_as_string())


@pytest.mark.parametrize("by", ["server", "init_connect"])
def test_mysql_settings_change_no_value(mysql: MySQLServer, tmp_path: Path, expected: list[dict[str, object]], by: str) -> None:
    address = plain_user(mysql, mysql.lake(tmp_path))
    settings = of_mysql(mysql)
    if by == "init_connect":
        quoted = {name: value.replace("'", "''") for name, value in (settings | {"timestamp": "1"}).items()}
        settings = {"init_connect": f"'{'; '.join(f'SET SESSION {name} = {value}' for name, value in quoted.items())}'"}
    with global_settings(mysql, settings):
        assert history(address.url, address.data_path) == expected


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("page_size", [512, 65536])
def test_sqlite_files_of_any_form(tmp_path: Path, expected: list[dict[str, object]], encoding: str, page_size: int) -> None:
    import sqlite3

    address = sqlite_lake(tmp_path)
    path = str(make_url(address.url).database)
    with sqlite3.connect(path) as file:
        for pragma in (
            f"encoding = '{encoding}'",
            f"page_size = {page_size}",
            "auto_vacuum = 1",
            "secure_delete = 1",
            "application_id = 7",
        ):
            file.execute(f"PRAGMA {pragma}")
        file.execute("PRAGMA user_version = 7")
        file.execute("CREATE TABLE other (a)")
    file.close()
    assert history(address.url, address.data_path) == expected
