"""Find the settings of a lake by its name, in a file or in environment variables, so that programs contain no addresses and secrets.

    # ducklake.toml
    [lakes.sales]
    catalog = "postgresql+psycopg://me@db/lake"
    read_only = true
    [lakes.sales.storage_options.s3]
    endpoint_url = "https://..."

    DUCKLAKE_SALES__CATALOG=postgresql+psycopg://me:secret@db/lake
    DUCKLAKE_SALES__STORAGE_OPTIONS__S3__KEY=...

Each variable takes precedence over the same setting in the file.
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
    """Settings of a lake: arguments of :meth:`DuckLake.connect`. Its repr contains no values, because they may be secrets.

    Attributes:
        name: Name of the lake.
        sources: The file and the variables that contain the settings.
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
    """Return the settings of a lake by its name.

    The file is ``ducklake.toml`` in the working directory, otherwise in the nearest parent directory whose file defines this lake,
    otherwise ``~/.config/ducklake.toml`` (``$XDG_CONFIG_HOME/ducklake.toml`` if that variable is set).

    Args:
        name: Name of the lake.
        directory: Directory to start from. Default: the working directory.
        environment: Environment variables. Default: those of the process.

    Raises:
        NotFoundError: No file or variable defines the lake.
        UsageError: A file cannot be parsed, or a setting is unknown or has an invalid value. Messages never contain values.
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
        where = ", ".join(str(path) for path in places) or f"no {FILE_NAME} in {directory or Path.cwd()} and its parents"
        near = similar_in_brackets(name, known)
        raise NotFoundError(
            f"Lake {name!r} is not defined{near}. Add [lakes.{name}] with its catalog to {FILE_NAME}, or set {_prefix(name)}CATALOG. "
            f"Searched: {where}",
            lake=name,
        )
    if "catalog" not in settings:
        raise UsageError(f"Lake {name!r} has no catalog. Set catalog in {FILE_NAME}, or the variable {_prefix(name)}CATALOG", lake=name)
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
        raise UsageError(
            f"File {path} cannot be read ({type(error).__name__}). Check its permissions and encoding", path=str(path)
        ) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at [^()]*\)", str(error))
        raise UsageError(f"File {path} is not valid TOML {place[0] if place else ''}".rstrip(), path=str(path)) from None
    if not isinstance(found, Mapping):
        raise UsageError(f"File {path} must define lakes as tables: [lakes.name]", path=str(path))
    return found


def _of_file(given: object, name: str, path: Path) -> dict[str, object]:
    what = f"[lakes.{name}] of {path}"
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} must be a table of settings", lake=name)
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
        raise UsageError(f"{what} has the unknown setting {shown(key)}; {near or 'settings are ' + ', '.join(_SETTINGS)}")
    wanted = (
        "a string" if key in _STRINGS else "true or false" if key in _FLAGS else "a list of strings" if key == "allowed_paths" else "tables"
    )
    raise UsageError(f"{key} in {what} must be {wanted}")


def relative_to(catalog: str, folder: Path) -> str:
    """Return the address of a catalog, in which a relative file path is resolved against a folder.

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
            raise UsageError(
                f"The environment variable {variable} sets an option below another variable that already has a value. Remove one of the two"
            )
    assert isinstance(options, dict)
    options[parts[-1]] = value


def _merged(under: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Return both mappings merged key by key. The second takes precedence."""
    found = dict(under)
    for key, value in over.items():
        below = found.get(key)
        found[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found
