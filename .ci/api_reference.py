"""Writes the API reference from docstrings: a Markdown page for each public name of both packages, and an index.

python .ci/api_reference.py build/docs/api
"""

import inspect
import sys
import typing
import warnings
from importlib import import_module
from pathlib import Path

PACKAGES = ("ducklake_core", "ducklake_dagster")


def signature_of(name: str, value: object) -> str:
    try:
        return f"{name}{inspect.signature(value)}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name


def docstring_of(value: object) -> str:
    text = inspect.getdoc(value) or ""
    # Of an alias the docstring would be that of the class that makes it.
    own = inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, property)
    return text if own and not text.startswith(("Usage docs:", "!!! abstract")) else ""


def members_of(value: type) -> list[tuple[str, object]]:
    found = []
    for name, member in inspect.getmembers_static(value):
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        module = getattr(plain.fget if isinstance(plain, property) else plain, "__module__", "") or ""
        if not name.startswith("_") and (inspect.isroutine(plain) or isinstance(plain, property)) and module.startswith(PACKAGES):
            found.append((name, plain))
    return found


def page_of(package: str, name: str, value: object) -> str:
    if not (inspect.isclass(value) or inspect.isroutine(value)) or typing.get_origin(value) is not None:
        return f"# {package}.{name}\n\n`{value!r}`\n"
    lines = [f"# {package}.{name}", "", "```python", signature_of(name, value), "```", "", docstring_of(value), ""]
    for member, found in members_of(value) if inspect.isclass(value) else []:
        shown = member if isinstance(found, property) else signature_of(member, found)
        lines += [f"## {member}", "", "```python", shown, "```", "", docstring_of(found), ""]
    return "\n".join(lines)


def write_reference(target: Path) -> list[Path]:
    """Pages of both packages in a folder."""
    warnings.simplefilter("ignore")
    written = []
    index = ["# API reference", ""]
    for package in PACKAGES:
        folder = target / package
        folder.mkdir(parents=True, exist_ok=True)
        module = import_module(package)
        index += [f"## {package}", "", (inspect.getdoc(module) or "").splitlines()[0], ""]
        for name in sorted(module.__all__, key=str.casefold):
            value = getattr(module, name)
            page = folder / f"{name}.md"
            page.write_text(page_of(package, name, value))
            written.append(page)
            first = docstring_of(value).partition("\n")[0]
            index.append(f"- [{name}]({package}/{name}.md){': ' + first if first else ''}")
        index.append("")
    (target / "README.md").write_text("\n".join(index))
    return written


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(f"{len(write_reference(folder))} pages in {folder}")
