"""Prints the lowest versions that pyproject.toml allows of what every user installs, as constraints for pip.

python .ci/lowest.py >lowest.txt; pip install --constraint lowest.txt .
"""

import re
import tomllib
from pathlib import Path

BOUND = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9][^,;]*)")


def lowest() -> dict[str, str]:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    bounds = (BOUND.match(one) for one in project["dependencies"])
    return {bound[1]: bound[2].strip() for bound in bounds if bound}


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in lowest().items()))
