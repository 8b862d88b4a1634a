"""The report of where the time of a test run went."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.durations import as_markdown


def report(nodeid: str, when: Literal["setup", "call", "teardown"], seconds: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, when, duration=seconds)


def test_folders_and_slowest_steps() -> None:
    found = as_markdown(
        [
            report("tests/unit/commit/test_a.py::test_x[a|b]", "setup", 2.0),
            report("tests/unit/commit/test_a.py::test_x[a|b]", "call", 5.25),
            report("tests/unit/commit/test_b.py::test_y", "call", 1.0),
            report("tests/spark/test_c.py::test_z", "call", 3.5),
        ]
    )
    assert "In all 12 (call 10, setup 2)." in found
    assert "| tests/unit/commit | 8.2 |\n| tests/spark/test_c.py | 3.5 |" in found
    slowest = found.partition("| Slowest step | seconds |\n| --- | ---: |\n")[2].splitlines()
    assert slowest[:2] == ["| tests/unit/commit/test_a.py::test_x[a/b] (call) | 5.2 |", "| tests/spark/test_c.py::test_z (call) | 3.5 |"]
