"""Check arguments of public methods before anything is done."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, TypeAlias, TypeVar

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.conditions import Combinable, Condition, foreign_kind
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.types.text import in_utc, parse_age, read_only_message, shown

Check: TypeAlias = Callable[[str, Any], Any]
"""Takes the name of the parameter and the value; returns the value to go on with, or raises UsageError."""
_LARGEST = 2**63 - 1
_BRANCHES = (
    "when_matched_update", "when_matched_delete", "when_not_matched_insert", "when_not_matched_by_source_update",
    "when_not_matched_by_source_delete",
)  # fmt: skip
_ON_TABLES = ("merge_adjacent_files", "flush_inlined_data", "rewrite_data_files")
_WITH_MESSAGE = (*_ON_TABLES, "checkpoint", "check")

Class = TypeVar("Class", bound=type)
_BLOCK = ("__enter__", "__exit__")


def check_for(method: str, parameter: str) -> Check | None:
    """The check of a parameter, None when there is none."""
    return _OF_METHOD.get((method, parameter)) or _BY_NAME.get(parameter)


def _refused(name: str, wanted: str, value: object) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {shown(value)}", parameter=name)


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _anything(_name: str, value: object) -> object:
    """For what is checked where it is used: frames, and values of a column."""
    return value


def _unicode(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refused(name, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is {shown(value)}, which holds half of a surrogate pair and is no Unicode text", parameter=name) from None
    return value


def _address(name: str, value: object) -> str:
    """The address of a catalog, which may hold a password: no message shows it."""
    if not isinstance(value, str):
        kind = type(value).__name__
        raise UsageError(f"{name} must be a string, not a value of type {kind}: write the address as one string", parameter=name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} holds half of a surrogate pair and is no Unicode text", parameter=name) from None
    if "\0" in value:
        raise UsageError(f"{name} holds a NUL character", parameter=name)
    return value


def _text(name: str, value: object) -> str:
    """A text that the catalog can hold: PostgreSQL stores no NUL."""
    text = _unicode(name, value)
    if "\0" in text:
        raise UsageError(f"{name} is {shown(text)}, which holds a NUL character", parameter=name)
    return text


def _value(name: str, value: object) -> object:
    return _text(name, value) if isinstance(value, str) else value


def given_text(name: str, value: object) -> str:
    """A text that is not empty.

    Raises:
        UsageError: Something else.
    """
    if not _text(name, value):
        raise UsageError(f"{name} is empty", parameter=name)
    return str(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refused(name, "True or False", value)
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _refused(name, "a whole number", value)
    number = value.__index__()
    if not -_LARGEST <= number <= _LARGEST:
        raise _refused(name, "a whole number of 64 bits", value)
    return int(number)


def _fraction(name: str, value: object) -> float:
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, int | float):
        number = float(value) if abs(value) <= 1 else math.nan
    if not 0 <= number <= 1:
        raise _refused(name, "a number between 0 and 1", value)
    return number


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _refused(name, "a number of seconds", value)
    try:
        return float(value)
    except OverflowError as error:
        raise _refused(name, "a number of seconds", value) from error


def _callable(name: str, value: object) -> object:
    # A class is callable too, and makes something of what it is told, or fails in the middle of a verb.
    if not callable(value) or isinstance(value, type):
        raise _refused(name, "a function", value)
    return value


def _items(name: str, wanted: str, value: object) -> Iterator[object]:
    """The items of what is several things, but no text and no mapping."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _refused(name, wanted, value)
    yield from value


def names(name: str, value: object) -> tuple[str, ...]:
    """Names, where a text is one of them.

    >>> names("on", "ab"), names("on", ["a", "b"])
    (('ab',), ('a', 'b'))

    Raises:
        UsageError: Something else.
    """
    if isinstance(value, str):
        return (_text(name, value),)
    return tuple(_text(name, one) for one in _items(name, "a name or a list of names", value))


def _name_or_path(name: str, value: object) -> str | tuple[str, ...]:
    return _text(name, value) if isinstance(value, str) else names(name, value)


def _row_count(name: str, value: object) -> int:
    count = _whole(name, value)
    if count < 0:
        raise _refused(name, "a number of rows", value)
    return count


def _whole_numbers(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, int):
        return (_whole(name, value),)
    return tuple(_whole(name, one) for one in _items(name, "a list of whole numbers", value))


def _paths(name: str, value: object) -> str | tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        return _path(name, value)
    return tuple(_path(name, one) for one in _items(name, "a path or a list of paths", value))


def _path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise _refused(name, "a path or a list of paths", value)
    return given_text(name, os.fspath(value))


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(name, "a mapping", value)
    for key in value:
        _text(f"a key of {name}", key)
    return value


def _names_by_text(name: str, value: object) -> Mapping[str, tuple[str, ...]]:
    return {key: names(f"{name}[{key!r}]", listed) for key, listed in _mapping(name, value).items()}


def _texts_by_text(name: str, value: object) -> Mapping[str, str]:
    for key, text in _mapping(name, value).items():
        _text(f"{name}[{key!r}]", text)
    return dict(value)  # type: ignore[call-overload, no-any-return]


def _storage_options(name: str, value: object) -> Mapping[str, Mapping[str, Any]]:
    # Values may be secrets, which no message repeats.
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and isinstance(one, Mapping) for key, one in value.items()):
        raise UsageError(f"{name} must be a mapping from protocols to mappings of options", parameter=name)
    return value


def _extra_info(name: str, value: object) -> str | Mapping[str, Any]:
    return _text(name, value) if isinstance(value, str) else _mapping(name, value)


def _partitions(name: str, value: object) -> tuple[Mapping[str, Any], ...] | str:
    if isinstance(value, str) and value == "in_data":
        return "in_data"
    return tuple(_mapping(f"each of {name}", one) for one in _items(name, "'in_data' or a list of mappings", value))


def _at(name: str, value: object) -> int | datetime:
    if isinstance(value, datetime):
        return in_utc(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _refused(name, "the id of a snapshot or a datetime with a zone", value)
    return _whole(name, value)


def _time(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise _refused(name, "a datetime with a zone", value)
    return in_utc(value)


def age(name: str, value: object) -> timedelta:
    """A span of time: a timedelta, or a text such as "7 days", as options take it.

    >>> age("min_age", "7 days")
    datetime.timedelta(days=7)

    Raises:
        UsageError: Something else.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise UsageError(f"{name} must not be negative, not {value}", parameter=name)
        return value
    if not isinstance(value, str):
        raise _refused(name, "a timedelta or a text such as '7 days'", value)
    try:
        return parse_age(_text(name, value))
    except UsageError:
        raise _refused(name, "a timedelta or a text such as '7 days'", value) from None


def _age_or_time(name: str, value: object) -> timedelta | datetime:
    if isinstance(value, datetime):
        return in_utc(value)
    if not isinstance(value, timedelta | str):
        raise _refused(name, "a timedelta, a text such as '7 days', or a datetime with a zone", value)
    return age(name, value)


def _condition(name: str, value: object) -> str | Predicate | Condition:
    if isinstance(value, Combinable):
        return value.as_condition()
    if isinstance(value, Predicate):
        return value
    foreign = foreign_kind(value)
    if foreign is not None:
        message = f"{name} is {foreign}, which its library does not let anybody read: write ducklake_core.col('a') > 5, or SQL text 'a > 5'"
        raise UsageError(message, parameter=name)
    if not isinstance(value, str):
        raise _refused(name, "a condition: SQL text, or one built with ducklake_core.col", value)
    return _unicode(name, value)


def _sql_condition(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refused(name, "SQL text over t.column and s.column", value)
    return _unicode(name, value)


def _option_value(name: str, value: object) -> str | int | float:
    if not isinstance(value, str | int | float):
        raise _refused(name, "a text, a number, True or False", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(name, value)
    return _text(name, value) if isinstance(value, str) else value


def _session(name: str, value: object) -> object:
    if not any(cls.__module__.startswith("pyspark.sql") and cls.__name__ == "SparkSession" for cls in type(value).__mro__):
        raise _refused(name, "a SparkSession", value)
    return value


def _connection(name: str, value: object) -> object:
    if not any(cls.__name__ == "DuckDBPyConnection" for cls in type(value).__mro__):
        raise _refused(name, "a connection of DuckDB", value)
    return value


def _assignments(name: str, value: object) -> Mapping[str, Any] | str:
    if isinstance(value, str) and value == "all":
        return value
    for key, one in _mapping(name, value).items():
        if isinstance(one, str):
            _unicode(f"{name}[{key!r}]", one)
    return dict(value)  # type: ignore[call-overload, no-any-return]


def _columns_of_table(name: str, value: object) -> object:
    return _mapping(name, value) if isinstance(value, Mapping) and not hasattr(value, "__arrow_c_schema__") else value


_COMMIT: Mapping[str, Check] = {
    "author": _or_none(_text),
    "message": _or_none(_text),
    "extra_info": _or_none(_extra_info),
    "commit_id": _or_none(given_text),
}


def _commit(_name: str, value: Mapping[str, Any], known: Collection[str] = _COMMIT) -> Mapping[str, Any]:
    unknown = next((name for name in value if name not in known), None)
    if unknown is not None:
        raise UsageError(f"there is no argument {unknown!r}: beside those of the method there are {', '.join(known)}", parameter=unknown)
    return {name: _COMMIT[name](name, given) for name, given in value.items()}


def _commit_message(name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    if "commit_id" in value:
        raise UsageError("there is no argument 'commit_id': maintenance makes its snapshots itself", parameter="commit_id")
    return _commit(name, value, [one for one in _COMMIT if one != "commit_id"])


_BY_NAME: Mapping[str, Check] = {
    **_COMMIT,
    "catalog": _address,
    **dict.fromkeys(("name", "new_name", "table", "column_type", "expression", "sql", "reader"), _text),
    **dict.fromkeys(("data_path", "metadata_schema", "comment", "text", "version", "to", "timezone"), _or_none(_text)),
    **dict.fromkeys(("missing_columns", "concurrent_appends"), _or_none(_text)),
    **dict.fromkeys(("mode", "schema_evolution", "kind", "level"), _text),
    **dict.fromkeys(("if_not_exists", "if_exists", "or_replace", "replace", "cascade", "create", "dry_run", "encrypted", "indexes"), _flag),
    **dict.fromkeys(
        ("read_only", "override_data_path", "relative_data_path", "allow_history_loss", "allow_missing", "allow_duplicates"), _flag
    ),
    **dict.fromkeys(("ignore_extra_columns", "every_parquet", "repair", "cleanup_all", "partial_progress"), _flag),
    **dict.fromkeys(("inline", "hive_partitioning", "exact"), _or_none(_flag)),
    **dict.fromkeys(("on", "partition_by", "keys", "allowed_paths", "cluster_by"), names),
    **dict.fromkeys(("columns", "tables"), _or_none(names)),
    "column": _name_or_path,
    "paths": _paths,
    "where": _or_none(_condition),
    "partitions": _or_none(_partitions),
    **dict.fromkeys(("at", "end", "snapshot"), _or_none(_at)),
    "start": _at,
    "older_than": _or_none(_age_or_time),
    **dict.fromkeys(("min_age", "at_most"), age),
    "versions": _or_none(_whole_numbers),
    "keep_last": _or_none(_whole),
    "n": _row_count,
    "limit": _or_none(_row_count),
    "dtype_backend": _text,
    "connection": _or_none(_connection),
    **dict.fromkeys(("max_compacted_files", "min_file_size", "max_file_size", "max_concurrency"), _or_none(_whole)),
    **dict.fromkeys(("max_input_bytes", "max_files", "max_rows"), _or_none(_whole)),
    "max_seconds": _or_none(_seconds),
    "progress": _or_none(_callable),
    **dict.fromkeys(("after", "small_file_size"), _whole),
    "delete_threshold": _or_none(_fraction),
    **dict.fromkeys(("until", "most_snapshots", "snapshot_id", "read_at"), _or_none(_whole)),
    "storage_options": _or_none(_storage_options),
    "definitions": _texts_by_text,
    "values": _assignments,
    "spark": _or_none(_session),
    "session": _session,
    **dict.fromkeys(("data", "source", "data_type"), _anything),
    **dict.fromkeys(("value", "default"), _value),
    "commit": _commit,
    # Passed on as it is to a method that checks.
    "how": _anything,
}


_OF_METHOD: Mapping[tuple[str, str], Check] = {
    # A branch of a merge sees two tables.
    **{(branch, "where"): _or_none(_sql_condition) for branch in _BRANCHES},
    **{(method, "schema"): _columns_of_table for method in ("create_table", "create_table_as")},
    **{(method, "schema"): _or_none(_text) for method in ("tables", "register", "set_option", "unset_option", *_ON_TABLES)},
    **{(method, "table"): _or_none(_text) for method in ("options", "set_option", "unset_option", *_ON_TABLES)},
    **{(method, "commit"): _commit_message for method in _WITH_MESSAGE},
    ("set_option", "value"): _option_value,
    ("add", "until"): _or_none(_time),
    ("set_comment", "column"): _or_none(_name_or_path),
    ("set_tag", "column"): _or_none(_name_or_path),
    **{(method, "key"): given_text for method in ("set_tag", "set_schema_tag")},
    **{(method, "value"): _or_none(_text) for method in ("set_tag", "set_schema_tag")},
    ("set_default", "expression"): _or_none(_text),
    ("find_commit", "commit_id"): _text,
    ("merge", "on"): _name_or_path,
    # What the data source and the builder of merges hand over inside the library.
    **{("stage_created", one): _anything for one in ("files", "state", "uuid")},
    **{("stage_written", one): _anything for one in ("files", "state", "table_id", "replaces")},
    **{("merge_clauses", one): _anything for one in ("on", "clauses")},
    ("write_frame", "frame"): _anything,
    ("restore", "columns"): _or_none(_text),
    ("undrop_table", "new_name"): _or_none(given_text),
    ("create_view", "columns"): names,
    ("changed_tables", "tables"): _or_none(_names_by_text),
    ("statistics", "tables"): _names_by_text,
}


def checked(cls: Class) -> Class:
    """Check the arguments of all public methods of a class; where its ``with`` block begins and ends, nesting alone."""
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") and name not in _BLOCK:
            continue
        if inspect.isfunction(found):
            setattr(cls, name, _wrapped(found, cls.__name__))
        elif isinstance(found, classmethod):
            setattr(cls, name, classmethod(_wrapped(found.__func__, cls.__name__)))
    return cls


def _wrapped(function: Callable[..., Any], owner: str) -> Callable[..., Any]:
    if hasattr(function, "__wrapped__") or getattr(function, "__isabstractmethod__", False):
        return function
    name_of = function.__name__
    # By the class that users know, wherever the method is written.
    whole_name = f"{owner}.{name_of}"
    arguments = _Arguments(inspect.signature(function), name_of)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not arguments.plainly_fit(args, kwargs):
            args, kwargs = arguments.bound(args, kwargs, whole_name)
        elif arguments.checks:
            args, kwargs = arguments.checked(args, kwargs)
        try:
            found = function(*args, **kwargs)
        except RecursionError as error:
            raise _nested(whole_name) from error
        except UnsupportedFeatureError as error:
            # The call that the user made is the outermost one.
            if not error.details.get("nested"):
                raise
            raise _nested(whole_name) from error.__cause__
        except UsageError as error:
            # The refusal to change a lake that is read only names the call that its user made, which is the outermost one, too.
            lake = error.details.get("read_only")
            if lake is None:
                raise
            raise UsageError(read_only_message(f"{whole_name}()", str(lake)), read_only=lake, call=whole_name) from None
        return _iterated(found, whole_name) if inspect.isgenerator(found) else found

    return call


class _Arguments:
    """The parameters of a method, with the checks of those that have one.

    ``Signature.bind`` takes as long as a small call itself, so that the usual ways of passing arguments are told without it.
    """

    def __init__(self, signature: inspect.Signature, name_of: str) -> None:
        self._signature = signature
        self._positional = [
            name for name, found in signature.parameters.items() if found.kind in (found.POSITIONAL_ONLY, found.POSITIONAL_OR_KEYWORD)
        ]
        self._place = {name: place for place, name in enumerate(self._positional)}
        self._keywords = frozenset(
            name for name, found in signature.parameters.items() if found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)
        )
        single = (found for found in signature.parameters.values() if found.kind not in (found.VAR_POSITIONAL, found.VAR_KEYWORD))
        self._required = tuple(found.name for found in single if found.default is found.empty)
        self.checks = {} if name_of in _BLOCK else {name: check for name in signature.parameters if (check := check_for(name_of, name))}

    def plainly_fit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether each argument surely is that of one parameter, and none is missing."""
        count = len(args)
        if count > len(self._positional) or not self._keywords.issuperset(kwargs):
            return False
        if any(self._place.get(name, count) < count for name in kwargs):
            return False
        return all(self._place.get(name, count) < count or name in kwargs for name in self._required)

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that plainly fit, as the checks give them back."""
        return (
            tuple(self._check(name, value) for name, value in zip(self._positional, args, strict=False)),
            {name: self._check(name, value) for name, value in kwargs.items()},
        )

    def _check(self, name: str, value: Any) -> Any:
        check = self.checks.get(name)
        return value if check is None or value is self._signature.parameters[name].default else check(name, value)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any], whole_name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Any arguments, as the checks give them back.

        Raises:
            TypeError: They are not those of the method.
        """
        try:
            found = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{whole_name}(): {error}") from None
        for name, value in found.arguments.items():
            found.arguments[name] = self._check(name, value)
        return found.args, found.kwargs


def _nested(method: str) -> UnsupportedFeatureError:
    """Types, expressions and queries are trees, which are walked in many places."""
    message = f"{method}(): something that was given, or that the catalog holds, is nested too deeply"
    return UnsupportedFeatureError(message, nested=True, call=method)


def _iterated(rows: Iterator[Any], method: str) -> Iterator[Any]:
    try:
        yield from rows
    except RecursionError as error:
        raise _nested(method) from error
    except UnsupportedFeatureError as error:
        if not error.details.get("nested"):
            raise
        raise _nested(method) from error.__cause__
