"""The page on separate processes: its files and commands run, and a run stores a table that DuckDB reads."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support import dagster_dev, servers, supervisor
from tests.support.oracle import attached
from tests.support.pages import DOCS, Reader, blocks
from tests.support.postgres import PostgresServer
from tests.support.s3 import KEY, SECRET, S3Server

PAGE = DOCS / "how-to" / "dagster" / "deployment.md"
LAKE = ("PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_REGION", "S3_ENDPOINT_URL")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_a_run_of_three_services(postgres: PostgresServer, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(PAGE).write_files()
    address = replace(postgres.lake(tmp_path, keep=True), data_path="s3://lake/deployed/")
    own = f"{postgres.user}@/{postgres.new_database(keep=True)}?host={quote(postgres.socket, safe='')}"
    common = {**os.environ, "DAGSTER_HOME": str(tmp_path), "DAGSTER_POSTGRES_URL": f"postgresql+psycopg2://{own}"}
    database = address.url.rpartition("/")[2].partition("?")[0]
    values = (postgres.socket, database, postgres.user, "unused", KEY, SECRET, "us-east-1", s3.endpoint)
    of_lake = {**common, **dict(zip(LAKE, values, strict=True))}
    code, daemon, web = (shlex.split(line, comments=True) for line in blocks(PAGE, "console")[0].splitlines())

    def service(command: list[str], port: int) -> list[str]:
        """Return the command with another port."""
        program = str(Path(sys.executable).parent / command[0])
        return [program, *(str(port) if before == "--port" else word for before, word in pairwise(command))]

    with ExitStack() as stack:
        running = stack.enter_context(servers.serving("code server", partial(service, code), environment=of_lake, folder=tmp_path))
        workspace = tmp_path / "workspace.yaml"
        workspace.write_text(workspace.read_text().replace("4266", str(running.port)))
        # Neither the daemon nor the web server has the variables of the lake.
        log = stack.enter_context((tmp_path / "daemon.log").open("wb"))
        process = subprocess.Popen(
            service(daemon, 0), env=common, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        supervisor.watch(process.pid)
        stack.callback(servers.end, process)
        pages = stack.enter_context(
            servers.serving("web server", partial(service, web), answers=dagster_dev._has_a_page, environment=common, folder=tmp_path)
        )
        dagster = dagster_dev.DagsterServer(
            running=pages, happened=partial(dagster_dev._state_of_postgres, f"postgresql://{own}"), secrets=(SECRET,), location="sales"
        )
        dagster.finish(dagster.materialize("orders"))
        found = dagster.latest("orders")
        assert (found["dagster/row_count"], found["dagster/table_name"]) == (2, "main.orders")
        sensor = dagster.start_sensor("ducklake_maintenance_checks")
        dagster.wait_for(lambda: dagster.sensor("ducklake_maintenance_checks")["ticks"], "a tick")
        dagster.stop_sensor("ducklake_maintenance_checks", sensor)
        (tick, *_) = dagster.sensor("ducklake_maintenance_checks")["ticks"]
        assert tick["skipReason"] == "reported 1 check (0 failed) at snapshot 1"
    with attached(address, "DATA_INLINING_ROW_LIMIT 0", before=s3.know) as duck:
        assert duck.rows("SELECT id, amount FROM lake.orders ORDER BY id") == [(1, 10.0), (2, 20.0)]
