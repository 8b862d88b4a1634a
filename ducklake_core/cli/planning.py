"""``ducklake plan VERB``: each verb that has a dry run, with the same options, as one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ducklake_core.cli import maintaining

PLANNED = (
    maintaining.expire,
    maintaining.cleanup,
    maintaining.orphans,
    maintaining.merge,
    maintaining.rewrite,
    maintaining.flush,
    maintaining.checkpoint,
    maintaining.migrate,
)


def planned(command: Callable[..., None]) -> Callable[..., None]:
    """A command without its option ``--dry-run``, which is always on."""

    def plan(**options: Any) -> None:
        command(**options, dry_run=True)

    signature = inspect.signature(command, eval_str=True)
    parameters = [one for one in signature.parameters.values() if one.name != "dry_run"]
    plan.__name__ = command.__name__
    plan.__doc__ = f"What this would do: {command.__doc__}"
    plan.__annotations__ = {one.name: one.annotation for one in parameters}
    plan.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return plan
