"""The page on the command line has every option, and the recipes for cron, Airflow and Kubernetes run against a lake."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import types
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from ducklake_core import DuckLake
from ducklake_core.cli.app import app
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "command-line.md").read_text()
RECIPES = (ROOT / "docs" / "how-to" / "scheduling.md").read_text()


@dataclass
class Place:
    """A lake whose table t has small files to merge, and a folder with the command and what recipes write."""

    address: LakeAddress
    folder: Path

    def run(self, command: str | list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command as cron, an operator or a container would: nothing but its environment and a PATH with ``ducklake``."""
        scripts = self.folder / "bin"
        scripts.mkdir(exist_ok=True)
        (scripts / "ducklake").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ducklake_core.cli "$@"\n')
        (scripts / "ducklake").chmod(0o755)
        environment = {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "DUCKLAKE_URL": self.address.url, **variables}
        words = ["sh", "-c", command] if isinstance(command, str) else command
        return subprocess.run(words, capture_output=True, text=True, env=environment, cwd=self.folder, check=False, timeout=300)

    def lose_a_file(self) -> None:
        """Take a file of table bad away, so that it alone cannot be merged."""
        lake = DuckLake.connect(self.address.url)
        Path(lake.table("bad").list_files()[0].path).unlink()
        lake.close()


@pytest.fixture
def place(sqlite_address: LakeAddress, tmp_path: Path) -> Place:
    lake = lake_of_files(sqlite_address)
    for name in ("bad", "t"):
        for start in (0, 100):
            lake.write(name, pa.table({"n": range(start, start + 50)}))
    lake.close()
    return Place(sqlite_address, tmp_path)


def block(heading: str, language: str = "") -> str:
    """The first block of code below a heading of the page with recipes."""
    found = re.search(rf"^## {re.escape(heading)}\n.*?^```{language}\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def entries() -> tuple[dict[str, str], list[str]]:
    """Variables and commands of the crontab; each entry begins with five fields of time."""
    variables, commands = {}, []
    for line in filter(None, block("cron").splitlines()):
        if named := re.fullmatch(r"(\w+)=(.*)", line):
            variables[named[1]] = named[2]
        else:
            fields = line.split(None, 5)
            assert all(re.fullmatch(r"[\d*/,-]+", field) for field in fields[:5]), line
            commands.append(fields[5])
    return variables, commands


def files_of(place: Place, name: str) -> int:
    lake = DuckLake.connect(place.address.url)
    count = len(lake.table(name).list_files())
    lake.close()
    return count


def test_every_option_is_documented() -> None:
    group: Any = get_command(app)
    shown = [one for command in (group, *group.commands.values()) for one in command.params if not getattr(one, "hidden", False)]
    names = {name for one in shown for name in (*one.opts, *one.secondary_opts) if name.startswith("--")}
    # --write is what happens without --no-write.
    names -= {"--help", "--write"}
    assert len(names) > 40
    assert sorted(name for name in names if not re.search(rf"{name}(?![\w-])", PAGE)) == []


def nightly(place: Place, command: str) -> subprocess.CompletedProcess[str]:
    """Run an entry of the crontab, in the folder and with the script of the page."""
    script = re.search(r"^cat > nightly.sh <<'SCRIPT'\n(.*?)^SCRIPT$", RECIPES, re.MULTILINE | re.DOTALL)
    assert script
    (place.folder / "nightly.sh").write_text(script[1])
    (place.folder / "nightly.sh").chmod(0o755)
    return place.run(re.sub("/var/lib/node_exporter|/srv/lake", str(place.folder), command))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_the_crontab(place: Place, number: int) -> None:
    variables, commands = entries()
    assert set(variables) == {"DUCKLAKE_URL", "MAILTO", "PATH"}
    assert len(commands) == 3
    command = commands[number]
    # What cron takes for a new line.
    assert "%" not in command
    done = nightly(place, command)
    assert done.returncode == 0, done.stderr
    if number == 0:
        assert (files_of(place, "t"), files_of(place, "bad")) == (1, 1)
    if "openmetrics" in command:
        text = (place.folder / "ducklake.prom").read_text()
        assert "ducklake_table_rows" in {family.name for family in text_string_to_metric_families(text)}


@pytest.mark.slow
def test_one_bad_table_in_the_night(place: Place) -> None:
    """The others are merged, and the entry ends with 1 and reports the bad table and its missing file."""
    place.lose_a_file()
    done = nightly(place, entries()[1][0])
    assert done.returncode == 1
    assert "checkpoint ended with 1" in done.stderr
    printed = (place.folder / "nightly.log").read_text()
    assert re.search(r"main\.bad: FAILED, .*there is no file", printed)
    assert "file-missing main.bad" in printed
    assert (files_of(place, "t"), files_of(place, "bad")) == (1, 2)


def operators(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The tasks of the page by their ids, made by the page's own code; each holds what BashOperator is given."""
    made: dict[str, dict[str, Any]] = {}

    class BashOperator:
        def __init__(self, *, task_id: str, bash_command: str, append_env: bool, env: Any = None, retries: int = 0) -> None:
            made[task_id] = {"command": bash_command, "env": env or {}, "append_env": append_env, "retries": retries}

        def __rshift__(self, other: Any) -> Any:
            return other

    for module, name, value in (
        ("airflow.providers.standard.operators.bash", "BashOperator", BashOperator),
        ("airflow.sdk", "DAG", lambda *_, **__: nullcontext()),
    ):
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
        setattr(sys.modules[module], name, value)
    exec(compile(block("Airflow"), "how-to/scheduling.md", "exec"), {})
    return made


def test_airflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = operators(monkeypatch)
    assert list(made) == ["checkpoint", "check"]
    assert all(task["append_env"] for task in made.values())
    place.lose_a_file()
    done = place.run(["bash", "-c", made["checkpoint"]["command"]])
    assert done.returncode == 1
    nowhere = "postgresql+psycopg://me@127.0.0.1:1/lake"
    assert place.run(["bash", "-c", made["checkpoint"]["command"]], DUCKLAKE_URL=nowhere).returncode == 4
    assert made["checkpoint"]["retries"] > 0


@pytest.mark.slow
def test_further_tasks_of_airflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in operators(monkeypatch).values():
        done = place.run(["bash", "-c", task["command"]])
        assert done.returncode == 0, done.stderr


def test_kubernetes(place: Place) -> None:
    job = yaml.safe_load(block("Kubernetes", "yaml"))
    assert (job["kind"], job["apiVersion"], job["spec"]["concurrencyPolicy"]) == ("CronJob", "batch/v1", "Forbid")
    spec = job["spec"]["jobTemplate"]["spec"]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    done = place.run(container["command"])
    assert done.returncode == 0, done.stderr
    assert files_of(place, "t") == 1
    # Codes that another attempt does not repair must not use up the limit of attempts.
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [1, 2, 3]}


@pytest.mark.slow
def test_the_first_commands_run_in_an_empty_folder(place: Place, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    first = re.search(r"^```\n(pip install .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert first
    _, export, *lines = filter(None, first[1].splitlines())
    done = place.run(f"cd empty && {export} && " + " && ".join(lines))
    assert done.returncode == 0, done.stderr
    assert "│  1 │ DE      │    9.5 │" in done.stdout
    assert "country,total" in done.stdout
    assert "created table sales.orders" in done.stdout
