"""What drills share: a loaded lab, the verdict on its load, and cases that follow one another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast

import pytest

from tests.drills.roll_site import require
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.wait import Progress

Act: TypeAlias = Callable[[], str]
"""A function that plays a case.

It returns the outcome in words, and raises ZkmigrateError if the outcome is not as expected.
"""
Play: TypeAlias = Callable[[str, str, Act], None]
"""A function that plays a case: what is done, what is expected, and the act."""
Key = TypeVar("Key")
Site = TypeVar("Site")
INTERRUPTED = threading.Event()
"""Set when Ctrl-C or a signal ends the drills. The labs are taken down then, and no load is judged."""


@contextmanager
def loaded_lab(
    spec: LabSpec, history: Path, progress: Progress, **load_options: Any
) -> Iterator[tuple[Lab, LoadRunner]]:
    """Build a lab and prepare its load, not started, that records to ``history``; end both with the block."""
    with Lab.up(spec, progress) as lab:
        load = runner_for(lab, history, **load_options)
        try:
            yield lab, load
        finally:
            load.kill()
        progress("lab: taking everything down")


def finish_load(load: LoadRunner, expected: Mapping[str, Any]) -> str:
    """End the load, judge its records, and return the expected claims in words.

    expected: the value that each claim must have. Raises Unexpected if one is wrong.
    """
    wrong = load.finish()
    verdict = judge(load_history(load.directory))
    values = {name: verdict[name].value for name in expected}
    wrong += [
        f"{name} {value}: {verdict[name].detail}"[:1000]
        for name, value in values.items()
        if value != expected[name]
    ]
    outcome = ", ".join(f"{name} {value}" for name, value in values.items())
    require(not wrong, "; ".join([outcome, *wrong])[:3000])
    return outcome


def judge_last(wrong: list[str], name: str, act: Act) -> None:
    """Judge the load of a whole lab.

    wrong: receives the problems, so that the drill fails at its end.
    """
    if INTERRUPTED.is_set():
        return
    try:
        print(f"\nload of {name}: {act()}")
    except Exception as error:
        wrong.append(f"load of {name}: {error}")


def times_of(config: pytest.Config, usual: int) -> int:
    """Return the value of ``--times``, or otherwise the usual number."""
    return int(config.getoption("--times", default=None) or usual)


class OneLab(Generic[Key, Site]):
    """The site of the lab that a case needs; each lab is taken down before the next one is built."""

    def __init__(self, up: Callable[[Key], AbstractContextManager[Site]]) -> None:
        self._up = up
        self._stack = ExitStack()
        self._there: Key | None = None
        self._site: Site | None = None

    def of(self, key: Key) -> Site:
        """Return the site for this key. A lab that could not be built is not tried again."""
        if key != self._there:
            self.close()
            self._there = key
            self._site = self._stack.enter_context(self._up(key))
        require(self._site is not None, f"not played: no lab for {key}")
        return cast(Site, self._site)

    def close(self) -> None:
        """Take the lab down."""
        self._there, self._site = None, None
        self._stack.close()


@dataclass
class Series:
    """Cases on one lab, one after the other. lost: why no more can be played, or ""."""

    lost: str = ""

    def play(self, name: str, act: Act, recover: Callable[[], None]) -> str:
        """Play a case and return its outcome. recover: restores the lab after a case that failed."""
        require(not self.lost, f"not played: {self.lost}")
        try:
            return act()
        except Exception:
            try:
                recover()
            except Exception as error:
                self.lost = f"the lab did not come back after {name}: {error}"
            raise


@dataclass
class Chain:
    """Cases on one lab, each of which begins where the one before left it. acts: by name, in order."""

    acts: Mapping[str, Act]
    done: list[str] = field(default_factory=list)
    lost: str = ""

    def play(self, name: str) -> str:
        """Play a case and return its outcome. Cases before it that have not been played are played first."""
        outcome = ""
        names = list(self.acts)
        for each in names[len(self.done) : names.index(name) + 1]:
            require(not self.lost, f"not played: {self.lost}")
            try:
                outcome = self.acts[each]()
            except Exception:
                self.lost = f"{each} has failed"
                raise
            self.done.append(each)
        return outcome
