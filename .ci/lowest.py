"""Prints the lowest versions that pyproject.toml allows of what users install, by extras too, as constraints for pip.

python .ci/lowest.py >lowest.txt; pip install --constraint lowest.txt .
"""

import re
import tomllib
from pathlib import Path

BOUND = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9][^,;]*)")
# The extensions of DuckDB that tests use are of one version of it.
NOT_BY_TESTS = ("duckdb", "dev")


def lowest() -> dict[str, str]:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [one for extra, named in project["optional-dependencies"].items() if extra not in NOT_BY_TESTS for one in named]
    bounds = (BOUND.match(one) for one in [*project["dependencies"], *extras])
    return {bound[1]: bound[2].strip() for bound in bounds if bound}


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in lowest().items()))
