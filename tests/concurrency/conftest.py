"""The new lakes of tests/behaviour."""

from tests.behaviour.conftest import lake, small

__all__ = ["lake", "small"]
