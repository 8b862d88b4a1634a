"""Sessions of the first hour: what users of DuckDB, PyIceberg and Polars, and of cron, type, one call after another."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from ducklake_core import DuckLake, Table, col
from ducklake_core.cli.app import app
from ducklake_core.errors import UsageError

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "made": pa.array(["2026-01-01", "2026-02-01", None]).cast(pa.timestamp("us"))})


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.create(f"ducklake:sqlite:{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.write("t", ROWS)
    return lake


def test_a_user_of_duckdb(lake: DuckLake, tmp_path: Path) -> None:
    def rows(sql: str, parameters: object = None, **frames: object) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in lake.sql(sql, parameters, **frames).to_arrow().to_pylist()]  # type: ignore[arg-type,union-attr]

    assert rows("SELECT count(*) FROM t WHERE id IN ?", [[1, 2]]) == [(2,)]
    assert rows("SELECT id FROM t WHERE id = ANY($ids) AND made >= $day", {"ids": [1, 2], "day": dt.date(2026, 1, 15)}) == [(2,)]
    lake.sql("INSERT INTO t FROM more", more=duckdb.sql("SELECT 4 AS id, 'z' AS name, NULL::TIMESTAMP AS made"))
    lake.write("relation", duckdb.sql("SELECT 1 AS a"))
    lake.sql("CREATE TABLE joined AS SELECT x.*, y.* FROM t AS x JOIN t AS y USING (id)")
    assert lake.table("joined").schema.names == ("id", "name", "made", "id_1", "name_1", "made_1")
    assert rows("SELECT new.id FROM t AS new ANTI JOIN t AS old AT (VERSION => 1) USING (id)") == [(4,)]
    query, dataset = lake.sql("FROM t"), lake.table("t").scan().to_dataset()
    assert duckdb.sql("SELECT count(*) FROM query").fetchall() == duckdb.sql("SELECT count(*) FROM dataset").fetchall() == [(4,)]
    assert query is not None
    assert dataset is not None
    with pytest.raises(UsageError, match="Pass files=True"):
        lake.sql("SELECT * FROM 'rows.parquet'")
    lake.sql(f"COPY t TO '{tmp_path}/rows.parquet'", files=True)
    lake.sql(f"COPY t FROM '{tmp_path}/rows.parquet'", files=True)
    assert rows("SELECT count(*) FROM t") == [(8,)]
    for name, instead in {"df": "to_pandas", "pl": "to_polars", "arrow": "to_arrow", "fetchall": "to_pylist"}.items():
        with pytest.raises(AttributeError, match=instead):
            getattr(query, name)
    with pytest.raises(UsageError, match="must be a connection of DuckDB"):
        query.to_duckdb("main")  # type: ignore[arg-type,union-attr]
    call = f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/rows.parquet'"
    lake.sql(f"{call})", files=True)
    lake.sql(f"{call}, allow_duplicates => true)", files=True)
    assert rows("SELECT count(*) FROM t") == [(16,)]


def test_errors_within_properties_keep_their_messages(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Table) -> object:
        raise AttributeError("the reason")

    monkeypatch.setattr(Table, "schema", property(failing))
    with pytest.raises(AttributeError, match=r"^the reason$"):
        _ = lake.table("t").schema


def test_a_user_of_pyiceberg(lake: DuckLake, tmp_path: Path) -> None:
    assert DuckLake.connect(tmp_path / "lake.sqlite").table("t").count() == 3
    table = lake.table("t")
    assert table.scan(where=col("id") > 1, columns=["id"], limit=1).to_arrow().num_rows == 1
    table.append(ROWS)
    table.overwrite(ROWS)
    table.overwrite(ROWS.slice(0, 1), where="id = 1")
    table.delete("id = 3")
    table.upsert(ROWS, on="id")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert table.scan().to_pandas().shape == (3, 3)
    table.add_column("amount", pa.int64())
    table.rename_column("name", "label")
    assert lake.table("t").schema.names == ("id", "label", "made", "amount")
    lake.create_schema("sales")
    lake.create_table("sales.orders", schema=pa.schema([("id", pa.int64())]), partition_by=["bucket(4, id)"])
    lake.rename_table("sales.orders", "bought")
    with lake.transaction() as tx:
        tx.append("sales.bought", pa.table({"id": [1, 2]}))
        tx.delete("sales.bought", "id = 2")
    assert lake.table("sales.bought").count() == 1
    assert lake.table("t", at=1).count() == 3
    assert len(lake.snapshots()) > 8


def test_a_user_of_polars(lake: DuckLake) -> None:
    day = dt.date(2026, 1, 1)
    lake.write("p", pl.DataFrame({"a": [1, 2], "b": ["x", None], "day": [day, day]}), partition_by=["day"])
    lake.write("p", pl.LazyFrame({"a": [3], "b": ["y"], "day": [day]}))
    scan = lake.table("p").scan()
    assert scan.to_polars_lazy().filter(pl.col("a") > 1).select("b").collect().shape == (2, 1)
    assert pl.scan_pyarrow_dataset(scan.to_dataset()).filter(pl.col("a") == 1).collect().shape == (1, 3)
    assert pl.DataFrame(scan).shape == pl.from_arrow(scan.to_arrow()).shape == (3, 3)  # type: ignore[union-attr]
    lake.table("p").upsert(pl.DataFrame({"a": [1, 9], "b": ["new", "nine"], "day": [day, day]}), on=["a"])
    assert lake.table("p").scan(columns=["b"], where="a = 1").to_polars().rows() == [("new",)]
    typed = {"c": pl.Series(["q"], dtype=pl.Categorical), "e": pl.Series(["a"], dtype=pl.Enum(["a"])), "n": [[1, 2]], "s": [{"x": 1}]}
    lake.write("typed", pl.DataFrame({**typed, "t": [dt.time(1, 2)], "took": [dt.timedelta(days=1)]}))
    assert lake.table("typed").scan(columns=["c", "e", "n", "s", "t"]).to_polars().row(0) == ("q", "a", [1, 2], {"x": 1}, dt.time(1, 2))
    lake.write("p", pl.DataFrame(schema={"a": pl.Int64, "b": pl.String, "day": pl.Date}))
    with pytest.raises(UsageError, match=r"col\('a'\)"):
        lake.table("p").delete(pl.col("a") > 100)  # type: ignore[arg-type]


def test_cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUCKLAKE_URL", "sqlite:///lake.sqlite")
    Path("rows.csv").write_text("id,name\n1,a\n2,b\n")
    Path("night.sql").write_text("SELECT count(*) AS n FROM t")

    def run(*arguments: str) -> str:
        found = CliRunner().invoke(app, list(arguments))
        assert found.exit_code == 0, (arguments, found.output)
        return found.output

    run("create", "--data-path", "files/")
    run("load", "rows.csv", "--into", "t")
    run("load", "rows.csv", "--into", "t", "--mode", "upsert", "--on", "id")
    run("sql", "--files", "COPY t FROM 'rows.csv'")
    assert run("sql", "--file", "night.sql", "--format", "csv").splitlines() == ["n", "4"]
    run("option", "set", "expire_older_than", "7 days")
    run("checkpoint")
    assert "main.t" in run("tables")
    run("export", "t", "out.parquet")
    run("check")
    assert CliRunner().invoke(app, ["sql", "COPY t FROM 'rows.csv'"]).exit_code == 3
