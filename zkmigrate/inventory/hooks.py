"""Define the hooks in ``migration.yml``: the operator's programs that run at moments of a run.

They run on this machine. This module defines the moments and at which of them a hook may stop the run.
``runbook/engine/hook_points.py`` decides when they occur; ``runbook/runs/hooks.py`` runs the programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from zkmigrate.inventory.marked_yaml import Path

Moment: TypeAlias = Literal[
    "before_run", "before_stage", "before_wave", "before_window", "after_open", "after_stage",
    "on_turn_back", "on_stop", "on_failure", "on_end",
]  # fmt: skip

MAY_STOP: frozenset[Moment] = frozenset(
    ("before_run", "before_stage", "before_wave", "before_window", "after_stage")
)
"""The moments at which a failed hook stops the run, unless its ``failure`` is ``go``; stopping is harmless
there."""

MOST_S: dict[Moment, float] = {"before_window": 60.0}
"""The largest ``timeout_s`` at a moment. The survey for the window becomes outdated while the hook runs."""

Program = Annotated[str, StringConstraints(pattern=r"^(~/)?[A-Za-z0-9._/@%+-]+$", max_length=4096)]
Word = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Hook(_Frozen):
    """One program. run: relative to the file, ``~/`` is home; ``load`` makes it absolute.

    timeout_s: seconds after which zkmigrate kills the program and what it started. failure: what happens if
    its exit code is not 0: ``stop`` stops the run, ``go`` goes on. The default is to stop if that is
    harmless.
    """

    run: Program
    args: tuple[Word, ...] = ()
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    failure: Literal["stop", "go"] | None = None


class Hooks(_Frozen):
    """The hooks of each moment, in order."""

    before_run: tuple[Hook, ...] = ()
    before_stage: tuple[Hook, ...] = ()
    before_wave: tuple[Hook, ...] = ()
    before_window: tuple[Hook, ...] = ()
    after_open: tuple[Hook, ...] = ()
    after_stage: tuple[Hook, ...] = ()
    on_turn_back: tuple[Hook, ...] = ()
    on_stop: tuple[Hook, ...] = ()
    on_failure: tuple[Hook, ...] = ()
    on_end: tuple[Hook, ...] = ()

    def of(self, moment: Moment) -> tuple[Hook, ...]:
        """Return the hooks of one moment."""
        found: tuple[Hook, ...] = getattr(self, moment)
        return found

    def each(self) -> Iterator[tuple[str, Hook]]:
        """Yield every hook with its place in the file, such as ``hooks.before_run[0]``."""
        for moment in Hooks.model_fields:
            for at, hook in enumerate(getattr(self, moment)):
                yield f"hooks.{moment}[{at}]", hook


def wrong(top: Any) -> Iterator[tuple[Path, str]]:
    """Yield the path and reason of each mistake in ``hooks`` that needs two keys to see.

    top: the raw values of the file.
    """
    hooks = top.get("hooks") if isinstance(top, dict) else None
    for moment, listed in hooks.items() if isinstance(hooks, dict) else ():
        for at, hook in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(hook, dict):
                continue
            here = ("hooks", moment, at)
            if hook.get("failure") == "stop" and moment not in MAY_STOP:
                yield (
                    (*here, "failure"),
                    f"a hook cannot stop the run at {moment}, because stopping there does more harm "
                    f"(needed: go, or no such key; stop is possible at {', '.join(sorted(MAY_STOP))})",
                )
            most, seen = MOST_S.get(moment), hook.get("timeout_s")
            if most is not None and isinstance(seen, int | float) and seen > most:
                yield (
                    (*here, "timeout_s"),
                    f"too long (seen {seen}, needed at most {most:.0f} at {moment}, because the survey for "
                    "the window becomes outdated)",
                )
