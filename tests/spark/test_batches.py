"""While rows go to Python the session does not estimate their sizes one by one; afterwards its settings are restored."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from ducklake_core.engines.spark.write import BYTES, ROWS, UNLIMITED, VARYING_ROWS, unlimited_arrow_batches


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.unset(BYTES)
    spark.conf.unset(ROWS)


def _limits(session: SparkSession) -> tuple[str | None, str | None]:
    return session.conf.get(BYTES), session.conf.get(ROWS)


def test_the_limit_in_bytes_is_lifted_for_one_action(session: SparkSession) -> None:
    before = _limits(session)
    with unlimited_arrow_batches(session.range(3)):
        assert _limits(session) == (UNLIMITED, before[1])
    assert _limits(session) == before


def test_rows_of_varying_size_come_in_smaller_batches(session: SparkSession) -> None:
    before = _limits(session)
    for expression in ("'x'", "array(1, 2)", "map(1, 2)", "named_struct('a', named_struct('b', 'x'))"):
        with unlimited_arrow_batches(session.range(3).selectExpr(f"{expression} AS a")):
            assert _limits(session) == (UNLIMITED, str(VARYING_ROWS))
    assert _limits(session) == before


def test_a_smaller_number_of_rows_that_the_user_chose_is_kept(session: SparkSession) -> None:
    session.conf.set(ROWS, "100")
    with unlimited_arrow_batches(session.range(3).selectExpr("'x' AS a")):
        assert _limits(session) == (UNLIMITED, "100")
    assert session.conf.get(ROWS) == "100"


def test_a_limit_in_bytes_that_the_user_chose_is_kept(session: SparkSession) -> None:
    session.conf.set(BYTES, "1048576")
    with unlimited_arrow_batches(session.range(3)):
        assert session.conf.get(BYTES) == "1048576"
    assert session.conf.get(BYTES) == "1048576"


def test_binary_columns_keep_the_limit(session: SparkSession) -> None:
    before = _limits(session)
    with unlimited_arrow_batches(session.range(3).selectExpr("array(X'00') AS a")):
        assert _limits(session) == before


def test_threads_that_share_a_session_leave_it_as_it_was(session: SparkSession) -> None:
    before = _limits(session)
    frame = session.range(3)
    inside = Barrier(4)

    def act(_: int) -> str | None:
        with unlimited_arrow_batches(frame):
            inside.wait(240)
            return session.conf.get(BYTES)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(act, range(4))) == {UNLIMITED}
    assert _limits(session) == before
    with pytest.raises(RuntimeError), unlimited_arrow_batches(frame):
        raise RuntimeError
    assert _limits(session) == before
