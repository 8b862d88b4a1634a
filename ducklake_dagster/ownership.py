"""Whose rows a table holds: an asset replaces what it wrote itself, and not what another one wrote, unless both say that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError
from ducklake_dagster.provenance import AUTHOR, writer_of

if TYPE_CHECKING:
    from ducklake_core import Table
    from ducklake_dagster.naming import TableAddress


def refuse_to_replace_rows_of_others(table: Table | None, address: TableAddress, writer: str) -> None:
    """Refuse an overwrite of a table whose rows were last changed by another asset.

    The catalog's history says who that was. Commits that no output of Dagster made, such as those of DuckDB, are passed over, and so
    are those whose snapshots were expired: nothing is known of them any more.

    Args:
        table: The table, None when it does not exist yet.
        address: Its name.
        writer: The asset, or the op's output, that is about to replace rows.

    Raises:
        UsageError: Another one wrote last.
    """
    last = table.last_row_change(author=AUTHOR) if table is not None else None
    other = writer_of(last, str(address)) if last else None
    if last is None or other is None or other == writer:
        return
    raise UsageError(
        f"{writer} would overwrite rows of table {address} that {other} wrote (snapshot {last.id}): give one of them a table of its own "
        "with metadata table= or schema=. If they are meant to share the table, or the asset was renamed, set shared=True in the "
        "metadata of this one",
        table=str(address),
        snapshot_id=last.id,
        writer=other,
    )
