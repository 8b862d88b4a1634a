"""SQL over a lake: queries, statements that become its verbs, and views of a Spark session."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ducklake_core.catalog.database.failures import REPLAN_RETRIES
from ducklake_core.errors import CommitConflictError, UsageError
from ducklake_core.format.values.temporal import in_zone
from ducklake_core.staging.arguments import At, CommitOptions, resolve_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.results import TransactionResult
    from ducklake_core.sql.query import Query
    from ducklake_core.sql.statements import StatementVerbs
    from ducklake_core.staging.context import LakeContext


class SqlVerbs(ABC):
    """SQL of users. Part of :class:`~ducklake_core.lake.DuckLake`."""

    @property
    @abstractmethod
    def _context(self) -> LakeContext:
        """The handles of the lake."""

    @abstractmethod
    def _carry_out(self, verb: Callable[[StatementVerbs], object], commit: Mapping[str, Any]) -> TransactionResult:
        """Call a verb of a transaction of its own."""

    def sql(
        self, sql: str, *, spark: SparkSession | None = None, at: At = None, timezone: str | None = None, **commit: Unpack[CommitOptions]
    ) -> Query | TransactionResult:
        """Run one statement of SQL in DuckDB's dialect; docs/sql.md lists what is understood.

        A query gives its rows when they are asked for (``to_arrow()``, ``to_pandas()``, ``to_spark()``, or as an Arrow stream), all tables
        read at one snapshot, which is fixed now. Any other statement is carried out now, by the verb that does the same, as one commit.

        Args:
            sql: ``SELECT ...``, or ``INSERT``, ``UPDATE``, ``DELETE``, ``MERGE``, ``CREATE``, ``DROP``, ``ALTER``, ``COMMENT``.
            spark: A session that does the work. Without one this process does, where the query is more than columns of one table by
                DuckDB, which has to be installed (``pip install 'ducklake-dagster[duckdb]'``).
            at: The snapshot to query, the newest when None; single tables by ``t AT (VERSION => 3)``.
            timezone: Time zone of the statement, such as ``Europe/Berlin``: that of timestamps that name none where a ``timestamptz`` is
                meant, of casts, and of the parts of a ``timestamptz``. When None that of the session with ``spark``, else the machine's,
                as in DuckDB. With ``spark`` it must be the session's.
            commit: Author, message, extra information and commit id of what the statement commits.

        Raises:
            UsageError: The text is not one statement, or the engine refuses it; ``timezone`` is no zone, or not that of the session.
            NotFoundError: A table that does not exist.
            UnsupportedFeatureError: Something that is not understood, by its name; or no engine for a query.
        """
        from ducklake_core.sql.query import Query, statement_zone
        from ducklake_core.sql.time_travel import is_query

        zone = statement_zone(timezone, spark)
        if is_query(sql):
            if commit:
                raise UsageError(f"a query commits nothing, so {', '.join(commit)} cannot be given")
            with self._context.reader() as reader:
                return Query(self._context, sql, resolve_at(reader, at).id, spark, timezone)
        if at is not None:
            raise UsageError("at is for queries: a statement changes the newest snapshot")
        with in_zone(zone):
            return self._carry_out_again(lambda tx: tx.sql(sql, spark=spark), commit)

    def _carry_out_again(self, verb: Callable[[StatementVerbs], object], commit: Mapping[str, Any]) -> TransactionResult:
        """Call a verb of a transaction of its own, anew where others were faster: a statement is as if it had begun after them."""
        for tried in range(1, REPLAN_RETRIES.tries):
            try:
                return self._carry_out(verb, commit)
            except CommitConflictError:
                time.sleep(REPLAN_RETRIES.pause(tried))
        return self._carry_out(verb, commit)

    def register(
        self, spark: SparkSession, *, schema: str | None = None, tables: Sequence[str] | None = None, at: At = None
    ) -> dict[str, str | None]:
        """Make a temporary view in a Spark session of every table and view of a schema, so that ``spark.sql`` finds them.

        The catalog is asked once for each, and no file is opened before a query runs. Spark then reads the columns that the query needs,
        but leaves out files by what it finds in them, not by the catalog, as :meth:`sql` does. The views stay at one snapshot: call
        it again for a newer one. Temporary views of the same names are replaced.

        Args:
            spark: The session, classic or Connect.
            schema: The schema, ``main`` when None.
            tables: Names of its tables and views, all of them when None.
            at: The snapshot, the newest when None.

        Returns:
            Each name, with the reason why it was left out where Spark cannot read a view, else None.

        Raises:
            NotFoundError: There is no such schema or table.
        """
        from ducklake_core.sql.query import register, statement_zone

        with in_zone(statement_zone(None, spark)):
            return register(self._context, spark, schema, tables, at)
