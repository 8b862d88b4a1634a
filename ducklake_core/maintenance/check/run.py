"""Check a lake, level by level, and repair what is safe to repair."""

from __future__ import annotations

from typing import get_args

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.integrity_scan import EveryRow, registered_names
from ducklake_core.commit.request import CommitMessage, new_commit_id, stored_extra_info
from ducklake_core.errors import CatalogError, CatalogUnavailableError, CatalogVersionError, NotALakeError, UsageError
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.text import shown
from ducklake_core.maintenance.check.contents import RowChecks
from ducklake_core.maintenance.check.definitions import check_cells, check_definitions, check_keys, check_objects
from ducklake_core.maintenance.check.facts import REQUIRED, Facts
from ducklake_core.maintenance.check.files import check_files, check_inlined, check_schedule
from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
from ducklake_core.maintenance.check.footers import FooterChecks
from ducklake_core.maintenance.check.repair import carry_out
from ducklake_core.maintenance.check.statistics import check_statistics
from ducklake_core.maintenance.request import ProgressMeter
from ducklake_core.storage.filesystems import Storage

OPERATION = "check"
_OF_THE_CATALOG = (check_definitions, check_objects, check_keys, check_files, check_inlined, check_schedule, check_statistics)
_ORDER = {"error": 0, "warning": 1, "notice": 2}


def check_lake(
    database: Database,
    info: LakeInfo,
    storage: Storage,
    *,
    level: CheckLevel = "catalog",
    repair: bool = False,
    progress: ProgressMeter | None = None,
    commit: CommitMessage | None = None,
) -> CheckResult:
    """Check a lake, and repair it on request; see ``DuckLake.check`` for the parameters."""
    if level not in get_args(CheckLevel):
        raise UsageError(f"Unknown level {shown(level)}. Choose {', '.join(get_args(CheckLevel))}", parameter="level")
    if repair:
        database.check_writable()
    meter, message = progress or ProgressMeter(), commit or CommitMessage()
    unused = [name for name, value in message.items() if value is not None and not repair]
    if unused:
        raise UsageError(f"{unused[0]} applies only to the snapshot of a repair. Set repair, or remove {unused[0]}", parameter=unused[0])
    # Before the lake is read for it.
    stored_extra_info(new_commit_id(), message.get("extra_info"))
    bytes_read = 0
    meter.begin(OPERATION, "read the catalog", "tables", None)
    try:
        facts = _of_the_catalog(database, info)
    except (CatalogUnavailableError, CatalogVersionError, NotALakeError):
        raise
    except CatalogError:
        # A table of inlined rows may lack columns. Any other fault is raised again.
        facts = _of_the_catalog(database, info, checks_columns=True)
    unreadable = any(cell.column is None for cell in facts.every.bad)
    files = len(facts.files) + len(facts.every.rows("delete_file"))
    # If DDL commits implicitly, a table can disappear between two statements of one transaction. It is missing only if it is still
    # registered afterwards.
    if facts.inlined.missing and database.abilities.commits_at_ddl:
        with database.read() as connection:
            still = registered_names(connection, database.tables)
        facts.findings = [one for one in facts.findings if one.code != "inlined-table-missing" or one.what in still]
    # Each level builds on the findings of the one before: a file that the catalog or its footer shows to be unusable is not read again,
    # so that one fault is reported once.
    if level != "catalog" and not unreadable:
        footers = FooterChecks(facts, database, storage, meter)
        footers.run()
        if level == "rows":
            rows = RowChecks(facts, database, storage, footers, meter)
            rows.run()
            bytes_read = rows.bytes_read
    done, made = (
        carry_out(database, info, facts.repairs, facts.newest, message) if repair and facts.repairs and not unreadable else ((), None)
    )
    return CheckResult(
        level=level,
        snapshot_id=facts.newest,
        findings=tuple(sorted(facts.findings, key=lambda one: (_ORDER[one.severity], one.table or "", one.code, one.data_file_id or 0))),
        tables=sum(table.is_live for table in facts.tables.values()),
        bytes_read=bytes_read,
        repairs=done,
        repair_snapshot_id=made,
        files=files,
    )


def _of_the_catalog(database: Database, info: LakeInfo, *, checks_columns: bool = False) -> Facts:
    """Read the catalog in one transaction, and check its rows against each other."""
    with database.read() as connection:
        every = EveryRow(connection=connection, tables=database.tables, required=REQUIRED, checks_columns=checks_columns)
        facts = Facts(every, info, lambda: database.now(connection))
        unreadable = any(cell.column is None for cell in every.bad)
        for check in () if unreadable else _OF_THE_CATALOG:
            check(facts)
            unreadable = unreadable or any(cell.column is None for cell in every.bad)
        check_cells(facts, every.bad)
        # It is read once more, after the transaction.
        every.rows("delete_file")
    return facts
