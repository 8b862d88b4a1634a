"""Options and errors of ``format("ducklake")`` as its user sees them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, cast

from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.format.types.text import similar_or_all

if TYPE_CHECKING:
    from ducklake_core.lake import DuckLake
    from ducklake_core.planning.plan import FeedKind


Purpose: TypeAlias = Literal["schema", "read", "write", "readStream", "writeStream"]
STORAGE = "storage."
# Spark masks options by their names, and does not know all names that packages of stores give to secrets.
_MASKED = "secret"
_MAX_DIGITS = 18
_UNMASKED = re.compile(r"key$|connection_string|credential|passphrase", re.IGNORECASE)
_EVERYWHERE = ("catalogUrl", "catalogFile", "metadataSchema", "dataPath", "overrideDataPath", "table", "path")
_READ = ("versionAsOf", "timestampAsOf", "where", "types")
_READ_STREAM = ("startingVersion", "feed", "maxSnapshotsPerTrigger", "types")
_OF: dict[Purpose, tuple[str, ...]] = {
    "schema": (*_READ, *_READ_STREAM),
    "read": _READ,
    "write": ("author", "message", "commitId", "createTable", "missingColumns", "partitionOverwriteMode"),
    "readStream": _READ_STREAM,
    "writeStream": ("author", "message", "streamId", "checkpointLocation", "missingColumns"),
}

_NO_TABLES = (
    "Spark keeps no options with a table of its catalog. To read, write CREATE TEMPORARY VIEW ... USING ducklake OPTIONS (...); to write, "
    "use save('schema.table') or lake.write('schema.table', df); create tables with lake.create_table(...)"
)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options as values. Driver only: the catalog's address is in it.

    Attributes:
        catalog: Address of the catalog, as :meth:`DuckLake.connect` takes it.
        table: ``table`` or ``schema.table``.
        storage: fsspec options by protocol.
        version: Snapshot to read, by its id or the name of a hold; ``timestamp`` a time to read at.
        where: Rows to read, in DuckDB's SQL.
        exact: Whether columns have types that hold every value.
        commit_id: Makes a batch write happen once.
        create: Whether a batch write makes a table that is missing.
        missing_columns: What happens when a frame lacks columns of the table that have no default.
        overwrite_mode: Whether an overwrite of a partitioned table replaces all rows (static) or the partitions that its rows are in
            (dynamic); None when the option is missing.
        starting: Where a stream begins: ``earliest``, ``latest``, or the id of the first snapshot that it reports.
        feed: Changes that a stream reports.
        most_snapshots: Snapshots of a micro-batch at most.
        stream_id: Identity of a stream's writes.
        checkpoint: Where Spark keeps the state of the stream.
    """

    catalog: str = field(repr=False)
    table: str
    metadata_schema: str | None = None
    data_path: str | None = None
    override_data_path: bool = False
    storage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    version: int | str | None = None
    timestamp: datetime | None = None
    where: str | None = None
    exact: bool = True
    author: str | None = None
    message: str | None = None
    commit_id: str | None = None
    create: bool = True
    missing_columns: Literal["error", "null"] = "error"
    overwrite_mode: Literal["static", "dynamic"] | None = None
    starting: int | Literal["earliest", "latest"] = "earliest"
    feed: FeedKind = "insertions"
    most_snapshots: int | None = None
    stream_id: str | None = None
    checkpoint: str | None = None

    @property
    def at(self) -> int | str | datetime | None:
        """The snapshot, hold or time to read at, None for the newest."""
        return self.version if self.version is not None else self.timestamp

    def connect(self) -> DuckLake:
        """Return the lake. Its connections are to be closed by the caller."""
        from ducklake_core.lake import DuckLake

        return DuckLake.connect(
            self.catalog,
            data_path=self.data_path,
            override_data_path=self.override_data_path,
            metadata_schema=self.metadata_schema,
            storage_options=self.storage,
        )


def parse_options(given: Mapping[str, str], purpose: Purpose) -> SourceOptions:
    """Return the options of one read or write. Names are matched without regard to case, as Spark matches them.

    >>> parse_options({"catalogUrl": "sqlite:///lake.sqlite", "path": "t", "versionAsOf": "7"}, "read").version
    7

    Raises:
        UsageError: An option is unknown, belongs to another purpose, is missing, or has an invalid value.
        NotFoundError: The file of ``catalogFile`` does not exist.
    """
    options = _Given(given, purpose)
    version, timestamp = options.whole_or_name("versionAsOf"), options.text("timestampAsOf")
    if version is not None and timestamp is not None:
        raise UsageError("versionAsOf and timestampAsOf are both set. Set only one of them")
    starting = options.text("startingVersion") or "earliest"
    return SourceOptions(
        catalog=_catalog(options),
        table=_table(options),
        metadata_schema=options.text("metadataSchema"),
        data_path=options.text("dataPath"),
        override_data_path=options.choice("overrideDataPath", ("false", "true")) == "true",
        storage=_storage(given),
        version=version,
        timestamp=None if timestamp is None else _time(timestamp),
        where=options.text("where"),
        exact=options.choice("types", ("exact", "nearest")) == "exact",
        author=options.text("author"),
        message=options.text("message"),
        commit_id=options.text("commitId"),
        create=options.choice("createTable", ("true", "false")) == "true",
        missing_columns=cast('Literal["error", "null"]', options.choice("missingColumns", ("error", "null"))),
        overwrite_mode=_overwrite_mode(options),
        starting=starting if starting in ("earliest", "latest") else cast("int", options.whole("startingVersion")),  # type: ignore[arg-type]
        feed=cast("FeedKind", options.choice("feed", ("insertions", "deletions", "changes"))),
        most_snapshots=options.whole("maxSnapshotsPerTrigger", least=1),
        stream_id=options.text("streamId"),
        checkpoint=options.text("checkpointLocation"),
    )


class _Given:
    """Options by name without regard to case, after unknown ones were rejected."""

    def __init__(self, given: Mapping[str, str], purpose: Purpose) -> None:
        self._by_name = {name.lower(): value for name, value in given.items()}
        known = (*_EVERYWHERE, *_OF[purpose])
        if any(name.startswith("option.") for name in self._by_name) or "provider" in self._by_name:
            raise UsageError(f"CREATE TABLE ... USING ducklake is not supported. {_NO_TABLES}")
        for name in self._by_name:
            if name not in {one.lower() for one in known} and not name.startswith(STORAGE):
                every = dict.fromkeys((*known, f"{STORAGE}<protocol>.<name>"))
                use = "" if purpose == "schema" else f" for {purpose}"
                raise UsageError(f"format('ducklake') has no option {name!r}{use}{similar_or_all(name, every, '. The options are')}")

    def text(self, name: str) -> str | None:
        return self._by_name.get(name.lower())

    def whole(self, name: str, least: int = 0) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS or int(text) < least:
            raise UsageError(f"option {name} is {text[:80]!r}. Set it to a whole number of at least {least}")
        return int(text)

    def whole_or_name(self, name: str) -> int | str | None:
        """Return an option that is a whole number or a name, which does not consist of digits."""
        text = self.text(name)
        return self.whole(name) if text is None or re.fullmatch(r"[+-]?\d+", text) else text

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return an option with a fixed set of values; the first value is the default."""
        text = (self.text(name) or choices[0]).lower()
        if text not in choices:
            raise UsageError(f"option {name} is {text!r}. Set it to one of {', '.join(choices)}")
        return text


def _catalog(options: _Given) -> str:
    url, file = options.text("catalogUrl"), options.text("catalogFile")
    if url is None and file is None:
        raise UsageError(
            "the address of the catalog is missing. Set option catalogUrl, or set catalogFile to a file on the driver that has it. "
            f"If this is a table of Spark's catalog: {_NO_TABLES}"
        )
    if url is not None and file is not None:
        raise UsageError("catalogUrl and catalogFile are both set. Set only one of them")
    if url is not None:
        return url
    assert file is not None
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise NotFoundError(f"cannot read the catalog's address from {file}: {error.strerror}", path=file) from None


def _table(options: _Given) -> str:
    table, path = options.text("table"), options.text("path")
    name = table if path is None else path
    if name is None or (table is not None and path is not None):
        raise UsageError(
            "the table is missing or set twice. Use load('schema.table'), save('schema.table'), start('schema.table'), or option table. "
            "saveAsTable, writeTo and toTable name tables of Spark's catalog, and do not pass the name on"
        )
    return name


def _overwrite_mode(options: _Given) -> Literal["static", "dynamic"] | None:
    if options.text("partitionOverwriteMode") is None:
        return None
    return cast('Literal["static", "dynamic"]', options.choice("partitionOverwriteMode", ("static", "dynamic")))


def _storage(given: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return nested storage options: ``storage.s3.client_kwargs.region_name`` as ``{"s3": {"client_kwargs": {"region_name": ...}}}``."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        if not name.lower().startswith(STORAGE):
            continue
        *inner, last = name[len(STORAGE) :].split(".")
        masked = bool(inner) and inner[0].lower() == _MASKED
        inner = inner[1:] if masked else inner
        if not inner or not all((*inner, last)):
            raise UsageError(f"option {name} is incomplete. Use {STORAGE}<protocol>.<name>, such as {STORAGE}s3.endpoint_url")
        # Spark masks options in plans and logs by their names, and would show a secret under a name that it does not know.
        if not masked and _UNMASKED.search(last) and last.lower() != "key":
            whole = ".".join((*inner, last))
            raise UsageError(
                f"option {name} is a secret that Spark would show in its plans. Use {STORAGE}{_MASKED}.{whole}, which Spark masks"
            )
        place: dict[str, Any] = found
        for part in inner:
            place = place.setdefault(part, {})
        place[last] = {"true": True, "false": False}.get(value.lower(), value)
    return found


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"option timestampAsOf is {text!r}. Set it to a time with a zone, such as 2024-05-01T12:00:00+00:00") from None


def user_errors(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Raise errors of this library without their inner frames: Spark puts the whole traceback into the message that users see."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except DuckLakeError as error:
            raise error.with_traceback(None) from None

    return call


def error_while_pickling(error: DuckLakeError) -> DuckLakeError:
    """Return the error in a form that Spark passes on while it pickles.

    Spark turns every error that is raised while it pickles into "Could not serialize object", except errors of pickling themselves, so the
    returned error is both. Its class has the name of the error's own.
    """
    own = type(error)
    both = type(own.__name__, (own, pickle.PicklingError), {"__module__": own.__module__, "__qualname__": own.__qualname__})
    found: DuckLakeError = both(error.message, **error.details)
    return found
