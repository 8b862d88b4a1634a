"""The new lakes of tests/behaviour/lake."""

from tests.behaviour.lake.conftest import lake, small

__all__ = ["lake", "small"]
