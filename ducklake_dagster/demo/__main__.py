"""``python -m ducklake_dagster.demo``."""

from __future__ import annotations

from ducklake_dagster.demo.run import main

main()
