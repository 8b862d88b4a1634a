"""An executor is lost in the middle of a file: its tasks run again elsewhere, and no row is there twice."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.s3 import S3Server, s3_lake
from tests.support.spark import run_program

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "s3"])
def test_rows_are_there_once(request: pytest.FixtureRequest, sqlite_address: LakeAddress, tmp_path: Path, kind: str) -> None:
    """Nor does anything stay of the file, or of its upload."""
    address, options, know = sqlite_address, {}, None
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        address, options, know = s3_lake(sqlite_address, "lost_executor"), server.options(default_block_size=5 * 2**20), server.know
    folder = tmp_path / "marks"
    folder.mkdir()
    run_program("tests.faults.lost_executor", address.url, address.data_path, str(folder), json.dumps(options), prints="WRITTEN")
    with attached(address, before=know) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT k), count(DISTINCT rowid), sum(k) FROM t") == [
            (66_000, 66_000, 66_000, 2_177_967_000)
        ]
        assert duck.rows("SELECT count(*) FROM t WHERE owner = -1 AND k % 600 = 0") == [(110,)]
    lake = DuckLake.connect(address.url, storage_options=options)
    left = lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0), dry_run=True)
    # What the killed executor left in the middle was swept when the write ended.
    assert (left.files, left.uploads, left.uploads_unknown) == ((), (), None), str(left)
