"""On a terminal of 80 columns listings can be read; elsewhere nothing is shortened or folded."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.command import Run, answer
from tests.support.forked_command import ForkedCommand
from tests.support.oracle import LakeAddress

OnTerminal = Callable[[str], list[str]]


@pytest.fixture
def on_terminal(sqlite_address: LakeAddress, forked: ForkedCommand) -> Iterator[OnTerminal]:
    """Runs a command on a terminal of 80 columns; gives its lines, without styles."""

    nowhere = os.open(os.devnull, os.O_WRONLY)

    def invoke(line: str) -> list[str]:
        leader, follower = pty.openpty()
        forked.start(line.split(), follower, nowhere, {"DUCKLAKE_URL": sqlite_address.url, "COLUMNS": "80", "TERM": "xterm"})
        os.close(follower)
        text = b""
        while (read := _read(leader)) != b"":
            text += read
        assert forked.wait() == 0
        os.close(leader)
        return [one.rstrip() for one in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode()).splitlines()]

    yield invoke
    os.close(nowhere)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        # Linux reports it where other systems give the end.
        return b""


def test_files(lake: DuckLake, run: Run, on_terminal: OnTerminal) -> None:
    for number in range(3):
        lake.write("sales.orders", pa.table({"day": [f"2026-01-0{number}"] * 2000, "n": range(2000)}), partition_by=["day"], inline=False)
    lake.table("sales.orders").delete("n < 100 AND day = '2026-01-01'")
    files = lake.table("sales.orders").list_files()
    head, titles, more_titles, _, *rows = on_terminal("files sales.orders")
    assert head == f"files below {lake.info.data_path}sales/orders/"
    assert (titles.split(), more_titles.split()) == (
        ["deleted", "since"],
        ["file", "rows", "size", "rows", "snapshot", "partition", "path"],
    )
    assert len(rows) == 3
    for file, deleted, row in zip(files, (0, 100, 0), rows, strict=True):
        number, count, size, unit, deletes, since, partition, path = row.split()
        assert (count, partition) == ("2,000", _day(file))
        assert [int(number), int(deletes), int(since)] == [file.id, deleted, file.begin_snapshot]
        assert (float(size) > 1, unit, len(row) <= 80) == (True, "KiB", True)
        begin, end = path.split("...")
        assert file.path.startswith(f"{lake.info.data_path}sales/orders/{begin}")
        assert file.path.endswith(end)
    printed = run("files sales.orders", COLUMNS="80").stdout
    assert all(file.path in printed for file in files)
    # A table without partitions has no column for them.
    assert "partition" not in " ".join(on_terminal("files t"))


def _day(file: object) -> str:
    ((_, day),) = file.partition_values  # type: ignore[attr-defined]
    return str(day)


def test_listings(lake: DuckLake, run: Run, on_terminal: OnTerminal) -> None:
    lake.write("sales.orders_of_customers", pa.table({"n": range(2000)}), author="etl", message="the orders of a day", inline=False)
    for line in ("snapshots", "tables", "info", "info t"):
        assert max(map(len, on_terminal(line))) <= 80
    printed = "\n".join(on_terminal("tables"))
    assert re.search(r"^sales\.orders_of_customers +2,000 +1 +\d+\.\d KiB +0 +0$", printed, re.MULTILINE)
    snapshots = on_terminal("snapshots --last 1")
    # Each change stands on a line of follower own, and the time on one.
    assert re.search(r"^ +5  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  created schema sales", "\n".join(snapshots), re.MULTILINE)
    assert sum("created " in one for one in snapshots) == 2
    assert (
        "created schema sales, created table sales.orders_of_customers, inserted into sales.orders_of_customers" in run("snapshots").stdout
    )


def test_changes_have_the_names_of_their_time(lake: DuckLake, run: Run) -> None:
    lake.create_schema('"a,""b"""')
    lake.rename_table("t", "v")
    lake.table("v").add_column("c", "int64")
    lake.drop_table("v")
    lake.create_view("w", "SELECT 1 AS one")
    lake.drop_view("w")
    printed = run("snapshots --last 6").stdout
    assert [re.split(" {2,}", line.strip())[2] for line in printed.splitlines()[2:]] == [
        'created schema "a,""b"""',
        "renamed table main.t to main.v",
        "altered table main.v",
        "dropped table main.v",
        "created view main.w",
        "dropped view main.w",
    ]
    assert "inserted into main.t" in run("snapshots --last 9").stdout
    assert answer(run("snapshots --last 1 --json"))[0]["changes"].startswith("dropped_view:")


def test_wide_rows_fit(lake: DuckLake, run: Run, on_terminal: OnTerminal) -> None:
    names = [f"column_{number}" for number in range(30)]
    row = dict.fromkeys(names, "a long value that goes on " * 3) | {"column_1": 12345678901234567, "column_29": None}
    lake.write("wide", pa.Table.from_pylist([row] * 3))
    printed = on_terminal("query wide")
    assert {len(line) for line in printed if line} == {len(printed[0])}
    assert len(printed[0]) <= 80
    assert [name.strip() for name in printed[1].strip("│").split("│")][:2] == ["column_0", "column_1"]
    assert "│ 12345678901234567 │" in printed[3]
    assert "NULL" in printed[3]
    printed = run("query wide").stdout.splitlines()
    assert ("a long value that goes on " * 3).strip() in printed[3]
    assert len(printed) == 7


def test_vertical_rows_are_whole(lake: DuckLake, run: Run) -> None:
    lake.write(
        "odd", pa.table({"id": [1], "null": pa.nulls(1, pa.string()), "text": ["NULL"], "nested": [{"a": ["x", None]}], "b": [b"\xff"]})
    )
    assert run("query odd --format vertical").stdout.splitlines() == [
        "row 1",
        "  id      1",
        "  null    NULL",
        "  text    'NULL'",
        "  nested  {'a': ['x', NULL]}",
        "  b       \\xFF",
    ]
