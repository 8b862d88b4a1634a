"""The command ``ducklake``."""
