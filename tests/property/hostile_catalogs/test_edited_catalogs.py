"""Every edit of ``edits.py``: right rows for every filter, or the error that says what is wrong."""

from __future__ import annotations

import pytest

from tests.property.hostile_catalogs.edits import EDITS, SQLITE_EDITS, Edit
from tests.property.hostile_catalogs.spoiled import SpoiledLake
from tests.support.parameters import slow, spread


@pytest.mark.parametrize("edit", spread(EDITS, 4), ids=lambda edit: edit.name)
@pytest.mark.parametrize("spoiled", ["sqlite", "postgresql", slow("duckdb")], indirect=True)
def test_any_database(edit: Edit, spoiled: SpoiledLake) -> None:
    _check(edit, spoiled)


@pytest.mark.parametrize("edit", spread(SQLITE_EDITS, 8), ids=lambda edit: edit.name)
def test_cells_of_any_type(edit: Edit, spoiled_sqlite: SpoiledLake) -> None:
    _check(edit, spoiled_sqlite)


def _check(edit: Edit, lake: SpoiledLake) -> None:
    lake.edit(*edit.statements)
    if edit.error is None:
        lake.assert_right()
        return
    with pytest.raises(edit.error, match=edit.says):
        lake.assert_right()


_OF_STATISTICS = [edit for edit in EDITS if edit.name.startswith(("5:", "6:", "7", "8:", "9:", "10:", "11:", "12:"))]


@pytest.mark.slow
@pytest.mark.parametrize("edit", [edit for edit in _OF_STATISTICS if edit.error is None], ids=lambda edit: edit.name)
def test_statistics_in_version_1_1(edit: Edit, spoiled_1_1: SpoiledLake) -> None:
    _check(edit, spoiled_1_1)
