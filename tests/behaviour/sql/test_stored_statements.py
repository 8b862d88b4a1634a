"""Text that a catalog stores for a view or macro runs as one query, by DuckDB's own count of statements."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.duckdb.query import execute_definition
from ducklake_core.errors import DuckLakeError
from tests.support.parameters import spread

HOSTILE = [
    "SELECT 1 AS n; CREATE OR REPLACE VIEW main.other AS SELECT 666 AS n",
    "SELECT 1 AS n /* /* */ */; CREATE OR REPLACE VIEW main.other AS SELECT 666 AS n",
    "SELECT $a$ $a$ AS n; CREATE OR REPLACE VIEW main.other AS SELECT 666 AS n",
    "SELECT E'\\'' AS n; CREATE OR REPLACE VIEW main.other AS SELECT 666 AS n --'",
    "SELECT '\\' AS n; CREATE OR REPLACE VIEW main.other AS SELECT 666 AS n --'",
    "SELECT 1 AS n\0; CREATE OR REPLACE VIEW main.other AS SELECT 666 AS n",
]
PIECES = [
    "SELECT 1",
    ";",
    "'",
    '"',
    "/*",
    "*/",
    "--",
    "\n",
    "$$",
    "$a$",
    "E'",
    "\\",
    "\\'",
    "U&'",
    " ",
    "x",
    "\u00a0",
    "\u2028",
    "SET threads = 1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_stored_view_runs_no_second_statement(tmp_path: Path, text: str) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.write("t", pa.table({"n": [1]}))
    lake.create_view("other", "SELECT n FROM t")
    lake.create_view("bad", "SELECT n FROM t")
    with sqlite3.connect(tmp_path / "lake.sqlite") as connection:
        connection.execute("UPDATE ducklake_view SET sql = ? WHERE view_name = 'bad'", (text,))
    connection.close()
    assert lake.sql("SELECT n FROM other").to_arrow()["n"].to_pylist() == [1]
    with pytest.raises(DuckLakeError):
        lake.sql("SELECT other.n FROM other, bad").to_arrow()
    lake.close()


@pytest.mark.parametrize("head", spread(["CREATE VIEW v AS ", "CREATE MACRO m(x) AS ", "CREATE MACRO m(x) AS TABLE "], 1))
def test_random_sql_text_runs_as_one_definition_or_not_at_all(head: str) -> None:
    draw = random.Random(7)
    ran = 0
    for _ in range(150):
        text = head + draw.choice(["SELECT 1 ", "1 ", "SELECT $$;$$ "]) + "".join(draw.choices(PIECES, k=draw.randrange(8)))
        with duckdb.connect() as connection:
            connection.execute("CREATE VIEW other AS SELECT 1; SET threads = 2")
            try:
                execute_definition(connection, text)
                ran += 1
            except duckdb.Error:
                pass
            made = connection.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchone()
            assert made is not None
            assert made[0] <= 2, text
            assert connection.execute("SELECT current_setting('threads')").fetchone() == (2,), text
    assert ran > 5
