"""Relative paths of a resource mean the working directory of the code location, wherever the process runs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import DuckDBCatalog, DuckLakeResource, LocalStorage, SqliteCatalog
from ducklake_dagster.config.resources import code_location_directory

ROWS = pa.table({"n": list(range(200))})


def run_of(directory: Path) -> Any:
    pointer = SimpleNamespace(working_directory=str(directory))
    return SimpleNamespace(job_code_origin=SimpleNamespace(repository_origin=SimpleNamespace(code_pointer=pointer)))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The directory of the code location, and another one, in which the process runs."""
    for name in ("project", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project", tmp_path / "elsewhere"


def resource(run: Any = None, **how: Any) -> DuckLakeResource:
    made = DuckLakeResource(**{"catalog": SqliteCatalog(path="lake.db"), "storage": LocalStorage(data_path="files"), **how})
    made._run = run
    return made


@pytest.mark.parametrize("catalog", [SqliteCatalog(path="lake.db"), DuckDBCatalog(path="lake.db"), "sqlite:///lake.db"])
def test_a_run_finds_the_lake_in_the_directory_of_its_code_location(folders: tuple[Path, Path], catalog: Any) -> None:
    project, elsewhere = folders
    resource(run_of(project), catalog=catalog, create_if_missing=True).connect().write("t", ROWS)
    assert not list(elsewhere.iterdir())
    lake = resource(run_of(project), catalog=catalog).connect()
    assert lake.info.data_path == f"{project}/files/"
    assert lake.table("t").scan().to_arrow().num_rows == 200
    assert resource(base_directory=str(project), catalog=catalog).connect().table("t").scan().count() == 200


def test_code_servers_name_the_directory_on_their_command_line(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = folders
    assert code_location_directory() == str(elsewhere)
    for program in ("/env/bin/dagster", "/env/site-packages/dagster/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program, "api", "grpc", "-m", "defs", "-d", str(project)])
        assert code_location_directory() == str(project)


def test_a_second_empty_lake_is_not_created_next_to_the_first(folders: tuple[Path, Path]) -> None:
    project, elsewhere = folders
    DuckLake.create("sqlite:///lake.db", data_path="files")
    with pytest.raises(UsageError, match="base_directory") as caught:
        resource(run_of(project), create_if_missing=True).connect()
    assert f"{elsewhere}/lake.db" in caught.value.message
    assert not list(project.iterdir())


def test_a_stored_relative_data_path_is_found_from_elsewhere(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = folders
    monkeypatch.chdir(project)
    DuckLake.create("sqlite:///lake.db", data_path="files", relative_data_path=True).write("t", ROWS)
    monkeypatch.chdir(elsewhere)
    for storage in (LocalStorage(), LocalStorage(data_path="files/")):
        assert resource(run_of(project), storage=storage).connect().table("t").scan().to_arrow().num_rows == 200
    assert not list(elsewhere.iterdir())
