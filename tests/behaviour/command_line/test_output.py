"""Wherever the output goes, a command reports by its exit code how it ended, and never ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.cli.output import progress_bar
from ducklake_core.cli.session import FAILED, FOUND
from ducklake_core.maintenance.request import Progress
from tests.support.forked_command import ForkedCommand
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
WriteTo = Callable[..., tuple[int, str]]


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    for _ in range(2):
        lake.write("tür_😀", pa.table({"n": range(10)}), inline=False)
    return lake


@pytest.fixture
def run(sqlite_address: LakeAddress) -> Run:
    def invoke(line: str, shell: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        text = f'"$0" -m ducklake_core.cli {line} {shell}'
        environment = {**os.environ, "DUCKLAKE_URL": sqlite_address.url, **variables}
        return subprocess.run(["bash", "-c", text, sys.executable], env=environment, capture_output=True, text=True, check=False)

    return invoke


@pytest.fixture
def write_to(sqlite_address: LakeAddress, forked: ForkedCommand) -> WriteTo:
    def invoke(line: str, stdout: int, unbuffered: str = "") -> tuple[int, str]:
        try:
            return forked.run(shlex.split(line), stdout, DUCKLAKE_URL=sqlite_address.url, PYTHONUNBUFFERED=unbuffered)
        finally:
            os.close(stdout)

    return invoke


def without_reader() -> int:
    """Return the end for writing of a pipe that nothing reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("line", ["tables", slow("info --json"), slow("health --openmetrics"), "merge", slow("--version")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk(lake: DuckLake, write_to: WriteTo, line: str, unbuffered: str) -> None:
    code, errors = write_to(line, os.open("/dev/full", os.O_WRONLY), unbuffered)
    assert code == FAILED
    (printed,) = errors.splitlines()
    assert "the output cannot be written (No space left on device)" in printed


def test_a_full_disk_in_a_shell(lake: DuckLake, run: Run) -> None:
    done = run("tables", "> /dev/full")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert "the output cannot be written (No space left on device)" in done.stderr


@pytest.mark.parametrize("line", ["merge", "merge --json", "check --level footers --json"])
def test_a_reader_that_goes_does_not_hide_what_failed(lake: DuckLake, write_to: WriteTo, line: str) -> None:
    Path(lake.table("tür_😀").list_files()[0].path).unlink()
    assert write_to(line, without_reader()) == (FOUND, "")


@pytest.mark.parametrize("line", ["tables", "query 'tür_😀' --json", "info --json", "doctor --no-write"])
def test_a_reader_that_has_seen_enough(lake: DuckLake, write_to: WriteTo, line: str) -> None:
    assert write_to(line, without_reader()) == (0, "")


def test_a_reader_that_ends_in_a_shell(lake: DuckLake, run: Run) -> None:
    done = run("tables", "| (exec <&-; sleep 1); exit ${PIPESTATUS[0]}", PYTHONUNBUFFERED="")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_output(lake: DuckLake, run: Run) -> None:
    done = run("tables --json", ">&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_the_output_does_not_have(lake: DuckLake, run: Run) -> None:
    done = run("tables", PYTHONIOENCODING="ascii")
    assert (done.returncode, "main.t\\xfcr_\\U0001f600" in done.stdout) == (0, True)
    done = run("tables --json", PYTHONIOENCODING="ascii")
    assert [one["table"] for one in json.loads(done.stdout)] == ["main.tür_😀"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_do_not_steer_the_terminal_that_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    with progress_bar() as bar:
        assert bar is not None
        bar(Progress(verb="merge", phase="merge files", unit="groups", done=1, table="main.a\x1b]0;title\x07"))
    assert "main.a\\x1b]0;title\\x07" in terminal.getvalue()
    assert "\x1b]0;" not in terminal.getvalue()
