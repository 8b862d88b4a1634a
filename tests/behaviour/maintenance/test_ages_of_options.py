"""Ages that DuckDB stores as options are read as DuckDB reads intervals, for the whole lake, and stop no other operation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_core.format.types.text import parse_age
from ducklake_core.lake import DuckLake
from tests.support.oracle import LakeAddress, attached

SPANS = [
    "1d", "7d", "2 mons", "1.5 days", "1.5 months", "1.5 years", "0.1 quarter", "1:30", "1:30:15.5", "100:00:00", "2 days 12:00:00",
    "1 DAY", "1day2hours", "1 week", "  3 days  ", "1 year 2 mons 3 days 04:05:06", "1 day 1 day", "5. days", "0", "5", "@ 1 day",
    "1 y", "1 decade", "1 c", "1 mil", "90 mins", "1 hr", "100 ms", "1 us", "-1 day ago", "2 days -02:00:00",
    "0.33 months", "1.33 years", "1.333 decades", "1.99 quarters", "0.3333333333 days", "1.9999999 s", "1.2345678 ms", "2.5 us", "0.4 us",
]  # fmt: skip
NO_SPANS = [
    "",
    "soon",
    "+1 day",
    "1_000 days",
    "1,5 days",
    "1e3 days",
    "P1D",
    "infinity",
    "1 day,",
    ".5 day",
    "1 - day",
    "3 days 5",
    "1 qtr",
]
ENDS = [datetime(2026, 3, 31, 12, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC), datetime(2026, 1, 1, 1, 2, 3, tzinfo=UTC)]


def test_spans_are_those_of_duckdb() -> None:
    connection = duckdb.connect()
    for text in SPANS:
        for end in ENDS:
            # Without a zone, which DuckDB would take for that of the machine.
            plain = end.replace(tzinfo=None)
            span = connection.execute("SELECT epoch_us($1::TIMESTAMP) - epoch_us($1::TIMESTAMP - $2::INTERVAL)", [plain, text]).fetchone()
            assert span is not None
            assert parse_age(text, end) // timedelta(microseconds=1) == span[0], (text, end)
    for text in NO_SPANS:
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT ?::INTERVAL", [text])
        with pytest.raises(UsageError, match="not an age"):
            parse_age(text)
    for text in ("-1 day", "1 day ago", "1 day -48:00:00"):
        with pytest.raises(UsageError, match="negative"):
            parse_age(text)
    for text in ("9" * 5000 + " days", "99999999999 years", "999999999999999999 hours"):
        with pytest.raises(UsageError):
            parse_age(text)
    connection.close()


def test_ages_that_duckdb_accepts_stop_no_operation(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t AS SELECT range AS id FROM range(50)", "INSERT INTO t SELECT range FROM range(50)")
        duck.run("CALL lake.set_option('expire_older_than', '7d')", "CALL lake.set_option('delete_older_than', '2 mons')")
    lake = DuckLake.connect(lake_address.url)
    lake.table("t").append(pa.table({"id": range(20)}))
    assert lake.merge_adjacent_files().failed_steps == ()
    assert lake.checkpoint(dry_run=True).failed_steps == ()
    assert "option-invalid" not in lake.check().by_code
    with attached(lake_address) as duck:
        duck.run("CALL lake.set_option('expire_older_than', '-1 day')")
    lake.table("t").append(pa.table({"id": range(20)}))
    with pytest.raises(UsageError, match=r"expire_older_than.*negative"):
        lake.expire_snapshots()
    assert [step.verb for step in lake.checkpoint(dry_run=True).failed_steps] == ["expire_snapshots"]
    assert "option-invalid" in lake.check().by_code
    lake.set_option("expire_older_than", "INTERVAL '3 days'")
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM ducklake_expire_snapshots('lake', dry_run => true)") == 0
    lake.close()


def test_ages_are_of_the_whole_lake(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)")
        duck.run("CALL lake.set_option('expire_older_than', '1 microsecond', table_name => 't')")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT snapshot_id FROM ducklake_expire_snapshots('lake', dry_run => true)") == []
    lake = DuckLake.connect(sqlite_address.url)
    step = next(step for step in lake.checkpoint(dry_run=True).skipped_steps if step.verb == "expire_snapshots")
    assert "set only for schemas or tables" in step.reason
    for name, value in (("expire_older_than", "1 day"), ("delete_older_than", "1 day"), ("require_commit_message", True)):
        with pytest.raises(UsageError, match=f"option {name} applies to the whole lake"):
            lake.set_option(name, value, table="t")
        with pytest.raises(UsageError, match=f"option {name} applies to the whole lake"):
            lake.set_option(name, value, schema="main")
    assert lake.unset_option("expire_older_than", table="t")
    lake.close()
