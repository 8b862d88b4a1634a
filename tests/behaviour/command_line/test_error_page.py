"""The page on errors has every code, and each message on it is one that the library raises."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.spark import work_units
from ducklake_core.errors import DuckLakeError

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "errors.md").read_text()
_SECTION = re.compile(r"^### `([\w-]+)`\n\n```text\n(.*?)\n```", re.MULTILINE | re.DOTALL)
EXAMPLES = {code: " ".join(message.split()) for code, message in _SECTION.findall(PAGE)}
ORDERS = pa.table({"id": pa.array([1, 2], pa.int64()), "country": ["DE", "FR"]})
# Messages that need many writers: their words between the values are compared with the code.
WORDS_IN_COMMITTER = {
    "commit": ("was written for snapshot", "and cannot be written again"),
    "commit-retries-exhausted": ("because other writers committed first or the catalog was unreachable. Nothing was changed.",),
}


def _classes(base: type[DuckLakeError] = DuckLakeError) -> list[type[DuckLakeError]]:
    return [one for sub in base.__subclasses__() for one in (sub, *_classes(sub))]


def test_every_code_has_a_message_and_a_fix() -> None:
    assert set(EXAMPLES) == {one.code for one in _classes() if one.__module__ == "ducklake_core.errors"}
    for code in EXAMPLES:
        section = PAGE.split(f"### `{code}`\n")[1].split("\n### ")[0]
        assert "\n\n**Fix.** " in section


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lake(folder: Path) -> DuckLake:
    lake = DuckLake.create("sqlite:///lake.sqlite", data_path="files/")
    lake.write("orders", ORDERS, inline=False)
    return lake


def _edited(statement: str) -> None:
    with closing(sqlite3.connect("lake.sqlite")) as connection, connection:
        connection.execute(statement)


def _a_version_of_the_future(_lake: DuckLake) -> None:
    _edited("UPDATE ducklake_metadata SET value = '2.7' WHERE key = 'version'")
    DuckLake.connect("sqlite:///lake.sqlite")


def _a_missing_setting(_lake: DuckLake) -> None:
    _edited("DELETE FROM ducklake_metadata WHERE key = 'data_path'")
    DuckLake.connect("sqlite:///lake.sqlite")


def _half_a_catalog(_lake: DuckLake) -> None:
    path = Path("lake.sqlite")
    path.write_bytes(path.read_bytes()[:3000])
    DuckLake.connect("sqlite:///lake.sqlite")


def _a_parquet_file(_lake: DuckLake) -> None:
    pq.write_table(ORDERS, "rows.parquet")
    DuckLake.connect("sqlite:///rows.parquet")


def _a_damaged_file(lake: DuckLake) -> None:
    path = Path(lake.table("orders").list_files()[0].path)
    path.write_bytes(b"x" * path.stat().st_size)
    lake.table("orders").scan().to_arrow()


def _a_dropped_table(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", ORDERS)
        lake.drop_table("orders")


def _a_busy_catalog(lake: DuckLake) -> None:
    with closing(sqlite3.connect("lake.sqlite")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with lake.database.write():
            pass


def _expired_snapshots(lake: DuckLake) -> None:
    lake.write("orders", ORDERS)
    lake.expire_snapshots(keep_last=1, older_than="0 seconds", min_age="0 seconds")
    lake.find_commit("nightly")


def _raised_by_a_store(error: Exception) -> Callable[[DuckLake], None]:
    def read(lake: DuckLake) -> None:
        with lake.storage.reporting("read", "s3://bucket/lake/main/orders/f.parquet"):
            raise error

    return read


def _a_stopped_session(_lake: DuckLake) -> None:
    raise work_units._failure("main.orders", RuntimeError("Job 7 cancelled because SparkContext was shut down"))


CAUSES: dict[str, Callable[[DuckLake], object]] = {
    "usage": lambda lake: lake.expire_snapshots(older_than="0 days"),
    "unsupported-feature": lambda _: DuckLake.connect("oracle://db/lake"),
    "not-found": lambda lake: lake.table("order"),
    "already-exists": lambda _: DuckLake.create("sqlite:///lake.sqlite", data_path="files/"),
    "schema": lambda lake: lake.table("orders").append(pa.table({"id": ["a"], "country": ["DE"]})),
    "catalog": _half_a_catalog,
    "not-a-lake": _a_parquet_file,
    "catalog-version": _a_version_of_the_future,
    "catalog-corrupt": _a_missing_setting,
    "catalog-unavailable": _a_busy_catalog,
    "storage": _raised_by_a_store(PermissionError("Access Denied")),
    "store-unavailable": _raised_by_a_store(TimeoutError("timed out")),
    "corrupt-file": _a_damaged_file,
    "job-failed": _a_stopped_session,
    "commit-conflict": _a_dropped_table,
    "commit-outcome-unknown": _expired_snapshots,
}


@pytest.mark.parametrize("code", CAUSES)
def test_messages_are_those_of_the_library(lake: DuckLake, folder: Path, code: str) -> None:
    with pytest.raises(DuckLakeError) as caught:
        CAUSES[code](lake)
    printed = re.sub(r"ducklake-[0-9a-f-]{36}", "ducklake-UUID", str(caught.value).replace(str(folder), "/srv/lake"))
    assert printed == EXAMPLES[code]


def test_other_messages_are_in_the_code() -> None:
    assert set(EXAMPLES) == {*CAUSES, *WORDS_IN_COMMITTER}
    source = re.sub(r'"\s*f?"', "", (Path(__file__).parents[3] / "ducklake_core" / "commit" / "committer.py").read_text())
    for code, words in WORDS_IN_COMMITTER.items():
        assert all(one in source and one in EXAMPLES[code] for one in words)
