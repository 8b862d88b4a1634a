"""Signatures of a package's public classes, read from its sources, as typing imports do not exist at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Named:
    """A name within a module of the package."""

    module: str
    name: str


@dataclass(frozen=True)
class Parameter:
    """A parameter, field or result of a public function; ``kind`` is "result", "field" or the parameter's own name."""

    owner: str
    function: str
    kind: str
    annotation: ast.expr
    module: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.function}({self.kind}: {ast.unparse(self.annotation)})"


def path_of(module: str) -> Path:
    """The file of a module."""
    base = ROOT / module.replace(".", "/")
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def tree_of(module: str) -> ast.Module:
    """A module's source as a tree."""
    return ast.parse(path_of(module).read_text())


@cache
def imported(module: str) -> dict[str, Named]:
    """Return the imported names of a module, typing imports included."""
    found = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                found[name.asname or name.name] = Named(node.module, name.name)
    return found


def defined(module: str, name: str) -> ast.stmt | None:
    """The statement of a module that defines a name."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return node
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            return node
    return None


def resolve(module: str, name: str, package: str) -> Named | None:
    """Return the module that defines a name, if it is one of the package."""
    if defined(module, name) is not None:
        return Named(module, name)
    found = imported(module).get(name)
    if found is None or not found.module.startswith(package):
        return None
    return resolve(found.module, found.name, package) or found


def exports(package: str) -> dict[str, Named]:
    """The package's public names and where they are defined."""
    made = {}
    for name in import_module(package).__all__:
        known = resolve(package, name, package)
        if known is not None:
            made[name] = known
    return made


def parameters(module: str, name: str, package: str, owner: str | None = None) -> Iterator[Parameter]:
    """Return the parameters, results and fields of a public class and its bases."""
    node = defined(module, name)
    if not isinstance(node, ast.ClassDef):
        return
    owner = owner or name
    for base in node.bases:
        base_name = base.value if isinstance(base, ast.Subscript) else base
        known = resolve(module, base_name.id, package) if isinstance(base_name, ast.Name) else None
        if known is not None:
            yield from parameters(known.module, known.name, package, owner)
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and (not part.name.startswith("_") or part.name in ("__getitem__", "__enter__")):
            every = [*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs, *(x for x in (part.args.vararg, part.args.kwarg) if x)]
            for argument in every:
                if argument.annotation is not None:
                    yield Parameter(owner, part.name, argument.arg, argument.annotation, module)
            if part.returns is not None:
                yield Parameter(owner, part.name, "result", part.returns, module)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not part.target.id.startswith("_"):
            yield Parameter(owner, part.target.id, "field", part.annotation, module)


def names_in(annotation: ast.expr) -> Iterator[str]:
    """The names in an annotation, those in quotes too."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from names_in(ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                continue
