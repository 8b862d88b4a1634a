"""Catalog addresses in every spelling, and never a password in a message."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.errors import UnsupportedFeatureError, UsageError

SECRET = "hush/hush@1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sqlite:///relative.sqlite", f"sqlite:///{Path('relative.sqlite').absolute()}"),
        ("sqlite:relative.sqlite", f"sqlite:///{Path('relative.sqlite').absolute()}"),
        ("ducklake:sqlite:/a b/lake.sqlite", "sqlite:////a b/lake.sqlite"),
        ("duckdb:///relative.ducklake", f"duckdb:///{Path('relative.ducklake').absolute()}"),
        ("duckdb:////lakes/lake.ducklake", "duckdb:////lakes/lake.ducklake"),
        ("ducklake:/a b/lake.ducklake", "duckdb:////a b/lake.ducklake"),
        ("ducklake:lake.db", f"duckdb:///{Path('lake.db').absolute()}"),
        ("ducklake:duckdb:/lakes/lake.db", "duckdb:////lakes/lake.db"),
        ("ducklake:duckdb:////lakes/lake.db", "duckdb:////lakes/lake.db"),
        ("mysql://me@db/lake", "mysql+pymysql://me@db/lake"),
        ("mariadb+pymysql://me@db:3307/lake?ssl_mode=required", "mysql+pymysql://me@db:3307/lake?ssl_mode=required"),
        ("ducklake:mysql:db=lake host=db port=3307 user=me", "mysql+pymysql://me@db:3307/lake"),
        ('mysql:database="a b" socket="/run/my sql"', "mysql+pymysql:///a b?unix_socket=%2Frun%2Fmy+sql"),
        ("postgresql://me@db/lake", "postgresql+psycopg://me@db/lake"),
        ("postgres://me@db/lake", "postgresql+psycopg://me@db/lake"),
        ("postgresql+psycopg://me@db:5433/lake?sslmode=require", "postgresql+psycopg://me@db:5433/lake?sslmode=require"),
        ("postgres:dbname=lake host=db port=5433 user=me", "postgresql+psycopg://me@db:5433/lake"),
        ("ducklake:postgres:dbname=lake host=/run/pg user=me", "postgresql+psycopg://me@/lake?host=%2Frun%2Fpg"),
        ("ducklake:postgres:postgresql://me@db/lake", "postgresql+psycopg://me@db/lake"),
        ("ducklake:postgres:dbname=lake host=a,b port=1,2", "postgresql+psycopg:///lake?host=a%2Cb&port=1%2C2"),
    ],
)
def test_spellings(text: str, shown: str) -> None:
    address = parse_catalog_url(text)
    assert str(address) == shown
    assert parse_catalog_url(str(address)) == address
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hush%2Fhush%401@db/lake",
        "postgresql://me@db/lake?password=hush%2Fhush%401",
        f"ducklake:postgres:dbname=lake host=db user=me password={SECRET}",
        "mysql://me:hush%2Fhush%401@db/lake",
        "mysql://me@db/lake?password=hush%2Fhush%401",
        f"ducklake:mysql:db=lake host=db user=me passwd={SECRET}",
        "postgresql://me@db/lake?sslpassword=hush%2Fhush%401&sslmode=require",
        f"ducklake:postgres:dbname=lake host=db user=me sslpassword={SECRET}",
    ],
)
def test_passwords_are_kept_and_never_shown(text: str) -> None:
    address = parse_catalog_url(text)
    assert SECRET in (address.url.password, address.url.query.get("sslpassword"))
    assert address.secrets == (SECRET,)
    assert "***" in str(address)
    assert SECRET not in str(address) + repr(address) + f"{address}"
    assert "hush" not in str(address) + repr(address)


@pytest.mark.parametrize("text", [
    "mysql+aiomysql://root@db/lake", "mysql://root@db/lake?init_command=x", "mysql://root@db/lake?metadata_schema=x",
    "mysql://root@db/lake?charset=latin1", "ducklake:mysql:db=x compress=1", "ducklake:md:lakes", "ducklake:quack:lake", "ducklake:s3://bucket/lake.ducklake",
    "ducklake:https://host/lake.ducklake", "postgresql+asyncpg://db/lake", "oracle://db/lake",
])  # fmt: skip
def test_unsupported_databases_raise(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"^(MotherDuck|a DuckDB server \(quack\)|s3|https|oracle) as |asyncpg|MySQL"):
        parse_catalog_url(text)


@pytest.mark.parametrize("text", ["", "lake.sqlite", "sqlite://", "sqlite:///:memory:", "sqlite:", "ducklake:", "duckdb://",
                                  "ducklake:duckdb::memory:", "postgresql://me:hush@db:port/lake",
                                  "ducklake:postgres:dbname=lake hush nonsense", "s3:bucket",
                                  "ducklake:mysql:db=lake hush", 'ducklake:mysql:db="hush', "ducklake:mysql:user=hush",
                                  "ducklake:mysql:db=x port=hush", "mysql://me:hush@db/", "mysql://db/x?ssl_mode=hush",
                                  "mysql://db/x?connect_timeout=hush", "mysql://db/x?read_timeout=0",
                                  "mysql://db/x?connect_timeout=31536001", "sqlite:///hush%00.sqlite", "duckdb:///hush%00.ducklake",
                                  "postgresql://db/hush%00", "mysql://db/hush%00", "sqlite:///hush%FF.sqlite",
                                  "postgresql://me:hush%FF@db/lake"])  # fmt: skip
def test_invalid_addresses_raise_without_repeating_them(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_catalog_url(text)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_metadata_schema() -> None:
    assert parse_catalog_url("postgresql://db/lake", "lakes").metadata_schema == "lakes"
    assert parse_catalog_url("postgresql://db/lake?metadata_schema=lakes").metadata_schema == "lakes"
    assert parse_catalog_url("postgresql://db/lake").metadata_schema is None
    assert parse_catalog_url("ducklake:lake.ducklake", "lakes").metadata_schema == "lakes"
    assert parse_catalog_url("duckdb:///lake.ducklake?metadata_schema=lakes").metadata_schema == "lakes"
    with pytest.raises(UnsupportedFeatureError, match="lakes"):
        parse_catalog_url("sqlite:lake.sqlite", "lakes")


@pytest.mark.parametrize("text", ["duckdb://host/lake.ducklake", "duckdb:///lake.ducklake?read_only=true"])
def test_options_of_a_duckdb_file_raise(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="takes no options"):
        parse_catalog_url(text)
