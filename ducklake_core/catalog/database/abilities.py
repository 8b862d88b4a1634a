"""The abilities of each catalog database, so that code asks for an ability instead of a name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy.engine import Dialect

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.versions import USUAL_LIMITS, InlinedLimits

_SORTING = frozenset({"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "varchar"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """How DuckDB lays out metadata in one kind of database, and how that database behaves.

    Attributes:
        boolean_as_integer: BOOLEAN columns are declared BIGINT and hold 0 and 1.
        uuid_as_text: UUID columns are VARCHAR with lower-case dashed text.
        timestamp_as_text: TIMESTAMPTZ columns are VARCHAR with UTC text; comparing them as text is wrong.
        concurrent_writers: Several transactions may write at the same time.
        commits_at_ddl: Whatever makes, changes or drops a table ends the transaction before, and cannot be taken back (decision 79).
        is_file: The database is one file on this machine; nothing but opening it may create it.
        default_schema: Database schema of the metadata tables when none is chosen; None where there are no schemas.
        has_clock: The database has a clock with microseconds; without one, this machine's clock is the database's.
        binary_collation: Collation that compares text by its bytes.
        has_regular_expressions: Patterns are regular expressions; without them they are GLOB patterns.
        inlined_limits: Which tables of inlined rows there may be.
        validates_input: ``pg_input_is_valid`` is there, which tells in a third of a pattern's time whether a cast will do.
        folds_names: Unquoted names lose their case, and DuckDB leaves plain names of inlined columns unquoted.
        inlined_cast_to_text: Inlined values of these types must be cast to text in SQL, because the driver's own
            value loses something (months of an interval, 24:00:00, the offset of a timetz).
        inlined_as_is: Tables of inlined rows have the columns' own types, nested ones and variants too.
        inlined_as_text: Tables of inlined rows have types for integers and binaries; everything else is text.
        inlined_text_as_bytes: Inlined text is kept as bytes.
        inlined_sorting: Types whose inlined form sorts as their values do.
        duckdb_flushes: DuckDB can flush the inlined rows of such a catalog.
        has_untyped_cells: A cell may hold a value of any type, whatever the column's type is.
        has_useful_indexes: An index makes its lookups faster and gets in nobody's way.
        packs_rows: Rows can be had as one binary, with their places, by which they are found again.
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
    # A page has 8 KiB, and a row is in one page.
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
    # A row has to fit into half a page of InnoDB, each text with forty bytes.
    # A statement has to fit into a packet, which is of a megabyte at least.
    inlined_limits=InlinedLimits(most_columns=180, most_row_bytes=1 << 19, most_name_bytes=63, plain_names=True),
    has_useful_indexes=True,
)

MARIADB = replace(MYSQL, binary_collation="utf8mb4_nopad_bin")

_BY_DIALECT = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "duckdb": DUCKDB, "mysql": MYSQL, "mariadb": MARIADB}


def abilities_of(dialect: Dialect) -> Abilities:
    """The abilities behind a SQLAlchemy dialect.

    Raises:
        UnsupportedFeatureError: A database that this library does not keep catalogs in.
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
