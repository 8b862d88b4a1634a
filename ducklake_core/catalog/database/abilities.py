"""Describe the abilities of each catalog database, so that code checks an ability instead of a name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy.engine import Dialect

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.versions import USUAL_LIMITS, InlinedLimits

_SORTING = frozenset({"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "varchar"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The layout that DuckDB uses for metadata in one kind of database, and the behavior of that database.

    Attributes:
        boolean_as_integer: BOOLEAN columns are declared BIGINT and hold 0 and 1.
        uuid_as_text: UUID columns are VARCHAR with lower-case dashed text.
        timestamp_as_text: TIMESTAMPTZ columns are VARCHAR with UTC text; comparing them as text is wrong.
        concurrent_writers: Several transactions may write at the same time.
        commits_at_ddl: Creating, altering or dropping a table commits the open transaction and cannot be rolled back (decision 79).
        is_file: The database is one file on this machine, which opening it would create.
        default_schema: Database schema of the metadata tables when none is chosen; None where there are no schemas.
        has_clock: The database has a clock with microseconds; without one, the clock of this machine is used.
        binary_collation: Collation that compares strings by their bytes.
        has_regular_expressions: Patterns are regular expressions; without them they are GLOB patterns.
        inlined_limits: Limits of the columns of tables of inlined rows.
        validates_input: ``pg_input_is_valid`` exists, which checks a cast in a third of the time of a pattern.
        folds_names: Unquoted names lose their case, and DuckDB leaves plain names of inlined columns unquoted.
        inlined_cast_to_text: Inlined values of these types must be cast to strings in SQL, because the value of the driver
            loses information (months of an interval, 24:00:00, the offset of a timetz).
        inlined_as_is: Tables of inlined rows have the types of the columns, including nested types and variants.
        inlined_as_text: Tables of inlined rows have types for integers and binaries; everything else is stored as strings.
        inlined_text_as_bytes: Inlined strings are stored as bytes, which may contain NUL.
        inlined_sorting: Types whose inlined form sorts like their values.
        duckdb_flushes: DuckDB can flush the inlined rows of such a catalog.
        has_untyped_cells: A cell may hold a value of any type, whatever the column's type is.
        has_useful_indexes: An index makes lookups faster and does not hinder other clients.
        packs_rows: Rows can be read as one packed binary with their physical positions (ctid), by which they can be read again.
    """

    boolean_as_integer: bool
    uuid_as_text: bool
    timestamp_as_text: bool
    concurrent_writers: bool
    is_file: bool
    default_schema: str | None
    has_clock: bool
    binary_collation: str
    has_regular_expressions: bool
    folds_names: bool
    inlined_cast_to_text: frozenset[str]
    inlined_as_is: bool
    inlined_as_text: bool = False
    commits_at_ddl: bool = False
    inlined_limits: InlinedLimits = USUAL_LIMITS
    inlined_text_as_bytes: bool = False
    inlined_sorting: frozenset[str] = _SORTING
    duckdb_flushes: bool = True
    has_untyped_cells: bool = False
    has_useful_indexes: bool = False
    validates_input: bool = False
    packs_rows: bool = False


SQLITE = Abilities(
    boolean_as_integer=True,
    uuid_as_text=True,
    timestamp_as_text=True,
    concurrent_writers=False,
    is_file=True,
    default_schema=None,
    has_clock=False,
    binary_collation="BINARY",
    has_regular_expressions=False,
    folds_names=False,
    inlined_cast_to_text=frozenset(),
    inlined_as_is=False,
    inlined_as_text=True,
    has_untyped_cells=True,
    has_useful_indexes=True,
)

POSTGRESQL = Abilities(
    boolean_as_integer=False,
    uuid_as_text=False,
    timestamp_as_text=False,
    concurrent_writers=True,
    is_file=False,
    default_schema="public",
    has_clock=True,
    binary_collation="C",
    has_regular_expressions=True,
    folds_names=True,
    # DuckDB 1.4 stored dates and timestamps in columns of those types, later ones store text.
    inlined_cast_to_text=frozenset(
        {"time", "timetz", "interval", "uuid", "decimal", "date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz"}
    ),
    inlined_as_is=False,
    inlined_text_as_bytes=True,
    inlined_sorting=_SORTING | {"float32", "float64", "decimal"},
    has_useful_indexes=True,
    packs_rows=True,
    # A page has 8 KiB, and a row must fit into one page; names have at most 63 bytes.
    inlined_limits=InlinedLimits(max_page_bytes=8160, most_name_bytes=63),
)

_VALIDATES_INPUT = (16,)
_NEW_POSTGRESQL = replace(POSTGRESQL, validates_input=True)

_TIMES = ("date", "time", "time_ns", "timetz", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "interval")

DUCKDB = Abilities(
    boolean_as_integer=False,
    uuid_as_text=False,
    timestamp_as_text=False,
    concurrent_writers=False,
    is_file=True,
    default_schema="main",
    has_clock=False,
    binary_collation="BINARY",
    has_regular_expressions=True,
    folds_names=False,
    inlined_cast_to_text=frozenset({*_TIMES, "uuid", "decimal", "list", "map", "struct"}),
    inlined_as_is=True,
)

MYSQL = Abilities(
    boolean_as_integer=True,
    uuid_as_text=True,
    timestamp_as_text=True,
    concurrent_writers=True,
    is_file=False,
    default_schema=None,
    has_clock=True,
    binary_collation="utf8mb4_0900_bin",
    has_regular_expressions=True,
    folds_names=False,
    inlined_cast_to_text=frozenset(),
    inlined_as_is=False,
    # DuckDB has no layout of its own for MySQL: it is that of SQLite, which keeps every value (decision 79).
    inlined_as_text=True,
    duckdb_flushes=False,
    commits_at_ddl=True,
    # A row must fit into half a page of InnoDB (16 KiB), where each long string takes forty bytes.
    # A statement must fit into a packet, which has at least one megabyte.
    inlined_limits=InlinedLimits(most_columns=180, most_row_bytes=1 << 19, most_name_bytes=63, plain_names=True),
    has_useful_indexes=True,
)

MARIADB = replace(MYSQL, binary_collation="utf8mb4_nopad_bin")

_BY_DIALECT = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "duckdb": DUCKDB, "mysql": MYSQL, "mariadb": MARIADB}


def abilities_of(dialect: Dialect) -> Abilities:
    """Return the abilities of the database behind a SQLAlchemy dialect.

    Raises:
        UnsupportedFeatureError: This library does not support catalogs in the database.
    """
    found = _BY_DIALECT.get(dialect.name)
    if found is None:
        raise UnsupportedFeatureError(
            f"{dialect.name} as catalog database is not supported: use SQLite, PostgreSQL, MySQL or a DuckDB file", dialect=dialect.name
        )
    if getattr(dialect, "is_mariadb", False):
        return MARIADB
    if dialect.name == "postgresql" and (getattr(dialect, "server_version_info", None) or (0,)) >= _VALIDATES_INPUT:
        return _NEW_POSTGRESQL
    return found
