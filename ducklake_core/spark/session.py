"""Settings of the user's Spark session that an action of ours needs, put back when the last such action is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_PER_BATCH_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
RECORDS_PER_BATCH = 32_768

_lock = threading.Lock()
_users: WeakKeyDictionary[SparkSession, tuple[int, str | None]] = WeakKeyDictionary()


@contextmanager
def large_batches(session: SparkSession) -> Iterator[None]:
    """Within the block Spark hands rows to Python in batches of at least ``RECORDS_PER_BATCH``.

    Several threads may be inside at the same time; the last one that leaves puts the user's setting back.
    """
    with _lock:
        users, before = _users.get(session, (0, None))
        if not users:
            before = session.conf.get(RECORDS_PER_BATCH_CONF, None)
            if before is None or 0 < int(before) < RECORDS_PER_BATCH:
                session.conf.set(RECORDS_PER_BATCH_CONF, str(RECORDS_PER_BATCH))
        _users[session] = (users + 1, before)
    try:
        yield
    finally:
        with _lock:
            users, before = _users[session]
            if users > 1:
                _users[session] = (users - 1, before)
            else:
                del _users[session]
                if before is None:
                    session.conf.unset(RECORDS_PER_BATCH_CONF)
                else:
                    session.conf.set(RECORDS_PER_BATCH_CONF, before)
