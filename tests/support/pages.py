"""Pages of the documentation as programs: their code, run from top to bottom in a folder of its own."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (\w+\.py)\n")


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language; "" for blocks that name none."""
    return [code for _, named, code in _FENCE.findall(page.read_text()) if named == language]


def run_python(page: Path, names: Mapping[str, object] | None = None, replaced: Mapping[str, str] | None = None) -> dict[str, object]:
    """Run the Python of a page; its line numbers are those of the page, as tracebacks show them.

    A block that begins with the name of a file, as in ``# far_side.py``, becomes that file of the working directory.

    Args:
        page: The page.
        names: What the page takes for granted.
        replaced: Strings of the page to replace, such as addresses of servers. Each must be there.
    """
    module = types.ModuleType(f"page_{page.stem}")
    module.__dict__.update(names or {})
    text, used = page.read_text(), set()
    for block in blocks(page, "python"):
        before = text.partition(block)[0].count("\n")
        code = block
        for old, new in (replaced or {}).items():
            used |= {old} if old in code else set()
            code = code.replace(old, new)
        if (named := _FILE.match(code)) is not None:
            Path(named[1]).write_text(code)
            continue
        exec(compile("\n" * before + code, str(page), "exec", dont_inherit=True), module.__dict__)
    assert used == set(replaced or {}), set(replaced or {}) - used
    return module.__dict__
