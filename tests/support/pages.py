"""Run the code of documentation pages as a reader does: from top to bottom, in an empty folder.

| block | what happens |
|---|---|
| `python` | runs in one interpreter for the whole page |
| `python`, `yaml`, `toml` that begins with `# path/to/file` | becomes that file |
| `sh` | runs in the folder; lines with `pip install` are left out, as the tests have every package |
| `sql` | runs in a new DuckDB session |
| `text` after one of these that prints | is what it prints; `...` stands for anything |

``python -m tests.support.pages PAGE...`` runs pages.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.support.oracle import new_connection

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
Kind: TypeAlias = Literal["plain", "dagster", "spark"]
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|yaml|toml))\n")
_RUNS = ("python", "sh", "sql", "toml", "yaml")
# Take seconds to start, so that only slow tests run them.
_SLOW_COMMANDS = re.compile(r"^(?:dagster|dg|spark-submit|python|\./\w+\.sh)\b", re.MULTILINE)
# Tested by tests/behaviour/command_line.
_ELSEWHERE = ("reference/command-line.md",)


@dataclass(frozen=True)
class Block:
    """A block of code, and the number of lines above its first line."""

    language: str
    code: str
    above: int

    @property
    def file(self) -> str | None:
        """The name of the file that the block is."""
        found = _FILE.match(self.code)
        return None if found is None or self.language not in ("python", "yaml", "toml") else found[1]

    @property
    def is_slow(self) -> bool:
        """Return True for a command that takes seconds to start."""
        return self.language == "sh" and _SLOW_COMMANDS.search(self.code) is not None


def all_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    text = page.read_text()
    return [Block(found[2], _dedent(found[3], len(found[1])), text[: found.start(3)].count("\n")) for found in _FENCE.finditer(text)]


def _dedent(code: str, width: int) -> str:
    return "".join(line[width:] if line.strip() else line for line in code.splitlines(keepends=True))


def blocks(page: Path, language: str) -> list[str]:
    """Return the code of a page in one language; "" for blocks that name none."""
    return [block.code for block in all_blocks(page) if block.language == language]


def pages(kind: Kind) -> list[str]:
    """Return the pages with code that need nothing else, Dagster, or a Spark session."""
    with_code = {page: found for page in sorted(DOCS.rglob("*.md")) if (found := [b for b in all_blocks(page) if b.language in _RUNS])}
    names = {page.relative_to(DOCS).as_posix(): found for page, found in with_code.items()}
    return [name for name, found in names.items() if name not in _ELSEWHERE and _kind(found) == kind]


def _kind(found: list[Block]) -> Kind:
    code = "".join(block.code for block in found if block.language != "sh")
    if "SparkSession" in code:
        return "spark"
    return "dagster" if re.search("(?:import|from) dagster|ducklake_dagster", code) else "plain"


class Reader:
    """Runs a page in the working directory."""

    def __init__(self, page: Path, *, slow_commands: bool = False) -> None:
        self.page = page
        self.slow_commands = slow_commands
        self.module = types.ModuleType(f"page_{page.stem}".replace("-", "_"))
        self.files: list[Path] = []
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.variables = {**os.environ, "PATH": path, "COLUMNS": "120"}

    def run(self) -> dict[str, object]:
        """Run all blocks, compare what they print, and return the names of the page's interpreter."""
        modules = set(sys.modules)
        sys.path.insert(0, os.getcwd())
        sys.modules[self.module.__name__] = self.module
        printed: str | None = None
        try:
            for block in all_blocks(self.page):
                if block.language == "text" and printed:
                    self._compare(block, printed)
                    printed = None
                elif block.language in _RUNS:
                    printed = self._step(block)
        finally:
            sys.path.remove(os.getcwd())
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(os.getcwd()) or name == self.module.__name__:
                    del sys.modules[name]
        return self.module.__dict__

    def write_files(self) -> None:
        """Write the files of the page, and run nothing."""
        for block in all_blocks(self.page):
            if block.file is not None:
                self._step(block)

    def _step(self, block: Block) -> str | None:
        if block.file is not None:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
            self.files.append(path)
            return None
        if block.language in ("toml", "yaml"):
            return None
        if block.is_slow and not self.slow_commands:
            return None
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            {"python": self._python, "sh": self._shell, "sql": self._sql}[block.language](block)
        return output.getvalue()

    def _python(self, block: Block) -> None:
        # Line numbers are those of the page, for the reader of a failure.
        exec(compile("\n" * block.above + block.code, str(self.page), "exec", dont_inherit=True), self.module.__dict__)

    def _shell(self, block: Block) -> None:
        code = "".join(line for line in block.code.splitlines(keepends=True) if not line.startswith("pip install"))
        with tempfile.NamedTemporaryFile() as variables:
            script = f"{code}\nenv --null > {variables.name}\n"
            done = subprocess.run(["bash", "-eu", "-c", script], env=self.variables, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{self.page}: {block.code}\n{done.stdout}{done.stderr}"
            # What a block exports holds in later blocks too, as in one session of a shell.
            self.variables = dict(one.split("=", 1) for one in variables.read().decode().split("\0") if one)
        print(done.stdout, end="")

    def _sql(self, block: Block) -> None:
        with new_connection() as duck:
            result = duck.execute(re.sub(r"INSTALL \w+;", "", block.code))
            for row in result.fetchall():
                print(*row, sep="|")

    def _compare(self, block: Block, printed: str) -> None:
        checker = doctest.OutputChecker()
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert checker.check_output(block.code, printed, options), (
            f"{self.page}, line {block.above + 1}: the page has\n{block.code}\nand the block printed\n{printed}"
        )


def main(names: list[str]) -> None:
    for name in names:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Reader(page, slow_commands=True).run()
        print(f"{name}: {sum(block.language in _RUNS for block in all_blocks(page))} blocks run")


if __name__ == "__main__":
    main(sys.argv[1:])
