"""Settings of a session that was lost, or that takes only some of them, by a session that only has settings."""

from __future__ import annotations

from typing import Any

import pytest

from ducklake_core.engines.spark.session import held_settings, users_setting


class Conf:
    """Settings of a session that rejects those called ``static``, and all once it is lost."""

    def __init__(self) -> None:
        self.values = {"a": "1"}
        self.lost = False

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        if self.lost or name == "static":
            raise RuntimeError("this setting cannot be changed")
        self.values[name] = value

    def unset(self, name: str) -> None:
        if self.lost:
            raise RuntimeError("the session is gone")
        del self.values[name]


class Session:
    """Stands for a session."""

    def __init__(self) -> None:
        self.conf = Conf()


def test_settings_before_a_rejected_one_are_restored() -> None:
    session: Any = Session()
    with pytest.raises(RuntimeError, match="cannot be changed"), held_settings(session, {"a": "2", "b": "2", "static": "2"}):
        pass
    assert session.conf.values == {"a": "1"}
    with held_settings(session, {"a": "3"}):
        assert users_setting(session, "a") == "1"
    session.conf.values["static"] = "users"
    assert users_setting(session, "static") == "users"


def test_a_lost_session_does_not_hide_why_it_was_lost() -> None:
    session: Any = Session()

    def lose() -> None:
        session.conf.lost = True
        raise ValueError("the executors are gone")

    with pytest.raises(ValueError, match="the executors are gone"), held_settings(session, {"a": "2", "b": "2"}):
        lose()
    session.conf.lost = False
    session.conf.values = {"a": "5"}
    assert users_setting(session, "a") == "5"
