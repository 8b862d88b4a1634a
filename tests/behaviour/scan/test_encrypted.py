"""Encrypted lakes that DuckDB made, read at every snapshot and compared with DuckDB's own answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from ducklake_core.errors import CatalogCorruptError, CorruptFileError, DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import EncryptionKey
from tests.behaviour.scan.test_read_oracle import INLINED, SCENARIOS, compare_with_arrow, replay
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread
from tests.support.scans import assert_same_rows, open_lake

TO_FILES = "ENCRYPTED, DATA_INLINING_ROW_LIMIT 0"
OWN: dict[str, tuple[str, ...]] = {
    "row groups": (
        "CALL lake.set_option('parquet_row_group_size', '2048')",
        """CREATE TABLE t AS SELECT i, i % 10 AS few, 'v' || i % 5000 AS many, [i, NULL] AS l,
            CASE WHEN i % 3 > 0 THEN {'x': i, 'y': repeat('z', i % 50)} END AS s FROM range(9000) r(i)""",
        "DELETE FROM t WHERE i % 5 = 0",
        "UPDATE t SET many = 'new' WHERE i BETWEEN 4000 AND 5000",
        "DELETE FROM t WHERE i > 7000",
    ),
    "deletion vectors, which stay plain": (
        "CALL lake.set_option('write_deletion_vectors', 'true')",
        "CREATE TABLE t AS SELECT i FROM range(3000) r(i)",
        "DELETE FROM t WHERE i % 3 = 0",
    ),
    "parquet options": (
        "CALL lake.set_option('parquet_version', '2')",
        "CALL lake.set_option('parquet_compression', 'zstd')",
        "CALL lake.set_option('parquet_row_group_size', '2048')",
        "CREATE TABLE t AS SELECT i, 'v' || i % 7 AS v, i / 3 AS d FROM range(9000) r(i)",
        "DELETE FROM t WHERE i % 4 = 1",
    ),
}


def disturb(address: LakeAddress, *statements: str) -> None:
    """Change the catalog behind everyone's back."""
    with open_lake(address).database.write() as connection:
        for statement in statements:
            connection.execute(text(statement))


@pytest.mark.parametrize("name", spread(["types", "updates", "partitions", "merge", *OWN], 1))
def test_files_at_every_snapshot(lake_address: LakeAddress, tmp_path: Path, name: str) -> None:
    replay(lake_address, {**SCENARIOS, **OWN}[name], TO_FILES, compare_with_arrow)
    for file in tmp_path.rglob("*.parquet"):
        assert file.read_bytes()[-4:] == b"PARE"


@pytest.mark.parametrize("name", spread(INLINED, 1))
def test_inlined_rows_and_flushed_ones(lake_address: LakeAddress, name: str) -> None:
    statements = (*INLINED[name], "CALL ducklake_flush_inlined_data('lake')")
    replay(lake_address, statements, "ENCRYPTED, DATA_INLINING_ROW_LIMIT 10", compare_with_arrow)


@pytest.fixture
def lake(lake_address: LakeAddress) -> LakeAddress:
    with attached(lake_address, TO_FILES) as duck:
        duck.run(
            "CREATE TABLE t AS SELECT i, 'v' || i AS v FROM range(1000) r(i)",
            "DELETE FROM t WHERE i % 3 = 0",
            "INSERT INTO t SELECT i, NULL FROM range(1000, 2000) r(i)",
        )
    return lake_address


@pytest.mark.parametrize("condition", ["i < 10", "v IS NULL AND i >= 1990", "v IN ('v5', 'v7')", "i > 5000"])
def test_predicates_and_pruning(lake: LakeAddress, condition: str) -> None:
    own = open_lake(lake).scan("t", where=condition).to_arrow()
    with attached(lake) as duck:
        assert_same_rows(duck, own, f"SELECT * FROM t WHERE {condition}")


@pytest.mark.parametrize("kind", ["data", "delete"])
@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("NULL", CatalogCorruptError, "no encryption key in the catalog"),
        ("''", CatalogCorruptError, "no encryption key in the catalog"),
        ("'AAECAwQFBgcICQoLDA0ODw=='", CorruptFileError, "cannot be decrypted: the catalog's key is not the file's"),
        ("'AAECAwQFBgcICQoLDA0OD'", CatalogCorruptError, "not the base64 text of an AES key"),
        ("'kek1:AAECAwQFBgcICQoLDA0ODw=='", UnsupportedFeatureError, "KEY_ENCRYPTION_KEY"),
    ],
)
def test_hostile_keys(lake: LakeAddress, kind: str, key: str, error: type[DuckLakeError], message: str) -> None:
    disturb(lake, f"UPDATE ducklake_{kind}_file SET encryption_key = {key}")
    with pytest.raises(error, match=message) as raised:
        open_lake(lake).scan("t").to_arrow()
    assert "AAECAw" not in f"{raised.value!r}{raised.value.details}{raised.value.__cause__!r}"


def test_a_flag_that_contradicts_the_files(lake: LakeAddress) -> None:
    disturb(lake, "UPDATE ducklake_metadata SET value = 'false' WHERE ducklake_metadata.key = 'encrypted'")
    with pytest.raises(CorruptFileError, match="encrypted"):
        open_lake(lake).scan("t").to_arrow()


def test_keys_mean_nothing_in_a_plain_lake(lake_address: LakeAddress) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i FROM range(100) r(i)", "DELETE FROM t WHERE i < 5")
    disturb(lake_address, *(f"UPDATE ducklake_{kind}_file SET encryption_key = 'x'" for kind in ("data", "delete")))
    with attached(lake_address) as duck:
        assert_same_rows(duck, open_lake(lake_address).scan("t").to_arrow(), "SELECT * FROM t")


def test_plans_show_no_encryption_keys(lake: LakeAddress) -> None:
    planned = open_lake(lake).scan("t").plan()
    tasks = planned.plan.tasks
    keys = [task.file.encryption_key for task in tasks] + [delete.encryption_key for task in tasks for delete in task.file.delete_files]
    assert len(keys) == 3
    for key in keys:
        assert isinstance(key, EncryptionKey)
        assert key.base64_text not in f"{planned}{planned!r}{planned.plan!r}{tasks}"
