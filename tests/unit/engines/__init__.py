"""Unit tests of the engines."""
