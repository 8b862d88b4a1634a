"""The examples of docs/reference/sql.md."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "sql.md"


def test_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, object] = {"folder": tmp_path}
    assert examples
    for example in examples:
        exec(compile(example, str(DOCUMENT), "exec"), names)
