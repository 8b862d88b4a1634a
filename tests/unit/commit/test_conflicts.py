"""The table of conflict rules: every pair of own and other change, against the documented matrix."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ducklake_core.catalog.writing.head import FileState, Head
from ducklake_core.commit.actions import (
    Action,
    AddDeleteFiles,
    AlterTable,
    AlterView,
    AppendFiles,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    EndFiles,
    EndInlined,
    FlushInlined,
    InlinedDeletion,
    InlineDeletes,
    MergedFile,
    MergeFiles,
    RewriteFiles,
    RewrittenSource,
    SetOption,
    StagedDeleteFile,
    TagSchema,
)
from ducklake_core.commit.committer import head_request
from ducklake_core.commit.conflicts import RULES, find_conflict
from ducklake_core.commit.request import CommitRequest, Lookup
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.macro_definitions import MacroImplementation
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.data_types import INT32, Field
from ducklake_core.format.types.schema import Schema

TIME = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = Schema(columns=(Field(id=1, name="a", type=INT32),))
STAGED = StagedDeleteFile(data_file_id=10, path="d.parquet", delete_count=1, new_count=1, file_size_bytes=9, footer_size=3)
OUTPUT = WrittenFile(path="m.parquet", record_count=1, file_size_bytes=9, footer_size=3, statistics=())
MERGED = MergedFile(sources=((11, "a.parquet", True),), output=OUTPUT, row_id_start=0, begin_snapshot=1, partial_max=2, partition_id=None)
MACRO = MacroImplementation(kind="scalar", dialect="duckdb", sql="1")

OWN: dict[str, Action] = {
    "create_schema": CreateSchema(schema_id=-1, name="New", uuid="u", path="new/"),
    "drop_schema": DropSchema(schema_id=3, name="sales"),
    "tag_schema": TagSchema(schema_id=3, name="sales", key="comment", value="c"),
    "create_table": CreateTable(table_id=-1, schema_id=3, schema_name="sales", name="Fresh", uuid="u", path="fresh/", schema=COLUMNS),
    "drop_table": DropTable(table_id=7, schema_name="sales", name="t"),
    "alter_table": AlterTable(table_id=7, schema_id=3, schema_name="sales", name="t", ended=(1,), schema=COLUMNS),
    "rename_table": AlterTable(table_id=7, schema_id=3, schema_name="sales", name="t", new_name="Fresh", schema=COLUMNS),
    "set_not_null": AlterTable(table_id=7, schema_id=3, schema_name="sales", name="t", ended=(1,), not_null=frozenset({1}), schema=COLUMNS),
    "create_view": CreateView(view_id=-1, schema_id=3, schema_name="sales", name="Fresh", uuid="u", dialect="duckdb", sql="SELECT 1"),
    "alter_view": AlterView(view_id=7, schema_id=3, schema_name="sales", name="v", tags=((None, "comment", "c"),)),
    "rename_view": AlterView(view_id=7, schema_id=3, schema_name="sales", name="v", new_name="Fresh"),
    "drop_view": DropView(view_id=7, schema_name="sales", name="v"),
    "create_scalar_macro": CreateMacro(macro_id=-1, schema_id=3, schema_name="sales", name="M", implementations=(MACRO,)),
    "create_table_macro": CreateMacro(
        macro_id=-1, schema_id=3, schema_name="sales", name="M", implementations=(replace(MACRO, kind="table"),)
    ),
    "drop_macro": DropMacro(macro_id=7, schema_name="sales", name="m", kind="scalar"),
    "insert": AppendFiles(table_id=7, schema=COLUMNS, files=()),
    "delete": AddDeleteFiles(table_id=7, files=(STAGED,)),
    "end_files": EndFiles(table_id=7, data_file_ids=(10,), row_count=1),
    "inlined_delete": EndInlined(table_id=7, rows=(("x", (1,)),)),
    "inlined_file_delete": InlineDeletes(table_id=7, files=(InlinedDeletion(data_file_id=10, positions=(1, 2)),)),
    "compact": MergeFiles(table_id=7, schema=COLUMNS, merges=(MERGED,)),
    "flush": FlushInlined(table_id=7, files=(), inlined_tables=("x",), until=5),
    "rewrite": RewriteFiles(table_id=7, sources=(RewrittenSource(data_file_id=10, delete_file_ids=frozenset({3})),), outputs=()),
    "set_table_option": SetOption(key="k", value="v", scope="table", scope_id=7),
    "set_schema_option": SetOption(key="k", value="v", scope="schema", scope_id=3),
}
OTHER: dict[str, str] = {
    "dropped_schema": "dropped_schema:3",
    "dropped_table": "dropped_table:7",
    "dropped_view": "dropped_view:7",
    "created_schema": 'created_schema:"NEW"',
    "created_table": 'created_table:"Sales"."FRESH"',
    "created_view": 'created_view:"sales"."fresh"',
    "created_scalar_macro": 'created_scalar_macro:"sales"."m"',
    "created_table_macro": 'created_table_macro:"sales"."m"',
    "dropped_scalar_macro": "dropped_scalar_macro:7",
    "dropped_table_macro": "dropped_table_macro:7",
    "inserted_into_table": "inserted_into_table:7",
    "deleted_from_table": "deleted_from_table:7",
    "altered_table": "altered_table:7",
    "altered_view": "altered_view:7",
    "inlined_insert": "inlined_insert:7",
    "inlined_delete": "inlined_delete:7",
    "inline_flush": "inline_flush:7",
    "merge_adjacent": "merge_adjacent:7",
    "rewrite_delete": "rewrite_delete:7",
}
# Own change -> later changes of other clients that it conflicts with: DuckDB's matrix, then stricter rules.
ROW_READERS = {"dropped_table", "altered_table", "inserted_into_table", "inlined_insert"}
NAMES = {"dropped_schema", "created_table", "created_view"}
MATRIX: dict[str, set[str]] = {
    "tag_schema": {"dropped_schema"},
    "set_table_option": {"dropped_table"},
    "set_schema_option": {"dropped_schema"},
    "create_schema": {"created_schema"},
    "drop_schema": {"dropped_schema", "created_table", "created_view"} | {"created_scalar_macro", "created_table_macro"},
    "create_table": NAMES,
    "drop_table": {"dropped_table"},
    "alter_table": {"dropped_table", "altered_table"},
    "rename_table": NAMES | {"dropped_table", "altered_table"},
    "set_not_null": {"dropped_table", "altered_table"} | {"inserted_into_table", "inlined_insert"},
    "create_view": NAMES,
    "alter_view": {"altered_view"} | {"dropped_view"},
    "rename_view": NAMES | {"dropped_view"},
    "drop_view": {"dropped_view"},
    "create_scalar_macro": {"dropped_schema", "created_scalar_macro"},
    "create_table_macro": {"dropped_schema", "created_table_macro"},
    "drop_macro": {"dropped_scalar_macro", "dropped_table_macro"},
    "insert": {"dropped_table", "altered_table", "deleted_from_table", "inlined_delete"},
    "delete": ROW_READERS | {"merge_adjacent", "rewrite_delete"},
    "end_files": ROW_READERS | {"merge_adjacent", "rewrite_delete"},
    "inlined_delete": ROW_READERS | {"inlined_delete", "inline_flush"},
    "inlined_file_delete": ROW_READERS | {"merge_adjacent", "rewrite_delete"},
    "flush": {"dropped_table", "inlined_delete", "inline_flush"} | {"deleted_from_table", "merge_adjacent", "rewrite_delete"},
    # Their files are deleted, or have a new delete file.
    "compact": {"dropped_table", "deleted_from_table", "inlined_delete", "inline_flush", "merge_adjacent", "rewrite_delete"},
    "rewrite": {"dropped_table", "deleted_from_table", "inlined_delete", "inline_flush", "merge_adjacent", "rewrite_delete"},
}


def snapshot(number: int, changes: str = "") -> Snapshot:
    return Snapshot(id=number, time=TIME, schema_version=1, next_catalog_id=9, next_file_id=20, changes=changes)


def head(*changes: str, files: dict[int, FileState] | None = None, replaced: frozenset[int] = frozenset()) -> Head:
    later = tuple(snapshot(6 + index, text) for index, text in enumerate(changes))
    newest = later[-1] if later else snapshot(5)
    known = {10: FileState()} if files is None else files
    return Head(snapshot=newest, now=TIME, later=later, files=known, replaced_tables=replaced)


def staged(*actions: Action) -> CommitRequest:
    return CommitRequest(base=snapshot(5), actions=actions, commit_id="c", names={7: "sales.t"})


@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("own", OWN)
def test_matrix(own: str, other: str) -> None:
    found = find_conflict(staged(OWN[own]), head(OTHER[other]))
    assert (found is not None) == (other in MATRIX[own])
    if found is not None:
        assert "snapshot 6" in found.message
        assert found.snapshot_id == 6


@pytest.mark.parametrize("own", OWN)
def test_changes_of_other_tables_and_schemas_are_no_conflict(own: str) -> None:
    elsewhere = [text.replace(":7", ":8").replace(":3", ":4").replace("ales", "ports").replace("NEW", "OTHER") for text in OTHER.values()]
    assert find_conflict(staged(OWN[own]), head(*elsewhere)) is None


@pytest.mark.parametrize("other", OTHER)
def test_a_rewrite_goes_by_its_files(other: str) -> None:
    as_it_was = {10: FileState(delete_file_ids=frozenset({3}), deleted_at=4)}
    found = find_conflict(staged(OWN["rewrite"]), head(OTHER[other], files=as_it_was))
    assert (found is not None) == (other == "dropped_table")


def test_message_names_table_both_changes_and_what_to_do() -> None:
    found = find_conflict(staged(OWN["insert"]), head("inserted_into_table:7", "altered_table:7"))
    assert found is not None
    assert found.rule == "insert-altered_table"
    for part in ("insert into table sales.t", "altered it", "snapshot 7", "Run the write again"):
        assert part in found.message


@pytest.mark.parametrize(
    ("files", "conflict"),
    [
        ({10: FileState()}, False),
        ({10: FileState(deleted_at=5)}, False),
        ({10: FileState(delete_file_ids=frozenset({2}), deleted_at=6)}, True),
        ({}, True),
    ],
)
@pytest.mark.parametrize(
    ("own", "other"),
    [*itertools.product(["delete", "inlined_file_delete"], ["deleted_from_table:7", "inlined_delete:7", "inline_flush:7"])],
)
def test_two_deletes_conflict_only_on_the_same_data_file(own: str, other: str, files: dict[int, FileState], *, conflict: bool) -> None:
    found = find_conflict(staged(OWN[own]), head(other, files=files))
    assert (found is not None) == conflict


@pytest.mark.parametrize(
    "other", ["deleted_from_table:7", "inlined_delete:7", "inline_flush:7", "merge_adjacent:7", "rewrite_delete:7", "inserted_into_table:7"]
)
def test_a_merge_goes_by_its_files(other: str) -> None:
    merge = MergeFiles(table_id=7, schema=COLUMNS, merges=(MERGED,))
    untouched = {11: FileState(), 12: FileState(delete_file_ids=frozenset({2}), deleted_at=6)}
    assert find_conflict(staged(merge), head(other, files=untouched)) is None
    assert head_request(staged(merge)).files == {11}
    if "inserted" not in other:
        flushed = {11: FileState(delete_file_ids=frozenset({2}), deleted_at=4)}
        assert find_conflict(staged(merge), head(other, files=flushed)) is not None
        assert find_conflict(staged(merge), head(other, files={11: FileState(deleted_at=6)})) is not None


def test_a_replaced_delete_file_is_always_a_conflict() -> None:
    own = AddDeleteFiles(table_id=7, files=(StagedDeleteFile(
        data_file_id=10, path="d", delete_count=3, new_count=1, file_size_bytes=9, footer_size=3, replaces=2, replaces_path="x",
    ),))  # fmt: skip
    same = head("deleted_from_table:7", files={10: FileState(delete_file_ids=frozenset({2}), deleted_at=4)})
    other = head("deleted_from_table:7", files={10: FileState(delete_file_ids=frozenset({3}), deleted_at=4)})
    assert find_conflict(staged(own), same) is None
    assert find_conflict(staged(own), other) is not None


def test_a_flush_that_makes_a_delete_file_of_old_deletes() -> None:
    flushed = head("inline_flush:7", files={10: FileState(delete_file_ids=frozenset({2}), deleted_at=4)})
    assert find_conflict(staged(OWN["delete"]), flushed) is not None
    assert find_conflict(staged(OWN["inlined_file_delete"]), flushed) is None


@pytest.mark.parametrize(
    ("own", "conflict"),
    [("drop_table", True), ("alter_table", True), ("rename_table", True), ("insert", True), ("delete", True), ("compact", False)],
)
def test_renames_are_seen_by_the_table_row(own: str, *, conflict: bool) -> None:
    found = find_conflict(staged(OWN[own]), head('created_table:"sales"."renamed"', replaced=frozenset({7})))
    assert (found is not None) == conflict


@pytest.mark.parametrize("own", ["alter_view", "rename_view", "drop_view"])
def test_renames_of_views_are_seen_by_their_row(own: str) -> None:
    later = snapshot(6, 'created_view:"sales"."renamed"')
    renamed = Head(snapshot=later, now=TIME, later=(later,), replaced_views=frozenset({7}))
    found = find_conflict(staged(OWN[own]), renamed)
    assert found is not None
    assert "renamed it" in found.message


LOOKUPS: dict[Lookup, set[str]] = {
    "definition": {"dropped_table", "altered_table"},
    "matches": ROW_READERS,
    "rows": ROW_READERS | {"deleted_from_table", "inlined_delete"},
}


@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("lookup", LOOKUPS)
def test_read_tables_matter_without_changes(lookup: Lookup, other: str) -> None:
    reads = replace(staged(), lookups={7: frozenset({lookup})})
    found = find_conflict(reads, head(OTHER[other]))
    assert (found is not None) == (other in LOOKUPS[lookup])
    assert find_conflict(replace(reads, lookups={8: frozenset({lookup})}), head(OTHER[other])) is None


def test_a_name_altered_without_effect_counts_as_read() -> None:
    reads = replace(staged(), lookups={7: frozenset({"definition"})})
    assert 7 in head_request(reads).tables
    assert find_conflict(reads, head('created_table:"sales"."renamed"', replaced=frozenset({7}))) is not None


def test_unknown_changes_are_not_committed_over() -> None:
    found = find_conflict(staged(OWN["insert"]), head("vacuumed_table:99"))
    assert found is not None
    assert found.rule == "unknown-change"
    assert "vacuumed_table:99" in found.message


def test_missing_history_is_not_committed_over() -> None:
    expired = Head(snapshot=snapshot(8), now=TIME, later=(snapshot(6), snapshot(8)))
    found = find_conflict(staged(OWN["insert"]), expired)
    assert found is not None
    assert found.rule == "history-gap"
    assert "snapshot 7" in found.message


def test_rules_have_unique_names_and_reasons() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.why and rule.outcome for rule in RULES)
