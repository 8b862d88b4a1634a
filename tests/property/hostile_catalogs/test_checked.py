"""A check of a catalog that somebody edited ends in findings, or in an error of ours, and so does a repair."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.property.hostile_catalogs.edits import EDITS, SQLITE_EDITS, Edit
from tests.property.hostile_catalogs.spoiled import SpoiledLake


def _hold(spoiled: SpoiledLake, edit: Edit) -> None:
    spoiled.edit(*edit.statements)
    try:
        lake = DuckLake.connect(spoiled.address.url)
    except DuckLakeError:
        return
    for repair in (False, True, False):
        try:
            found = lake.check(level="rows", repair=repair)
        except DuckLakeError as error:
            str(error)
        else:
            str(found)
            found.to_arrow()
    try:
        str(lake.health())
        lake.health().to_arrow()
        lake.health().to_openmetrics()
    except DuckLakeError as error:
        str(error)
    lake.close()


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_edits_of_any_database(edit: Edit, spoiled: SpoiledLake) -> None:
    _hold(spoiled, edit)


@pytest.mark.slow
@pytest.mark.parametrize("edit", SQLITE_EDITS, ids=lambda edit: edit.name)
def test_edits_of_cells(edit: Edit, spoiled_sqlite: SpoiledLake) -> None:
    _hold(spoiled_sqlite, edit)
