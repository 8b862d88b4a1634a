"""A lake to damage, on each catalog database; made once and copied for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.property.hostile_catalogs.lake import DamagedLake, build, file_copy
from tests.support.oracle import LakeAddress, file_lake
from tests.support.parameters import slow
from tests.support.postgres import PostgresServer

Copies = Callable[[str], DamagedLake]


@pytest.fixture(scope="session")
def templates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, object], LakeAddress]:
    """The untouched lake of a builder, in a kind of database."""
    made: dict[tuple[str, object], LakeAddress] = {}

    def template(kind: str, builder: Callable[[LakeAddress], LakeAddress]) -> LakeAddress:
        if (kind, builder) not in made:
            folder = tmp_path_factory.mktemp(f"hostile-{kind}")
            server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgresql" else None
            made[kind, builder] = builder(server.lake(folder, keep=True) if server else file_lake(kind, folder))
        return made[kind, builder]

    return template  # type: ignore[return-value]


@pytest.fixture
def copies(templates: Callable[..., LakeAddress], request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., DamagedLake]:
    """A copy that the test may damage."""

    def copy(kind: str, builder: Callable[[LakeAddress], LakeAddress] = build) -> DamagedLake:
        template = templates(kind, builder)
        if kind != "postgresql":
            return file_copy(template, file_lake(kind, tmp_path))
        server: PostgresServer = request.getfixturevalue("postgres")
        return DamagedLake(server.lake(tmp_path, template=template)).moved_from(template)

    return copy


@pytest.fixture(params=["sqlite", slow("postgresql"), slow("duckdb")])
def damaged(request: pytest.FixtureRequest, copies: Copies) -> DamagedLake:
    """A copy on each catalog database."""
    return copies(request.param)


@pytest.fixture
def damaged_sqlite(copies: Copies) -> DamagedLake:
    """A copy in SQLite, for what only its untyped cells can hold, or what does not depend on the database."""
    return copies("sqlite")
