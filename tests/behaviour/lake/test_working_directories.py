"""Lakes that are opened from several working directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, UsageError

ROWS = pa.table({"n": list(range(200))})


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Change to a directory below the test's."""

    def change(name: str) -> Path:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        monkeypatch.chdir(directory)
        return directory

    return change


def in_duckdb(attach: str, *statements: str) -> list[Any]:
    with duckdb.connect() as connection:
        import_extension("ducklake", con=connection)
        import_extension("sqlite_scanner", con=connection)
        connection.execute(f"LOAD ducklake; LOAD sqlite; ATTACH '{attach}' AS lake; USE lake")
        return [connection.execute(statement).fetchall() for statement in statements]


@pytest.mark.parametrize("opened", ["create", "open"])
def test_a_lake_made_with_a_relative_data_path_is_one_from_every_directory(go: Callable[[str], Path], opened: str) -> None:
    first = go("one")
    if opened == "create":
        lake = DuckLake.create("sqlite:///lake.sqlite", data_path="files")
    else:
        lake = DuckLake.open("sqlite:///lake.sqlite", create=True, data_path="files")
    lake.write("t", ROWS)
    assert lake.info.data_path == f"{first}/files/"
    assert DuckLake.connect("sqlite:///lake.sqlite", data_path="files/").info.data_path == f"{first}/files/"
    go("two")
    other = DuckLake.connect(f"sqlite:///{first}/lake.sqlite")
    other.write("t", ROWS)
    counted = in_duckdb(f"ducklake:sqlite:{first}/lake.sqlite", "INSERT INTO t SELECT range FROM range(200)", "SELECT count(*) FROM t")
    assert counted[1] == [(600,)]
    go("one")
    assert lake.table("t").scan().count() == other.table("t").scan().count() == 600
    assert lake.table("t").scan().to_arrow().num_rows == 600
    assert not Path("../two/files").exists()
    go("two")
    with pytest.raises(UsageError, match="stores its files under"):
        DuckLake.connect(f"sqlite:///{first}/lake.sqlite", data_path="files/")


def test_a_relative_data_path_is_stored_on_request(go: Callable[[str], Path]) -> None:
    first = go("one")
    lake = DuckLake.create("sqlite:///lake.sqlite", data_path="files", relative_data_path=True)
    lake.write("t", ROWS)
    assert lake.info.data_path == "files/"
    assert in_duckdb("ducklake:sqlite:lake.sqlite", "SELECT count(*) FROM t") == [[(200,)]]
    second = go("two")
    moved = DuckLake.connect(f"sqlite:///{first}/lake.sqlite")
    with pytest.raises(NotFoundError) as caught:
        moved.table("t").scan().to_arrow()
    assert str(second) in caught.value.message
    assert "override_data_path=True" in caught.value.message
    found = DuckLake.connect(f"sqlite:///{first}/lake.sqlite", data_path=f"{first}/files", override_data_path=True)
    assert found.table("t").scan().to_arrow().num_rows == 200


def test_a_lake_that_duckdb_made_with_a_relative_data_path_still_opens(go: Callable[[str], Path]) -> None:
    first = go("one")
    with duckdb.connect() as connection:
        import_extension("ducklake", con=connection)
        import_extension("sqlite_scanner", con=connection)
        connection.execute("LOAD ducklake; LOAD sqlite; ATTACH 'ducklake:sqlite:lake.sqlite' AS lake (DATA_PATH 'files/')")
        connection.execute("CREATE TABLE lake.t AS SELECT range AS n FROM range(200)")
    for given in (None, "files", "files/", f"{first}/files"):
        lake = DuckLake.connect("sqlite:///lake.sqlite", data_path=given)
        assert lake.table("t").scan().to_arrow().num_rows == 200
