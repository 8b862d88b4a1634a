"""One deployment for all tests here: `dagster dev`, a catalog on PostgreSQL and files on S3, each behind a line that can be cut.

Dagster keeps its own runs, events and ticks on PostgreSQL too, as deployments of several workers do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.dagster_dev import DagsterServer, dagster_on_postgres
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.outages import Line, line_to
from tests.support.postgres import PostgresServer
from tests.support.s3 import KEY, SECRET, S3Server

collect_ignore = ["project.py"]
PASSWORD = "password-of-the-catalog"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The running deployment.

    Attributes:
        dagster: The web server.
        catalog: The line to PostgreSQL, and ``store`` that to S3.
        faults: Directory of what is to go wrong next.
    """

    dagster: DagsterServer
    catalog: Line
    store: Line
    address: LakeAddress
    s3: S3Server
    faults: Path

    def duckdb(self, options: str = "DATA_INLINING_ROW_LIMIT 0") -> AbstractContextManager[Oracle]:
        """DuckDB with the lake attached, past the lines."""
        return attached(self.address, options, before=self.s3.know)

    def rows(self, query: str) -> list[Any]:
        """Return the rows of a query by DuckDB."""
        with self.duckdb() as duck:
            return duck.rows(query)

    def strike(self, moment: str, asset: str, what: str = "kill") -> None:
        """Have something go wrong once."""
        (self.faults / f"{moment}-{asset}").write_text(what)

    def has_struck(self, moment: str, asset: str) -> bool:
        """Return True once the fault has happened."""
        return not (self.faults / f"{moment}-{asset}").exists()

    @contextmanager
    def commits_reported(self) -> Iterator[None]:
        """Until the end of the block the commit sensor runs, which has begun."""
        started = self.dagster.start_sensor("ducklake_commits")
        self.dagster.wait_for(lambda: self.cursor() is not None, "the sensor's first tick")
        yield
        self.dagster.stop_sensor("ducklake_commits", started)

    def cursor(self) -> int | None:
        """The snapshot that the commit sensor has reported."""
        text = self.dagster.sensor("ducklake_commits")["typeSpecificData"]["lastCursor"]
        return json.loads(text)["snapshot"] if text else None


@pytest.fixture(scope="session")
def deployment(postgres: PostgresServer, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home = tmp_path_factory.mktemp("deployment")
    faults = home / "faults"
    faults.mkdir()
    address = replace(postgres.lake(home, keep=True), data_path="s3://lake/deployment/")
    database = address.url.rpartition("/")[2].partition("?")[0]
    store_port = int(s3.endpoint.rpartition(":")[2])
    with line_to(f"{postgres.socket}/.s.PGSQL.5432") as catalog, line_to(("127.0.0.1", store_port)) as store:
        environment = {
            "LAKE_FAULTS": str(faults),
            "LAKE_PORT": str(catalog.port),
            "LAKE_DATABASE": database,
            "LAKE_USER": postgres.user,
            "LAKE_PASSWORD": PASSWORD,
            "LAKE_KEY": KEY,
            "LAKE_SECRET": SECRET,
            "LAKE_ENDPOINT": f"http://127.0.0.1:{store.port}",
        }
        module = "tests.dagster.deployment.project"
        secrets = (PASSWORD, SECRET)
        with dagster_on_postgres(module, home, environment, postgres, pool_limit=1, max_retries=0, secrets=secrets, keep=True) as server:
            yield Deployment(dagster=server, catalog=catalog, store=store, address=address, s3=s3, faults=faults)
