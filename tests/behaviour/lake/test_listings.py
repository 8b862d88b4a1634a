"""Tables, views, macros, options and snapshots of a lake at every snapshot, as DuckDB lists them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, split_path
from ducklake_core.catalog.reading.definitions import MacroParameter
from ducklake_core.errors import CatalogCorruptError, NotFoundError, UsageError
from ducklake_core.format.layout.sorting import SortKey
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import on_all_catalogs
from tests.support.statements import noted_statements

HISTORY = (
    "CREATE SCHEMA s",
    'CREATE SCHEMA "od.d"',
    "CREATE TABLE t (a INT, b VARCHAR)",
    "CREATE TABLE s.u (i INT)",
    'CREATE TABLE "od.d"."n""x, y" (i INT)',
    "INSERT INTO t SELECT i, 'v' || i FROM range(100) r(i)",
    "INSERT INTO t VALUES (1000, 'small')",
    "DELETE FROM t WHERE a BETWEEN 5 AND 50",
    "DELETE FROM t WHERE a = 1000",
    "DELETE FROM t WHERE a = 7 OR a = 60",
    "INSERT INTO t SELECT i, 'w' || i FROM range(200, 300) r(i)",
    "DELETE FROM t WHERE a >= 200",
    "CREATE VIEW v AS SELECT a, b AS bb FROM t WHERE a > 1",
    'CREATE VIEW s.v2("q,1", "w""") AS SELECT a, v.bb FROM main.v',
    "COMMENT ON VIEW v IS 'a view''s comment'",
    "COMMENT ON TABLE t IS 'about t'",
    "COMMENT ON COLUMN t.b IS 'about b'",
    "CREATE MACRO plus(x, y := 3) AS x + y",
    "CREATE MACRO s.doubled(x) AS x, (x, y) AS x * y",
    "CREATE MACRO s.typed(x INTEGER, z VARCHAR := 'o''k') AS x",
    "CREATE MACRO below(n) AS TABLE SELECT * FROM t WHERE a < n",
    "ALTER TABLE t SET SORTED BY (b DESC NULLS FIRST, a + 1)",
    "ALTER VIEW v RENAME TO renamed",
    "COMMENT ON TABLE t IS NULL",
    "ALTER TABLE t RENAME TO t9",
    "ALTER TABLE t9 RESET SORTED BY",
    "INSERT INTO s.u VALUES (1), (2)",
    "CALL ducklake_flush_inlined_data('lake')",
    "DROP VIEW renamed",
    "DROP MACRO plus",
    "DROP MACRO TABLE below",
    "DROP SCHEMA s CASCADE",
)
INLINING_LIMIT = "DATA_INLINING_ROW_LIMIT 5"


def _play(address: LakeAddress) -> DuckLake:
    with attached(address, INLINING_LIMIT) as duck:
        duck.run(*HISTORY)
    return DuckLake.connect(address.url)


@pytest.mark.slow
def test_listings_through_history(lake_address: LakeAddress) -> None:
    lake = _play(lake_address)
    seen = set()
    for snapshot in lake.snapshots()[::2]:
        with attached(lake_address, f"SNAPSHOT_VERSION {snapshot.id}") as duck:
            _compare_tables(lake, duck, snapshot.id)
            _compare_views(lake, duck, snapshot.id)
            _compare_macros(lake, duck, snapshot.id)
        seen |= {(len(lake.views(at=snapshot.id)), len(lake.macros(at=snapshot.id)))}
    assert {(0, 0), (2, 4)} <= seen


def _compare_tables(lake: DuckLake, duck: Oracle, at: int) -> None:
    infos = lake.tables(at=at)
    assert sorted(
        (lake.table(i.table, at=at).state.name, i.table_id, i.table_uuid, i.file_count, i.file_size_bytes) for i in infos
    ) == sorted(
        (name, number, str(uuid), *rest)
        for name, number, uuid, *rest in duck.rows(
            "SELECT table_name, table_id, table_uuid, file_count, file_size_bytes FROM ducklake_table_info('lake')"
        )
    )
    comments = duck.rows("SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY ALL")
    tables = {info.table: lake.table(info.table, at=at) for info in infos}
    assert sorted((table.state.name, table.comment) for table in tables.values()) == comments
    assert all(table.tags() == ({} if table.comment is None else {"comment": table.comment}) for table in tables.values())
    columns = duck.rows(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE database_name = 'lake' AND comment IS NOT NULL ORDER BY ALL"
    )
    assert sorted((t.state.name, column, text) for t in tables.values() for column, text in t.column_comments.items()) == columns
    assert all({c: tags["comment"] for c, tags in t.column_tags().items()} == t.column_comments for t in tables.values())
    for table in tables.values():
        _compare_files(table.list_files(), duck, *split_path(table.state.schema_name), table.state.name)


def _compare_files(files, duck: Oracle, schema: str, name: str) -> None:  # type: ignore[no-untyped-def]
    query = (
        "SELECT COLUMNS(* EXCLUDE (data_file_encryption_key, delete_file_encryption_key)) FROM ducklake_list_files('lake', ?, schema => ?)"
    )
    own = []
    for file in files:
        deletes = [(d.path, d.file_size_bytes, d.footer_size) for d in file.delete_files] or [(None, None, None)]
        own += [(file.path, file.file_size_bytes, file.footer_size, *delete) for delete in deletes]
    assert sorted(own, key=str) == sorted(duck.rows(query, [name, schema]), key=str)


def _compare_views(lake: DuckLake, duck: Oracle, at: int) -> None:
    listed = duck.rows("SELECT schema_name, view_name, comment FROM duckdb_views() WHERE database_name = 'lake' AND NOT internal")
    views = lake.views(at=at)
    assert [(*split_path(v.state.schema_name), v.state.name, v.comment) for v in views] == sorted(listed)
    for view in views:
        assert view.dialect == "duckdb"
        assert lake.view(view.name.upper(), at=at).state == view.state
        assert view.tags() == ({} if view.comment is None else {"comment": view.comment})
        with pytest.raises(NotFoundError, match=r"is a view, not a table.*lake\.view"):
            lake.table(view.name, at=at)


def _compare_macros(lake: DuckLake, duck: Oracle, at: int) -> None:
    listed = duck.rows(
        "SELECT schema_name, function_name, function_type, parameters, macro_definition FROM duckdb_functions() "
        "WHERE database_name = 'lake'"
    )
    kinds = {"scalar": "macro", "table": "table_macro"}
    own = [
        (*split_path(m.schema_name), m.name, kinds[i.kind], [p.name for p in i.parameters], i.sql)
        for m in lake.macros(at=at)
        for i in m.implementations
    ]
    assert sorted(own, key=str) == sorted(listed, key=str)


@on_all_catalogs
def test_definitions(lake_address: LakeAddress) -> None:
    lake = _play(lake_address)
    made = {text: s.id for s in lake.snapshots() for strings in s.change_set.listing().values() for text in strings}
    created = made["main.below"]
    assert lake.view("v", at=created).sql == "SELECT a, b AS bb FROM t WHERE (a > 1)"
    assert lake.view("v", at=created).comment == "a view's comment"
    assert lake.view("s.v2", at=created).column_aliases == ("q,1", 'w"')
    assert lake.view("s.v2", at=created).sql == "SELECT a, v.bb FROM main.v"
    macros = {macro.name: macro.implementations for macro in lake.macros(at=created)}
    assert [i.parameters for i in macros["plus"]] == [
        (MacroParameter(name="x"), MacroParameter(name="y", default="3", default_type="int32"))
    ]
    assert [len(i.parameters) for i in macros["doubled"]] == [1, 2]
    assert [i.parameters for i in macros["typed"]] == [
        (MacroParameter(name="x", type="int32"), MacroParameter(name="z", type="varchar", default="o'k", default_type="varchar"))
    ]
    assert [(i.kind, i.dialect) for i in macros["below"]] == [("table", "duckdb")]
    assert lake.table("t", at=created).comment == "about t"
    sorted_at = made["main.renamed"]
    assert lake.table("t", at=sorted_at).sort_keys == (
        SortKey(expression="b", direction="DESC", null_order="NULLS_FIRST", dialect="duckdb"),
        SortKey(expression="(a + 1)", direction="ASC", null_order="NULLS_LAST", dialect="duckdb"),
    )
    assert lake.table("t9").sort_keys == ()
    with pytest.raises(NotFoundError, match=r"no view main\.v at snapshot"):
        lake.view("v")
    with pytest.raises(NotFoundError, match=r"no table main\.v at snapshot"):
        lake.table("v")


def test_changes_of_snapshots(lake_address: LakeAddress) -> None:
    lake = _play(lake_address)
    with attached(lake_address) as duck:
        listed = duck.rows("SELECT snapshot_id, snapshot_time, schema_version, changes, author FROM ducklake_snapshots('lake')")
    own = [(s.id, s.time, s.schema_version, s.change_set.listing(), s.author) for s in lake.snapshots()]
    assert [(row[0], row[3]) for row in own] == [(row[0], row[3]) for row in listed]
    assert own == listed
    kinds = {kind for row in own for kind in row[3]}
    assert {
        "views_altered",
        "scalar_macros_dropped",
        "table_macros_dropped",
        "schemas_dropped",
        "flushed_inlined",
        "inlined_delete",
    } <= kinds


def test_options_and_settings(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(
            "CREATE SCHEMA s", "CREATE TABLE s.t (a INT)", "CREATE TABLE dropped (a INT)", 'CREATE TABLE "o.d" (a INT)',
            "CALL lake.set_option('target_file_size', '10MB')",
            "CALL lake.set_option('parquet_compression', 'zstd', schema => 's')",
            "CALL lake.set_option('parquet_compression', 'gzip', schema => 's', table_name => 't')",
            "CALL lake.set_option('auto_compact', 'false', table_name => 'o.d')",
            "CALL lake.set_option('auto_compact', 'false', table_name => 'dropped')",
            "DROP TABLE dropped",
        )  # fmt: skip
    with attached(lake_address) as duck:
        options = duck.rows("SELECT option_name, value, lower(scope), scope_entry FROM lake.options()")
        (settings,) = duck.rows("SELECT catalog_type, data_path FROM ducklake_settings('lake')")
    lake = DuckLake.connect(lake_address.url)
    own = [(option.name, option.value, option.scope, option.entry and option.entry.replace('"', "")) for option in lake.scoped_options()]
    assert sorted(own, key=str) == sorted(options, key=str)
    # DuckDB works on a copy of MySQL's catalogs.
    by_duckdb = "mysql" if lake_address.backend == "mysql" else settings[0]
    assert (lake.settings().catalog_type.removesuffix("ql"), lake.settings().data_path) == (by_duckdb.removesuffix("ql"), settings[1])
    assert (lake.settings().version, lake.settings().encrypted) == ("1.0", False)
    table = lake.table("s.t")
    assert (table.options.parquet_compression, table.options.target_file_size, table.options.auto_compact) == ("gzip", 10_000_000, True)


def test_unreadable_catalog_strings_raise(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE VIEW v(a) AS SELECT 1", "CREATE MACRO m(x) AS x")
    lake = DuckLake.connect(sqlite_address.url)
    with lake.database.write() as connection:
        tables = lake.database.tables
        connection.execute(tables["view"].update().values(column_aliases='"a" b'))
        connection.execute(tables["macro_impl"].update().values(type="other"))
    with pytest.raises(CatalogCorruptError, match=r"column names .* of view main\.v"):
        lake.views()
    with pytest.raises(CatalogCorruptError, match=r"Macro main\.m has the type 'other'"):
        lake.macros()


def test_differences_from_the_listings_of_duckdb(sqlite_address: LakeAddress) -> None:
    """Its descriptions of options, and its quotes around plain names that are words of its SQL."""
    with attached(sqlite_address) as duck:
        duck.run('CREATE TABLE "select" (i INTEGER)')
        assert duck.value("SELECT changes FROM lake.snapshots() WHERE snapshot_id = 1") == {"tables_created": ['main."select"']}
        assert "description" in [column[0] for column in duck.connection.execute("FROM lake.options()").description]
        names = {str(name) for (name,) in duck.rows("SELECT option_name FROM lake.options()")}
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.snapshots()[1].change_set.listing() == {"tables_created": ["main.select"]}
    assert {option.name for option in lake.scoped_options()} <= names


def test_listings_of_ten_tables_take_as_many_statements_as_of_two(small: DuckLake) -> None:
    """One statement counts the inlined rows of two hundred tables; for one table nothing of other tables is read."""

    def statements_of(call: Callable[[], object]) -> int:
        found.clear()
        call()
        return len(found)

    def counts() -> list[int]:
        table = small.table("t0")
        return [
            statements_of(call)
            for call in (small.tables, lambda: small.table_info("t0"), table.snapshots, small.inspect.tables, table.info)
        ]

    with noted_statements() as found:
        for number in range(2):
            small.write(f"t{number}", pa.table({"a": [1]}))
        before = counts()
        for number in range(2, 10):
            small.write(f"t{number}", pa.table({"a": [1, number]}))
            small.write(f'"t:x""{number}"', pa.table({"a": [number]}))
        small.table("t9").delete("a = 9")
        assert counts() == before
        for call in (lambda: list(small), small.scoped_options):
            assert statements_of(call) <= before[0]
            assert not [statement for statement in found if "data_file" in statement], "names need no sizes"
    assert {info.table: info.row_count for info in small.tables()}["main.t9"] == 1
    assert sum(info.row_count for info in small.tables()) == 2 + 16 - 1 + 8


def test_snapshots_of_a_table_are_those_whose_changes_name_it(small: DuckLake) -> None:
    names = ["t", 'T"x', "created_table:1", "a,b:2,", "other"]
    for name in names:
        small.write(f'"{name.replace(chr(34), chr(34) * 2)}"', pa.table({"a": [1]}))
    for _ in range(12):
        small.write("other", pa.table({"a": [1]}))
    small.rename_table("t", "u")
    small.write("u", pa.table({"a": [2]}))
    for name, expected in {'T"x': [2], "created_table:1": [3], "a,b:2,": [4], "other": [5, *range(6, 18)], "u": [1, 18, 19]}.items():
        table = small.table(f'"{name.replace(chr(34), chr(34) * 2)}"')
        assert [snapshot.id for snapshot in table.snapshots()] == expected
        assert table.last_row_change() == small.snapshot(expected[-1])
    other = small.table("other")
    assert len(other.snapshots()) == 13
    assert [snapshot.id for snapshot in other.row_changes()] == [snapshot.id for snapshot in reversed(other.snapshots())]
    assert [snapshot.id for snapshot in other.row_changes(14, limit=2)] == [17, 16]
    assert [[snapshot.id for snapshot in other.row_changes(limit=limit)] for limit in (0, 1, 99)] == [[], [17], [*range(17, 4, -1)]]
    assert other.row_changes(author="unknown") == []
    small.set_comment("other", "no row")
    assert small.table("other").row_changes(17) == []
    assert [snapshot.id for snapshot in small.table("other", at=16).row_changes(14)] == [16, 15]


def test_history_of_a_table_begins_with_the_table(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "DROP TABLE t", "CREATE TABLE other (a INT)")
        duck.run('CREATE TABLE "T" (a INT)', "INSERT INTO t VALUES (1)", 'ALTER TABLE t RENAME TO "a "",:2,"', "CREATE TABLE t (b INT)")
        duck.run('INSERT INTO "a "",:2," VALUES (2)', "CREATE SCHEMA s", "CREATE TABLE s.t (a INT)", "INSERT INTO s.t VALUES (3)")
    lake = DuckLake.connect(lake_address.url)
    names = ('"a "",:2,"', "t", "s.t", "other")
    assert [[snapshot.id for snapshot in lake.table(name).snapshots()] for name in names] == [[5, 6, 7, 9], [8], [11, 12], [4]]
    assert [snapshot.id for snapshot in lake.table("t", at=2).snapshots()] == [1, 2, 3]


def test_tables_of_one_schema_are_those_of_all(small: DuckLake) -> None:
    for number in range(5):
        small.write(f"t{number}", pa.table({"a": [number]}), inline=False)
    small.create_schema("s")
    small.write("s.t0", pa.table({"a": [1, 2]}), inline=False)
    every = small.tables()
    assert small.tables("main") == [info for info in every if info.table.startswith("main.")]
    assert small.tables("S") == [info for info in every if info.table.startswith("s.")] != []
    small.create_schema("empty")
    assert small.tables("empty") == []
    for call in (lambda: small.tables("emty"), lambda: small.at(None).tables("emty")):
        with pytest.raises(NotFoundError, match=r"there is no schema 'emty' at snapshot 8 \(did you mean 'empty'\?\)"):
            call()
    with pytest.raises(NotFoundError, match="there is no schema 'empty' at snapshot 5"):
        small.tables("empty", at=5)


def test_pages_of_tables_and_the_last_snapshots(small: DuckLake) -> None:
    small.create_schema("s")
    for name in ("t0", "t1", "t2", "s.a"):
        small.write(name, [{"n": 1}], inline=False)
    every = small.tables()
    first = small.tables(limit=3)
    assert first == every[:3]
    assert small.tables(limit=3, after=first[-1].table) == every[3:]
    assert small.tables("main", after="s.a") == []
    assert small.tables("main", after="t00", limit=1) == every[1:2]
    assert small.tables(limit=0) == []
    assert small.snapshots(last=2) == small.snapshots()[-2:]
    assert small.snapshots(last=100) == small.snapshots()
    assert small.snapshots(last=0) == []
    with pytest.raises(UsageError, match="last must be at least 0, not -1"):
        small.snapshots(last=-1)


def test_a_last_change_is_found_behind_many_commits_with_similar_names(small: DuckLake) -> None:
    small.write("t", pa.table({"a": [1]}))
    table = small.table("t")
    expected, table_id = small.snapshot(), table.info().table_id
    for number in range(13):
        small.create_table(f'"x:{table_id},{number}"', pa.schema({"a": pa.int64()}))
    with noted_statements() as statements:
        assert table.last_row_change() == expected
    assert sum("LIMIT" in statement and "LIKE" in statement for statement in statements) == 3, "one, ten, a hundred"
