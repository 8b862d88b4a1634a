"""Steps of a maintenance verb as values: a dry run plans them, a run carries out the same ones and says what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ducklake_core.format.types.message_text import short_repr
from ducklake_core.maintenance.listing import MOST_LINES, listed
from ducklake_core.maintenance.sizes import format_bytes

StepOutcome: TypeAlias = Literal["planned", "done", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One thing that a verb does, or leaves alone.

    Attributes:
        verb: The verb, as it is called.
        target: What it is about: ``schema.table``, a snapshot or a file.
        action: What is done, in words.
        reason: Why it is done, left alone, or failed.
        outcome: ``planned`` in a dry run, ``done`` in a run, or ``skipped`` or ``failed`` in either.
        files: Files that it reads, deletes or schedules.
        rows: Rows that it moves.
        bytes: Bytes of the files, as far as the catalog knows them.
    """

    verb: str
    target: str
    action: str
    reason: str
    outcome: StepOutcome
    files: int = 0
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        sizes = _sizes(self.files, self.rows, self.bytes)
        return f"{self.outcome} {self.verb} {self.target}: {self.action}{sizes}: {self.reason}"


def unmatched_steps(verb: str, patterns: Iterable[str]) -> tuple[MaintenanceStep, ...]:
    """Steps that say which patterns of tables are about none."""
    return tuple(
        MaintenanceStep(verb=verb, target=pattern, action="look at its tables", reason="no table matches it", outcome="skipped")
        for pattern in patterns
    )


def _listed(steps: Sequence[MaintenanceStep], most: int | None) -> list[str]:
    if most is None or len(steps) <= most:
        return list(map(str, steps))
    kinds: dict[tuple[str, str, str], list[MaintenanceStep]] = {}
    for step in steps:
        kinds.setdefault((step.verb, step.outcome, step.action), []).append(step)
    return [line for kind in kinds.values() for line in listed(kind, str, most, _left_out)]


def _left_out(steps: Sequence[MaintenanceStep]) -> str:
    files, rows, size = (sum(getattr(step, name) for step in steps) for name in ("files", "rows", "bytes"))
    return f"{len(steps):,} more: {steps[0].outcome} {steps[0].verb}: {steps[0].action}{_sizes(files, rows, size)}"


def _sizes(files: int, rows: int, size: int) -> str:
    sizes = [f"{count} {unit}" for count, unit in ((files, "files"), (rows, "rows")) if count]
    sizes += [format_bytes(size)] if size else []
    return f" ({', '.join(sizes)})" if sizes else ""


class MaintenanceResult:
    """What all results of maintenance verbs have in common: the steps, and what became of them."""

    __slots__ = ()

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """Every step, in the order in which they are carried out."""
        raise NotImplementedError

    @property
    def skipped_steps(self) -> tuple[MaintenanceStep, ...]:
        """The steps that leave something alone, each with its reason."""
        return tuple(step for step in self.steps if step.outcome == "skipped")

    @property
    def failed_steps(self) -> tuple[MaintenanceStep, ...]:
        """The steps that failed, each with its reason; the others were carried out all the same."""
        return tuple(step for step in self.steps if step.outcome == "failed")

    def lines(self) -> list[str]:
        """The plan or outcome in words: a line for each step, then how many of them there are by outcome."""
        return self._lines(None)

    def brief_lines(self) -> list[str]:
        """What :meth:`lines` gives, but of many things of one kind the first and the last three, and how many lie between them."""
        return self._lines(MOST_LINES)

    def _lines(self, most: int | None) -> list[str]:
        steps = self.steps
        counts = Counter(step.outcome for step in steps)
        parts = [f"{counts[outcome]} {outcome}" for outcome in get_args(StepOutcome) if counts[outcome]]
        return [*_listed(steps, most), f"steps: {', '.join(parts)}" if parts else "nothing to do"]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr
