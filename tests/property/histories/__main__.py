"""Hunt: ``python -m tests.property.histories 100 120 --steps 40`` plays 20 random histories and shortens those that fail."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.property.histories.actions import Action, script
from tests.property.histories.play import Lake, live, replay
from tests.support.oracle import LakeAddress, sqlite_lake
from tests.support.postgres import start_server

NewLake = Callable[[Path], Lake]


def outcome(new_lake: NewLake, act: Callable[[Lake], None]) -> tuple[str, list[Action]]:
    """Return the failure of ``act`` on a new lake ('' without one), and the actions that were performed."""
    with tempfile.TemporaryDirectory() as folder:
        lake = new_lake(Path(folder))
        try:
            with lake:
                act(lake)
        except Exception as error:  # noqa: BLE001 - any error is a finding
            notes = "; ".join(note for note in getattr(error, "__notes__", []) if len(note) < 500)
            return f"{type(error).__name__}: {str(error)[:600]} ({notes})", lake.done
        return "", lake.done


def shortened(new_lake: NewLake, actions: list[Action]) -> list[Action]:
    """Fewer of the actions that still end in an error of the same kind."""

    def kind(some: list[Action]) -> str:
        return outcome(new_lake, lambda lake: replay(lake, some))[0].split(":")[0]

    wanted = kind(actions)
    size = len(actions) // 2 if wanted else 0
    while size:
        start = len(actions)
        while start > 0:
            start = max(0, start - size)
            fewer = actions[:start] + actions[start + size :]
            if kind(fewer) == wanted:
                actions = fewer
        size //= 2
    return actions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--catalog", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--mode", choices=["duckdb", "second", "alone"], default="duckdb")
    parser.add_argument("--version", choices=["1.0", "1.1"], default="1.0")
    chosen = parser.parse_args()
    server = start_server() if chosen.catalog == "postgresql" else None
    address: Callable[[Path], LakeAddress] = server.lake if server else sqlite_lake
    for number in range(chosen.first, chosen.last):
        limit = f"DATA_INLINING_ROW_LIMIT {Random(number).choice((0, 10))}"

        def new_lake(folder: Path, limit: str = limit) -> Lake:
            return Lake(address(folder), limit, mode=chosen.mode, version=chosen.version, migrates=chosen.version == "1.0")

        seeds = [number * 1000 + step for step in range(chosen.steps)]
        wrong, actions = outcome(new_lake, lambda lake, seeds=seeds: live(lake, seeds))
        print(number, wrong or "right", flush=True)
        if wrong:
            short = shortened(new_lake, actions)
            print(f"{limit}\n{script(short)}", flush=True)
            print(outcome(new_lake, lambda lake, short=short: replay(lake, short))[0], flush=True)
    if server:
        server.stop()


if __name__ == "__main__":
    main()
