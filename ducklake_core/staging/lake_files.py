"""Lakes by a name: their addresses and secrets come from a file, or from environment variables, and not from the program.

    # ducklake.toml
    [lakes.sales]
    catalog = "postgresql+psycopg://me@db/lake"
    read_only = true
    [lakes.sales.storage_options.s3]
    endpoint_url = "https://..."

    DUCKLAKE_SALES__CATALOG=postgresql+psycopg://me:secret@db/lake
    DUCKLAKE_SALES__STORAGE_OPTIONS__S3__KEY=...

A variable wins over the file, setting by setting.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.types.text import shown, similar, similar_in_brackets

FILE_NAME = "ducklake.toml"
_TRUTHS = {"true": True, "false": False}
_FILE_CATALOGS = re.compile(r"(?P<kind>(?:ducklake:)?(?:sqlite|duckdb):(?:///)?|ducklake:(?!\w+:))(?P<path>[^/].*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LakeSpec:
    """Settings that open a lake: arguments of :meth:`DuckLake.connect`. Its repr shows no value of any of them, as they may be secrets.

    Attributes:
        name: What the lake is called here.
        sources: The file, and the variables, that say so.
    """

    name: str
    catalog: str
    data_path: str | None = None
    override_data_path: bool = False
    metadata_schema: str | None = None
    storage_options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    allowed_paths: tuple[str, ...] = ()
    read_only: bool = False
    sources: tuple[str, ...] = ()

    def __repr__(self) -> str:
        given = [one.name for one in fields(self) if one.name not in ("name", "sources") and getattr(self, one.name)]
        return f"LakeSpec({self.name!r}: {', '.join(given)} from {', '.join(self.sources)})"


_STRINGS = ("catalog", "data_path", "metadata_schema")
_FLAGS = ("override_data_path", "read_only")
_SETTINGS = (*_STRINGS, *_FLAGS, "allowed_paths", "storage_options")


def find_lake(name: str, *, directory: Path | None = None, environment: Mapping[str, str] | None = None) -> LakeSpec:
    """Return the settings by which the lake of a name is opened.

    The file is ``ducklake.toml`` in the working directory, or in the nearest directory above it that has one with this lake in it, or
    else ``~/.config/ducklake.toml`` (``$XDG_CONFIG_HOME`` instead of ``~/.config`` where it is set).

    Args:
        directory: Where to begin, the working directory when None.
        environment: Variables, those of the process when None.

    Raises:
        NotFoundError: No file and no variable speaks of the lake.
        UsageError: A file that cannot be read, a setting that does not exist or cannot have its value. No message repeats a value.
    """
    variables = os.environ if environment is None else environment
    known: list[str] = []
    settings: dict[str, object] = {}
    sources: tuple[str, ...] = ()
    places = list(_files(directory or Path.cwd(), variables))
    for path in places:
        lakes = _lakes(path)
        known += lakes
        if name in lakes:
            settings, sources = _of_file(lakes[name], name, path), (str(path),)
            break
    from_variables = _of_variables(name, variables)
    settings = _merged(settings, from_variables)
    if not settings:
        where = ", ".join(str(path) for path in places) or f"{FILE_NAME} is in no directory from {directory or Path.cwd()} upwards"
        near = similar_in_brackets(name, known)
        raise NotFoundError(
            f"there is no lake {name!r}{near}: write [lakes.{name}] with its catalog into {FILE_NAME}, or set {_prefix(name)}CATALOG; "
            f"looked at: {where}",
            lake=name,
        )
    if "catalog" not in settings:
        raise UsageError(f"the lake {name!r} has no catalog: set {_prefix(name)}CATALOG, or catalog in {FILE_NAME}", lake=name)
    return LakeSpec(name=name, sources=(*sources, *(() if not from_variables else (f"{_prefix(name)}*",))), **settings)  # type: ignore[arg-type]


def _files(directory: Path, variables: Mapping[str, str]) -> Iterator[Path]:
    home = variables.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for folder in (directory, *directory.parents, Path(home)):
        path = folder / FILE_NAME
        if path.is_file():
            yield path


def _lakes(path: Path) -> Mapping[str, object]:
    try:
        found = tomllib.loads(path.read_text("utf-8")).get("lakes", {})
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {type(error).__name__}", path=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at [^()]*\)", str(error))
        raise UsageError(f"{path} is no TOML {place[0] if place else ''}".rstrip(), path=str(path)) from None
    if not isinstance(found, Mapping):
        raise UsageError(f"lakes in {path} must be tables: [lakes.name]", path=str(path))
    return found


def _of_file(given: object, name: str, path: Path) -> dict[str, object]:
    what = f"[lakes.{name}] of {path}"
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} must be a table", lake=name)
    found = {key: _checked(key, value, what) for key, value in given.items()}
    if "catalog" in found:
        found["catalog"] = relative_to(str(found["catalog"]), path.parent)
    return found


def _checked(key: str, value: object, what: str) -> object:
    if key in _STRINGS and isinstance(value, str) and value:
        return value
    if key in _FLAGS and isinstance(value, bool):
        return value
    if key == "allowed_paths" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if key == "storage_options" and isinstance(value, Mapping) and all(isinstance(one, Mapping) for one in value.values()):
        return value
    if key not in _SETTINGS:
        near = similar(key, _SETTINGS)
        raise UsageError(f"{what} has a setting {shown(key)} that does not exist; {near or 'there are: ' + ', '.join(_SETTINGS)}")
    wanted = (
        "a string" if key in _STRINGS else "true or false" if key in _FLAGS else "a list of strings" if key == "allowed_paths" else "tables"
    )
    raise UsageError(f"{key} in {what} must be {wanted}")


def relative_to(catalog: str, folder: Path) -> str:
    """Return the address of a catalog, with the relative path of a file meant from a folder.

    >>> relative_to("sqlite:///lake.sqlite", Path("/project")), relative_to("ducklake:lake.ducklake", Path("/project"))
    ('sqlite:////project/lake.sqlite', 'ducklake:/project/lake.ducklake')
    >>> relative_to("sqlite:////lake.sqlite", Path("/project")), relative_to("ducklake:postgres:dbname=x", Path("/project"))
    ('sqlite:////lake.sqlite', 'ducklake:postgres:dbname=x')
    """
    found = _FILE_CATALOGS.fullmatch(catalog)
    return f"{found['kind']}{folder / found['path']}" if found else catalog


def _prefix(name: str) -> str:
    return f"DUCKLAKE_{re.sub(r'[^A-Z0-9]', '_', name.upper())}__"


def _of_variables(name: str, variables: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for variable in sorted(variables):
        if not variable.startswith(_prefix(name)):
            continue
        parts = variable.removeprefix(_prefix(name)).lower().split("__")
        value = variables[variable]
        if parts[0] == "storage_options" and len(parts) > 2:
            _put(found.setdefault("storage_options", {}), parts[1:], _TRUTHS.get(value.lower(), value), variable)
        elif parts[0] == "allowed_paths" and len(parts) == 1:
            found["allowed_paths"] = tuple(value.split(os.pathsep if "://" not in value else ","))
        else:
            read: object = _TRUTHS.get(value.lower(), value) if parts[0] in _FLAGS else value
            found["__".join(parts)] = _checked("__".join(parts), read, f"the variable {variable}")
    return found


def _put(options: object, parts: list[str], value: object, variable: str) -> None:
    """Set an option of a protocol, or one nested below it (``..__S3__CLIENT_KWARGS__REGION_NAME``)."""
    for part in parts[:-1]:
        assert isinstance(options, dict)
        options = options.setdefault(part, {})
        if not isinstance(options, dict):
            raise UsageError(f"the variable {variable} belongs below one that has a value of its own")
    assert isinstance(options, dict)
    options[parts[-1]] = value


def _merged(under: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Return both, mappings key by key, where the second wins."""
    found = dict(under)
    for key, value in over.items():
        below = found.get(key)
        found[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found
