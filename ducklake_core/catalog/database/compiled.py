"""The SQL texts of statements, shared by all engines of this process: making them costs more than most of the answers.

SQLAlchemy keeps the texts that it has made for one engine. A process opens many lakes one after another, or one lake again and again, and
all of them ask the same; a lake that is opened for one command would spend a quarter of it on texts.
"""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.util import LRUCache
from typing_extensions import override

_MOST = 1000


class CompiledStatements(LRUCache[Any, Any]):
    """Compiled statements by what they consist of and the kind of dialect that they are for, the least used ones forgotten.

    Tables are compared as objects, so that statements of two versions or metadata schemas are never taken for one another. SQLAlchemy
    tells dialects apart as objects, too, of which every engine has its own. Threads may share it.
    """

    @override
    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_by_kind(key), default)

    @override
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_by_kind(key), value)


def _by_kind(key: tuple[Any, ...]) -> tuple[Any, ...]:
    dialect, *statement = key
    return (_kind(dialect), *statement)


def _kind(dialect: Dialect) -> tuple[object, ...]:
    """All in which two dialects of this library can differ: what they have found out about their server."""
    escapes = getattr(dialect, "_backslash_escapes", None)
    is_mariadb = getattr(dialect, "is_mariadb", None)
    return type(dialect), is_mariadb, dialect.server_version_info, dialect.default_schema_name, dialect.max_identifier_length, escapes


_of_this_process = CompiledStatements(_MOST)


def shared_texts() -> dict[str, Any]:
    """The execution option by which an engine uses those of this process."""
    return {"compiled_cache": _of_this_process}


def _forget_parent() -> None:
    """A thread that was tidying up when the process was copied is not in the copy, which would never tidy up again."""
    global _of_this_process  # noqa: PLW0603
    _of_this_process = CompiledStatements(_MOST)


os.register_at_fork(after_in_child=_forget_parent)
