"""Connections of psycopg whose statements go through a pipeline: many are sent before the first answer is waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from sqlalchemy import Engine

from ducklake_core.catalog.database.statements import CompiledStatement


@contextmanager
def raw_connection(engine: Engine) -> Iterator[Any]:
    """The driver's own connection from the pool; one that was lost does not go back to it."""
    with closing(engine.raw_connection()) as pooled:
        raw: Any = pooled.driver_connection
        try:
            yield raw
        finally:
            if raw.closed:
                pooled.invalidate()


@contextmanager
def in_pipeline(raw: Any) -> Iterator[tuple[Any, Any]]:
    """A connection of psycopg in pipeline mode, and its pipeline, where BEGIN and COMMIT are ours: its own BEGIN waits for an answer.

    One that was interrupted, or cannot leave the mode, is closed: what the driver holds of it need not be what the server got. The
    interruption leaves the block, and not what the driver makes of it.
    """
    import psycopg

    raw.autocommit = True
    is_sound = False
    try:
        with raw.pipeline() as pipeline:
            try:
                yield raw, pipeline
            except BaseException:
                # The answers of skipped statements are taken here: the driver would log them as errors that it ignores.
                with suppress(psycopg.Error):
                    pipeline.sync()
                raise
        is_sound = True
    except Exception as error:
        if (interruption := _interruption(error)) is not None:
            raise interruption from None
        is_sound = True
        raise
    finally:
        if not raw.closed and not (is_sound and raw.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF):
            raw.close()
        if not raw.closed:
            if raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raw.rollback()
            raw.autocommit = False


def ask_alone(raw: Any, statement: CompiledStatement, parameters: Mapping[str, object]) -> list[Any]:
    """The rows of one query, without a pipeline and without BEGIN and COMMIT: a statement by itself is a transaction."""
    import psycopg

    raw.autocommit = True
    try:
        cursor = raw.cursor()
        cursor.execute(statement.text, statement.bound(parameters))
        return [statement.row_type(*row) for row in cursor.fetchall()]
    finally:
        if not raw.closed and raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            # Somebody interrupted the waiting for the answer.
            raw.close()
        if not raw.closed:
            raw.autocommit = False


def _interruption(error: BaseException) -> BaseException | None:
    """What interrupted the driver, such as Ctrl-C, before an error of its own, which says that it was busy or has lost an answer."""
    before = error.__context__
    while before is not None and isinstance(before, Exception):
        before = before.__context__
    return before


def has_pipelines() -> bool:
    """Whether libpq is new enough for them."""
    import psycopg

    return psycopg.capabilities.has_pipeline()
