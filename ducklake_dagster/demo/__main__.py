"""``python -m ducklake_dagster.demo``."""

from __future__ import annotations

from ducklake_dagster.demo.run import main

if __name__ == "__main__":
    main()
