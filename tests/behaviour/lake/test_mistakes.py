"""Messages about frequent mistakes name the caller's column and value, without the words of a parser or of Arrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ducklake_core import DuckLake, col
from ducklake_core.cli.app import app
from ducklake_core.errors import DuckLakeError

COLUMNS = {"id": "int64", "country": "varchar", "n": "int8", "amount": "decimal(10,2)", "day": "date", "u": "uuid"}
ROW = [{"id": 1, "select": "a"}]
FOREIGN_WORDS = ("sqlglot", "<class", "Line 1", "Error tokenizing", "invalid literal", "CSV conversion", "column #", "Catalog Error")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> DuckLake:
    folder = tmp_path_factory.mktemp("lake")
    lake = DuckLake.create(f"sqlite:///{folder}/lake.sqlite", data_path=f"{folder}/files/")
    lake.create_table("t", COLUMNS)
    lake.table("t").append([{"id": 1, "country": "DE", "n": 1}], missing_columns="null")
    lake.write("other.orders", ROW, partition_by="id")
    return lake


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(DuckLakeError) as caught:
        call()
    assert not [word for word in FOREIGN_WORDS if word in caught.value.message]
    return caught.value.message


@pytest.mark.parametrize(
    ("condition", "words"),
    {
        "country = 5": """Arrow cannot evaluate '"country" = 5', because it does not support a comparison of varchar with int32. Cast""",
        "lower(id) = 'x'": "because it does not support lower() of int64",
        "id = 'x'": "'x' cannot be read as a value of type int64, the type of column 'id'",
        "id IN ('x', 'y')": "'x' cannot be read as a value of type int64, the type of column 'id'",
        "id BETWEEN 'a' AND 'b'": "the type of column 'id'",
        "id = 1 & n = 2": "Write AND and OR instead of & and |",
        "country = DE": "If it is a string, write it in single quotes, as in 'DE'",
        "country == None": "For a missing value, write IS NULL",
        "the_country = 'DE'": "there is no column 'the_country' (did you mean 'country'",
        "id = 1 AND": "cannot read the condition 'id = 1 AND': a part is missing after 'AND'",
        "(id = 1": "')' is missing after '1'",
        "WHERE id = 1": "syntax error near 'WHERE'",
        "country = 'DE": "a quote, comment or parameter is not complete",
        "": "the condition is empty",
        "id = 1; id = 2": "must be one SQL condition, not 2",
    }.items(),
)
def test_conditions(lake: DuckLake, condition: str, words: str) -> None:
    assert words in message_of(lambda: lake.table("t").scan(where=condition).to_arrow())


def test_conditions_in_python_name_the_column(lake: DuckLake) -> None:
    assert message_of(lambda: lake.table("t").scan(where=col("country") == 5).to_arrow()).startswith("column 'country': 5 cannot be")
    assert message_of(lambda: lake.table("t").scan(where=col("id").isin(["a"])).to_arrow()).startswith("column 'id': 'a' cannot be")


def test_condition_of_an_update_that_arrow_cannot_evaluate(lake: DuckLake) -> None:
    message = message_of(lambda: lake.table("t").update({"n": 1}, where="country = 5"))
    assert message.startswith("Arrow cannot evaluate the condition, because it does not support a comparison of varchar with int32. Cast")


def test_a_string_that_is_set_without_quotes(lake: DuckLake) -> None:
    assert "write it in single quotes, as in 'Berlin'" in message_of(lambda: lake.table("t").update({"country": "Berlin"}))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"n": 300}, "column 'n': 300 is not a value of type int8, which has values from -128 to 127"),
        ({"u": "nope"}, "column 'u': a string is not a uuid"),
        ({"amount": 10**12}, "column 'amount' is decimal(10,2) without values in the table, and int64 in the data"),
    ],
)
def test_values(lake: DuckLake, row: dict[str, object], words: str) -> None:
    assert words in message_of(lambda: lake.table("t").append([row], missing_columns="null"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("target_file_sizes", "1GB", "unknown option 'target_file_sizes' (did you mean 'target_file_size'?)"),
        ("parquet_compression", "zip", "option 'parquet_compression' must be one of uncompressed, snappy"),
        ("auto_compact", "maybe", "option 'auto_compact' must be true or false, not 'maybe'"),
        ("data_inlining_row_limit", "few", "option 'data_inlining_row_limit' must be a number, not 'few'"),
    ],
)
def test_options(lake: DuckLake, name: str, value: str, words: str) -> None:
    assert words in message_of(lambda: lake.set_option(name, value))


def test_types_and_names(lake: DuckLake) -> None:
    assert "(did you mean" in message_of(lambda: lake.create_table("z", {"a": "integr"}))
    assert "a decimal has 1 to 38 digits" in message_of(lambda: lake.create_table("z", {"a": "decimal(50,2)"}))
    assert "such as 'int64'" in message_of(lambda: lake.create_table("z", {"a": int}))  # type: ignore[dict-item]
    assert "there is no table or view nope" in message_of(lambda: lake.sql("SELECT sum(a) FROM nope"))
    assert "1 value for 6 columns" in message_of(lambda: lake.sql("INSERT INTO t VALUES (1)"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "id,n\n1,2\nx,1\n", "row 3, column 'id': 'x' is not a value of type int64"),
        ("a.csv", "\ufeffid,n\nx,1\n", "row 2, column 'id': 'x' is not a value of type int64"),
        ("a.csv", "id,amount\n1,1.234\n", "row 2, column 'amount': a number has more digits after the point than type decimal(10,2)"),
        ("a.csv", "id,day\n1,01.02.2026\n", "row 2, column 'day': '01.02.2026' is not a value of type date"),
        ("a.csv", "id,n\n1\n", "row 2: Expected 2 columns, got 1"),
        ("a.csv", "id,id\n1,2\n", "it has several columns of one name"),
        ("a.csv", "", "it is empty"),
        ("a.json", '{"id": "x"}\n', "row 1, column 'id': string instead of number"),
        ("a.json", '{"u": "nope"}\n', "column 'u': a string is not a uuid"),
        ("a.parquet", "x", "it is not a Parquet file, or it was cut"),
    ],
)
def test_files_that_are_loaded(lake: DuckLake, tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    catalog = str(Path(lake.info.data_path).parent / "lake.sqlite")
    printed = CliRunner().invoke(app, ["--lake", f"sqlite:///{catalog}", "load", str(tmp_path / name), "--into", "t"])
    assert words in printed.stderr
    assert not [word for word in FOREIGN_WORDS if word in printed.stderr]


def test_columns_that_are_missing_or_misspelled(lake: DuckLake) -> None:
    table = lake.table("t")
    assert "column 'kountry' is new (varchar); did you mean 'country'" in message_of(lambda: table.append([{"id": 1, "kountry": "DE"}]))
    assert "the data has no column 'id', which is part of the key" in message_of(lambda: table.upsert([{"country": "DE"}], on="id"))
    assert "there is no column 'code'" in message_of(lambda: table.upsert([{"country": "DE"}], on="code"))
    assert "exists and is not partitioned, but partition_by is id" in message_of(
        lambda: lake.write("t", [{"id": 1}], partition_by="id", missing_columns="null")
    )
    assert "Set NOT NULL and defaults after the table is created" in message_of(lambda: lake.create_table("x", {"id": "int64 NOT NULL"}))


def test_a_misspelled_statement(lake: DuckLake) -> None:
    assert message_of(lambda: lake.sql("SEELCT 1")).startswith("SEELCT (did you mean 'SELECT'?) is not supported")


def test_a_change_of_a_view_names_the_view(lake: DuckLake) -> None:
    lake.sql("CREATE VIEW german AS SELECT * FROM t WHERE country = 'DE'")
    for call in (lambda: lake.sql("DELETE FROM german"), lambda: lake.table("german")):
        assert "main.german is a view" in message_of(call)


def test_the_name_of_a_file_is_an_address(lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DuckLake.create("sqlite:///some.sqlite", data_path="files/").close()
    with DuckLake.open("some.sqlite") as opened:
        assert opened.tables() == []
    assert "The catalog address cannot be parsed" in message_of(lambda: DuckLake.open("other.sqlite"))


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("SELECT * FROM other.orders WHERE select = 'a'", "usage", 'If select is a name, write it in double quotes: "select"'),
        ("SELECT sum(n) FROM t GROUP BY group", "usage", 'If group is a name, write it in double quotes: "group"'),
        ("CREATE TABLE x (id int, select varchar)", "usage", 'write it in double quotes: "select"'),
        ("SELECT * form t", "usage", 'syntax error at or near "t"'),
        ("SELECT sum(countri) FROM t", "not-found", "there is no column 'countri' (did you mean 'country'"),
        ("SELECT x.country, 1 + 1 FROM t AS y", "not-found", "the query reads no table 'x' (did you mean 'y'?)"),
        ("SELECT sum(n) FROM t WHERE country = DE", "not-found", "If it is a string, write it in single quotes, as in 'DE'"),
        ("SELECT lowr(country) FROM t", "not-found", "there is no function or macro lowr at this snapshot (did you mean 'lower'?)"),
        ("SELECT sum(a) FROM ordrs", "not-found", "there is no table or view ordrs at this snapshot (did you mean 'other.orders'?)"),
        ("SELECT sum(id) FROM othr.orders", "not-found", "no table or view othr.orders at this snapshot (did you mean 'other.orders'?)"),
        ("SELECT country::int FROM t", "usage", "DuckDB cannot run the query: column 'country': Could not convert string 'DE' to int32"),
        ("SELECT sum(country) FROM t", "usage", "DuckDB cannot run the query: No function matches"),
        ("INSERT INTO t (id, n) VALUES (1, 2), (1, 300)", "schema", "row 2 of VALUES, column 'n': 300 is out of range for type int8"),
        ("INSERT INTO t (n) SELECT country FROM t", "usage", "column 'n': Could not convert string 'DE' to int8"),
        ("UPDATE t SET n = 300", "schema", "column 'n': 300 is not a value of type int8"),
        ("MERGE INTO t USING other.orders AS o ON t.id = o.idd WHEN MATCHED THEN DELETE", "not-found", "the source has no column 'idd'"),
        ("CALL lake.snapshot()", "unsupported-feature", "CALL lake.snapshot is not supported (did you mean 'snapshots'"),
        ("DESCRIBE ordrs", "not-found", "(did you mean 'other.orders'?)"),
        ("SELECT * FROM t AT (TIMESTAMP => 'nope')", "usage", "DuckDB cannot compute 'nope': invalid timestamp field format"),
        ("FROM __ducklake_metadata_lake.ducklake_snapshots", "not-found", "no table ducklake_snapshots (did you mean 'ducklake_snapshot'"),
        ("BEGIN", "unsupported-feature", "BEGIN is not supported: run the statements with tx.sql(...)"),
        ("SET threads = 4", "unsupported-feature", "SET is not supported: only SET VARIABLE and RESET VARIABLE are"),
        ("GRANT ALL", "unsupported-feature", "GRANT is not supported: statements begin with SELECT, FROM"),
    ],
)
def test_sql(lake: DuckLake, sql: str, error: str, words: str) -> None:
    with pytest.raises(DuckLakeError) as caught:
        lake.sql(sql).to_arrow()
    assert (caught.value.code, words in caught.value.message) == (error, True), caught.value.message
    assert not [word for word in ("Error:", "docs/", "LITERAL", "c0", *FOREIGN_WORDS) if word in caught.value.message]


@pytest.mark.parametrize("condition", ["select = 1", "lower(case) = 'a'", "id IN (from)", "id = 1 AND where > 2"])
def test_reserved_words_in_conditions(lake: DuckLake, condition: str) -> None:
    assert "is a name, write it in double quotes" in message_of(lambda: lake.table("t").scan(where=condition).to_arrow())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda lake: lake.table("t").scan("id = 1").to_arrow(), "no column 'id = 1'. Pass a condition as where=..."),
        (lambda lake: lake.table("t").scan("id, n").to_arrow(), "Pass ['id', 'n']"),
        (lambda lake: lake.table("t").scan("*").to_arrow(), "Leave columns out"),
        (lambda lake: lake.table("t").upsert([{"id": 1}], on="id, n"), "Pass ['id', 'n']"),
        (lambda lake: lake.table("t").scan(where="t.id = 1").to_arrow(), "Write 'id' without the name of a table before it"),
        (lambda lake: lake.table("t").scan(where="id = ?").to_arrow(), "Use ducklake_core.col for values"),
        (lambda lake: lake.table("t", at="2001-01-01"), "The first snapshot, 0, is of 20"),
        (lambda lake: lake.table("t").changes(9, 1), "start is snapshot 9, after end, snapshot 1"),
        (lambda lake: lake.view("t"), "main.t is a table, not a view"),
        (lambda lake: lake.drop_view("t"), "main.t is a table, not a view"),
        (lambda lake: lake.table("maain.tt"), "did you mean"),
        (lambda lake: lake.table("t").scan().to_spark(None), "spark must be a Spark session, not None"),
        (lambda lake: lake.table("t").append(dict), "cannot write the class dict"),
        (lambda lake: lake.table("t").append([{"day": "x"}], missing_columns="null"), "cast the data; schema_evolution='additive' would"),
        (
            lambda lake: lake.table("other.orders").overwrite(ROW, partitions=[{"id": "x"}]),
            "'x' is not a value of partition key 'id'",
        ),
        (lambda lake: lake.create_view("y", "SELECT id FROM ordrs"), "(did you mean 'other.orders'?). Create the table or view first"),
        (lambda lake: lake.create_table("y", ["a"]), "must be a dict of names and types such as {'id': 'int64'}"),
        (lambda lake: lake.create_table("y", {"a": "stringg"}), "(did you mean 'string'?)"),
        (lambda lake: lake.create_table("y", {"a": "int64"}, partition_by="b"), "there is no column 'b'"),
    ],
)
def test_calls(lake: DuckLake, call: Callable[[DuckLake], object], words: str) -> None:
    assert words in message_of(lambda: call(lake))


def test_a_misspelled_option_is_answered_with_that_option_only(lake: DuckLake) -> None:
    assert message_of(lambda: lake.set_option("auto_compct", True)) == "unknown option 'auto_compct' (did you mean 'auto_compact'?)"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("sqlit:///lake.sqlite", "sqlit as catalog database is not supported (did you mean 'sqlite'"),
        ("sqlite://lake.sqlite", "Write sqlite:///lake.sqlite"),
        ("/", "The catalog address '/' is a directory"),
    ],
)
def test_addresses(address: str, words: str) -> None:
    assert words in message_of(lambda: DuckLake.open(address))


def test_stores(tmp_path: Path) -> None:
    rows = [{"a": number} for number in range(20)]
    options = {"key": "secret"}
    assert "such as {'s3': {'key': ..." in message_of(lambda: DuckLake.open(tmp_path / "lake.sqlite", storage_options=options))  # type: ignore[arg-type]
    lake = DuckLake.create(tmp_path / "lake.sqlite", data_path="s33://bucket/")
    assert "begin with s33:// (did you mean 's3'?) cannot be opened" in message_of(lambda: lake.write("t", rows))
    lake = DuckLake.create(tmp_path / "other.sqlite", data_path="s3://bucket/", storage_options={"s3": {"access_ky": "a"}})
    assert "correct or remove 'access_ky' in storage_options" in message_of(lambda: lake.write("t", rows))


def test_changes_with_a_new_column_name_both_tables(lake: DuckLake) -> None:
    lake.write("source", [{"id": 1, "more": 2}])
    lake.write("target", [{"id": 1}])
    changes = lake.table("source").changes(1)
    message = message_of(lambda: lake.table("target").apply_changes(changes, on="id"))
    assert message.startswith("table main.target has no column 'more', which the changes of main.source have")
