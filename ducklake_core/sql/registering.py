"""Temporary views of a Spark session for the tables and views of a lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.views import views
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, quoted_path, schemas_meant, split_path
from ducklake_core.sql.query import Query
from ducklake_core.staging.arguments import At, resolve_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.staging.context import LakeContext


def register(
    lake: LakeContext, session: SparkSession | None, schema: str | None, tables: Sequence[str] | None, at: At
) -> dict[str, str | None]:
    """Make the views; see :meth:`DuckLake.register`.

    Raises:
        UsageError: There is no session.
    """
    if session is None:
        raise UsageError("register needs a Spark session")
    with lake.reader() as reader:
        snapshot = resolve_at(reader, at).id
        owner = reader.schema(*schemas_meant(schema or DEFAULT_SCHEMA), snapshot_id=snapshot)
        names = [name for own, name in reader.table_names(snapshot).values() if folded(own) == folded(owner.name)]
        names += [view.name for view in views(reader, snapshot) if view.schema_id == owner.id]
    wanted = names if tables is None else _chosen(tables, names, owner.name)
    made: dict[str, str | None] = {}
    for name in sorted(wanted):
        try:
            frame = _frame(lake, owner.name, name, snapshot, session)
        except UnsupportedFeatureError as problem:
            made[name] = problem.message
        else:
            frame.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
            made[name] = None
    return made


def _chosen(tables: Sequence[str], names: Sequence[str], schema: str) -> list[str]:
    known = {folded(name): name for name in names}
    missing = [name for name in tables if folded(name) not in known]
    if missing:
        raise NotFoundError(f"there is no table or view {', '.join(missing)} in schema {schema}", tables=missing)
    return [known[folded(name)] for name in tables]


def _frame(lake: LakeContext, schema: str, name: str, snapshot: int, session: SparkSession) -> DataFrame:
    query = f"FROM {quoted_path((*split_path(schema), name))}"
    return Query(lake, query, snapshot, session).to_spark()
