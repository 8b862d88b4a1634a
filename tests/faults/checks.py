"""Invariants after every fault: the lake equals the model, DuckDB agrees, and only orphaned files remain."""

from __future__ import annotations

from datetime import timedelta

from ducklake_core import DuckLake
from tests.behaviour.maintenance.lakes import files_on_disk
from tests.faults.proxy import Cut, Proxy
from tests.faults.work import NAMES, Model, Rows, prepare, work
from tests.support.oracle import LakeAddress, attached

_NOW = timedelta(0)


def read(lake: DuckLake) -> dict[str, Rows]:
    """Return the rows that this library reads."""
    found = {}
    for name in NAMES:
        rows = [(row["k"], row["owner"]) for row in lake.table(name).scan().to_arrow().to_pylist()]
        assert len(rows) == len(set(rows)), name
        found[name] = frozenset(rows)
    return found


def read_by_duckdb(address: LakeAddress) -> dict[str, Rows]:
    """Return the rows that DuckDB reads."""
    with attached(address) as duck:
        found = {name: duck.rows(f"SELECT k, owner FROM {name}") for name in NAMES}
        for name, rows in found.items():
            assert len(rows) == len(set(rows)) == duck.value(f"SELECT count(DISTINCT rowid) FROM {name}"), name
    return {name: frozenset((int(k), int(owner)) for k, owner in rows) for name, rows in found.items()}


def check(address: LakeAddress, model: Model) -> None:
    """Assert that the lake equals the model, and that the sweep finds exactly the other files."""
    lake = DuckLake.connect(address.url)
    assert read(lake) == model.tables()
    assert read_by_duckdb(address) == model.tables()
    history = [snapshot.id for snapshot in lake.snapshots()]
    assert history == list(range(len(history)))
    lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
    assert read(lake) == model.tables()
    assert {path.rpartition("/")[2] for path in files_on_disk(address)} == named_files(lake)
    lake.close()


def named_files(lake: DuckLake) -> set[str]:
    """Names of all files that the catalog knows."""
    from ducklake_core.catalog.writing.expiry import every_file_name

    with lake.reader() as reader:
        return set(every_file_name(reader.connection, lake.database.tables))


def check_cut_line(address: LakeAddress, proxy: Proxy, cut: Cut, inlining: int) -> None:
    """A transaction whose line is cut at COMMIT is in the lake once, whether COMMIT had arrived or not."""
    model = prepare(address.url, address.data_path, inlining)
    lake = DuckLake.connect(proxy.url(address))
    before = lake.snapshot().id
    proxy.cut = cut
    work(lake, model)
    assert (proxy.cuts, lake.snapshot().id) == (1, before + 1)
    check(address, model.after())
