"""Backups of catalogs, restored under clients that have the lake open, and lakes re-created at the same address."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from psycopg import sql
from sqlalchemy import make_url

from tests.support.mysql import copy_tables, tables_of
from tests.support.oracle import LakeAddress

_LISTED = "SELECT tablename FROM pg_tables WHERE schemaname = %s"


@dataclass(kw_only=True)
class Backup:
    """A copy of a catalog. The lake's data files are not part of it.

    Attributes:
        moved: Whether a file is put back as another file, and not copied into the one that is there.
    """

    address: LakeAddress
    moved: bool = False
    restore: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        match self.address.backend:
            case "postgresql":
                self.restore = _of_server(self.address)
            case "mysql":
                self.restore = _of_mysql(self.address)
            case _:
                self.restore = _of_file(self.address, moved=self.moved)


def remove_catalog(address: LakeAddress) -> None:
    """Remove the catalog, so that a new lake can be created at the same address."""
    if address.backend == "mysql":
        with _session(address) as session, session.cursor() as cursor:
            for name in tables_of(session, _database(address)):
                cursor.execute(f"DROP TABLE {_database(address)}.{name}")
        return
    if address.backend != "postgresql":
        _file(address).unlink()
        return
    with _connected(address) as connection:
        for (name,) in connection.execute(_LISTED, ["public"]).fetchall():
            connection.execute(sql.SQL("DROP TABLE public.{}").format(sql.Identifier(name)))


def _file(address: LakeAddress) -> Path:
    return Path(str(make_url(address.url).database))


def _of_file(address: LakeAddress, *, moved: bool) -> Callable[[], None]:
    file = _file(address)
    copy = file.with_suffix(".backup")
    shutil.copyfile(file, copy)

    def restore() -> None:
        if moved:
            shutil.copyfile(copy, file.with_suffix(".new"))
            os.replace(file.with_suffix(".new"), file)
        else:
            shutil.copyfile(copy, file)

    return restore


def _connected(address: LakeAddress) -> psycopg.Connection[Any]:
    url = make_url(address.url)
    return psycopg.connect(host=str(url.query["host"]), user=url.username, dbname=url.database)


def _of_server(address: LakeAddress) -> Callable[[], None]:
    with _connected(address) as connection:
        connection.execute("DROP SCHEMA IF EXISTS backup CASCADE")
        connection.execute("CREATE SCHEMA backup")
        _copy_all(connection, "public", "backup")

    def restore() -> None:
        remove_catalog(address)
        with _connected(address) as connection:
            _copy_all(connection, "backup", "public")

    return restore


def _copy_all(connection: psycopg.Connection[Any], source: str, target: str) -> None:
    for (name,) in connection.execute(_LISTED, [source]).fetchall():
        names = {"old": sql.Identifier(source, name), "new": sql.Identifier(target, name)}
        connection.execute(sql.SQL("CREATE TABLE {new} (LIKE {old} INCLUDING ALL)").format(**names))
        connection.execute(sql.SQL("INSERT INTO {new} SELECT * FROM {old}").format(**names))


def _session(address: LakeAddress) -> pymysql.Connection[Any]:
    url = make_url(address.url)
    return pymysql.connect(unix_socket=str(url.query["unix_socket"]), user=str(url.username), autocommit=True, charset="utf8mb4")


def _database(address: LakeAddress) -> str:
    return str(make_url(address.url).database)


def _of_mysql(address: LakeAddress) -> Callable[[], None]:
    """Another database holds the copy."""
    original, copy = _database(address), f"{_database(address)}_copy"
    with _session(address) as session, session.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {copy}")
        cursor.execute(f"CREATE DATABASE {copy}")
        copy_tables(session, original, copy)

    def restore() -> None:
        remove_catalog(address)
        with _session(address) as session:
            copy_tables(session, copy, original)

    return restore
