"""Lakes are created, files loaded, rows exported, and options, holds and dropped tables managed from a shell."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ducklake_core import DuckLake
from ducklake_core.cli.app import app
from ducklake_core.cli.session import FAILED, FOUND, USAGE
from tests.support.command import Run, answer, lines


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_create(run: Run, folder: Path, tmp_path: Path) -> None:
    printed = run("create sqlite:///new.sqlite --data-path files/").stdout
    assert printed == f"created sqlite:///{folder}/new.sqlite with data path {folder}/files/\n"
    assert run("tables", DUCKLAKE_URL="sqlite:///new.sqlite").stdout
    assert "already holds a lake" in run("create sqlite:///new.sqlite --data-path files/", code=FAILED).stderr
    made = answer(run(f"--lake sqlite:///{tmp_path}/b.sqlite --data-path b/ create --version 1.1 --encrypted --json"))
    assert (made["version"], made["data_path"]) == ("1.1", f"{folder}/b/")
    assert DuckLake.connect(f"sqlite:///{tmp_path}/b.sqlite").info.encrypted
    result = CliRunner().invoke(app, ["create"], env={"DUCKLAKE_URL": ""})
    assert (result.exit_code, "Set --lake or DUCKLAKE_URL" in result.stderr) == (USAGE, True)


def test_load_csv(lake: DuckLake, run: Run, folder: Path) -> None:
    (folder / "a.csv").write_text('id,name,code,at\n1,Ada,007,2026-01-01 10:00:00\n2,"",8,\n3,,9,2026-01-02 10:00:00\n')
    printed = run("load a.csv --into sales.people --partition-by 'bucket(4, id), day(at)' --message first").stdout
    assert printed.startswith("sales.people at snapshot 5: created, 3 rows added")
    people = lake.table("sales.people")
    assert people.partition_spec is not None
    assert [key.expression for key in people.partition_spec.fields] == ["bucket(4, id)", "day(at)"]
    assert [str(column.type) for column in people.schema] == ["int64", "varchar", "int64", "timestamp"]
    assert people.scan().to_arrow().sort_by("id")["name"].to_pylist() == ["Ada", "", None]
    assert people.scan(["at"], "id = 1").to_arrow()["at"].to_pylist() == [datetime.fromisoformat("2026-01-01 10:00")]
    # An existing table decides the types.
    lake.create_table("codes", {"code": "varchar", "id": "int64"})
    run("load a.csv --into codes", code=FAILED)
    (folder / "b.csv").write_text("id,code\n1,007\n")
    run("load b.csv --into codes")
    run("load b.csv b.csv --into codes --mode overwrite --where 'id = 1'")
    assert lake.table("codes").scan().to_arrow()["code"].to_pylist() == ["007", "007"]
    (folder / "c.csv").write_text("id,code\n1,008\n2,009\n")
    assert answer(run("load c.csv --into codes --mode overwrite --json"))["rows_added"] == 2
    (folder / "d.csv").write_text("id,code\n2,010\n3,011\n")
    assert "2 rows added" in run("load d.csv --into codes --mode upsert --on id").stdout
    assert sorted(lake.table("codes").scan().to_arrow()["code"].to_pylist()) == ["008", "010", "011"]


def test_load_parquet_and_json(lake: DuckLake, run: Run, folder: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "n": [{"x": 1}, None]}), "one.parquet")
    pq.write_table(pa.table({"a": [3], "n": [{"x": 2}]}), "two.parquet")
    run("load one.parquet two.parquet --into p")
    assert lake.table("p").scan().to_arrow()["a"].to_pylist() == [1, 2, 3]
    (folder / "rows.jsonl").write_text('{"a": 1, "n": {"x": 1}}\n{"a": 2}\n')
    (folder / "rows.json").write_text('[\n {"a": 3, "n": {"x": 3}},\n {"a": 4}\n]\n')
    run("load rows.jsonl --into j")
    run("load rows.json --into j")
    assert lake.table("j").scan().to_arrow().to_pylist()[2:] == [{"a": 3, "n": {"x": 3}}, {"a": 4, "n": None}]
    before = lake.snapshot().id
    for line, code, expected in (
        ("load s3://bucket/a.csv --into j", FAILED, "only local files are supported"),
        ("load nothing.csv --into j", FAILED, "there is no file nothing.csv"),
        ("load one.parquet rows.json --into j", USAGE, "different formats (json, parquet)"),
        ("load notes --into j", USAGE, "Set --format"),
        ("load rows.json --into j --format parquet", FAILED, "cannot read rows.json as parquet"),
        ("load rows.json --into j --mode upsert", USAGE, "on"),
        ("load rows.jsonl --format csv --into k --mode repeat", USAGE, "'repeat'"),
    ):
        assert expected in run(line, code=code).stderr
    assert lake.snapshot().id == before


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "jsonl"])
def test_export_and_load_again(lake: DuckLake, run: Run, folder: Path, suffix: str) -> None:
    lake.write("e", pa.table({"i": [1, 2, None], "s": ['a, "b"\n', "", None], "f": [0.5, None, 2.0], "b": [True, None, False]}))
    assert run(f"export e out.{suffix} --where 'i > 0 OR i IS NULL'").stdout == f"exported 3 rows to out.{suffix}\n"
    assert os.listdir(folder) == [f"out.{suffix}"]
    run(f"load out.{suffix} --into again")
    assert lake.table("again").scan().to_arrow().to_pylist() == lake.table("e").scan().to_arrow().to_pylist()
    assert "Pass --overwrite to replace it" in run(f"export e out.{suffix}", code=FAILED).stderr
    assert answer(run(f"export e out.{suffix} --columns i --overwrite --json"))["rows"] == 3


def test_a_failed_export_leaves_no_file(lake: DuckLake, run: Run, folder: Path) -> None:
    assert "no/such" in run("export t no/such/out.csv", code=FAILED).stderr
    Path(lake.table("t").list_files()[0].path).unlink()
    assert "there is no file" in run("export t out.csv", code=FAILED).stderr
    assert os.listdir(folder) == []


def test_formats_of_queries(lake: DuckLake, run: Run, folder: Path) -> None:
    assert run("query t --where 'a IN (31, 160)' --format csv").stdout == "a,b\n31,v31\n160,w\n"
    assert json.loads(run("query t --where 'a IN (31, 160)' --format json").stdout) == [{"a": 31, "b": "v31"}, {"a": 160, "b": "w"}]
    assert json.loads(run("query t --limit 0 --format json").stdout) == []
    assert len(lines(run("query t --format jsonl"))) == 170
    assert run("query t --where 'a = 31' --format vertical").stdout == "row 1\n  a  31\n  b  v31\n"
    result = run("query t --limit 5 --format parquet")
    assert pq.read_table(io.BytesIO(result.stdout_bytes)).num_rows == 5
    assert "or --format csv, not both" in run("query t --json --format csv", code=USAGE).stderr
    # Exactly as many rows as are shown by default are all rows.
    assert "--limit" not in run("query t --where 'a < 130'").stderr
    changed = run("changes t --from 3 --to 3 --columns change_type,a --limit 1 --format csv").stdout
    assert changed.splitlines()[0] == "change_type,a"


def test_values_that_python_or_json_cannot_hold(lake: DuckLake, run: Run) -> None:
    nested = "SELECT [DATE '-44-03-15', NULL] AS d, {'m': MAP {'k': TIMESTAMP '-44-03-15 01:02:03'}} AS s"
    assert run(f'sql "{nested}" --format csv').stdout.splitlines()[1].startswith('"[""-0044-03-15"", null]"')
    assert "-0044-03-15" in run(f'sql "{nested}"').stdout
    odd = "SELECT INTERVAL '14 months 2 days 3 seconds' AS i, 1::FLOAT/3 AS f, 1 AS a, 2 AS a"
    assert run(f'sql "{odd}" --format csv').stdout.splitlines()[1] == "1 year 2 months 2 days 00:00:03,0.33333334,1,2"
    (row,) = lines(run(f'sql "{odd}" --json'))
    assert (row["i"], row["a"], row["a_1"]) == ("1 year 2 months 2 days 00:00:03", 1, 2)
    assert "use another format" in run(f'sql "{odd}" --format parquet', code=FAILED).stderr


def test_sql_from_files_and_the_input(lake: DuckLake, run: Run, folder: Path) -> None:
    (folder / "query.sql").write_text("SELECT count(*) AS n\nFROM t\n")
    assert run("sql --file query.sql --format csv").stdout == "n\n170\n"
    for line in ("sql", "sql -"):
        done = CliRunner().invoke(app, [*line.split(), "--json"], input="SELECT 1 AS one", env={"DUCKLAKE_URL": str(lake.database.address)})
        assert (done.exit_code, done.stdout) == (0, '{"one": 1}\n')
    assert "as SQL or with --file, not both" in run("sql 'SELECT 1' --file query.sql", code=USAGE).stderr
    assert "cannot read the statement from none.sql" in run("sql --file none.sql", code=USAGE).stderr


def test_options(lake: DuckLake, run: Run) -> None:
    assert run("option set expire_older_than '30 days'").stdout == "set expire_older_than = 30 days for the lake\n"
    run("option set data_inlining_row_limit 5 --table t")
    found = {one["name"]: (one["value"], one["scope"]) for one in answer(run("option list --json"))}
    assert (found["expire_older_than"], found["data_inlining_row_limit"]) == (("30 days", "global"), ("5", "table"))
    assert "expire_older_than" in run("option list").stdout
    assert run("option unset expire_older_than").stdout == "unset expire_older_than for the lake\n"
    assert run("option unset expire_older_than").stdout == "expire_older_than was not set for the lake\n"
    assert answer(run("option unset expire_older_than --json"))["was_set"] is False
    assert "expire_older" in run("option set expire_oldr_than 3", code=USAGE).stderr


def test_holds(lake: DuckLake, run: Run) -> None:
    assert run("hold add audit --at 2").stdout == "audit holds snapshot 2\n"
    assert "Choose another name, or move it with replace (--replace)" in run("hold add audit --at 3", code=FAILED).stderr
    run("hold add audit --at 3 --replace")
    assert run("query t --at AUDIT --format csv").stdout == run("query t --at 3 --format csv").stdout
    assert run("changes t --from audit --to audit --format csv").stdout == run("changes t --from 3 --to 3 --format csv").stdout
    assert answer(run("hold add later --until '2099-01-01 00:00:00+00:00' --json"))["snapshot_id"] == 4
    assert [(one["name"], one["snapshot_id"]) for one in answer(run("hold list --json"))] == [("audit", 3), ("later", 4)]
    assert "2099-01-01 00:00:00" in run("hold list").stdout
    assert run("hold remove audit").stdout == "removed the hold audit\n"
    assert "Hold 'audit' does not exist" in run("hold remove audit", code=FAILED).stderr
    assert "no zone" in run("hold add x --until 2099-01-01", code=USAGE).stderr


def test_undrop(lake: DuckLake, run: Run) -> None:
    lake.drop_table("t")
    assert run("undrop t --as back --message why").stdout == "main.back was re-created with 170 rows, at snapshot 6\n"
    assert lake.snapshot().message == "why"
    assert answer(run("undrop t --at 1 --json"))["row_count"] == 150
    assert "no table" in run("undrop nope", code=FAILED).stderr


def test_copy_and_move(lake: DuckLake, run: Run, tmp_path: Path) -> None:
    target = f"duckdb:///{tmp_path / 'copy.ducklake'}"
    assert "copied 5 snapshots to duckdb:" in run(f"copy {target} --copy-files {tmp_path / 'copies'} --compare rows").stdout
    assert "already holds a lake" in run(f"copy {target}", code=FAILED).stderr
    assert answer(run(f"copy sqlite:///{tmp_path / 'same.sqlite'} --json"))["snapshots"] == 5
    Path(lake.info.data_path).rename(tmp_path / "moved")
    doctor = run("doctor --no-write", code=FOUND).stdout
    assert "ducklake move NEW_PATH" in doctor
    assert "4 files checked" in run(f"move {tmp_path / 'moved'}").stdout
    assert "ok       storage" in run("doctor --no-write").stdout
    assert "4 files of 4 cannot be found" in run("move nowhere", code=FAILED).stderr


def test_purge(lake: DuckLake, run: Run) -> None:
    lake.holds.add("audit")
    assert "'audit' (snapshot 4)" in run("purge t --where 'a = 199'", code=USAGE).stderr
    lake.holds.remove("audit")
    assert run("purge t --where 'a = 199' --dry-run").stdout.startswith("would delete 1 row of main.t")
    assert run("purge t --where 'a = 199' --message m").stdout.endswith("in no snapshot, file, inlined row and statistic of the lake\n")
    assert len(lake.snapshots()) == 1
    found = answer(run("purge t --where 'a = 198' --min-age '1 hour' --json", code=FOUND))
    assert "younger than min_age" in found["remains"][0]


def test_sort_keys_have_directions(lake: DuckLake, run: Run) -> None:
    lake.table("t").set_sorted_by(["a DESC NULLS FIRST", "b"])
    assert answer(run("info t --json"))["sorted_by"] == ["a DESC NULLS FIRST", "b ASC NULLS LAST"]
    printed = run("info t").stdout
    assert "a DESC NULLS FIRST, b ASC NULLS LAST" in printed
    assert "file size" in printed


def test_completion_of_a_shell() -> None:
    environment = {**os.environ, "_DUCKLAKE_COMPLETE": "complete_bash", "COMP_WORDS": "ducklake un", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from ducklake_core.cli.app import app; app(prog_name='ducklake')"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["undrop"], "")


def test_every_command_has_an_example(run: Run) -> None:
    group: Any = get_command(app)
    for name, command in group.commands.items():
        for inner, one in getattr(command, "commands", {"": command}).items():
            line = f"{name} {inner}".strip()
            assert f"Example: ducklake {line}" in " ".join(run(f"{line} --help").stdout.split()), line
            assert one.help
