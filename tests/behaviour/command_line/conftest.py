"""A small lake, and the command that looks at it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from ducklake_core import DuckLake
from ducklake_core.cli.app import app
from tests.support.command import Run
from tests.support.forked_command import ForkedCommand, forked_command
from tests.support.oracle import LakeAddress


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.write("t", pa.table({"a": range(150), "b": [f"v{number}" for number in range(150)]}), author="me")
    lake.write("t", pa.table({"a": range(150, 200), "b": ["w"] * 50}), message="more")
    lake.table("t").delete("a < 30")
    lake.write("other.u", pa.table({"d": pa.array([-(2**31) + 5, 0], pa.int32()).view(pa.date32()), "raw": [b"\xff", None]}), inline=False)
    return lake


@pytest.fixture
def run(sqlite_address: LakeAddress) -> Run:
    def invoke(line: str, *, code: int = 0, **variables: str) -> Result:
        result = CliRunner().invoke(app, shlex.split(line), env={"DUCKLAKE_URL": sqlite_address.url, "COLUMNS": "200"} | variables)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return invoke


@pytest.fixture(scope="package")
def forked() -> Iterator[ForkedCommand]:
    """The command in processes of its own."""
    with forked_command() as command:
        yield command
