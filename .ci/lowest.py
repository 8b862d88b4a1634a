"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

python .ci/lowest.py >lowest.txt; pip install --constraint lowest.txt '.[cli,duckdb,polars]'
"""

import re
import tomllib
from pathlib import Path

# Extras that users install; what the project's own tests and tools need is always the newest.
USERS = ("cli", "duckdb", "polars", "s3", "gcs", "azure")
# Dagster and its libraries are released together, and the numbers of the libraries follow from Dagster's.
BOUND = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9][^,;]*)")


def lowest() -> dict[str, str]:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(one for extra in USERS for one in project["optional-dependencies"][extra])]
    bounds = (BOUND.match(one) for one in named)
    return {bound[1]: bound[2].strip() for bound in bounds if bound}


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in lowest().items()))
