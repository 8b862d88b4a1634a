"""Every edit of ``edits.py``: right rows for every filter, or the error that says what is wrong."""

from __future__ import annotations

import pytest

from tests.hostile.edits import EDITS, SQLITE_EDITS, Edit
from tests.hostile.spoiled import SpoiledLake


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_either_database(edit: Edit, spoiled: SpoiledLake) -> None:
    _check(edit, spoiled)


@pytest.mark.parametrize("edit", SQLITE_EDITS, ids=lambda edit: edit.name)
def test_cells_of_any_type(edit: Edit, spoiled_sqlite: SpoiledLake) -> None:
    _check(edit, spoiled_sqlite)


def _check(edit: Edit, lake: SpoiledLake) -> None:
    lake.edit(*edit.statements)
    if edit.error is None:
        lake.assert_right()
        return
    with pytest.raises(edit.error, match=edit.says):
        lake.assert_right()
