"""A broker host that is gone for good: retired from a run, which then goes on without it, either way."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.world.model.look import WorldLook
from tests.world.operator import Operator, inventory, quiet_world
from tests.world.site import INVENTORY
from tests.world.test_foreign_client import accept
from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import digest
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.move.facts.connections import SourceClients
from zkmigrate.move.rules.retire import may_retire
from zkmigrate.move.verbs.retire import retire
from zkmigrate.report.build import build
from zkmigrate.report.sources import read
from zkmigrate.runbook.engine import journal as journals
from zkmigrate.runbook.engine.events import Noted, StepBlocked
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Records, Retired, Way
from zkmigrate.runbook.runs import hold_verbs, run_status
from zkmigrate.runbook.runs.open_run import JournalOpener
from zkmigrate.runbook.runs.plan_verb import show_plan
from zkmigrate.runbook.runs.preflight import preflight
from zkmigrate.runbook.runs.run_status import status
from zkmigrate.runbook.runs.runbook_verb import show_runbook
from zkmigrate.runbook.runs.verb_context import VerbContext

GONE = "broker2"
WORDS = "broker2 (broker 2) is retired from this run by {by}: its disk is broken"


@dataclass
class Night:
    """One run over a model world, in which broker2 dies."""

    operator: Operator
    file: Path
    out: io.StringIO = field(default_factory=io.StringIO)

    def look(self) -> WorldLook:
        return WorldLook(self.operator.world, self.operator.unreachable)

    def dies(self) -> None:
        """The host of broker2 is gone, and never comes back."""
        self.operator.world.hosts[GONE].stop()
        self.operator.unreachable = frozenset({GONE})
        self.operator.world.advance(20.0)

    def setting(self) -> VerbContext:
        site = cast(Any, _Site(self.look()))
        runs = self.operator.run_dir.parent
        return VerbContext(self.file, "kafka_zookeeper_move", False, runs, lambda *_: site, out=self.out)

    def retire(self, host: str = GONE, reason: str = "its disk is broken") -> int:
        return retire(self.setting(), self.operator.run_dir.name, host, reason)

    def retired(self) -> list[str]:
        return list(journals.read(self.operator.run_dir).retired)


@dataclass
class _Site:
    look: WorldLook

    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]:
        return ("window: as measured",)

    def close(self) -> None:
        return None


@pytest.fixture
def night(tmp_path: Path) -> Night:
    file = tmp_path / "migration.yml"
    file.write_text(INVENTORY)
    world = quiet_world()
    world.inventory = world.inventory.model_copy(update={"accept": accept("kafka.min-isr", "load")})
    operator = Operator(world, tmp_path / "runs" / "run")
    operator.run_dir.parent.mkdir(mode=0o700)
    book = journals.Journal.create(operator.run_dir, lambda: world.wall)
    names = {"run": "run", "name": "world", "playbook": operator.playbook.id, "plan": ""}
    hosts = {"source": inventory().source_names, "dest": inventory().dest_names}
    brokers = {"brokers": inventory().broker_names}
    book.append("begin", {**names, "inventory": digest(inventory()), "hosts": {**hosts, **brokers}})
    book.close()
    return Night(operator, file)


def test_the_move_goes_on_without_a_broker_that_was_retired_in_the_roll(night: Night) -> None:
    operator = night.operator
    assert operator.forward(until="join").code == 0
    assert operator.resume(until="roll.preflight").code == 0
    night.dies()
    assert operator.resume().code == 6, "it is waited for, then named"
    blocked = [e for e in operator.events if isinstance(e, StepBlocked)][-1].findings[0]
    assert blocked.claim == "broker2 answers within 300 s"
    assert "zkmigrate retire broker2 --run-id run" in blocked.seen
    assert night.retire() == 0
    operator.events.clear()
    assert operator.resume().code == 0
    world = operator.world
    assert all(p.connected.startswith("dest") for n, p in world.brokers.items() if n != GONE)
    by = journals.read(operator.run_dir).retired[GONE].by
    assert Noted(WORDS.format(by=by)) in operator.events, "every later screen says so"
    body = run_status.of_run(operator.run_dir, operator.playbook, (), lambda: world.wall)
    assert any(WORDS.format(by=by) in line for line in run_status.lines(body))
    told = [
        d for d in build(read(operator.run_dir, None), operator.playbook).decisions if d.kind == "retired"
    ]
    assert [(d.where, d.by) for d in told] == [(GONE, by)]
    assert "its disk is broken" in told[0].what
    assert "not registered" in told[0].what
    assert preflight(night.setting(), "after") == 0, "nobody waits for its answer later"


@pytest.fixture
def left(night: Night) -> Night:
    """The roll is over; broker2 died in it after it had been changed, and is retired."""
    assert night.operator.forward(until="roll").code == 0
    night.dies()
    assert night.retire() == 0
    night.out.truncate(0)
    return night


def said_of_it(text: str) -> list[str]:
    """The lines that name the host, or anything of it, but for those that say that it is retired."""
    return [line for line in text.splitlines() if GONE in line and "is retired from this run by" not in line]


def test_a_plan_of_the_run_holds_no_change_for_a_retired_broker_and_says_why(left: Night) -> None:
    assert show_plan(left.setting(), "run") == 0
    text = left.out.getvalue()
    assert "broker2 (broker 2) is retired from this run by" in text
    assert "broker3" in text
    assert said_of_it(text) == []
    left.out.truncate(0)
    show_plan(left.setting(), "")
    assert said_of_it(left.out.getvalue()), "a new run would have it: its host is asked, and does not answer"


def test_the_runbook_has_no_box_for_a_retired_broker_and_says_why(left: Night, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert show_runbook(left.setting(), "run", page, go_no_go=False) == 0
    text = page.read_text()
    assert "broker2 (broker 2) is retired from this run by" in text
    assert "Nothing below is for this host." in text
    assert "broker3" in text
    assert said_of_it(text) == []


def test_the_go_no_go_page_counts_the_brokers_that_are_left(left: Night) -> None:
    assert show_runbook(left.setting(), "run", None, go_no_go=True) == 0
    text = left.out.getvalue()
    assert ", 2 brokers to dest1" in text
    assert "broker2 (broker 2) is retired from this run by" in text


def test_a_lost_journal_that_tells_of_it_is_recovered_without_its_host(left: Night) -> None:
    operator = left.operator
    assert operator.resume(until="cutover.preflight").code == 0
    file = operator.run_dir / journals.NAME
    lines = file.read_bytes().splitlines(keepends=True)
    known = next(n for n, line in enumerate(lines, 1) if json.loads(line)["kind"] == "retired")
    file.write_bytes(b"".join(lines[:known]))
    world = operator.world
    opening = JournalOpener(
        operator.run_dir, operator.playbook, world.inventory, left.look(), lambda: world.wall
    )
    recovered = opening.recover(Way.FORWARD, "tester")
    recovered.journal.close()
    assert operator.resume().code == 0


def test_what_counts_brokers_counts_no_retired_one(left: Night) -> None:
    history = journals.read(left.operator.run_dir)
    assert set(history.touched("roll.roll")) == {"broker1", "broker3"}
    with pytest.raises(UsageError, match="cannot hold after 2 of 2 brokers; 2 have been changed"):
        hold_verbs.hold(left.setting(), "run", "2", "")


def test_a_run_walks_back_without_it(night: Night) -> None:
    operator = night.operator
    assert operator.forward(until="roll").code == 0
    night.dies()
    assert operator.back("").code == 8, "without a word about it the way back waits, and stops"
    assert night.retire() == 0
    assert operator.resume().code == 0
    world = operator.world
    assert all(p.connected.startswith("source") for n, p in world.brokers.items() if n != GONE)


def test_a_broker_that_serves_is_not_retired(night: Night) -> None:
    """Not even one that has left source."""
    assert night.operator.forward(until="roll").code == 0
    assert night.retire() == 6
    assert "registered, in the ISR of 3 partitions" in night.out.getvalue()
    assert "broker2 is not retired: nothing was changed" in night.out.getvalue()
    assert night.retired() == []


@pytest.mark.parametrize(
    ("registered", "in_sync", "held"),
    [(True, True, Held.NO), (True, False, Held.YES), (False, True, Held.YES), (False, False, Held.YES)],
)
def test_it_must_be_registered_nowhere_or_in_no_isr(registered: bool, in_sync: bool, held: Held) -> None:
    brokers = {1: ("h1", 9092, "")} | ({2: ("h2", 9092, "")} if registered else {})
    isr = (1, 2) if in_sync else (1,)
    view = KafkaView("id", 1, brokers, (PartitionState("t", 0, 1, (1, 2), isr),))
    gone = Retired(GONE, 2, ("10.0.0.22",), "Lea", "gone")
    served, left = may_retire(gone, Seen(view), SourceClients({"s": ("10.0.0.99",)}, {}, ()), ("s",))
    assert (served.held, left.held) == (held, Held.YES)
    silent, _ = may_retire(gone, Unknown("timeout", "no answer"), SourceClients({}, {}, ()), ())
    assert silent.held is Held.UNKNOWN


CLIENT = (
    " /10.0.0.22:40022[1](queued=0,recved=2,sent=2,sid=0x22,lop=PING,est=1,to=20000,lcxid=0x1,lzxid=0x1,"
    "lresp=1,llat=1,minlat=0,avglat=1,maxlat=1)\n\n"
)


@pytest.mark.parametrize("seen", ["client", "blind"])
def test_one_that_source_still_lists_or_cannot_tell_of_is_not_retired(
    night: Night, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    assert night.operator.forward(until="join").code == 0
    night.dies()
    answer = WorldLook.word

    def word(look: WorldLook, host: str, word: str) -> Reading[str]:
        if (host, word) != ("source3", "cons"):
            return answer(look, host, word)
        return Seen(CLIENT) if seen == "client" else Unknown("timeout", "source3: no answer in 3 s")

    monkeypatch.setattr(WorldLook, "word", word)
    monkeypatch.setattr(WorldLook, "sockets", lambda _look, host: Unknown("denied", f"{host}: no ss"))
    assert night.retire() == 6
    said = (
        "Failed: client of source3" if seen == "client" else "Unknown: the clients of source3 are not known"
    )
    assert said in night.out.getvalue()
    assert night.retired() == []


def test_a_retired_broker_that_comes_back_to_source_closes_the_gate_of_the_cut_over(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = night.operator
    assert operator.forward(until="join").code == 0
    night.dies()
    assert night.retire() == 0
    assert operator.resume(until="roll").code == 0
    answer = WorldLook.word

    def word(look: WorldLook, host: str, word: str) -> Reading[str]:
        return Seen(CLIENT) if (host, word) == ("source3", "cons") else answer(look, host, word)

    monkeypatch.setattr(WorldLook, "word", word)
    assert operator.resume().code != 0
    blocked = [f for e in operator.events if isinstance(e, StepBlocked) for f in e.findings if f.blocks]
    assert ("kafka.retired", GONE, "client of source3") in [(f.id, f.target, f.seen) for f in blocked]


@pytest.mark.parametrize(
    ("host", "reason", "why"),
    [
        ("dest2", "gone", "dest2 is a dest host; only a broker can be retired from a run"),
        ("source1", "gone", "source1 is a source host; only a broker"),
        ("broker9", "gone", "broker9 is no host of the inventory; only a broker"),
        (GONE, "  ", "--reason is empty"),
    ],
)
def test_what_cannot_be_retired_is_refused_by_name(night: Night, host: str, reason: str, why: str) -> None:
    assert night.operator.forward(until="join").code == 0
    with pytest.raises(UsageError, match=why):
        night.retire(host, reason)


def test_nobody_is_retired_twice_nor_is_the_last_broker(night: Night) -> None:
    assert night.operator.forward(until="join").code == 0
    night.dies()
    assert night.retire() == 0
    with pytest.raises(UsageError, match="cannot be retired twice"):
        night.retire()
    night.operator.world.hosts["broker1"].stop()
    night.operator.world.advance(20.0)
    assert night.retire("broker1") == 0
    with pytest.raises(UsageError, match="broker3 is the only broker left in the run"):
        night.retire("broker3")
    assert night.retired() == [GONE, "broker1"]


def test_nobody_is_retired_inside_a_window(night: Night) -> None:
    operator = night.operator
    assert operator.forward(until="cutover.arm").code == 0
    night.dies()
    with pytest.raises(UsageError, match="inside its window, at cutover"):
        night.retire()
    assert night.retired() == []


def test_after_the_move_there_is_nothing_left_to_retire_from(night: Night) -> None:
    assert night.operator.forward().code == 0
    night.dies()
    with pytest.raises(UsageError, match="is complete"):
        night.retire()


def test_status_shows_what_somebody_accepted(night: Night) -> None:
    assert night.operator.forward(until="preflight").code == 0
    (entry,) = night.operator.world.inventory.accept
    night.file.write_text(
        f"{INVENTORY}accept:\n  - {{finding: {entry.finding}, target: {entry.target}, who: {entry.who}, "
        f'why: {entry.why}, until: "{entry.until}"}}\n'
    )
    assert status(night.setting(), "run", offline=True) == 0
    assert f"  accepted: {entry.line}\n" in night.out.getvalue()


def test_a_source_server_that_is_accepted_to_be_down_is_not_asked_for_the_broker(night: Night) -> None:
    operator, world = night.operator, night.operator.world
    entries = (*world.inventory.accept, *accept("source.server-down", "source1"))
    world.inventory = world.inventory.model_copy(update={"accept": entries})
    assert operator.forward(until="join").code == 0
    assert operator.resume(until="roll.preflight").code == 0
    night.dies()
    world.source_down = {"source1"}
    operator.unreachable |= {"source1"}
    assert night.retire() == 6, "its file does not accept it: nobody knows whether the broker is its client"
    entry = "{finding: source.server-down, target: source1, who: A, why: old, until: '2099-01-01T00:00Z'}"
    night.file.write_text(f"{INVENTORY}accept: [{entry}]\n")
    assert night.retire() == 0
    assert operator.resume(until="cutover.preflight").code == 0
