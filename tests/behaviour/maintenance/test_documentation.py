"""The examples of docs/how-to/maintenance.md and docs/operations/health.md, on a lake of the tables that they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress

DOCS = Path(__file__).parents[3] / "docs"


def _examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.fixture
def names(sqlite_address: LakeAddress) -> Any:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.create_schema("sales")
    for start in range(0, 4000, 1000):
        rows = {"customer": [(start + n) * 7919 % 1000 for n in range(1000)], "day": [n % 365 for n in range(1000)]}
        lake.write("orders", pa.table(rows))
        lake.write("sales.orders", pa.table({"n": range(20)}))
    lake.table("sales.orders").delete("n = 3")
    yield {"lake": lake}
    lake.close()


def test_examples_of_maintenance(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    lake = names["lake"]
    before = {name: lake.table(name).scan().count() for name in ("orders", "sales.orders")}
    first, night, holds, pins, budget, groups, clustering, progress = _examples("how-to/maintenance.md")

    def run(example: str) -> str:
        exec(compile(example, "how-to/maintenance.md", "exec"), names)
        return capsys.readouterr().out

    assert re.fullmatch(r"a range of customer or day touches .* files, and .*\n", run(clustering))
    assert run(progress).startswith("merge_adjacent_files")
    assert "planned" in run(first)
    assert "nothing found" in run(night)
    assert lake.options()["expire_older_than"] == "30 days"
    assert run(holds).startswith("audit 2025 ")
    assert lake.holds.list() == []
    assert run(pins) == ""
    assert names["orders"].num_rows == before["orders"]
    assert lake.holds.list() == []
    assert run(budget) == run(groups) == ""
    assert {name: lake.table(name).scan().count() for name in before} == before


def test_examples_of_health(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    health, check, *repair = _examples("operations/health.md")
    exec(compile(health, "operations/health.md", "exec"), names)
    assert names["health"].table("sales.orders").delete_ratio == pytest.approx(4 / 80)
    exec(compile(check, "operations/health.md", "exec"), names)
    assert "nothing found" in capsys.readouterr().out
    assert names["result"].level == "rows"
    for example in repair:
        exec(compile(example, "operations/health.md", "exec"), names)
