"""Lakes of earlier versions become lakes of version 1.0 in which both libraries read the same rows at every snapshot."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database.tables import PREFIX, metadata_tables
from ducklake_core.catalog.migrations import run
from ducklake_core.errors import CatalogCorruptError, CatalogError, CatalogVersionError, UnsupportedFeatureError
from ducklake_core.format.versions import V1_0
from tests.support.old_lakes import VERSIONS, ExpectedRows, JsonRows, OldLake, changes, forget_embedded_snapshots, old_lake, rows_at
from tests.support.oracle import Oracle, attached
from tests.support.parameters import slow, spread
from tests.unit.catalog.database.test_bootstrap import layout, primary_keys


@pytest.fixture(scope="module")
def json_rows() -> JsonRows:
    return JsonRows()


@pytest.fixture(params=["sqlite", slow("postgresql"), slow("duckdb")])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], OldLake]:
    """Copies a lake of a version, on each catalog database."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    return lambda version: old_lake(version, request.param, tmp_path / version, server)


def _oracle_rows(duck: Oracle, name: str, snapshot: int) -> ExpectedRows:
    source = f"lake.{name if '.' in name else 'main.' + name} AT (VERSION => {snapshot})"
    columns = tuple(column[0] for column in duck.connection.execute(f"SELECT * FROM {source} LIMIT 0").description)
    cells = ", ".join(f'to_json("{column}")::VARCHAR' for column in columns)
    return ExpectedRows(columns, tuple(sorted(duck.rows(f"SELECT rowid, {cells} FROM {source}"), key=repr)))


def _catalog(old: OldLake) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of the catalog with its rows, by name."""
    database = DuckLake.connect(old.address.url).database
    return {name: sorted(old.execute(f'SELECT * FROM "{name}"'), key=repr) for name in sorted(layout(database))}


@pytest.mark.parametrize(
    ("version", "backend"),
    spread(
        [
            *((version, "sqlite") for version in VERSIONS),
            ("0.1", "postgresql"),
            ("0.3", "postgresql"),
            ("0.1", "duckdb"),
            ("0.3", "duckdb"),
        ],
        1,
    ),
)
def test_every_snapshot_shows_the_same_rows_afterwards(
    version: str, backend: str, tmp_path: Path, request: pytest.FixtureRequest, json_rows: JsonRows
) -> None:
    old = old_lake(version, backend, tmp_path, request.getfixturevalue("postgres") if backend == "postgresql" else None)
    lake = DuckLake.connect(old.address.url)
    before = _catalog(old)
    plan = lake.migrate(dry_run=True)
    assert _catalog(old) == before
    assert re.search(rf"would migrate from version {version} to 1\.0 in {len(plan.steps)} steps?$", str(plan))
    done = lake.migrate()
    assert (done.steps, done.checked, done.former, done.dry_run) == (plan.steps, 1, version, False)
    assert lake.info.version == "1.0"
    assert lake.migrate().steps == ()

    fresh = DuckLake.create(f"sqlite:///{old.folder / 'fresh.sqlite'}", data_path=str(old.folder / "none"))
    names = [PREFIX + name for name in metadata_tables(None, V1_0)]
    found, wanted = layout(lake.database), layout(fresh.database)
    assert {name: [c for c, _ in found[name]] for name in names} == {name: [c for c, _ in wanted[name]] for name in names}
    assert primary_keys(lake.database) == primary_keys(fresh.database)
    if old.address.backend == "sqlite":
        assert {name: found[name] for name in names} == {name: wanted[name] for name in names}

    for name, expected in old.expected.items():
        for snapshot in changes(expected):
            assert json_rows.of(rows_at(lake, name, snapshot)) == expected[snapshot], (name, snapshot)
    with attached(old.address) as duck:
        duck.run("SET TimeZone = 'UTC'")
        for name, expected in old.expected.items():
            for snapshot in changes(expected):
                assert _oracle_rows(duck, name, snapshot) == expected[snapshot], (name, snapshot)
        _work_on(duck, old)
        duck.run("RESET TimeZone")
    lake.table("numbers").append(pa.table({"i": pa.array([1], pa.int32()), "s": ["own"]}), schema_evolution="additive")
    with attached(old.address) as duck:
        assert duck.value("SELECT count(*) FROM numbers") == lake.table("numbers").scan().count() == 100
        if "small" in old.expected:
            assert sorted(duck.rows("SELECT id, t FROM small")) == [(2, "zwei"), (4, "four"), (6, "six"), (7, "seven"), (9, "nine")]


def _work_on(duck: Oracle, old: OldLake) -> None:
    """DuckDB writes to the migrated lake as to one of its own version."""
    if "small" in old.expected:
        duck.run(
            "INSERT INTO small (id, t, z) VALUES (9, 'nine', TIMESTAMPTZ '2024-06-01 10:00:00+00')",
            "UPDATE small SET t = 'zwei' WHERE id = 2",
        )
    duck.run(
        "INSERT INTO numbers SELECT i, 'e', 1, NULL FROM range(20) t(i)",
        "INSERT INTO numbers SELECT i, 'e', 1, NULL FROM range(20) t(i)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "CALL ducklake_flush_inlined_data('lake')",
        "CREATE TABLE fresh AS SELECT 42 AS a",
        "ALTER TABLE numbers ADD COLUMN more INTEGER",
        "CALL ducklake_rewrite_data_files('lake')",
        "FROM ducklake_snapshots('lake')",
    )


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_tables_whose_first_snapshots_expired_can_be_compacted(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    old = old_lake("0.2", backend, tmp_path, request.getfixturevalue("postgres") if backend == "postgresql" else None)
    old.execute("DELETE FROM ducklake_snapshot WHERE snapshot_id < 30", "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id < 30")
    lake = DuckLake.connect(old.address.url)
    lake.migrate()
    first = old.execute(
        "SELECT t.table_id FROM ducklake_table t WHERE NOT EXISTS (SELECT 1 FROM ducklake_schema_versions v "
        "WHERE v.table_id = t.table_id AND v.begin_snapshot <= t.begin_snapshot)"
    )
    assert first == []
    with attached(old.address) as duck:
        duck.run("CALL ducklake_merge_adjacent_files('lake')", "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
        assert duck.value("SELECT count(*) FROM numbers") == 59


def test_files_without_snapshot_ids_need_permission(tmp_path: Path) -> None:
    old = old_lake("0.3", "sqlite", tmp_path)
    path = forget_embedded_snapshots(old)
    lake = DuckLake.connect(old.address.url)
    before = _catalog(old)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedFeatureError, match="1 merged file") as caught:
            lake.migrate(dry_run=dry_run)
        assert caught.value.details["paths"] == (str(path),)
    assert _catalog(old) == before
    done = lake.migrate(allow_history_loss=True)
    assert done.forgotten == (str(path),)
    assert f"lose the snapshots of the rows of {path}" in str(done)
    with attached(old.address) as duck:
        assert duck.rows("SELECT count(*), sum(i) FROM numbers AT (VERSION => 2)") == [(63, sum(range(63)))]
    assert lake.table("numbers", at=2).scan().count() == 63
    assert lake.table("numbers").scan().count() == 59


def test_files_without_visible_history_need_none(tmp_path: Path) -> None:
    old = old_lake("0.3", "sqlite", tmp_path)
    forget_embedded_snapshots(old)
    old.execute("DELETE FROM ducklake_snapshot WHERE snapshot_id < 4")
    lake = DuckLake.connect(old.address.url)
    assert lake.migrate().forgotten == ()
    assert lake.table("numbers", at=4).scan().count() == 63


def test_two_migrators_at_once(made: Callable[[str], OldLake]) -> None:
    old = made("0.2")
    lakes = [DuckLake.connect(old.address.url) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda lake: lake.migrate(), lakes))
    assert sorted(result.done_before for result in results) == [False, True, True]
    for lake, result in zip(lakes, results, strict=True):
        assert lake.info.version == "1.0"
        assert bool(result.steps) is not result.done_before
        assert lake.table("numbers").scan().count() == 59
        lake.set_option("auto_compact", True)
    late = lakes[0].migrate()
    assert str(late) == "the catalog already has version 1.0"


def test_a_migration_that_fails_changes_nothing(made: Callable[[str], OldLake], monkeypatch: pytest.MonkeyPatch) -> None:
    old = made("0.2")
    before, original = _catalog(old), run.run_step
    lake = DuckLake.connect(old.address.url)
    steps = len(lake.migrate(dry_run=True).steps)
    for last in range(0, steps, 6):
        done: list[object] = []

        def fail(connection: Any, schema: Any, layout: Any, to: Any, step: Any, last: int = last, done: list[object] = done) -> None:
            if len(done) == last:
                raise CatalogError("lost")
            done.append(step)
            original(connection, schema, layout, to, step)

        monkeypatch.setattr(run, "run_step", fail)
        with pytest.raises(CatalogError, match="lost"):
            lake.migrate()
        assert _catalog(old) == before
    monkeypatch.undo()
    old.execute("ALTER TABLE ducklake_snapshot ADD COLUMN extra BIGINT")
    changed = _catalog(old)
    with pytest.raises(CatalogVersionError, match="Connect to it again"):
        lake.migrate()
    with pytest.raises(CatalogCorruptError, match="Nothing was changed"):
        DuckLake.connect(old.address.url).migrate()
    assert _catalog(old) == changed


def _killed(url: str, to: Any) -> None:
    original = run.run_step

    def kill(connection: Any, schema: Any, layout: Any, to: Any, step: Any) -> None:
        original(connection, schema, layout, to, step)
        if str(step).startswith("fill"):
            os.kill(os.getpid(), signal.SIGKILL)

    run.run_step = kill
    DuckLake.connect(url).migrate(to)


@pytest.mark.parametrize("to", ["1.0", "1.1"])
def test_a_migration_that_is_killed_changes_nothing(made: Callable[[str], OldLake], to: Any) -> None:
    old = made("0.3")
    before = _catalog(old)
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(old.address.url, to))
    process.start()
    process.join(240)
    assert process.exitcode == -signal.SIGKILL
    lake = DuckLake.connect(old.address.url)
    assert lake.info.version == "0.3"
    assert _catalog(old) == before
    assert lake.migrate(to).steps
    assert lake.table("small").scan().count() == 4


@pytest.mark.parametrize("version", ["0.1", "0.4-dev1"])
def test_a_lake_that_was_opened_before_someone_migrated_it(made: Callable[[str], OldLake], version: str) -> None:
    """Never rows by the rules of the old version: 0.4-dev1 has every table and column that reading needs, before and after."""
    old = made(version)
    lake = DuckLake.connect(old.address.url)
    table = lake.table("numbers")
    rows = table.scan().to_arrow().num_rows
    DuckLake.connect(old.address.url).migrate(allow_history_loss=True)
    for read in (lambda: table.scan().to_arrow(), lake.snapshots, lambda: lake.table("numbers")):
        with pytest.raises(
            CatalogVersionError,
            match=f"had version {version} when it was opened, but another client has migrated it to 1.0.*[Oo]pen the lake again",
        ):
            read()
    assert DuckLake.connect(old.address.url).table("numbers").scan().to_arrow().num_rows == rows
