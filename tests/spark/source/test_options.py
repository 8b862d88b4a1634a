"""Options are read as written, and anything else raises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.spark_source.options import Purpose, parse_options

CATALOG = {"catalogurl": "postgresql://me:s3cret@db/lake", "table": "t"}


@pytest.mark.parametrize(
    ("purpose", "options", "message"),
    [
        ("read", {"versionAsOff": "1"}, "no option 'versionasoff' for read .did you mean 'versionAsOf'"),
        ("read", {"feed": "changes"}, "no option 'feed' for read"),
        ("write", {"where": "a = 1"}, "no option 'where' for write"),
        ("readStream", {"versionAsOf": "3"}, "no option 'versionasof'"),
        ("read", {"path": "u"}, "the table is missing or set twice"),
        ("read", {"versionAsOf": "-1"}, "whole number"),
        ("read", {"versionAsOf": "1", "timestampAsOf": "2024-01-01T00:00:00+00:00"}, "versionAsOf and timestampAsOf are both set"),
        ("read", {"timestampAsOf": "yesterday"}, "a time with a zone"),
        ("read", {"catalogFile": "/x"}, "catalogUrl and catalogFile are both set"),
        ("read", {"types": "best"}, "one of exact, nearest"),
        ("readStream", {"feed": "updates"}, "one of insertions, deletions, changes"),
        ("readStream", {"startingVersion": "first"}, "whole number"),
        ("readStream", {"maxSnapshotsPerTrigger": "0"}, "at least 1"),
        ("read", {"storage.s3": "x"}, "storage.<protocol>.<name>"),
    ],
)
def test_unknown_options_raise(purpose: Purpose, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_options({**CATALOG, **options}, purpose)
    assert "s3cret" not in str(error.value)


def test_storage_options_are_nested_and_secrets_masked() -> None:
    given = {"storage.s3.secret": "hush-hush", "storage.s3.client_kwargs.endpoint_url": "http://here", "storage.gs.anon": "TRUE"}
    parsed = parse_options({**CATALOG, **given}, "read")
    assert parsed.storage == {"s3": {"secret": "hush-hush", "client_kwargs": {"endpoint_url": "http://here"}}, "gs": {"anon": True}}
    assert "hush" not in repr(parsed)
    assert "s3cret" not in repr(parsed)


def test_the_address_may_be_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="cannot read the catalog's address"):
        parse_options({"catalogFile": str(tmp_path / "address"), "table": "t"}, "read")
    (tmp_path / "address").write_text("sqlite:///lake.sqlite\n")
    assert parse_options({"catalogFile": str(tmp_path / "address"), "table": "t"}, "read").catalog == "sqlite:///lake.sqlite"


@pytest.mark.parametrize("name", ["abfs.account_key", "az.connection_string", "s3.s3_additional_kwargs.ssecustomerkey", "sftp.passphrase"])
def test_secrets_that_spark_would_show_need_a_name_that_it_masks(name: str) -> None:
    # What Spark masks when nothing else is configured.
    masked = re.compile("(?i)secret|password|token|access[.]?key|url")
    assert not masked.search(f"storage.{name}")
    with pytest.raises(UsageError, match=rf"storage\.secret\.{name}") as caught:
        parse_options({"catalogUrl": "sqlite:///x", "table": "t", f"storage.{name}": "hush"}, "write")
    assert "hush" not in str(caught.value)
    found = parse_options({"catalogUrl": "sqlite:///x", "table": "t", f"storage.secret.{name}": "hush"}, "write").storage
    protocol, *inner = name.split(".")
    at: Any = found[protocol]
    for part in inner:
        at = at[part]
    assert at == "hush"
