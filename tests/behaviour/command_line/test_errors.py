"""Wrong calls and errors: one line, one object, one code, and no secrets."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ducklake_core import DuckLake
from ducklake_core.cli.app import app
from ducklake_core.cli.session import FAILED, FOUND, USAGE
from ducklake_core.errors import NotALakeError
from tests.support.command import Run


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        ("query nope", FAILED, "no table main.nope"),
        ("tables --schema othr", FAILED, "there is no schema 'othr' at snapshot 4 (did you mean 'other'?)"),
        ("tables --schema other --at 2", FAILED, "there is no schema 'other' at snapshot 2"),
        ("merge --schema othr", FAILED, "there is no schema 'othr'"),
        ("flush nope 'main.*'", FAILED, "no table main.nope"),
        ("plan checkpoint nope", FAILED, "no table main.nope"),
        ("snapshots --table nope", FAILED, "no table main.nope"),
        ("query t --where 'zz > 1'", FAILED, "zz"),
        ("query t --at yesterday", USAGE, "neither the name of a hold nor a time"),
        ("query t --at '2026-01-01 00:00:00'", USAGE, "no zone"),
        ("expire --versions x", USAGE, "must be ids"),
        ("expire --older-than soon --min-age 0d", USAGE, "'soon' is neither an age ('7 days') nor a time"),
        ("expire --older-than 2026-01-01", USAGE, "write 2026-01-01 00:00:00+00:00 for UTC"),
        ("check --level deep", USAGE, "Unknown level"),
        ("health --label x", USAGE, "name=value"),
        ("health --label lake=x", USAGE, "--label needs --openmetrics"),
        ("health --label lake=x --label lake=y", USAGE, "--label lake is given twice"),
        ("expire --older-than 20260101", USAGE, "20260101 has no unit"),
        ("cleanup --older-than 30", USAGE, "30 has no unit"),
        ("merge t --schema main", USAGE, "pass TABLE or --schema, not both"),
        ("flush t --schema main", USAGE, "pass TABLE or --schema, not both"),
        ("rewrite t --schema main", USAGE, "pass TABLE or --schema, not both"),
        ("query t --columns '\"a'", USAGE, "cannot read the names"),
        ("restore --at 1 --columns then", USAGE, "--columns is for one table"),
        ("query", USAGE, "Missing argument 'TABLE' (see"),
        ("changes t", USAGE, "Missing option '--from'"),
        ("plan expire --keep-last 0", USAGE, "--keep-last"),
        ("migrate --to 7", USAGE, "1.1"),
        ("tables --nope", USAGE, "--nope"),
        ("plan nope", USAGE, "nope"),
        ("quary t", USAGE, "query"),
        ("hold add 5", USAGE, "A hold cannot be named '5'"),
        ("create", USAGE, "A new lake needs a data path. Pass --data-path, a directory"),
        ("query t --format xml", USAGE, "Invalid value for '--format': 'xml' is not one of"),
        ("query t --where 'select = 1'", USAGE, 'write it in double quotes: "select"'),
        ("sql 'SELECT sum(zz) FROM tt'", FAILED, "there is no table or view tt"),
    ],
)
def test_errors_are_one_line_and_a_code(lake: DuckLake, run: Run, line: str, code: int, expected: str) -> None:
    result = run(line, code=code)
    assert expected in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    printed = run(f"{line} --json", code=code)
    assert printed.stdout == ""
    error = json.loads(printed.stderr)["error"]
    assert (error["exit_code"], error["retriable"], expected in error["message"]) == (code, False, True)
    assert f"[{error['code']}]" in result.stderr


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("cleanup --cleanup-all", "--min-age"),
        ("cleanup --cleanup-all --older-than '1 day'", "--cleanup-all"),
        ("expire --older-than '0 days'", "--min-age"),
        ("plan expire --older-than '0 days'", "--min-age"),
        ("expire --versions 1 --older-than '1 day'", "--versions"),
        ("merge --max-files 0", "--max-files"),
        ("merge --max-compacted-files 0", "--max-compacted-files"),
        ("rewrite --max-concurrency 0", "--max-concurrency"),
        ("merge --cluster-by a", "--cluster-by"),
        ("check --author me", "--author"),
        ("restore t --at 1 --message x", "--columns"),
        ("restore t --at 1 --columns later --message x", "--columns"),
        ("sql 'DELETE FROM t'", "--message"),
    ],
)
def test_errors_about_an_argument_name_its_option(lake: DuckLake, run: Run, line: str, option: str) -> None:
    lake.table("t").add_column("c", "int64")
    lake.set_option("require_commit_message", True)
    result = run(line, code=USAGE)
    assert option in result.stderr
    assert json.loads(run(f"{line} --json", code=USAGE).stderr)["error"]["details"]["command_option"] == option


def test_errors_suggest_only_arguments_of_the_command(lake: DuckLake, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_view("v", "SELECT 1 AS one")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ducklake.toml").write_text(
        f'[lakes.shown]\ncatalog = "{lake.database.address}"\nread_only = true\n'
        f'[lakes.moved]\ncatalog = "{lake.database.address}"\ndata_path = "elsewhere/"\n'
    )
    for line, code in {
        "query v": FAILED,
        "--lake shown merge t": USAGE,
        "--lake moved tables": USAGE,
        "check --author me": USAGE,
        "sql 'DROP SCHEMA other'": USAGE,
        "sql 'ALTER TABLE t SET PARTITIONED BY (day_since_epoch(a))'": FAILED,
    }.items():
        printed = run(line, code=code).stderr
        assert not re.search(r"=True|=False|\bpass \w+|migrate\(|lake\.\w+\(", printed), printed


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_an_address_that_can_never_work_is_a_wrong_call(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "letter").write_text("Dear database,\n" * 100)
    monkeypatch.chdir(tmp_path)
    known = {
        "folder": "is a directory",
        "letter": "database, so it holds no",
        "nothing": "no catalog file",
        "x" * 300: "File name too long",
    }
    for name, expected in known.items():
        for command in ("tables", "merge"):
            printed = run(f"{command} --json", code=USAGE, DUCKLAKE_URL=f"{kind}:///{tmp_path}/{name}")
            error = json.loads(printed.stderr)["error"]
            assert (error["retriable"], error["exit_code"], expected in error["message"]) == (False, USAGE, True)
    assert "Lake 'folder' is not defined" in run("tables", code=USAGE, DUCKLAKE_URL="folder").stderr
    assert "check --lake or DUCKLAKE_URL" in run("doctor", code=FOUND, DUCKLAKE_URL=f"{kind}:///{tmp_path}/folder").stdout


def test_files_of_other_formats_are_not_lakes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "rows.parquet")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "junk").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)
    duckdb.connect(str(tmp_path / "duck")).close()
    with closing(sqlite3.connect(tmp_path / "lite")) as connection:
        connection.execute("CREATE TABLE t (a)")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    advice = {("sqlite", "duck"): "write duckdb:///", ("duckdb", "lite"): "Write sqlite:///", ("duckdb", "junk"): "Write sqlite:///"}
    for kind in ("sqlite", "duckdb"):
        for name in ("rows.parquet", "empty", "folder", "junk", "duck", "lite"):
            with pytest.raises(NotALakeError, match=advice.get((kind, name), "DuckLake catalog")):
                DuckLake.connect(f"{kind}:///{tmp_path}/{name}")
            # A new lake may be made in a database without one, but never in place of another file.
            if (kind, name) not in (("sqlite", "empty"), ("sqlite", "lite"), ("duckdb", "duck")):
                with pytest.raises(NotALakeError):
                    DuckLake.create(f"{kind}:///{tmp_path}/{name}", data_path=str(tmp_path / "files"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_the_error_of_a_restore_names_the_choices(lake: DuckLake, run: Run) -> None:
    lake.table("t").add_column("c", "int64")
    printed = run("restore t --at 1", code=USAGE).stderr
    assert "columns 'then' restores the earlier columns too, columns 'now' keeps the present ones" in printed
    assert "(--columns)" in printed
    run("restore t --at 1 --columns then")
    assert [column.name for column in lake.table("t").schema] == ["a", "b"]


def test_without_a_command_there_is_help(run: Run) -> None:
    for line, expected in (("", "flush"), ("plan", "rewrite")):
        result = run(line, code=USAGE)
        assert "Usage:" in result.stderr
        assert expected in result.stderr


def test_secrets_are_not_shown(run: Run) -> None:
    secret = "hush-hush-7"
    for url in (f"postgresql+psycopg://me:{secret}@127.0.0.1:1/lake", f"ducklake:postgres:host=127.0.0.1 port=1 password={secret}"):
        for command in ("tables", "tables --json", "doctor", "doctor --json"):
            variables = {"DUCKLAKE_URL": url, "DUCKLAKE_STORAGE_OPTIONS": f'{{"s3": {{"key": "{secret}"}}}}'}
            result = CliRunner().invoke(app, shlex.split(command), env=variables)
            assert result.exit_code != 0
            assert secret not in result.output + repr(result.exception)
    for options in (f'{{"s3": {{"key": "{secret}"', f'["{secret}"]'):
        assert secret not in run("tables", code=USAGE, DUCKLAKE_STORAGE_OPTIONS=options).output
    helped = CliRunner().invoke(app, ["--help"], env={"DUCKLAKE_URL": f"sqlite:///{secret}", "DUCKLAKE_STORAGE_OPTIONS": secret})
    assert helped.exit_code == 0
    assert secret not in helped.output


def test_remedies_are_commands(lake: DuckLake, run: Run, tmp_path: Path) -> None:
    lake.holds.add("audit", 2)
    assert "ducklake hold remove NAME" in run("purge t --where a=1", code=2).stderr
    dry_run = run("purge t --where a=1 --dry-run", code=1).stdout
    assert "would delete" in dry_run
    assert "ducklake hold remove NAME" in dry_run
    assert "ducklake hold list" in run("hold remove nothing", code=3).stderr
    lake.holds.remove("audit")
    run("purge t --where a=1 --dry-run")
    lake.set_option("auto_compact", False)
    assert "ducklake option set auto_compact true --table main.t" in run("purge t --where a=1", code=2).stderr
    assert run(f"move {tmp_path / 'nowhere'}", code=3).stderr.rstrip().endswith("or set copy_files (--copy-files) [not-found]")
    inside = f"copy sqlite:///{tmp_path / 'copy.sqlite'} --copy-files {tmp_path / 'files' / 'inner'}"
    assert "(--copy-files)" in run(inside, code=2).stderr
