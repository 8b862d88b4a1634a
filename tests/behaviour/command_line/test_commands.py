"""Commands report what the library returns, for people and as JSON, and end with codes that cron and orchestrators can act on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ducklake_core import DuckLake, Table
from ducklake_core.catalog.database.connections import Database
from ducklake_core.cli import doctor
from ducklake_core.cli.app import app
from ducklake_core.cli.doctor import first_file
from ducklake_core.cli.session import FAILED, FOUND, USAGE
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.command import Run, answer, lines
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress


def test_listings(lake: DuckLake, run: Run) -> None:
    assert [row["id"] for row in answer(run("snapshots --json"))] == [snapshot.id for snapshot in lake.snapshots()]
    assert [row["id"] for row in answer(run("snapshots --table other.u --json"))] == [4]
    assert len(answer(run("snapshots --last 2 --json"))) == 2
    assert "more" in run("snapshots").stdout
    assert [(row["table"], row["row_count"]) for row in answer(run("tables --json"))] == [("main.t", 170), ("other.u", 2)]
    assert [row["row_count"] for row in answer(run("tables --schema main --at 1 --json"))] == [150]
    files = answer(run("files t --json"))
    assert [file["path"] for file in files] == [file.path for file in lake.table("t").list_files()]
    assert files[0]["path"] in run("files t").stdout
    assert answer(run("info --json"))["snapshot"] == 4
    printed = answer(run("info t --json"))
    assert (printed["row_count"], [column["name"] for column in printed["columns"]]) == (170, ["a", "b"])
    assert "main.t" in run("info t").stdout
    assert "data path" in run("info").stdout


def test_rows(lake: DuckLake, run: Run) -> None:
    assert lines(run("query t --where 'a IN (31, 160)' --columns a --json")) == [{"a": 31}, {"a": 160}]
    assert len(lines(run("query t --json"))) == 170
    assert len(lines(run("query t --at 1 --json --limit 7"))) == 7
    result = run("query t")
    assert "--limit shows more" in result.stderr
    assert "v129" in result.stdout
    # Neither years before Christ nor bytes have a form in Python's dates or in JSON.
    assert [row["raw"] for row in lines(run("query other.u --json"))] == ["/w==", None]
    changed = lines(run("changes t --from 2 --to 3 --json"))
    assert {row["change_type"] for row in changed} == {"insert", "delete"}
    assert len(changed) == 80
    assert len(lines(run("changes t --from 2 --where \"change_type = 'delete'\" --limit 5 --json"))) == 5


def test_upkeep(lake: DuckLake, run: Run) -> None:
    assert answer(run("expire --older-than '0 days' --min-age '0 days' --dry-run --json"))["dry_run"] is True
    assert len(lake.snapshots()) == 5
    assert "expired 4 snapshots" in run("expire --older-than '0 days' --min-age '0 days'").stdout
    assert len(lake.snapshots()) == 1
    assert "deleted" in run("cleanup --older-than '0 days' --min-age '0 days'").stdout
    assert answer(run("orphans --older-than '0 days' --min-age '0 days' --dry-run --json"))["files"] == []
    lake.write("m", pa.table({"a": range(20)}))
    lake.write("m", pa.table({"a": range(20)}))
    assert "would merge 2 files" in run("merge m --dry-run").stdout
    assert answer(run("merge --schema main --json"))["tables"]
    assert len(lake.table("m").list_files()) == 1
    assert "already" in run("migrate --dry-run").stdout
    before = lake.snapshot().id
    lake.table("m").delete("a < 5")
    assert "main.m" in run(f"restore m --at {before} --message undone").stdout
    assert lake.table("m").scan().count() == 40
    lake.drop_table("m")
    assert answer(run(f"restore --at {before} --json"))["id"] == lake.snapshot().id
    assert lake.table("m").scan().count() == 40
    assert run(f"restore --at {lake.snapshot().id}").stdout == "nothing to change\n"
    assert "items younger than" in run("expire --older-than '0 days'", code=USAGE).stderr


def test_keep_last_of_one_keeps_the_newest_snapshot(lake: DuckLake, run: Run) -> None:
    newest = lake.snapshot().id
    assert "No snapshots are selected" in run("expire --min-age '0 days'", code=USAGE).stderr
    assert "versions cannot be combined" in run("expire --keep-last 1 --versions 1", code=USAGE).stderr
    assert f"snapshot {newest - 1}: planned, forget it" in run("plan checkpoint --keep-last 1 --min-age '0 days'").stdout
    assert f"expired {newest} snapshots" in run("expire --keep-last 1 --min-age '0 days'").stdout
    assert [one.id for one in lake.snapshots()] == [newest]


def test_patterns_that_no_table_matches_are_reported(lake: DuckLake, run: Run) -> None:
    for line in ("flush 'sales.*'", "merge 'sales.*' t", "rewrite 'sales.*'", "plan checkpoint 'sales.*'"):
        assert "no table matches it" in run(line).stdout, line
    (skipped,) = [step for step in answer(run("merge 'sales.*' t --json"))["steps"] if step["target"] == "sales.*"]
    assert (skipped["outcome"], skipped["reason"]) == ("skipped", "no table matches it")


def test_upkeep_of_rows(lake: DuckLake, run: Run) -> None:
    lake.set_option("data_inlining_row_limit", 5)
    lake.write("m", pa.table({"a": range(40)}))
    lake.write("m", pa.table({"a": [100, 101]}))
    lake.table("m").delete("a < 30")
    (planned,) = [step for step in answer(run("flush m --dry-run --json"))["steps"] if step["outcome"] == "planned"]
    assert (planned["target"], planned["rows"]) == ("main.m", 2)
    printed = run("flush --schema main").stdout
    assert re.search(r"^main\.m +flushed 2 inlined rows to 1 file *$", printed, re.MULTILINE)
    assert printed.splitlines()[-1].startswith("nothing to do: main.t (")
    assert re.search(r"^main\.m +rewrote 2 files \(\S+ KiB\) into 1 \(", run("rewrite m --delete-threshold 0.5").stdout, re.MULTILINE)
    assert run("flush m 'x*'").stdout.splitlines() == ["x*: no table matches it", "nothing to do: main.m (it has no inlined data)"]
    assert run("flush --schema other").stdout == "nothing to do: other.u (it has no inlined data)\n"
    assert "between 0 and 1" in run("rewrite --delete-threshold 7", code=USAGE).stderr
    planned = answer(run("checkpoint --dry-run --json"))
    assert planned["verbs"][0]["verb"] == "flush_inlined_data"
    # A step stands in one place.
    assert "steps" not in json.dumps(planned["verbs"])
    assert planned["steps"]
    assert "expire_snapshots (option expire_older_than is not set)" in run("checkpoint").stdout
    assert sorted(lake.table("m").scan().to_arrow()["a"].to_pylist()) == [*range(30, 40), 100, 101]
    lake.set_option("data_inlining_row_limit", 0)
    lake.table("m").delete("a = 35")
    for file in lake.table("m").list_files():
        next(Path(lake.info.data_path).rglob(Path(file.path).name)).unlink()
    failed = run("rewrite m --delete-threshold 0", code=FOUND).stdout
    assert failed.startswith("main.m: FAILED, rewrite_data_files: ")


def test_checks(lake: DuckLake, run: Run, sqlite_address: LakeAddress) -> None:
    assert "nothing found" in run("check --level rows").stdout
    assert 'ducklake_table_rows{lake="x",schema="main",table="t"} 200' in run("health --openmetrics --label lake=x").stdout
    assert answer(run("health --json"))["tables"][0]["deleted_row_count"] == 30
    DamagedLake(sqlite_address).edit("UPDATE ducklake_file_column_stats SET max_value = '1' WHERE column_id = 1 AND max_value = '199'")
    assert [one["code"] for one in answer(run("check --level footers --json", code=FOUND))["findings"]] == ["statistics-invalid"]
    assert "repaired" in run("check --repair").stdout
    assert "nothing found" in run("check").stdout
    DamagedLake(sqlite_address).edit("CREATE TABLE ducklake_inlined_data_77_1 (row_id BIGINT)")
    assert "dead inlined tables" in run("health", code=FOUND).stdout


def test_doctor(lake: DuckLake, run: Run, tmp_path: Path, sqlite_address: LakeAddress) -> None:
    probes = {probe["name"]: probe for probe in answer(run("doctor --json"))}
    assert all(probes[name]["outcome"] == "ok" for name in ("catalog", "clock", "storage", "storage, writing"))
    assert not list(Path(sqlite_address.data_path).glob("*.tmp"))
    Path(lake.table("t").list_files()[0].path).unlink()
    result = run("doctor --no-write", code=FOUND)
    assert "failed   storage" in result.stdout
    assert "-> check the data path" in result.stdout
    nowhere = run("doctor", code=FOUND, DUCKLAKE_URL=f"sqlite:///{tmp_path}/nowhere.sqlite")
    assert "failed   catalog" in nowhere.stdout
    assert "-> check --lake or DUCKLAKE_URL" in nowhere.stdout
    assert "ok       versions" in nowhere.stdout
    probes = ("catalog", "clock", "storage", "storage, writing", "executor")
    nowhere = run("doctor --spark --json", code=FOUND, DUCKLAKE_URL=f"sqlite:///{tmp_path}/nowhere.sqlite")
    outcomes = {probe["name"]: probe["outcome"] for probe in json.loads(nowhere.stdout)}
    assert [outcomes[name] for name in probes] == ["failed", *["skipped"] * 4]


def test_doctor_with_a_wrong_password(mysql: MySQLServer, tmp_path: Path, run: Run) -> None:
    address = mysql.lake(tmp_path)
    mysql.run("DROP USER IF EXISTS etl@localhost", "CREATE USER etl@localhost IDENTIFIED BY 'right'")
    found = run("doctor", code=FOUND, DUCKLAKE_URL=address.url.replace("//root@", "//etl:wr0ng-gu3ss@")).stdout
    assert "failed   catalog" in found
    assert "Access denied for user 'etl'" in found
    assert "-> check the address, the network, the user and its password" in found
    assert "wr0ng-gu3ss" not in found


@pytest.mark.slow
def test_doctor_with_a_file_that_another_process_has_open(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "lake.ducklake"
    DuckLake.create(f"ducklake:{path}", data_path=str(tmp_path / "files/")).close()
    opens = f"import duckdb, time; kept = duckdb.connect({str(path)!r}); print('open', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", opens], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        found = run("doctor", code=FOUND, DUCKLAKE_URL=f"ducklake:{path}").stdout
        other.kill()
    assert "-> check the path, its permissions, and which processes have the file open" in found


def test_doctor_reports_clocks_and_variables(
    lake: DuckLake, run: Run, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock() -> tuple[str, str, str]:
        probe = {probe["name"]: probe for probe in answer(run("doctor --no-write --json"))}["clock"]
        return probe["outcome"], probe["message"], probe["advice"]

    for seconds, expected in ((-60, "this machine is 60 s ahead of"), (60, "this machine is 60 s behind")):
        there = datetime.now(UTC) + timedelta(seconds=seconds)
        with monkeypatch.context() as patch:
            # Commands take a moment to start.
            patch.setattr(Database, "now", lambda *_, there=there: there)
            patch.setattr(doctor, "datetime", SimpleNamespace(now=lambda _, there=there, off=seconds: there - timedelta(seconds=off)))
            outcome, message, advice = clock()
        assert (outcome, message) == ("warning", f"{expected} the catalog's database")
        assert "with NTP" in advice
    DamagedLake(sqlite_address).edit("UPDATE ducklake_snapshot SET snapshot_time = '2099-01-01 00:00:00+00' WHERE snapshot_id = 4")
    assert clock() == (
        "warning",
        "the newest snapshot has the time 2099-01-01 00:00:00 UTC, which is in the future",
        "the clock of a writer is or was wrong: synchronize the clocks of all writers with NTP",
    )
    found = run("doctor", code=FOUND, DUCKLAKE_STORAGE_OPTIONS="{").stdout
    assert "DUCKLAKE_STORAGE_OPTIONS is not JSON" in found
    assert "-> check --lake or DUCKLAKE_URL, and the other options and variables of the lake" in found


def test_doctor_while_the_files_of_a_table_go(lake: DuckLake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "list_files", lambda _: [])
    assert first_file(lake) is None
    assert "ok       storage" in run("doctor --no-write").stdout


def test_metrics_are_one_form(lake: DuckLake, run: Run) -> None:
    assert "is already used by the samples" in run("health --openmetrics --label table=x", code=USAGE).stderr
    assert "either --openmetrics or --json" in run("health --openmetrics --json", code=USAGE).stderr


def test_every_command_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "command-line.md").read_text()
    commands = [command.name for command in app.registered_commands]
    assert len(commands) == 26
    assert [name for name in commands if f"- `{name}" not in page] == []


def test_which_lake(lake: DuckLake, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_address: LakeAddress) -> None:
    result = CliRunner().invoke(app, ["tables"], env={"DUCKLAKE_URL": ""})
    assert (result.exit_code, "DUCKLAKE_URL" in result.stderr) == (USAGE, True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ducklake.toml").write_text(f'[lakes.mine]\ncatalog = "{sqlite_address.url}"\n')
    assert len(answer(run("--lake mine tables --json"))) == 2
    assert len(answer(run(f"--lake '{sqlite_address.attach}' tables --json", DUCKLAKE_URL="sqlite:///elsewhere"))) == 2


def test_nothing_steers_the_terminal(lake: DuckLake, run: Run) -> None:
    lake.write('main."new\n\x1b[31m"', pa.table({"a\x1b[2J": ["one\ntwo\x1b[0m"]}), inline=False)
    lake.table('main."new\n\x1b[31m"').set_comment("so\rit is")
    for line in ("tables", "health", "merge", "plan checkpoint", "check --level rows", "info 'main.\"new\n\x1b[31m\"'", "doctor"):
        printed = run(line).stdout
        assert not set(printed) & set("\x1b\r"), line
    assert any(one.startswith("main.new\\n\\x1b[31m: 1 file") for one in run("health").stdout.splitlines())
    rows = run("query 'main.\"new\n\x1b[31m\"'").stdout
    assert "one\\ntwo\\x1b[0m" in rows
    assert "a\\x1b[2J" in rows
    assert lines(run("query 'main.\"new\n\x1b[31m\"' --json")) == [{"a\x1b[2J": "one\ntwo\x1b[0m"}]


def test_names_with_commas(lake: DuckLake, run: Run) -> None:
    name = 'a, "b"'
    for _ in range(2):
        lake.write("odd", pa.table({name: range(20), "c": ["x"] * 20, " d": range(20)}))
    quoted = '"a, ""b"""'
    (row,) = lines(run(f"""query odd --columns 'c, {quoted}, " d"' --limit 1 --json"""))
    assert list(row) == ["c", name, " d"]
    assert "would merge 2 files" in run(f"merge odd --cluster-by '{quoted},c' --dry-run").stdout
    assert "there is no column 'a'" in run("merge odd --cluster-by a,c --dry-run", code=FAILED).stderr


def test_named_lakes_are_opened_with_the_options_of_the_command(
    lake: DuckLake, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_address: LakeAddress
) -> None:
    """Read only for what only looks, with the settings of the command line in place of those of the file."""
    seen: list[dict[str, Any]] = []
    real = DuckLake.connect

    def connect(*arguments: Any, **settings: Any) -> DuckLake:
        seen.append(settings)
        return real(*arguments, **settings)

    monkeypatch.setattr(DuckLake, "connect", connect)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ducklake.toml").write_text(
        f'[lakes.mine]\ncatalog = "{sqlite_address.url}"\nallowed_paths = ["/a/"]\n'
        f'[lakes.shown]\ncatalog = "{sqlite_address.url}"\nread_only = true\n'
    )
    run("--lake mine --allowed-path /b/ tables")
    assert (seen[-1]["read_only"], tuple(seen[-1]["allowed_paths"])) == (True, ("/a/", "/b/"))
    elsewhere = str(tmp_path / "elsewhere")
    run(f"--lake mine --data-path {elsewhere} query t", code=FAILED)
    assert (seen[-1]["data_path"], seen[-1]["override_data_path"]) == (elsewhere, True)
    run("--lake mine merge t")
    assert seen[-1]["read_only"] is False
    assert "read_only" in run("--lake shown merge t", code=USAGE).stderr


def test_who_and_why_of_a_restore(lake: DuckLake, run: Run) -> None:
    run("restore t --at 1 --author me --message why --extra-info '{\"ticket\": 7}'")
    newest = lake.snapshot()
    assert (newest.author, newest.message, "ticket" in (newest.extra_info or "")) == ("me", "why", True)
    run('sql "DELETE FROM t WHERE a = 31" --author you --message gone')
    assert (lake.snapshot().author, lake.snapshot().message) == ("you", "gone")
    assert "commits nothing" in run("sql 'SELECT 1' --author you", code=USAGE).stderr


def test_sql(lake: DuckLake, run: Run) -> None:
    assert lines(run('sql "SELECT b, count(*) AS n FROM t WHERE a >= 148 GROUP BY b ORDER BY n, b" --json')) == [
        {"b": "v148", "n": 1},
        {"b": "v149", "n": 1},
        {"b": "w", "n": 50},
    ]
    assert "the first 100 rows" in run('sql "SELECT a, a + 1 AS c FROM t"').stderr
    assert "1 row deleted" in run('sql "DELETE FROM t WHERE a = 30" --message "one less"').stdout
    assert lake.snapshot().message == "one less"
    assert "not supported" in run('sql "VACUUM"', code=FAILED).stderr
