"""No message, repr or detail shows a password, whatever the address is and in whatever form it is given."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from ducklake_core import DuckLake
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.failures import wrapped
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.errors import DuckLakeError
from ducklake_dagster.config.values import hide_in_text

SECRET = "hUsh7Q"
PASSWORDS = st.text(st.sampled_from("@:/?#'\"\\ %=&;,[]äé1a"), max_size=6).map(lambda rest: f"{rest}{SECRET}{rest[::-1]}")
WORD = st.sampled_from(["me", "db", "lake", "127.0.0.1:1", "host:x", ""])


def in_keywords(password: str) -> str:
    return "'" + password.replace("\\", "\\\\").replace("'", "\\'") + "'"


def in_mysql(password: str) -> str:
    return '"' + password.replace("\\", "\\\\").replace('"', '\\"') + '"'


FORMS = st.sampled_from(
    [
        lambda p, a, b: f"postgresql://{a}:{quote(p, safe='')}@{b}/lake",
        lambda p, a, b: f"postgresql+psycopg://{a}:{p}@{b}/lake",
        lambda p, a, b: f"postgresql://{a}@{b}/lake?password={quote(p, safe='')}",
        lambda p, a, b: f"postgresql://{a}@{b}/lake?sslpassword={quote(p, safe='')}",
        lambda p, a, b: f"ducklake:postgres:dbname=lake user={a} host={b} password={in_keywords(p)}",
        lambda p, a, b: f"ducklake:postgres:dbname=lake user={a} host={b} password={p}",
        lambda p, a, b: f"postgres:postgresql://{a}:{quote(p, safe='')}@{b}/lake",
        lambda p, a, b: f"mysql://{a}:{quote(p, safe='')}@{b}/lake",
        lambda p, a, b: f"mysql+pymysql://{a}@{b}/lake?password={quote(p, safe='')}",
        lambda p, a, b: f"ducklake:mysql:db=lake user={a} host={b} passwd={in_mysql(p)}",
        lambda p, a, b: f"ducklake:mysql:db=lake user={a} host={b} password={p}",
        lambda p, a, b: f"oracle://{a}:{p}@{b}/lake",
        lambda p, a, b: f"{a}:{p}@{b}/lake",
        lambda p, a, b: f"sqlite:postgresql://{a}:{p}@{b}/lake",
        lambda p, a, b: f"ducklake:dbname=lake user={a} host={b} password={p}",
        lambda p, a, b: f"md:lake?motherduck_token={p}",
    ]
)
OBJECTS: list[Any] = [
    str.encode, lambda text: [text], lambda text: (text,), lambda text: {"catalog": text}, Path, lambda text: text + "\0",
    lambda text: text + "\ud800",
]  # fmt: skip


def all_messages(error: BaseException) -> str:
    details = getattr(error, "details", {})
    # Lines of the program itself are no message.
    lines = traceback.TracebackException.from_exception(error).format_exception_only()
    return f"{''.join(lines)} {error!r} {error} {details!r} {error.__cause__!r}"


@settings(max_examples=300, deadline=None)
@given(password=PASSWORDS, form=FORMS, user=WORD, host=WORD)
def test_addresses_show_no_password(password: str, form: Any, user: str, host: str) -> None:
    text = form(password, user, host)
    try:
        address = parse_catalog_url(text)
    except DuckLakeError as error:
        assert SECRET not in all_messages(error)
        return
    shown = f"{address} {address!r} {Database(address)!r}"
    if address.url.password is not None or address.secrets:
        assert SECRET not in shown
        message = " ".join(f"{secret} {quote(secret, safe='')}" for secret in address.secrets)
        driver = Exception(f"the server does not like {message}: {address.url.render_as_string(hide_password=False)}")
        error = wrapped(OperationalError("SELECT 1", {}, driver), str(address), address.secrets)
        assert SECRET not in f"{error} {error!r} {error.details!r}"


@pytest.mark.parametrize("password", [f"?@/{SECRET}/@?", f"ab/c@{SECRET}?x", f"@?{SECRET}", f"a@{SECRET}?b=1"])
def test_passwords_with_separators_are_not_parsed_as_hosts(password: str) -> None:
    for scheme in ("postgresql", "mysql"):
        with pytest.raises(DuckLakeError, match="more than one @") as found:
            parse_catalog_url(f"{scheme}://me:{password}@host/lake")
        assert SECRET not in all_messages(found.value)


@settings(max_examples=60, deadline=None)
@given(password=PASSWORDS, form=FORMS, kind=st.sampled_from(OBJECTS))
def test_addresses_that_are_no_strings_are_not_shown(password: str, form: Any, kind: Any) -> None:
    given_address = kind(form(password, "me", "db"))
    for call in (DuckLake.connect, DuckLake.create, DuckLake.open):
        with pytest.raises(DuckLakeError) as found:
            call(given_address)
        assert SECRET not in all_messages(found.value)


def test_url_objects_are_rejected_without_their_password() -> None:
    with pytest.raises(DuckLakeError, match="catalog must be a string, not URL") as found:
        DuckLake.connect(make_url(f"postgresql://me:{SECRET}@db/lake"))  # type: ignore[arg-type]
    assert SECRET not in all_messages(found.value)


@pytest.mark.parametrize("password", ["", "a", "e", "rea", "."])
def test_short_passwords_leave_messages_readable(password: str) -> None:
    address = parse_catalog_url(f"postgresql://me:{password}@127.0.0.1:1/lake")
    driver = Exception(f"connection failed: could not reach a server, password={password} postgresql://me:{password}@h/x")
    text = str(wrapped(OperationalError("SELECT 1", {}, driver), str(address), address.secrets))
    assert "connection failed: could not reach a server" in text
    if password:
        assert "password=***" in text
        assert "me:***@h/x" in text


def test_passwords_of_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    address = parse_catalog_url("postgresql://me@db/lake")
    error = wrapped(OperationalError("SELECT 1", {}, Exception(f"no entry with {SECRET}")), str(address), address.secrets)
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@db/lake",
        f"postgresql://me:{SECRET}/x@db/lake",
        f"postgresql://me@db/lake?password={SECRET}",
        f"ducklake:postgres:dbname=lake password={SECRET}",
        f"ducklake:mysql:db=lake passwd = {SECRET}",
    ],
)
def test_dagster_shows_a_placeholder_of_addresses_with_passwords(address: str) -> None:
    assert SECRET not in hide_in_text("catalog", address)
