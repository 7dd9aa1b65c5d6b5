"""Short lines of changes on clusters: smaller, and nothing of what they tell is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine_world import Killed, Points, back, forward, resume
from tests.unit.reassign_world import Desk, inventory, plan, world
from zkmigrate.errors import JournalError
from zkmigrate.kafka.changes import (
    KAFKA,
    AlterTopicConfig,
    CancelReassignment,
    ElectPreferred,
    ReassignPartition,
)
from zkmigrate.runbook.engine import chain, journal
from zkmigrate.runbook.engine.change_lines import ChangeLines, operation_id
from zkmigrate.runbook.engine.codec import encode_change
from zkmigrate.runbook.engine.journal import NAME, Journal
from zkmigrate.runbook.model.change import Change, PutFile
from zkmigrate.runbook.model.entry import Entry, Kind
from zkmigrate.runbook.model.step import Way

EARLIER = Path("tests/recorded/journal/kafka_reassign.jsonl")
"""Written by the version before short lines; its process was killed between two moves."""

SETS = st.tuples(st.integers(1, 3), st.integers(1, 3))
NUMBERS = st.integers(0, 2)
NAMES = st.sampled_from(["t", "t1", "a.longer-name_of-a-topic"])
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(ReassignPartition, st.just(KAFKA), NAMES, NUMBERS, SETS, SETS),
    st.builds(CancelReassignment, st.just(KAFKA), NAMES, NUMBERS, SETS),
    st.builds(AlterTopicConfig, st.just(KAFKA), NAMES, st.just("k"), st.none() | NAMES, st.none() | NAMES),
    st.builds(ElectPreferred, st.just(KAFKA), st.just((("t", 0),))),
    st.builds(PutFile, NAMES, st.just("/f"), st.just(b"x"), st.just("root:root")),
)
INTENTS = st.fixed_dictionaries(
    {
        "stage": st.sampled_from(["move", "verify"]),
        "step": st.sampled_from(["replicas", "throttle"]),
        "target": NAMES,
        "way": st.sampled_from(["forward", "back"]),
        "leg": st.integers(1, 3),
        "change": CHANGES.map(encode_change),
        "mono": st.sampled_from([1.0, 2.5]),
    }
)


@st.composite
def bodies(draw: st.DrawFn) -> list[tuple[Kind, dict[str, Any]]]:
    """Intents, some with an operation that is not the usual one, and outcomes of some of them."""
    made: list[tuple[Kind, dict[str, Any]]] = []
    usual = ChangeLines()
    for number, intent in enumerate(draw(st.lists(INTENTS, min_size=1, max_size=12))):
        odd = draw(st.booleans())
        body = {**intent, "operation": f"odd-{number}" if odd else usual._operation(intent)}
        usual.take(Entry(number + 1, 1.0, "intent", body))
        made.append(("intent", body))
        said = draw(st.sampled_from([("done", 0), ("failed", 1), ("unknown", -1), ("none", 0)]))
        if said[0] != "none":
            words = draw(st.sampled_from(["", "policy: no", "its own words"]))
            output = intent_words(intent) if words == "its own words" else words
            outcome = {"operation": body["operation"], "status": said[0], "rc": said[1], "output": output}
            made.append(("outcome", {**outcome, "mono": 3.0}))
    return made


def intent_words(body: dict[str, Any]) -> str:
    from zkmigrate.runbook.engine.codec import decode_change

    return decode_change(body["change"]).describe()


@given(bodies())
def test_whatever_changes_are_journaled_is_read_back(lines: list[tuple[Kind, dict[str, Any]]]) -> None:
    writes, reads = ChangeLines(), ChangeLines()
    for seq, (kind, body) in enumerate(lines, start=1):
        short = writes.short(kind, body)
        writes.take(Entry(seq, 1.0, kind, body))
        assert reads.whole(kind, short) == body
        reads.take(Entry(seq, 1.0, kind, body))


def intents(number: int) -> list[dict[str, Any]]:
    """Moves of one topic, one a wave."""
    made = []
    for n in range(number):
        change = encode_change(ReassignPartition(KAFKA, "some.service.events", n, (n, 2, 3), (n, 2, 4)))
        target = f"some.service.events-{n}"
        body = {"stage": "move", "step": "replicas", "target": target, "way": "forward", "leg": n + 1}
        operation = operation_id("move.replicas", target, Way.FORWARD, n + 1, 1)
        made.append({**body, "operation": operation, "change": change, "mono": 123456.789012 + n})
    return made


def written(run_dir: Path, number: int) -> bytes:
    book = Journal.create(run_dir, lambda: 1_700_000_000.25)
    for body in intents(number):
        book.append("intent", body)
        done = {"operation": body["operation"], "status": "done", "rc": 0, "output": intent_words(body)}
        book.append("outcome", {**done, "mono": body["mono"] + 0.25})
    book.close()
    return (run_dir / NAME).read_bytes()


def test_a_move_takes_half_of_the_bytes_and_reads_the_same(tmp_path: Path) -> None:
    data = written(tmp_path / "r", 100)
    entries = chain.parse(data).entries
    assert [e.body for e in entries if e.kind == "intent"] == intents(100)
    assert entries[-1].body["output"].startswith("reassign some.service.events-99 to brokers 99,2,3")
    assert len(data) < 0.5 * len(in_full(entries))
    assert b'"some.service.events-7"' in data, "a name can be searched for"


def in_full(entries: tuple[Entry, ...]) -> bytes:
    """The same lines as an earlier version wrote them."""
    made: list[bytes] = []
    for entry in entries:
        head = chain._json({**vars(entry), "previous": chain.digest(made[-1]) if made else ""})[:-1].encode()
        made.append(head + b',"sum":"' + chain._sum("", head) + b'"}')
    return b"".join(line + b"\n" for line in made)


def test_lines_on_hosts_stand_in_full(tmp_path: Path) -> None:
    book = Journal.create(tmp_path / "r", lambda: 1.0)
    change = encode_change(PutFile("d1", "/f", b"x", "root:root"))
    body = {
        "stage": "s",
        "step": "t",
        "target": "d1",
        "way": "forward",
        "leg": 1,
        "change": change,
        "mono": 1.0,
    }
    book.append("intent", {**body, "change": change, "operation": "s.t.d1.1.1"})
    book.close()
    assert b'"operation":"s.t.d1.1.1"' in (tmp_path / "r" / NAME).read_bytes()


def test_an_outcome_without_its_intent_is_damage_by_name(tmp_path: Path) -> None:
    written(tmp_path / "r", 1)
    [_, outcome] = (tmp_path / "r" / NAME).read_bytes().splitlines()
    body = {"mono": 1.0, "of": 7}
    alone = chain.render(Entry(1, 1.0, "outcome", body))
    (tmp_path / "r" / NAME).write_bytes(alone + b"\n")
    with pytest.raises(JournalError, match="line 1 leaves out 7, which no line before it holds"):
        journal.read(tmp_path / "r")
    (tmp_path / "r" / NAME).write_bytes(outcome + b"\n")
    with pytest.raises(JournalError, match="line 1 does not match its sum"):
        journal.read(tmp_path / "r")


def test_a_journal_of_an_earlier_version_reads_as_it_did() -> None:
    parsed = chain.parse(EARLIER.read_bytes()).intact(EARLIER)
    assert in_full(parsed.entries) == EARLIER.read_bytes()
    history = journal.folded(parsed.entries)
    assert history.unconfirmed() == (history.applied("move.replicas", "t0-2")[0],)
    assert len(history.touched("move.throttle")) == 6


@pytest.mark.parametrize("act", [resume, back])
def test_a_run_of_an_earlier_version_goes_on_and_back(tmp_path: Path, act: Any) -> None:
    cluster = world(4, size=1_500_000)
    made = Desk(tmp_path / "r", cluster, inventory(plan(cluster), {}))
    with pytest.raises(Killed):
        made.process(forward, Points(15, kinds=("applied",), error=Killed()))
    known = journal.read(made.run_dir).touched("move.replicas")
    shutil.copyfile(EARLIER, made.run_dir / NAME)
    assert journal.read(made.run_dir).touched("move.replicas") == known
    assert made.process(act).code == 0
    assert made.home if act is back else made.there
    assert made.process(back).code == 0
    assert made.home


@pytest.mark.parametrize("line", [3, 40])
def test_what_was_left_out_of_earlier_lines_or_exchanged_is_found(tmp_path: Path, line: int) -> None:
    """In a journal that an earlier version began and this one goes on with."""
    run_dir = tmp_path / "r"
    run_dir.mkdir(mode=0o700)
    shutil.copyfile(EARLIER, run_dir / NAME)
    (run_dir / NAME).chmod(0o600)
    book = Journal.open(run_dir, lambda: 1.0)
    for text in ("one", "two", "three"):
        book.append("note", {"text": text})
    book.close()
    lines = (run_dir / NAME).read_bytes().splitlines(keepends=True)
    assert chain.parse(b"".join(lines)).damage == ""
    assert "chain" in chain.parse(b"".join(lines[: line - 1] + lines[line:])).damage
    assert "chain" in chain.parse(b"".join([*lines[:-3], lines[-2], lines[-3], lines[-1]])).damage
    lines[line - 1] = lines[line - 1].replace(b"1", b"2", 1)
    assert len(chain.parse(b"".join(lines)).entries) == line - 1
