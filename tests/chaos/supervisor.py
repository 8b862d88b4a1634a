"""Supervisor that starts the processes of a run, injects faults, and has the run verified."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from sqlalchemy import make_url

from tests.chaos.duckdb_writer import end_last_flush, write_with_duckdb
from tests.chaos.lake import Run, create_lake
from tests.chaos.ledger import Success, read_ledger
from tests.chaos.library_writer import write_with_library
from tests.chaos.reader import read_after_run, read_during_run
from tests.chaos.verification import Findings, verify
from tests.support.folders import folder_in_memory
from tests.support.oracle import sqlite_lake
from tests.support.postgres import PostgresServer, start_server

_SECONDS_TO_END = 75
_SECONDS_TO_READ = 180
_SECONDS_WITHOUT_EXPIRY = 8
_MIN_AGE_WITH_DUCKDB = 10
_RESTART_AT = 0.55
"""Part of the run after which PostgreSQL is restarted."""


@dataclass(slots=True)
class Faults:
    """Faults of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    kills: list[tuple[str, float]] = field(default_factory=list)
    """Names and times of killed processes."""
    exits: list[tuple[str, int]] = field(default_factory=list)
    """Names and exit codes of processes that ended by themselves."""


@dataclass(frozen=True, slots=True)
class Report:
    """Outcome of a run."""

    run: Run
    seconds: float
    faults: Faults
    findings: Findings


def run_chaos(
    *,
    catalog: str,
    seed: int,
    seconds: float,
    writers: int = 5,
    duckdb_writers: int = 0,
    min_age: float | None = None,
    operations: Sequence[str] = (),
    keep: bool = False,
) -> Report:
    """Run writers on a new lake, disturb them, and verify what they did.

    Args:
        catalog: "postgres" or "sqlite".
        seed: Seed of the operations and the faults. Their timing differs between runs.
        seconds: Duration of the disturbed part of the run.
        writers: Number of processes that write with the library.
        duckdb_writers: Number of processes that write with DuckDB. Without writers of the library they expire snapshots too.
        min_age: Minimum age in seconds of snapshots that the library expires. None: 0, or 10 with DuckDB, which repeats a failed commit
            for some seconds without a transaction that expiry could notice.
        operations: Kinds of operations of the library; all by default.
        keep: Keep the folder of the run.
    """
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=folder_in_memory(1 << 30)))
    for name in ("ledger", "output", "observations"):
        (folder / name).mkdir()
    server = start_server() if catalog == "postgres" else None
    if server and keep:
        _log_statements(server)
    address = server.lake(folder) if server else sqlite_lake(folder)
    path = make_url(address.url).database or ""
    database = f"host={server.socket} user={server.user} dbname={path}" if server else path
    run = Run(
        catalog=catalog,
        seed=seed,
        seconds=seconds,
        writers=writers,
        duckdb_writers=duckdb_writers,
        min_age=(_MIN_AGE_WITH_DUCKDB if duckdb_writers else 0) if min_age is None else min_age,
        operations=frozenset(operations),
        folder=folder,
        address=address,
        database=database,
    )
    supervisor = Supervisor(run, server)
    try:
        return supervisor.supervise()
    finally:
        supervisor.kill_all()
        if server and keep:
            _keep_catalog(run, server)
        if server:
            server.stop()
        if keep:
            print(f"The run is kept in {folder}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    """Processes of a run and their faults."""

    def __init__(self, run: Run, server: PostgresServer | None) -> None:
        self.run = run
        self.server = server
        self.choose = random.Random(run.seed)
        self.faults = Faults()
        self.mains: dict[str, Callable[..., None]] = {
            **{f"w{number}": write_with_library for number in range(run.writers)},
            **{f"d{number}": write_with_duckdb for number in range(run.duckdb_writers)},
        }
        """Writers by name."""
        self.processes: dict[str, ForkProcess] = {}
        self.incarnations: Counter[str] = Counter()
        self.paused: dict[str, float] = {}
        """Paused writers and when they continue."""
        self.restarts: dict[str, float] = {}
        """Ended writers and when they start again."""
        self.helpers: list[ForkProcess] = []

    def supervise(self) -> Report:
        """Run everything and return the report."""
        self._start(create_lake, "create_lake").join()
        if not any(isinstance(entry, Success) for entry in read_ledger(self._ledger("create_lake"))):
            raise RuntimeError(f"The lake was not created: {self._output('create_lake')}")
        begin = time.time()
        self.run = replace(self.run, last_expiry=begin + self.run.seconds - _SECONDS_WITHOUT_EXPIRY)
        self.processes = {name: self._start(main, name, 0) for name, main in self.mains.items()}
        self.processes["reader"] = self._start(read_during_run, "reader")
        self._disturb(begin)
        seconds = time.time() - begin
        hung = self._end_all()
        for name, main in self.mains.items():
            if main is write_with_duckdb:
                self._start(end_last_flush, name, self.incarnations[name] + 1).join(_SECONDS_TO_END)
        final = self._start(read_after_run, "final_reader")
        final.join(_SECONDS_TO_READ)
        findings = verify(self.run, self.faults.kills)
        findings.violations += hung
        if final.exitcode != 0:
            findings.violations.append(f"the reads after the run failed (exit code {final.exitcode}): {self._output('final_reader')}")
        for name, code in self.faults.exits:
            message = f"process {name} ended with exit code {code}: {self._output(name)}"
            (findings.duckdb if name.startswith("d") else findings.violations).append(message)
        return Report(self.run, seconds, self.faults, findings)

    def kill_all(self) -> None:
        """Kill the processes that still run."""
        for process in (*self.processes.values(), *self.helpers):
            if process.is_alive():
                process.kill()
                process.join()

    def _start(self, main: Callable[..., None], name: str, *arguments: Any) -> ForkProcess:
        process = multiprocessing.get_context("fork").Process(target=_main, args=(main, self.run, name, *arguments), daemon=True)
        process.start()
        return process

    def _ledger(self, name: str) -> Path:
        return self.run.folder / "ledger" / name

    def _output(self, name: str) -> str:
        return (self.run.folder / "output" / name).read_text(errors="replace")[-3000:]

    def _disturb(self, begin: float) -> None:
        """Inject faults until the run ends."""
        end = begin + self.run.seconds
        restart = begin + self.run.seconds * _RESTART_AT if self.server else end
        next_fault = begin + 2
        while (now := time.time()) < end:
            self._continue_paused(now)
            self._restart_ended(now)
            self.helpers = [helper for helper in self.helpers if helper.is_alive()]
            if self.server and now > restart:
                restart = end
                self._restart_server(self.server)
            if now > next_fault:
                next_fault = now + self.choose.uniform(0.6, 2.2)
                self._inject_fault(now)
            time.sleep(0.05)

    def _continue_paused(self, now: float) -> None:
        for name, until in list(self.paused.items()):
            if now > until:
                self._signal(name, signal.SIGCONT)
                del self.paused[name]

    def _restart_ended(self, now: float) -> None:
        for name, main in self.mains.items():
            process = self.processes[name]
            if name not in self.restarts and not process.is_alive():
                self.faults.exits.append((name, process.exitcode or 0))
                self.restarts[name] = now
            elif now > self.restarts.get(name, now):
                del self.restarts[name]
                self.incarnations[name] += 1
                self.processes[name] = self._start(main, name, self.incarnations[name])

    def _restart_server(self, server: PostgresServer) -> None:
        """End PostgreSQL at once, as a crash would, and start it again."""
        self._record("server restarts")
        number = server.handle.get_pid()
        os.kill(number, signal.SIGQUIT)
        while _is_running(number):
            time.sleep(0.05)
        server.handle.ensure_postgres_running()

    def _inject_fault(self, now: float) -> None:
        running = [name for name in self.mains if name not in self.paused and name not in self.restarts]
        kind = self.choose.random()
        if kind < 0.45 and running:
            name = self.choose.choice(running)
            self._kill(name)
            self.restarts[name] = time.time() + self.choose.random() * 0.5
        elif kind < 0.7 and running and len(self.paused) < 2:
            name = self.choose.choice(running)
            self._signal(name, signal.SIGSTOP)
            self.paused[name] = now + self.choose.uniform(0.3, 5)
            self._record("pauses", f"{name} for {self.paused[name] - now:.1f} s")
        elif self.server:
            self.helpers.append(self._start(_terminate_connections, "faults", self.choose.randint(1, 3), self.choose.random()))
            self._record("terminated connections")
        elif self.choose.random() < 0.5 and not self.helpers:
            self.helpers.append(self._start(_hold_lock, "faults", self.choose.choice(("IMMEDIATE", "EXCLUSIVE")), 3))
            self._record("held locks")

    def _kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].join()
        self.faults.kills.append((name, time.time()))
        self._record("kills", name)

    def _record(self, kind: str, details: str = "") -> None:
        """Count a fault and log it with its time."""
        self.faults.counts[kind] += 1
        with (self.run.folder / "faults.log").open("a") as log:
            log.write(f"{datetime.now(UTC)} {kind} {details}\n")

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self.processes[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, number)

    def _end_all(self) -> list[str]:
        """Let all processes end. Return a violation for each that hangs."""
        (self.run.folder / "END").touch()
        for name in self.paused:
            self._signal(name, signal.SIGCONT)
        violations = []
        limit = time.time() + _SECONDS_TO_END
        for name, process in self.processes.items():
            if name in self.restarts:
                continue
            process.join(max(0.1, limit - time.time()))
            if process.is_alive():
                self._signal(name, signal.SIGUSR1)  # Writes the stacks of all threads to the output.
                time.sleep(0.5)
                violations.append(f"process {name} did not end within {_SECONDS_TO_END} seconds: {self._output(name)}")
                self._kill(name)
            elif process.exitcode:
                self.faults.exits.append((name, process.exitcode))
        for helper in self.helpers:
            helper.join()
        return violations


def _log_statements(server: PostgresServer) -> None:
    """Have the server log each statement with its time, process, virtual transaction and application."""
    with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres", autocommit=True) as postgres:
        for setting, value in (
            ("log_statement", "all"),
            ("log_line_prefix", "%m %p %v %x %a|"),
            ("log_parameter_max_length", "-1"),
        ):
            postgres.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
        postgres.execute("SELECT pg_reload_conf()")


def _keep_catalog(run: Run, server: PostgresServer) -> None:
    """Copy the catalog to ``catalog.duckdb`` and the log of the server to ``server.log`` in the folder of the run."""
    with duckdb.connect(str(run.folder / "catalog.duckdb")) as connection:
        connection.execute(f"ATTACH '{run.database}' AS postgres (TYPE postgres, READ_ONLY)")
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'postgres' AND schema_name = 'public'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f'CREATE TABLE "{table}" AS FROM postgres."{table}"')
    with (run.folder / "server.log").open("wb") as log:
        for path in sorted(server.data.rglob("log")):
            if path.is_file():
                log.write(path.read_bytes())


def _main(main: Callable[..., None], run: Run, name: str, *arguments: Any) -> None:
    """Run the main function of a process with its output in a file."""
    output = (run.folder / "output" / name).open("a")
    os.dup2(output.fileno(), sys.stdout.fileno())
    os.dup2(output.fileno(), sys.stderr.fileno())
    faulthandler.register(signal.SIGUSR1, file=output, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    main(run, name, *arguments)


def _is_running(number: int) -> bool:
    """Return False for a process that has ended, also if its parent has not noticed yet."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return ") Z" not in Path(f"/proc/{number}/stat").read_text()
    return False


def _terminate_connections(run: Run, _name: str, count: int, seed: float) -> None:
    with psycopg.connect(run.database, autocommit=True) as postgres:
        found = postgres.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        numbers = [number for (number,) in found]
        for number in random.Random(seed).sample(numbers, min(count, len(numbers))):
            postgres.execute("SELECT pg_terminate_backend(%s)", (number,))


def _hold_lock(run: Run, _name: str, mode: str, seconds: float) -> None:
    sqlite = sqlite3.connect(run.database, timeout=20, isolation_level=None)
    sqlite.execute(f"BEGIN {mode}")
    time.sleep(seconds)
    sqlite.execute("ROLLBACK")
