"""Lakes by a name: from a file, from variables, and with no secret in anything that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake, load_lake
from ducklake_core.errors import DuckLakeError, NotFoundError, UsageError
from ducklake_core.staging.lake_files import find_lake

SECRET = "hush-hush-42"
FILE = f"""
[lakes.sales]
catalog = "postgresql+psycopg://me:{SECRET}@db/lake"
metadata_schema = "meta"
allowed_paths = ["s3://other/"]
[lakes.sales.storage_options.s3]
key = "k"
secret = "{SECRET}"
client_kwargs = {{ region_name = "eu" }}
[lakes.here]
catalog = "sqlite:///files/lake.sqlite"
read_only = true
"""


def test_a_file_of_a_directory_above_is_found_and_variables_win(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "ducklake.toml").write_text(FILE)
    (below / "ducklake.toml").write_text('[lakes.other]\ncatalog = "sqlite:///x"\n')
    variables = {
        "DUCKLAKE_SALES__STORAGE_OPTIONS__S3__KEY": "other",
        "DUCKLAKE_SALES__STORAGE_OPTIONS__S3__ANON": "false",
        "DUCKLAKE_SALES__STORAGE_OPTIONS__S3__CLIENT_KWARGS__ENDPOINT_URL": "http://x",
        "DUCKLAKE_SALES__READ_ONLY": "true",
        "DUCKLAKE_SALES2__CATALOG": "not this one",
    }
    found = find_lake("sales", directory=below, environment=variables)
    assert found.catalog.endswith("@db/lake")
    assert (found.metadata_schema, found.allowed_paths, found.read_only) == ("meta", ("s3://other/",), True)
    options = {"key": "other", "secret": SECRET, "anon": False, "client_kwargs": {"region_name": "eu", "endpoint_url": "http://x"}}
    assert found.storage_options == {"s3": options}
    assert SECRET not in repr(found)
    assert "DUCKLAKE_SALES__" in repr(found)
    assert find_lake("here", directory=below, environment={}).catalog == f"sqlite:///{tmp_path}/files/lake.sqlite"


def test_variables_alone_make_a_lake() -> None:
    found = find_lake("my-lake", directory=Path("/"), environment={"DUCKLAKE_MY_LAKE__CATALOG": "sqlite:////x", "XDG_CONFIG_HOME": "/none"})
    assert (found.catalog, found.read_only, found.storage_options) == ("sqlite:////x", False, {})


def test_a_lake_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    DuckLake.create(f"sqlite:///{tmp_path}/files/lake.sqlite", data_path=f"{tmp_path}/files/").create_table("t", {"a": "int"})
    home = tmp_path / "home"
    home.mkdir()
    (home / "ducklake.toml").write_text(FILE.replace("files/", f"{tmp_path}/files/"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    with load_lake("here") as lake:
        assert lake.read_only
        assert "t" in lake
    monkeypatch.setenv("DUCKLAKE_HERE__READ_ONLY", "FALSE")
    monkeypatch.setenv("DUCKLAKE_HERE__STORAGE_OPTIONS__S3__SECRET", SECRET)
    with load_lake("here") as lake:
        lake.create_schema("s")
        assert SECRET not in repr(lake) + repr(lake.storage) + repr(lake.inspect)


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        (FILE, {"DUCKLAKE_SALES__CATALOGUE": SECRET}, "catalogue.*did you mean 'catalog'"),
        (FILE, {"DUCKLAKE_SALES__READ_ONLY": SECRET}, "read_only.*must be true or false"),
        (
            FILE,
            {f"DUCKLAKE_SALES__STORAGE_OPTIONS__S3__{one}": SECRET for one in ("KEY", "KEY__X")},
            "below another variable that already has a value",
        ),
        (f'[lakes.sales]\nkatalog = "{SECRET}"\n', {}, "did you mean 'catalog'"),
        (f'[lakes.sales]\ncatalog = ["{SECRET}"]\n', {}, "catalog in .* must be a string"),
        (f'[lakes.sales]\ncatalog = "x"\nstorage_options = "{SECRET}"\n', {}, "must be tables"),
        (f'lakes = "{SECRET}"\n', {}, r"must define lakes as tables: \[lakes.name\]"),
        (f'[lakes.sales]\ndata_path = "{SECRET}"\n', {}, "has no catalog"),
        (f"[lakes.sales]\ncatalog = {SECRET}\n", {}, "is not valid TOML"),
    ],
)
def test_mistakes_are_named_without_their_values(tmp_path: Path, text: str, variables: dict[str, str], message: str) -> None:
    (tmp_path / "ducklake.toml").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        find_lake("sales", directory=tmp_path, environment=variables)
    assert SECRET not in str(caught.value) + repr(caught.value.details)
    assert caught.value.__cause__ is None


def test_an_unknown_lake_name_suggests_similar_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ducklake.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match=r"Lake 'sale' is not defined \(did you mean 'sales'\?\).*DUCKLAKE_SALE__CATALOG"):
        load_lake("sale")
    for wrong in ("", 5, None):
        with pytest.raises(UsageError, match="name"):
            load_lake(wrong)  # type: ignore[arg-type]
    monkeypatch.setenv("DUCKLAKE_SALES__CATALOG", f"nonsense://me:{SECRET}@db")
    with pytest.raises(DuckLakeError) as caught:
        load_lake("sales")
    assert SECRET not in str(caught.value)
