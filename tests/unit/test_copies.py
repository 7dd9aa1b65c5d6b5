"""Copies of the journal on the dest hosts: nobody waits for a host that is silent, and it gets one later."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.operator import Operator, quiet_world
from zkmigrate import deadline
from zkmigrate.engine.apply import Outcome
from zkmigrate.engine.copies import Copies
from zkmigrate.engine.events import Event, Noted, StepBegun
from zkmigrate.engine.runs import copy_path
from zkmigrate.errors import HostError
from zkmigrate.model.change import Change, PutFile

HOSTS = ("dest1", "dest2", "dest3")


class Hosts:
    """Dest hosts that take copies. One that is silent keeps the first question until the test ends; later
    ones it refuses at once, as channels do within a deadline."""

    def __init__(self) -> None:
        self.taken: dict[str, bytes] = {}
        self.silent: set[str] = set()
        self.refuse: set[str] = set()
        self.asked: list[str] = []
        self.released = threading.Event()
        seconds = itertools.count()
        self.copies = Copies(self.apply, "run", lambda: HOSTS, lambda: 7, lambda: float(next(seconds)))

    def apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        assert (fencing, operation.partition(".")[0]) == (7, "journal")
        assert deadline.bounded(), "channels tell a host that is known to be silent only within a deadline"
        self.asked.append(change.where)
        if change.where in self.silent:
            if self.asked.count(change.where) == 1:
                self.released.wait(30.0)  # nobody waits so long; a walk that did would go on and be seen
            raise HostError(f"{change.where} has not answered for a while")
        if change.where in self.refuse:
            return Outcome(5, "no room\n")
        assert isinstance(change, PutFile)
        assert (change.path, change.owner, change.mode) == (copy_path("run"), "root:root", "0600")
        self.taken[change.where] = change.content
        return Outcome(0, "")


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    yield made
    made.released.set()


def test_a_silent_host_is_not_waited_for_and_gets_the_copy_once_it_answers(hosts: Hosts) -> None:
    hosts.silent.add("dest2")
    hosts.refuse.add("dest3")
    assert hosts.copies(b"one") == {"dest2": "no answer yet", "dest3": "no room"}
    hosts.refuse.clear()
    assert hosts.copies(b"two") == {"dest2": "dest2 has not answered for a while"}
    assert hosts.taken == {"dest1": b"two", "dest3": b"two"}
    hosts.silent.clear()
    assert hosts.copies(b"three") == {}
    assert hosts.taken == dict.fromkeys(HOSTS, b"three")


def test_verify_begins_while_a_host_that_went_silent_before_open_keeps_its_copy_waiting(
    hosts: Hosts, tmp_path: Path
) -> None:
    began: list[bool] = []

    class Events(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            if isinstance(event, StepBegun) and event.stage == "cutover" and event.step == "open":
                hosts.asked.clear()
                hosts.silent.add("dest2")
            if isinstance(event, StepBegun) and event.stage == "verify":
                began.append("dest2" in hosts.asked and not hosts.released.is_set())

    operator = Operator(quiet_world(), tmp_path / "run", copies=hosts.copies)
    operator.events = Events()
    assert operator.forward(until="verify").code == 0
    assert began == [True]
    assert hosts.asked.count("dest2") > 1
    told = [e.text for e in operator.events if isinstance(e, Noted) and "copy of the journal" in e.text]
    assert told == ["no copy of the journal for now on dest2: no answer yet"]
    assert hosts.taken["dest1"] != hosts.taken["dest2"]
    hosts.silent.clear()
    assert operator.resume(until="verify").code == 0
    assert hosts.taken["dest1"] == hosts.taken["dest2"]
