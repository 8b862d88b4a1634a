"""Run the chaos test by hand and print its report. The exit code is 1 if there are violations."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.chaos.library_writer import WEIGHTS
from tests.chaos.supervisor import Report, run_chaos

_MAX_LINES = 12


def main() -> int:
    """Parse the arguments, run, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--catalog", choices=("postgres", "sqlite"), required=True)
    parser.add_argument("--seconds", type=float, default=60, help="duration of the disturbed part of the run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", type=int, default=5, help="number of processes that write with the library; 0: DuckDB alone")
    parser.add_argument("--duckdb", type=int, default=1, help="number of processes that write with DuckDB")
    parser.add_argument("--min-age", type=float, help="minimum age in seconds of snapshots that expire; default: 0, or 10 with DuckDB")
    kinds = [method.__name__ for method in WEIGHTS]
    parser.add_argument("--operations", nargs="*", choices=kinds, default=(), help="kinds of operations of the library; default: all")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the run")
    chosen = parser.parse_args()
    # The processes and the server end with the run, also when it is terminated.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = run_chaos(
        catalog=chosen.catalog,
        seed=chosen.seed,
        seconds=chosen.seconds,
        writers=chosen.writers,
        duckdb_writers=chosen.duckdb,
        min_age=chosen.min_age,
        operations=chosen.operations,
        keep=chosen.keep,
    )
    print_report(report)
    return 1 if report.findings.violations else 0


def print_report(report: Report) -> None:
    """Print what was found, the errors, and one line with the numbers of the run."""
    run, found, faults = report.run, report.findings, report.faults
    for title, lines in (
        ("violation", found.violations),
        ("known damage by DuckDB", found.known),
        ("difference of DuckDB", found.duckdb),
        ("older snapshot changed by DuckDB", found.time_travel),
        ("skew", found.skew),
    ):
        for line in lines[:_MAX_LINES]:
            print(f"{title}: {line}")
        if len(lines) > _MAX_LINES:
            print(f"{title}: {len(lines) - _MAX_LINES} more")
    print("errors:")
    for kind, count in sorted(found.errors.items()):
        print(f"  {count:4d} {kind}: {found.examples[kind][:260]}")
    longest = sorted(found.longest.items(), key=lambda item: -item[1])
    print("longest seconds:", ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in longest))
    print("outcomes:", ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items())))
    print("orphaned files:", ", ".join(f"{count} {kind}" for kind, count in sorted(found.orphans.items())) or "none")
    print("faults:", ", ".join(f"{count} {kind}" for kind, count in sorted(faults.counts.items())))
    print(
        f"{'FAILED' if found.violations else 'passed'}: {run.catalog}, seed {run.seed}, {report.seconds:.0f} s, "
        f"{run.duckdb_writers} DuckDB writers, {found.commits} commits, {found.expired} expired, "
        f"{found.observations} snapshots compared, {found.counted} row counts compared, {len(found.violations)} violations, "
        f"{len(found.known)} known damages by DuckDB, {len(found.duckdb)} differences of DuckDB, "
        f"{len(found.time_travel)} in older snapshots, {len(found.skew)} skews"
    )


if __name__ == "__main__":
    sys.exit(main())
