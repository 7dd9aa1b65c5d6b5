"""Copies of the journal on the dest hosts: nobody waits for a host that is silent, and it gets one later."""

from __future__ import annotations

import base64
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.world.operator import Operator, quiet_world
from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.runbook.engine.copies import Copies
from zkmigrate.runbook.engine.events import Event, Noted, StepBegun
from zkmigrate.runbook.model.change import Outcome

HOSTS = ("dest1", "dest2", "dest3")


def rest(
    every_s: float = 0.0,
) -> tuple[Callable[[], tuple[str, ...]], Callable[[], int], Callable[[], float]]:
    """The hosts, the fencing number and a clock that so many seconds pass on at each look."""
    seconds = itertools.count(step=every_s)
    return lambda: HOSTS, lambda: 7, lambda: float(next(seconds))


class Hosts:
    """Dest hosts that take copies. One that is silent keeps the first question until the test ends; later
    ones it refuses at once, as channels do within a deadline."""

    def __init__(self) -> None:
        self.taken: dict[str, bytes] = {}
        self.silent: set[str] = set()
        self.refuse: set[str] = set()
        self.asked: list[str] = []
        self.released = threading.Event()
        self.sent: list[int] = []
        self.copies = Copies(self.ask, *rest(every_s=1.0))

    def process(self) -> Copies:
        """Copies as another process has them: it knows nothing of what the hosts hold."""
        return Copies(self.ask, *rest())

    def ask(self, host: str, words: tuple[str, ...], fencing: int) -> Outcome:
        """The verb ``journal``, as ``zkm-host`` has it."""
        assert (fencing, words[0]) == (7, "journal")
        assert deadline.bounded(), "channels tell a host that is known to be silent only within a deadline"
        self.asked.append(host)
        if host in self.silent:
            if self.asked.count(host) == 1:
                self.released.wait(30.0)  # nobody waits so long; a walk that did would go on and be seen
            raise HostError(f"{host} has not answered for a while")
        if host in self.refuse:
            return Outcome(5, "no room\n")
        held = self.taken.get(host, b"")
        more = b"" if words[3] == "=" else base64.b64decode(words[3], validate=True)
        self.sent.append(len(more))
        start = {"more": held, "new": b""}[words[1]]
        if hashlib.sha256(start + more).hexdigest() != words[2]:
            told = f"holds {len(held)} bytes with sha256 {hashlib.sha256(held).hexdigest()}"
            return Outcome(3, f"zkm-host: the copy here {told}: the new bytes do not continue it\n")
        self.taken[host] = start + more
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
    assert hosts.copies(b"one, two") == {"dest2": "dest2 has not answered for a while"}
    assert hosts.taken == {"dest1": b"one, two", "dest3": b"one, two"}
    hosts.silent.clear()
    assert hosts.copies(b"one, two, three") == {}
    assert hosts.taken == dict.fromkeys(HOSTS, b"one, two, three")


def bytes_for(hosts: Hosts, copies: Copies, content: bytes) -> int:
    """How many bytes went over until every host had it."""
    hosts.sent.clear()
    assert copies(content) == {}
    assert hosts.taken == dict.fromkeys(HOSTS, content)
    return sum(hosts.sent)


def test_only_what_a_host_lacks_goes_over(hosts: Hosts) -> None:
    content = bytes(range(256)) * 4000
    one = hosts.process()
    assert bytes_for(hosts, one, content) == 3 * len(content)
    assert bytes_for(hosts, one, content + b"more") == 3 * len(b"more")
    assert bytes_for(hosts, one, content + b"more") == 0
    again = hosts.process()
    assert bytes_for(hosts, again, content + b"more and more") == 3 * (len(b" and more"))
    hosts.taken["dest2"] = content[:300_000]  # killed in the middle of a message
    assert bytes_for(hosts, again, content + b"more and more") == len(content) - 300_000 + 13
    assert max(hosts.sent) == 192 * 1024


OTHERS = pytest.mark.parametrize("other", [b"x" * 700, b"one two three", b"one and some more", b"\0"])


@OTHERS
def test_a_copy_with_other_lines_stays_and_is_named(hosts: Hosts, other: bytes) -> None:
    for fresh in (False, True):
        hosts.taken.clear()
        one = hosts.process()
        assert one(b"one two") == {}
        hosts.taken["dest2"] = other
        told = (hosts.process() if fresh else one)(b"one two, on")
        assert list(told) == ["dest2"]
        assert f"its copy of {len(other)} bytes is not the beginning of this journal of 11 " in told["dest2"]
        assert hosts.taken["dest2"] == other
        assert hosts.taken["dest1"] == b"one two, on"


@OTHERS
def test_a_recovered_journal_replaces_copies_with_other_lines(hosts: Hosts, other: bytes) -> None:
    for fresh in (False, True):
        one = Copies(hosts.ask, *rest(), lambda: True)
        assert one(b"one two") == {}
        hosts.taken["dest2"] = other
        again = Copies(hosts.ask, *rest(), lambda: True) if fresh else one
        assert bytes_for(hosts, again, b"one two") == 7


def test_a_host_that_refuses_what_it_asked_for_is_named(hosts: Hosts) -> None:
    copies = Copies(lambda *_: Outcome(3, f"it holds 1 bytes with sha256 {'0' * 64}"), *rest(), lambda: True)
    assert set(copies(b"one")) == set(HOSTS)
    copies = Copies(lambda *_: Outcome(2, "zkm-host: unknown verb 'journal'; help lists all"), *rest())
    assert copies(b"one")["dest1"] == "zkm-host: unknown verb 'journal'; help lists all"


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
    assert told == ["the copy of the journal is not up to date on dest2: no answer yet"]
    assert hosts.taken["dest1"] != hosts.taken["dest2"]
    hosts.silent.clear()
    assert operator.resume(until="verify").code == 0
    assert hosts.taken["dest1"] == hosts.taken["dest2"]
