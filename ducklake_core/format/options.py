"""Parse options of a lake, schema or table, which ``ducklake_metadata`` stores as strings (specification: Configuration)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, cast, get_args

from ducklake_core.errors import UsageError
from ducklake_core.format.types.names import storable
from ducklake_core.format.types.text import bare_age, parse_age, similar_or_all

_AGES = frozenset({"delete_older_than", "expire_older_than"})
_OF_THE_LAKE = _AGES | {"require_commit_message"}
_LEVELS: Mapping[str, tuple[int, int]] = {"zstd": (0, 22), "gzip": (1, 9), "brotli": (0, 11)}
Compression: TypeAlias = Literal["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Effective options, with the defaults of DuckDB.

    Attributes:
        parquet_compression: Codec of new data files.
        parquet_version: Parquet data page version, 1 or 2.
        parquet_compression_level: Level of the codec; None for the default of the codec.
        parquet_row_group_size: Rows in a row group, None for the default (122,880 in DuckDB).
        parquet_row_group_size_bytes: Bytes in a row group, None for no limit.
        target_file_size: Bytes after which a writer starts the next file.
        data_inlining_row_limit: Maximum number of rows of an insert that is stored in the catalog.
        require_commit_message: Whether commits without a message are rejected.
        rewrite_delete_threshold: Minimum fraction of deleted rows, 0 to 1, at which a file is rewritten.
        hive_file_pattern: Whether files of partitioned tables are in directories such as ``year=2013/``.
        delete_older_than: Minimum age of files that cleanup deletes, as a string. It is parsed when it is used, so that an invalid value
            does not prevent reads and writes.
        expire_older_than: Age from which snapshots expire, as a string; None for never.
        auto_compact: Whether flushing, merging and rewriting process the table, even if it is named.
        per_thread_output: Whether each writing thread creates its own files.
        write_deletion_vectors: Whether deletes are written as deletion vectors.
        sort_on_insert: Whether inserts are sorted by the table's sort keys.
    """

    parquet_compression: Compression = "snappy"
    parquet_version: int = 1
    parquet_compression_level: int | None = None
    parquet_row_group_size: int | None = None
    parquet_row_group_size_bytes: int | None = None
    target_file_size: int = 512 * 2**20
    data_inlining_row_limit: int = 10
    require_commit_message: bool = False
    rewrite_delete_threshold: float = 0.95
    hive_file_pattern: bool = True
    delete_older_than: str = "2 days"
    expire_older_than: str | None = None
    auto_compact: bool = True
    per_thread_output: bool = False
    write_deletion_vectors: bool = False
    sort_on_insert: bool = True

    def check_compression(self) -> None:
        """Reject a level that the codec does not have.

        Raises:
            UsageError: ``parquet_compression_level`` is not one of ``parquet_compression``.
        """
        level, codec = self.parquet_compression_level, self.parquet_compression
        if level is None:
            return
        lowest, highest = _LEVELS.get(codec, (None, None))
        if lowest is None or highest is None:
            raise UsageError(
                f"option parquet_compression_level is {level}, but {codec} has no levels. Use {', '.join(_LEVELS)}, or unset the level",
                option="parquet_compression_level",
            )
        if not lowest <= level <= highest:
            raise UsageError(
                f"option parquet_compression_level is {level}, but levels of {codec} are {lowest} to {highest}",
                option="parquet_compression_level",
            )

    @classmethod
    def from_mapping(cls, stored: Mapping[str, str]) -> Options:
        """Return the options from their strings by name, without regard to case; missing options have their defaults.

        >>> Options.from_mapping({"Target_File_Size": "10MB", "created_by": "DuckDB"}).target_file_size
        10000000

        Other names (``version``, ``data_path``, options of later versions) are ignored, as in DuckDB.

        Raises:
            UsageError: The value of an option is invalid.
        """
        known = {name.lower(): text for name, text in stored.items() if name.lower() in _PARSERS}
        return cls(**{name: _parse(name, text) for name, text in known.items()})  # type: ignore[arg-type]


MIN_TARGET_FILE_SIZE = 1000
"""Bytes of the smallest ``target_file_size`` that can be set."""


def normalize_option(name: str, value: object) -> tuple[str, str]:
    """Return the name and value of an option in the form that DuckDB stores.

    >>> normalize_option("TARGET_FILE_SIZE", "1MiB"), normalize_option("parquet_version", 2), normalize_option("auto_compact", False)
    (('target_file_size', '1048576'), ('parquet_version', 'V2'), ('auto_compact', 'false'))

    Raises:
        UsageError: The option is unknown, or the value is invalid.
    """
    folded = option_name(name)
    text = str(value)
    parsed = _parse(folded, text)
    # Ages are stored as written: DuckDB parses them again, and the length of a month depends on the day.
    if folded in _AGES:
        option_age(folded, text)
        return folded, bare_age(text)
    match folded, parsed:
        case "target_file_size", int() if parsed < MIN_TARGET_FILE_SIZE:
            raise UsageError(
                f"option target_file_size is {text}: it must be at least {MIN_TARGET_FILE_SIZE:,} bytes, or almost every row gets a file",
                option="target_file_size",
            )
        case "parquet_version", int():
            return folded, f"V{parsed}"
        case _, bool():
            return folded, "true" if parsed else "false"
        # DuckDB stores doubles with six decimals.
        case _, float():
            return folded, f"{parsed:.6f}"
        case _:
            return folded, str(parsed)


def check_option(name: str, text: str) -> None:
    """Reject an invalid stored value of an option. Keys that are not options are not checked.

    Raises:
        UsageError: The value is invalid.
    """
    if name in _PARSERS:
        _parse(name, text)
    if name in _AGES:
        option_age(name, text)


def check_option_scope(name: str, *, is_lake: bool) -> None:
    """Reject an option for a schema or a table that every program reads for the lake alone.

    Raises:
        UsageError: The option applies to the whole lake only.
    """
    if not is_lake and name in _OF_THE_LAKE:
        raise UsageError(
            f"option {name} applies to the whole lake: DuckDB ignores it for a schema or table. Set it without schema and table",
            option=name,
        )


def option_name(name: str) -> str:
    """Return the name of an option as it is stored.

    Raises:
        UsageError: The option is unknown.
    """
    folded = storable("the name of an option", name).lower()
    if folded not in _PARSERS:
        raise UsageError(f"unknown option {name!r}{similar_or_all(name, _PARSERS, '. The options are')}", option=name)
    return folded


def option_age(name: str, text: str, now: datetime | None = None) -> timedelta:
    """Return the age of an option, counted back from ``now`` (this moment when not given).

    >>> option_age("delete_older_than", "36 hours")
    datetime.timedelta(days=1, seconds=43200)

    Args:
        name: The option, for messages.
        text: Its text, such as ``7 days``.
        now: The time at which the age ends; this moment when None.

    Raises:
        UsageError: The text is not an age, or a negative one.
    """
    try:
        return parse_age(text, now)
    except UsageError as error:
        raise UsageError(f"option {name!r} cannot be {text!r}: {error.message}", option=name) from error


def _parse(name: str, text: str) -> object:
    try:
        return _PARSERS[name](text.strip())
    except (ValueError, OverflowError) as error:
        wanted = error.message if isinstance(error, UsageError) else "a number"
        raise UsageError(f"option {name!r} must be {wanted}, not {text!r}", option=name) from error


_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1}
_UNITS |= {f"{letter}{end}": 1000**power for power, letter in enumerate("kmgt", 1) for end in ("", "b")}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)


def parse_memory_size(text: str) -> int:
    """Return the number of bytes of a size such as ``10MB``.

    >>> parse_memory_size("10MB"), parse_memory_size("1.5 GiB"), parse_memory_size("4096")
    (10000000, 1610612736, 4096)

    Raises:
        UsageError: The string is not a size.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if not found or found[2] not in _UNITS:
        raise UsageError("a size such as 10MB or 1.5GiB")
    # Whole numbers do not go through a float, which loses digits beyond 2**53.
    size = int(found[1]) * _UNITS[found[2]] if found[1].isdigit() else int(float(found[1]) * _UNITS[found[2]])
    if size <= 0:
        raise UsageError("a positive size such as 10MB")
    return size


def _boolean(text: str) -> bool:
    match text.lower():
        case "true" | "1" | "t" | "yes":
            return True
        case "false" | "0" | "f" | "no":
            return False
        case _:
            raise UsageError("true or false")


def _compression(text: str) -> Compression:
    if text.lower() not in get_args(Compression):
        raise UsageError(f"one of {', '.join(get_args(Compression))}")
    return cast("Compression", text.lower())


def _version(text: str) -> int:
    if text.upper().removeprefix("V") not in ("1", "2"):
        raise UsageError("1 or 2")
    return int(text.upper().removeprefix("V"))


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise UsageError("a whole number that is not negative")
    return number


def _positive(text: str) -> int:
    number = _count(text)
    if not number:
        raise UsageError("a positive whole number")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise UsageError("a number between 0 and 1")
    return number


_PARSERS: dict[str, Callable[[str], object]] = {
    "parquet_compression": _compression,
    "parquet_version": _version,
    "parquet_compression_level": _count,
    "parquet_row_group_size": _positive,
    "parquet_row_group_size_bytes": parse_memory_size,
    "target_file_size": parse_memory_size,
    "data_inlining_row_limit": _count,
    "require_commit_message": _boolean,
    "rewrite_delete_threshold": _fraction,
    "hive_file_pattern": _boolean,
    "delete_older_than": str,
    "expire_older_than": str,
    "auto_compact": _boolean,
    "per_thread_output": _boolean,
    "write_deletion_vectors": _boolean,
    "sort_on_insert": _boolean,
}
# A field without a parser would keep its default whatever the catalog stores.
assert set(_PARSERS) == {field.name for field in fields(Options)}
