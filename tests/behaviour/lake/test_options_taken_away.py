"""Unset options: the wider scope is effective again, for ducklake_core and for DuckDB."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, UsageError
from tests.support.oracle import LakeAddress, attached


def test_the_wider_scope_is_effective_again(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.create_schema("s")
    lake.create_table("s.t", {"a": "int"})
    lake.create_table("u", {"a": "int"})
    name = "target_file_size"
    lake.set_option(name, "1MB")
    lake.set_option(name, "2MB", schema="s")
    with attached(lake_address) as duck:
        duck.run("CALL lake.set_option('target_file_size', '3MB', table_name => 't', schema => 's')")
    snapshot = lake.snapshot().id

    def seen() -> list[str | None]:
        return [lake.options(table).get(name) for table in ("s.t", "u", None)]

    assert seen() == ["3000000", "1000000", "1000000"]
    assert lake.unset_option("TARGET_FILE_SIZE", table="s.t")
    assert seen() == ["2000000", "1000000", "1000000"]
    assert not lake.unset_option(name, table="s.t")
    assert lake.unset_option(name)
    assert seen() == ["2000000", None, None]
    with attached(lake_address) as duck:
        rows = duck.rows(
            "SELECT option_name, value, scope, scope_entry FROM ducklake_options('lake') WHERE option_name = 'target_file_size'"
        )
        assert rows == [(name, "2000000", "SCHEMA", "s")]
    assert lake.unset_option(name, schema="s")
    assert seen() == [None, None, None]
    assert lake.snapshot().id == snapshot


def test_unknown_options_raise(small: DuckLake) -> None:
    with pytest.raises(UsageError, match="unknown option 'nothing'"):
        small.unset_option("nothing")
    # Settings of the lake share the table with options.
    for setting in ("data_path", "encrypted", "version"):
        with pytest.raises(UsageError, match="unknown option"):
            small.unset_option(setting)
    with pytest.raises(NotFoundError):
        small.unset_option("target_file_size", table="nothing")
    with pytest.raises(UsageError, match="cannot be combined"):
        small.unset_option("target_file_size", table="t", schema="main")
