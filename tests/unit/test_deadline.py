"""What the window bears, and that nobody waits longer: rules, lanes, waves, looks and words."""

from __future__ import annotations

import itertools
import math
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from tests.unit.engine_world import Tiny, TinyClock, WriteStep, inventory
from tests.unit.sshd import make_key
from zkmigrate import deadline
from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.program import Program
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import Source, SourceHost, Ssh
from zkmigrate.move.rules.window_rules import LEAST_S, MESSAGE_S, SLOW_S, limits
from zkmigrate.runbook.engine.events import ChangeEnded
from zkmigrate.runbook.model.change import Change, Changes, Outcome, PutFile, Restore
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Context, Hazard
from zkmigrate.runbook.site import observe
from zkmigrate.runbook.site.observe import Observe
from zkmigrate.zookeeper.clients import answers
from zkmigrate.zookeeper.clients.zookeeper import ZnodeReader
from zkmigrate.zookeeper.questions import ReadZnode, SendWord

SHUT = ("fence", "drain", "cut", "stop", "prove", "seal", "go", "serve", "check")
QUICK = ("fence", "cut", "stopped", "seal", "unseal", "uncut", "reopen", "go", "checked", "open")


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What a host that is silent waits for: the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("phase", ["", "arm", "survey"])
def test_before_the_fence_everything_takes_its_time(phase: str) -> None:
    assert limits(phase, "", False, 5.0) == limits(phase, "arm", True, None) == (math.inf, math.inf)


@pytest.mark.parametrize("phase", SHUT)
def test_from_the_fence_on_a_quick_message_has_seconds(phase: str) -> None:
    for verb in QUICK:
        assert limits(phase, verb, True, None) == (MESSAGE_S, MESSAGE_S)
    assert limits(phase, "", True, None) == (MESSAGE_S, math.inf)
    assert MESSAGE_S <= 3.0


@pytest.mark.parametrize("verb", ["", *QUICK, *SLOW_S])
def test_going_forward_nothing_lasts_past_the_deadline_of_the_way_back(verb: str) -> None:
    for left_s in (2.0, 0.7):
        each_s, whole_s = limits("stop", verb, False, left_s)
        assert each_s <= whole_s <= left_s
    assert limits("stop", verb, False, -3.0) == (LEAST_S, LEAST_S)
    assert LEAST_S > 0


def test_walking_back_the_deadline_shortens_nothing() -> None:
    assert limits("stop", "started-observer", True, 0.1) == limits("stop", "started-observer", True, None)


def test_a_wait_ends_with_the_scope_it_is_in() -> None:
    now = 100.0
    assert (deadline.remaining(20.0), deadline.bounded()) == (20.0, False)
    with deadline.within(3.0, 5.0, lambda: now):
        assert deadline.bounded()
        assert deadline.remaining(20.0) == 3.0
        assert deadline.remaining(1.0) == 1.0
        now = 104.0
        assert deadline.remaining(20.0) == 1.0
        now = 106.0
        assert 0 < deadline.remaining(20.0) < 0.01
    assert deadline.remaining(20.0) == 20.0
    with deadline.within(math.inf, math.inf):
        assert (deadline.remaining(20.0), deadline.bounded()) == (20.0, False)


def test_work_in_lanes_has_the_deadline_of_its_caller() -> None:
    with deadline.within(3.0):
        assert together({name: lambda: deadline.remaining(20.0) for name in "abc"}) == dict.fromkeys(
            "abc", 3.0
        )


def test_most_do_not_wait_for_one_that_is_late(released: threading.Event) -> None:
    def stuck() -> str:
        released.wait(60.0)
        return "late"

    work = {"a": lambda: "in time", "b": stuck, "c": lambda: "in time"}
    seen = together(work, GiveUp(0.05, lambda name: f"{name} left", time.monotonic))
    assert seen == {"a": "in time", "b": "b left", "c": "in time"}
    assert not released.is_set()


def test_half_is_not_most(released: threading.Event) -> None:
    """Two of four silent: nobody knows which half is right, so their own limits end the wait."""
    threading.Timer(0.3, released.set).start()

    def slow() -> str:
        released.wait()
        return "slow"

    work = {"a": lambda: "in time", "b": slow, "c": lambda: "in time", "d": slow}
    seen = together(work, GiveUp(0.0, lambda name: "left", time.monotonic))
    assert seen == {"a": "in time", "b": "slow", "c": "in time", "d": "slow"}


def test_what_one_lane_raises_is_raised() -> None:
    def fails() -> str:
        raise ValueError("of a lane")

    with pytest.raises(ValueError, match="of a lane"):
        together({"a": lambda: "well", "b": fails})


def test_one_that_is_late_gets_as_much_time_again(released: threading.Event) -> None:
    asked = itertools.count(1)

    def now() -> float:
        if next(asked) == 5:
            released.set()
        return 100.0

    def slow() -> str:
        released.wait()
        return "slow"

    seen = together({"a": str, "b": str, "c": slow}, GiveUp(5.0, lambda name: "left", now))
    assert seen == {"a": "", "b": "", "c": "slow"}


def test_before_most_have_answered_nobody_is_late(released: threading.Event) -> None:
    """The clock runs until all are released."""
    threading.Timer(0.3, released.set).start()
    moments = [10.0]

    def now() -> float:
        if not released.is_set():
            moments.append(moments[-1] + 10.0)
        return moments[-1]

    def slow() -> str:
        released.wait()
        return "slow"

    assert together(dict.fromkeys("abc", slow), GiveUp(5.0, lambda name: "left", now)) == dict.fromkeys(
        "abc", "slow"
    )


class WallClock(TinyClock):
    """Time passes by itself."""

    def now(self) -> float:
        return time.monotonic()


@dataclass
class TwoChanges(WriteStep):
    """Each host gets two files, one after the other."""

    def plan(self, c: Context, f: dict[str, bytes | None], target: str) -> Changes:
        return (PutFile(target, f"/{self.id}-first", b"x", "root:root"), *super().plan(c, f, target))


def test_a_wave_leaves_a_late_host_and_sends_it_nothing_more(
    tmp_path: Path, released: threading.Event
) -> None:
    tiny = Tiny(tmp_path, clock=WallClock())
    tiny.window = replace(tiny.window, limits=lambda *_: (0.05, math.inf))
    tiny.steps["fence"] = TwoChanges("fence", tiny.hosts, Hazard.WINDOW)
    stuck: list[tuple[str, threading.Thread]] = []

    def answer(change: Change) -> Outcome | None:
        assert isinstance(change, PutFile | Restore)
        if not stuck and isinstance(change, PutFile) and (change.host, change.path) == ("d2", "/fence-first"):
            stuck.append((tiny.hosts.sent[-1], threading.current_thread()))
            released.wait()
        elif stuck and isinstance(change, PutFile) and change.path == "/cut":
            released.set()  # it answers at last, while the run goes on
            stuck[0][1].join(60)
        return None

    tiny.hosts.answer = answer
    assert tiny.process(lambda walk: walk.forward(until="rehearse")).code == 0

    [(first, thread)] = stuck
    assert not thread.is_alive()
    leg = first.removesuffix(".1")
    ended = [(e.operation, e.status) for e in tiny.seen if isinstance(e, ChangeEnded) and leg in e.operation]
    assert ended == [(f"{leg}.1", "unknown"), (f"{leg}.2", "skipped")]
    assert f"{leg}.2" not in tiny.hosts.sent


def looking() -> Observe:
    """A look that is asked nothing of the hosts but one ZooKeeper server's words."""
    source = Source(hosts=(SourceHost(name="s1", address="192.0.2.11", myid=1),))
    known = inventory().model_copy(update={"source": source})
    return Observe(known, cast(Transport, None), cast(Program, None), cast(Channels, None))


def test_a_look_gives_up_a_host_whose_thread_is_stuck(
    monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    monkeypatch.setattr(observe, "_LATE_S", 0.05)

    def ask(host: str) -> Reading[str]:
        if host == "d2":
            released.wait()
        return Seen(host)

    with deadline.within(3.0):
        seen = looking().each(("d1", "d2", "d3"), ask)
    assert (seen["d1"], seen["d3"]) == (Seen("d1"), Seen("d3"))
    assert isinstance(seen["d2"], Unknown)
    assert seen["d2"].cause == "timeout"


def test_in_a_hurry_a_server_that_was_silent_gets_less_time_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []
    said: list[Reading[str]] = [Unknown("timeout", "s1"), Unknown("timeout", "s1"), Seen("x"), Seen("x")]

    def word(_address: str, _port: int, _word: str, deadline_s: float, _credentials: object) -> Reading[str]:
        given.append(deadline_s)
        return said.pop(0)

    monkeypatch.setattr(answers, "four_letter_word", word)
    look = looking()
    with deadline.within(2.0):
        for _ in range(4):
            look.ask(SendWord("s1", "srvr"))
    assert given == [2.0, 0.3, 0.3, 2.0]


def test_in_a_hurry_no_znode_is_read_from_a_server_that_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "four_letter_word", lambda *_: Unknown("timeout", "s1"))
    look = looking()
    read: list[str] = []
    monkeypatch.setattr(ZnodeReader, "read", lambda _self, host, _path: read.append(host))
    with deadline.within(2.0):
        look.ask(SendWord("s1", "srvr"))
        assert isinstance(look.ask(ReadZnode("s1", "/a")), Unknown)
    assert read == []


def test_a_login_to_a_frozen_host_is_given_up_within_the_deadline(tmp_path: Path) -> None:
    """Its kernel takes the connection, its sshd says nothing; nobody tries a second time."""
    make_key(tmp_path / "key")
    (tmp_path / "known_hosts").write_text("")
    (tmp_path / "known_hosts").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        known = inventory()
        ssh = Ssh(
            user="ops",
            port=listening.getsockname()[1],
            key=str(tmp_path / "key"),
            known_hosts=str(tmp_path / "known_hosts"),
        )
        machines = {"d1": "127.0.0.1"}
        with Transport(known.model_copy(update={"ssh": ssh, "machines": machines})) as transport:
            with (
                deadline.within(0.3),
                pytest.raises(TransportError, match=r"no ssh login within 0\.3 s") as raised,
            ):
                transport.connection("d1")
            assert raised.value.cause == "timeout"
        listening.setblocking(False)
        listening.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listening.accept()
