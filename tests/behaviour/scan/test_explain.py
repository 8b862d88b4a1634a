"""``explain()`` reports the files that a scan reads, the reasons, and the reader of each file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, ExplainedFile, Explanation
from ducklake_core.engines.arrow import read
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    """Two carriers, each with small and with large delays, in files of their own."""
    lake = lake_of_files(lake_address)
    for delays in ([1, 2], [10, 20], [None, None]):
        rows = pa.table({"carrier": ["AA", "UA"] * 2, "delay": pa.array(delays * 2, pa.int64())}).sort_by("carrier")
        lake.write("t", rows, partition_by=["carrier"])
    yield lake
    lake.close()


def left_out(found: Explanation, by: str) -> list[str]:
    return [file.reason for file in found.files if file.pruned_by == by]


def kept(found: Explanation) -> list[ExplainedFile]:
    return [file for file in found.files if file.kept]


def test_partition_values_and_statistics_are_distinguished(lake: DuckLake) -> None:
    scan = lake.table("t").scan(["delay"], "carrier = 'UA' AND delay > 5")
    found, report = scan.explain(), scan.plan().plan.pruning
    assert left_out(found, "partition") == ["""partition values: carrier = AA, so never ("carrier" = 'UA')"""] * 3
    assert len(left_out(found, "statistics")) == 2
    assert 'statistics: delay is 2 to 2, so never ("delay" > 5)' in left_out(found, "statistics")
    assert any("delay is always NULL" in reason for reason in left_out(found, "statistics"))
    assert (len(found.files), len(kept(found))) == (report.files_total, report.files_kept) == (6, 1)
    assert (report.pruned_by_partition, report.pruned_by_statistics) == (3, 2)


def test_the_files_that_it_names_are_those_that_are_read(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = read.open_parquet
    monkeypatch.setattr(read, "open_parquet", lambda storage, path, key: (opened.append(path), original(storage, path, key))[1])
    for where in (None, "delay > 5", "carrier = 'AA'", "delay IS NULL", "carrier = 'AA' OR delay = 20", "delay > 100", "delay % 2 = 0"):
        for limit in (None, 1, 3):
            scan = lake.table("t").scan(where=where, limit=limit)
            found = scan.explain()
            assert opened == []
            rows = scan.to_arrow()
            # A limit under a condition may also find its rows before the last file; without one, threads open files as they can.
            expected = [file.path for file in kept(found)]
            assert opened == expected[: len(opened)] or (limit is None and sorted(opened) == sorted(expected))
            assert len(opened) == len(kept(found)) or (limit is not None and rows.num_rows == limit)
            assert len(found.files) == 6
            opened.clear()


def test_a_condition_that_only_several_terms_exclude(lake: DuckLake) -> None:
    found = lake.table("t").scan(where="(carrier = 'AA' OR delay > 15) AND delay < 0").explain()
    assert kept(found) == []
    assert all(file.reason for file in found.files)


def test_files_left_out_by_a_limit(lake: DuckLake) -> None:
    found = lake.table("t").limit(3).explain()
    assert found.row_limit == 3
    assert left_out(found, "limit") == ["limit: earlier files have enough rows"] * 4
    assert "limit:    3 rows" in str(found)


def test_an_open_transaction_is_explained(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.delete("t", "carrier = 'AA'")
        tx.append("t", pa.table({"carrier": ["B6"], "delay": [7]}), inline=False)
        found = tx.table("t").scan().explain()
        assert left_out(found, "transaction") == ["the transaction deletes all of its rows"] * 3
        assert (len(kept(found)), sum(file.row_count for file in kept(found))) == (4, 7)


def test_the_reader_of_each_file_is_explained_with_its_reason(lake: DuckLake) -> None:
    lake.write("times", pa.table({"at": pa.array([dt.time(1)], pa.time64("us")), "n": [1]}))
    by_column = {column: [file.arrow_because for file in kept(lake.table("times").scan([column]).explain())] for column in ("at", "n")}
    assert by_column == {"at": ["column 'at' holds time"], "n": [None]}
    text = str(lake.table("times").scan().explain())
    assert "Arrow for 1 file: column 'at' holds time" in text


def test_inlined_rows_are_explained(lake: DuckLake) -> None:
    lake.set_option("data_inlining_row_limit", 10)
    lake.write("few", pa.table({"n": [1, 2]}))
    found = lake.table("few").scan().explain()
    assert (found.inlined_row_count, found.files) == (2, ())
    assert "2 rows stored in the catalog" in str(found)


def test_a_long_list_is_cut_in_print_and_whole_as_a_value(lake: DuckLake) -> None:
    for number in range(25):
        lake.write("many", pa.table({"n": [number]}))
    found = lake.table("many").scan().explain()
    assert len(found.files) == 25
    assert "... and 5 more" in str(found)
    assert repr(found) == str(found)


def test_hostile_strings_stay_in_their_line(lake: DuckLake) -> None:
    lake.write("odd", pa.table({"a\n\x1b[31m": ["x\nread: 0 files"]}), partition_by=["a\n\x1b[31m"])
    found = lake.table("odd").scan(where="\"a\n\x1b[31m\" = 'y\nz'").explain()
    text = str(found)
    assert "\x1b" not in text
    assert not any(line.startswith(("read:", "z")) for line in text.splitlines())


def test_nothing_is_explained_of_an_unknown_column(lake: DuckLake) -> None:
    with pytest.raises(LookupError, match="there is no column 'nope'"):
        lake.table("t").scan(where="nope = 1").explain()
