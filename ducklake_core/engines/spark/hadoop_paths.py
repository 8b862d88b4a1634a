"""Paths of object stores as Hadoop spells them, for sessions that say that they have a file system for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError
from ducklake_core.format.files.azure_paths import azure_path
from ducklake_core.format.files.locations import canonical_protocol, protocol_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMES_CONF = "spark.ducklake.read.native.schemes"
"""Setting of a session: ``s3a`` or ``s3=s3a, gs=gs``. Unset, files on object stores are read in Python."""


def native_schemes(session: SparkSession) -> dict[str, str]:
    """Hadoop's scheme by protocol, for those stores that Spark's own reader is to read.

    Raises:
        UsageError: The setting is not a list of schemes.
    """
    return parse_schemes(str(session.conf.get(SCHEMES_CONF, "")))


def parse_schemes(text: str) -> dict[str, str]:
    """
    >>> parse_schemes("s3a, gcs=gs"), parse_schemes("")
    ({'s3': 's3a', 'gs': 'gs'}, {})
    """
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip().lower() for part in text.split(","))):
        store, equals, scheme = (part.strip() for part in entry.partition("="))
        scheme = scheme if equals else store
        if not all(re.fullmatch(r"[a-z][a-z0-9+.-]*", name) for name in (store, scheme)):
            raise UsageError(f"{SCHEMES_CONF} is {text!r}: give Hadoop's schemes, such as s3a, or s3=s3a, gs=gs")
        found[canonical_protocol(store)] = scheme
    return found


def hadoop_path(path: str, schemes: Mapping[str, str]) -> str:
    """A full path for Spark's own reader.

    >>> hadoop_path("s3://b/a b", {"s3": "s3a"}), hadoop_path("/x", {})
    ('s3a://b/a b', '/x')
    """
    protocol = protocol_of(path)
    if protocol == "file":
        return path
    azure = azure_path(path)
    return azure.for_hadoop(schemes[protocol]) if azure else f"{schemes[protocol]}://{path.partition('://')[2]}"
