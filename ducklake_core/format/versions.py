"""Describe what each version of the format has; no other module compares version numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ducklake_core.errors import CatalogVersionError

RESERVED_PREFIX = "_ducklake_"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedColumns:
    """Names of the leading columns of each table of inlined rows."""

    row_id: str
    begin_snapshot: str
    end_snapshot: str

    @property
    def names(self) -> tuple[str, str, str]:
        """All of them, in order."""
        return (self.row_id, self.begin_snapshot, self.end_snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedLimits:
    """Limits of the catalog's database for tables of inlined rows; they do not depend on the format version.

    Attributes:
        most_columns: Maximum number of columns of a table: 1600 in PostgreSQL, 2000 in SQLite; DuckDB fails beyond.
        most_row_bytes: Maximum size of a row in bytes, four for each character; None for no limit.
        max_page_bytes: Maximum length of a row in a database page, in bytes; None for no limit. Longer values are stored elsewhere.
        most_name_bytes: Maximum length of a column's name in UTF-8 bytes; None for no limit.
        plain_names: Whether names of columns must differ by more than case and accents, and must not contain characters beyond U+FFFF.
    """

    most_columns: int = 1600
    most_row_bytes: int | None = None
    max_page_bytes: int | None = None
    most_name_bytes: int | None = None
    plain_names: bool = False


USUAL_LIMITS = InlinedLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatVersion:
    """A version of the format.

    Attributes:
        name: Name as stored in the catalog.
        number: Major and minor version. They determine the columns of the metadata tables.
        is_writable: Whether this library writes lakes of the version. It reads other lakes and can migrate them.
        inlined_columns: Names of the leading columns of tables of inlined rows.
        reserves_prefix: Whether no column may have a name that begins with ``_ducklake_``.
        inlines_variants: Whether variants are inlined where the database has no such type.
        has_parent_schemas: Whether a schema may be inside another.
        has_view_column_tags: Whether columns of views may have comments.
        epoch_transforms: Whether partition keys may count years, months, days and hours since 1970.
        null_type: Whether a column may be of type ``null``.
        shared_deletion_vectors: Whether a Puffin file may hold the deletes of several snapshots.
        inlined_limits: Limits of the catalog's database.
    """

    name: str
    number: tuple[int, int]
    is_writable: bool = True
    inlined_columns: InlinedColumns
    reserves_prefix: bool = False
    inlines_variants: bool = False
    has_parent_schemas: bool = False
    has_view_column_tags: bool = False
    epoch_transforms: bool = False
    null_type: bool = False
    shared_deletion_vectors: bool = False
    inlined_limits: InlinedLimits = USUAL_LIMITS

    def __str__(self) -> str:
        return self.name


# Version 1.1 prefixed them, so that a table with inlined rows may have a column called row_id.
_BARE = InlinedColumns(row_id="row_id", begin_snapshot="begin_snapshot", end_snapshot="end_snapshot")
_PREFIXED = InlinedColumns(
    row_id=f"{RESERVED_PREFIX}row_id", begin_snapshot=f"{RESERVED_PREFIX}begin_snapshot", end_snapshot=f"{RESERVED_PREFIX}end_snapshot"
)

V1_0 = FormatVersion(name="1.0", number=(1, 0), inlined_columns=_BARE)
V1_1 = FormatVersion(
    name="1.1",
    number=(1, 1),
    inlined_columns=_PREFIXED,
    reserves_prefix=True,
    inlines_variants=True,
    has_parent_schemas=True,
    has_view_column_tags=True,
    epoch_transforms=True,
    null_type=True,
    shared_deletion_vectors=True,
)
# Development builds of DuckDB wrote this version; it is read, and migrated to 1.1.
_V1_1_DEV1 = FormatVersion(
    name="1.1-dev1", number=(1, 1), is_writable=False, inlined_columns=_PREFIXED, reserves_prefix=True, epoch_transforms=True
)
_EARLIER = tuple(
    FormatVersion(name=name, number=(0, int(name[2])), is_writable=False, inlined_columns=_BARE)
    for name in ("0.1", "0.2", "0.3-dev1", "0.3", "0.4-dev1", "0.4")
)

VERSIONS = {version.name: version for version in (*_EARLIER, V1_0, _V1_1_DEV1, V1_1)}
"""Every version that can be read, oldest first."""
WRITABLE = {name: version for name, version in VERSIONS.items() if version.is_writable}
"""Every version that can be written, and created."""
DEFAULT_VERSION = V1_0
"""The version of a new lake, unless the caller chooses another one (decision 73)."""
NEWEST = V1_1


def format_version(name: str) -> FormatVersion:
    """Return the version that a catalog states.

    >>> format_version("1.1").inlined_columns.row_id, format_version("0.3").is_writable
    ('_ducklake_row_id', False)

    Raises:
        CatalogVersionError: This library does not know the version.
    """
    found = VERSIONS.get(name)
    if found is None:
        raise CatalogVersionError(f"there is no version {name!r} that this library knows: it reads {', '.join(VERSIONS)}", found=name)
    return found


def writable_version(name: str) -> FormatVersion:
    """Return a version that lakes can be created in, and migrated to.

    Raises:
        CatalogVersionError: This library cannot write the version.
    """
    if name not in WRITABLE:
        raise CatalogVersionError(f"version {name!r} cannot be written: choose one of {', '.join(WRITABLE)}", found=name)
    return WRITABLE[name]


def interrupted_name(former: FormatVersion, target: FormatVersion) -> str:
    """Return the version that a catalog stores during a migration that takes several transactions."""
    return f"{former.name}{_INTERRUPTED}{target.name}"


def interrupted_migration(name: str) -> tuple[FormatVersion, FormatVersion] | None:
    """Return the two versions of an unfinished migration, from the stored version; None if no migration is running.

    >>> [version.name for version in interrupted_migration("1.0-to-1.1")], interrupted_migration("1.0")
    (['1.0', '1.1'], None)
    """
    former, separator, target = name.partition(_INTERRUPTED)
    return (VERSIONS[former], VERSIONS[target]) if separator and former in VERSIONS and target in VERSIONS else None


# Stored as the version while a migration takes several transactions, so that other clients reject the catalog instead of reading half of
# it.
_INTERRUPTED = "-to-"


def migration_target(version: FormatVersion) -> FormatVersion:
    """Return the default target of a migration: the oldest writable version that is not older than the lake's own.

    >>> migration_target(VERSIONS["0.3"]).name, migration_target(VERSIONS["1.1-dev1"]).name
    ('1.0', '1.1')
    """
    if (begun := interrupted_migration(version.name)) is not None:
        return begun[1]
    return next(one for one in WRITABLE.values() if one.number >= version.number)
