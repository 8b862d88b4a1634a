"""Define assets next to the flights, with Arrow: audited before the commit, checked after it, or made from tables of other writers."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_dagster import ducklake_input, ducklake_metadata


@dg.asset(
    group_name="fleet",
    kinds={"ducklake"},
    metadata=ducklake_metadata(audits={"seats_are_positive": "seats > 0", "tail_numbers_are_there": "tailnum IS NOT NULL"}),
)
def fleet(planes: pa.Table) -> pa.Table:
    """Planes with their seats; nothing is committed that fails an audit."""
    return planes.select(["tailnum", "manufacturer", "seats"])


@dg.asset(
    group_name="fleet",
    kinds={"ducklake"},
    ins={"airlines": dg.AssetIn(metadata=ducklake_input(changes="last_materialization"))},
    metadata=ducklake_metadata(write_mode="append"),
)
def carrier_changes(airlines: pa.Table) -> pa.Table:
    """Changes to the carriers, each change once."""
    return airlines.select(["change_type", "carrier", "name"])


@dg.asset(group_name="fleet", kinds={"ducklake"})
def charters(airlines: pa.Table) -> pa.Table:
    """Carriers that fly charters. The asset must have rows."""
    return airlines.filter(pc.equal(airlines["carrier"], "YY"))


@dg.asset(group_name="fleet", kinds={"ducklake"})
def charter_names(charters: pa.Table) -> pa.Table:
    """Names of charter airlines; waits for the check of the charters."""
    return charters.select(["name"])


@dg.asset(group_name="fleet", deps=[dg.AssetKey(["partner", "bookings"])])
def booking_report() -> None:
    """Runs when the partner's table has changed."""
