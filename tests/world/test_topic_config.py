"""One config on many topics: there and back, killed anywhere, with lost answers and other hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engine_world import (
    Killed,
    Points,
    back,
    forward,
    homeward,
    left_by_kills,
    on_and_back,
    resume,
)
from tests.unit.topic_world import (
    ID,
    KEY,
    VALUE,
    Desk,
    inventory,
    names,
    topics,
)
from zkmigrate.engine import events, journal
from zkmigrate.engine.codec import decode_finding
from zkmigrate.engine.events import RunEnded
from zkmigrate.engine.hold_file import HoldFile
from zkmigrate.engine.journal import NAME
from zkmigrate.engine.run import Walk
from zkmigrate.model.change import AlterTopicConfig, Change
from zkmigrate.model.finding import Finding, Held, few
from zkmigrate.model.step import Way
from zkmigrate.moves.world.topics import TopicWorld
from zkmigrate.topics.facts import Originals, to_change
from zkmigrate.topics.set_step import LOOKS, WAVE
from zkmigrate.ui import sentences

STEP = "set.topic-config"
FEW = 8
MANY = 1_000


def desk(tmp_path: Path, count: int = FEW, **section: object) -> Desk:
    return Desk(tmp_path / "r", TopicWorld(ID, topics(count)), inventory=inventory(**section))


def changed(count: int = FEW) -> list[str]:
    """The topics that the run has to change."""
    sets = topics(count)
    return [name for name in names(count) if sets[name].get(KEY) != VALUE]


def found(desk: Desk, id: str) -> Finding:
    """The newest finding with this id that the journal holds."""
    told = [
        decode_finding(body)
        for entry in journal.kept_lines(desk.run_dir)
        for body in (entry.body.get("findings") or [entry.body.get("finding")])
        if isinstance(body, dict) and body["id"] == id
    ]
    return told[-1]


def test_there_and_back(tmp_path: Path) -> None:
    made = desk(tmp_path, 25)
    assert made.process(forward) == RunEnded(0, "kafka_topic_config is complete")
    assert made.there
    assert sorted(c.topic for c in made.cluster.altered) == changed(25)
    told = found(made, "topics.set")
    assert told.seen == "25 topics have it; 23 had another value, or none, before the run"
    assert made.process(back).code == 0
    assert made.home
    assert found(made, "topics.back").held is Held.YES
    assert journal.read(made.run_dir).touched(STEP) == ()


@pytest.mark.parametrize("lag", [1, LOOKS])
def test_a_confirmed_change_that_brokers_do_not_tell_yet_is_waited_for(tmp_path: Path, lag: int) -> None:
    """With KRaft each broker hears of a change by itself: nothing is sent twice, nobody else is blamed."""
    made = desk(tmp_path)
    made.cluster.lag = lag
    assert made.process(forward).code == 0
    assert [c.topic for c in made.cluster.altered] == changed()
    assert made.process(back).code == 0
    assert made.home
    assert found(made, "topics.back").held is Held.YES
    assert len(made.cluster.altered) == 2 * len(changed())
    waited = {e.what: e.progress for e in made.seen if isinstance(e, events.Waits)}
    assert waited == {f"brokers report what Kafka has confirmed of {KEY}": mentioned(changed())}


def mentioned(topics: list[str]) -> str:
    return f"{len(topics)} topics: {few(topics)}"


def test_what_is_told_long_after_a_confirmed_change_is_of_another_hand(tmp_path: Path) -> None:
    """Forward the value is sent again, back it stays."""
    made = desk(tmp_path)
    first, *_, last = changed()

    def meddle(value: str | None) -> Callable[[Change], None]:
        """Once, when the last topic is about to be changed, another hand sets the first one."""
        values = iter((value,))

        def before(change: Change) -> None:
            if isinstance(change, AlterTopicConfig) and change.topic == last:
                for own in values:
                    made.cluster.topics[first] = dict(made.first[first]) if own is None else {KEY: own}

        return before

    made.before_change = meddle(None)
    assert made.process(forward).code == 0
    assert made.there
    assert Counter(c.topic for c in made.cluster.altered)[first] == 2
    made.before_change = meddle(VALUE)
    assert made.process(back).code == 0
    assert (
        f"other hands changed 1 since, which stay as they are: {first}: " in found(made, "topics.back").seen
    )


def test_each_topic_is_looked_at_a_fixed_number_of_times(tmp_path: Path) -> None:
    """Preflight, first look, before its change, at the end; and not with each wave of others."""
    made = desk(tmp_path, 60)
    made.process(forward)
    assert made.cluster.read <= 4 * 60
    made.cluster.read = 0
    made.process(back)
    assert made.cluster.read <= 2 * 60


def test_a_wave_is_no_larger_than_it_is_said_to_be(tmp_path: Path) -> None:
    made = desk(tmp_path, 25)
    made.process(forward)
    made.process(back)
    waves = Counter(e.body["leg"] for e in journal.kept_lines(made.run_dir) if e.kind == "intent")
    assert (max(waves.values()), len(waves)) == (3, 2 * 8)


def test_each_wave_tells_how_far_it_is(tmp_path: Path) -> None:
    """The topics are known by a look alone, and behind a kill by what the run recorded."""
    made = desk(tmp_path, 25, leave_out=("t00003", "t00006"))
    with pytest.raises(Killed):
        made.process(forward, Points(11, kinds=("apply",)))
    assert made.process(resume).code == 0
    waves = [e for e in made.seen if isinstance(e, events.WaveBegun)]
    assert {(e.of, e.many) for e in waves} == {(21, "topics")}
    assert [e.done for e in waves][:4] == [0, 3, 6, 9]
    assert waves[-1].done + len(waves[-1].targets) == 21
    begun = [e for e in made.seen if isinstance(e, events.StepBegun) and e.step == "topic-config"]
    assert [(e.done, e.of) for e in begun] == [(0, 0), (9, 21)]
    assert "9 of 21 topics done before this wave" in sentences.sentence(waves[3])


def test_a_line_names_few_topics_of_a_wave(tmp_path: Path) -> None:
    made = replace(desk(tmp_path, 60), wave=50)
    made.process(forward)
    wave = next(e for e in made.seen if isinstance(e, events.WaveBegun))
    assert len(wave.targets) == 50
    assert " and 30 more: 0 of 54 topics done" in sentences.sentence(wave)


def test_so_many_topics_are_a_canary(tmp_path: Path) -> None:
    made = replace(desk(tmp_path, 60), wave=30)
    made.holds = HoldFile(made.run_dir)
    assert made.process(lambda walk: walk.forward(pause_after=25)).code == 0
    waves = [len(e.targets) for e in made.seen if isinstance(e, events.WaveBegun)]
    assert waves == [25, 29]
    held, _ = [e.body for e in journal.kept_lines(made.run_dir) if e.kind == "hold"]
    assert held["progress"].startswith("25 of 54 topics done (t00000, ")
    assert held["progress"].endswith(" and 5 more)")


def test_what_is_left_out_under_way_is_not_counted_any_more() -> None:
    records = {"topic-config": Originals({"t1": None, "t2": VALUE, "t3": "5"}).encode()}
    assert to_change(inventory(), records) == ("t1", "t3")
    assert to_change(inventory(leave_out=("t3",)), records) == ("t1",)
    assert to_change(inventory(), {}) == ()


def test_killed_anywhere_it_goes_on_or_back(tmp_path: Path) -> None:
    left = left_by_kills(desk(tmp_path), forward, kinds=())
    assert len(left) > 70
    for made, _ in on_and_back(left):
        assert made.process(back).code == 0, made.run_dir
        assert made.home, made.run_dir


def test_killed_anywhere_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    left = left_by_kills(made, back, kinds=())
    assert len(list(homeward(left))) > 60


@pytest.mark.parametrize("place", range(len(changed())))
@pytest.mark.parametrize(("trouble", "times"), [("lost", 1), ("down", 2)])
@pytest.mark.parametrize("way", list(Way))
def test_a_lost_answer_is_looked_at_and_never_assumed(
    tmp_path: Path, place: int, trouble: str, times: int, way: Way
) -> None:
    made = desk(tmp_path)
    if way is Way.BACK:
        made.process(forward)
        made.cluster.altered.clear()
    made.cluster.wrong = [""] * place + [trouble]
    assert made.process(forward if way is Way.FORWARD else back).code == 0
    assert made.there if way is Way.FORWARD else made.home
    proof = found(made, "topics.set" if way is Way.FORWARD else "topics.back")
    assert proof.seen.startswith(f"{FEW} topics"), "all of them, not the last wave alone"
    assert sorted(c.topic for c in made.cluster.altered) == changed(), (
        "sent again only where it did not happen"
    )
    intents = [e.body for e in journal.kept_lines(made.run_dir) if e.kind == "intent"]
    sent = [b["target"] for b in intents if b["way"] == way.value]
    assert sorted(sent.count(topic) for topic in changed()) == [1] * (len(changed()) - 1) + [times]


def test_brokers_that_are_silent_are_waited_for_and_then_named(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.before_change = lambda _change: setattr(made.cluster, "silent", True)
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert finding.seen == "unknown (timeout): no broker answers"
    made.cluster.silent, made.before_change = False, lambda _change: None
    assert made.process(resume).code == 0
    assert made.there


def at(number: int, act: Callable[[], None]) -> Callable[[Change], None]:
    """Does ``act`` before the change of this number."""
    numbers = iter(range(1, 100))

    def before(_change: Change) -> None:
        if next(numbers) == number:
            act()

    return before


def test_a_topic_that_is_gone_blocks_by_name_until_it_is_left_out(tmp_path: Path) -> None:
    made = desk(tmp_path)
    last = changed()[-1]
    made.before_change = at(3, lambda: made.cluster.topics.__delitem__(last))
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id, finding.seen) == (6, "topics.there", f"gone: {last}")
    assert any("leave_out" in move for move in finding.moves)
    assert made.process(resume).code == 6
    made.inventory = inventory(leave_out=(last,))
    assert made.process(resume).code == 0
    made.first.pop(last)
    assert made.there
    assert found(made, "topics.set").seen.endswith(f"left out: {last}")
    assert made.process(back).code == 0
    assert made.home
    assert found(made, "topics.back").seen.endswith(f"{last}: gone")


def test_a_topic_deleted_just_before_its_change_is_refused_and_then_named(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.wrong = ["deleted"]
    ended = made.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["topics.there"])


def test_another_hands_value_blocks_forward_and_stays_on_the_way_back(tmp_path: Path) -> None:
    made = desk(tmp_path)
    mine, last = changed()[0], changed()[-1]

    def other() -> None:
        made.cluster.topics[last][KEY] = "5"

    made.before_change = at(3, other)
    ended = made.process(forward)
    [finding] = ended.findings
    original = made.first[last].get(KEY, "unset")
    assert (ended.code, finding.id) == (6, "topics.foreign")
    assert finding.seen == f"{last}: 5 (before the run: {original})"
    assert finding.needed == f"the value before the run, or {VALUE}"
    made.cluster.topics[mine][KEY] = "7"
    assert made.process(back).code == 0
    assert made.cluster.topics == {
        **made.first,
        last: {**made.first[last], KEY: "5"},
        mine: {**made.first[mine], KEY: "7"},
    }
    told = found(made, "topics.back")
    assert told.held is Held.NO
    assert f"{mine}: 7 (before the run: 1000)" in told.seen


def test_what_other_hands_set_back_meanwhile_is_set_again(tmp_path: Path) -> None:
    """The end is looked at anew: what was confirmed and is not there any more does not count."""
    made = desk(tmp_path)
    mine = changed()[0]

    def undo() -> None:
        assert made.cluster.topics[mine][KEY] == VALUE
        made.cluster.topics[mine][KEY] = made.first[mine][KEY]

    made.before_change = at(len(changed()), undo)
    assert made.process(forward).code == 0
    assert made.there


def test_a_refusal_stops_after_three_tries_with_kafkas_reason(tmp_path: Path) -> None:
    made = desk(tmp_path)
    last = changed()[-1]
    sent: list[str] = []

    def refuse(change: Change) -> None:
        assert isinstance(change, AlterTopicConfig)
        sent.append(change.topic)
        made.cluster.refuses = lambda topic, _key, _value: "policy: no" if topic == last else ""

    made.before_change = refuse
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id, finding.target) == (8, "engine.no-progress", last)
    assert "policy: no" in finding.seen
    assert sent.count(last) == 3
    made.cluster.refuses, made.before_change = lambda *_: "", lambda _change: None
    assert made.process(resume).code == 0
    assert made.there


def test_without_the_journals_lines_nobody_knows_the_original(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.process(forward)
    (made.run_dir / NAME).unlink()
    for act in (forward, back):
        made.process(lambda walk: _lost(walk))
        ended = made.process(act)
        assert ended.code in (6, 8)
        assert [f.id for f in ended.findings] == ["topics.original"]
        assert made.there


def _lost(walk: Walk) -> RunEnded:
    walk.journal.append("note", {"text": "lost", "lost": True})
    return RunEnded(0, "")


POINTS = {1: "applied", 101: "apply", 500: "applied", 900: "applied"}
"""Of the 900 changes: the first, the first of the second wave, one in the middle, and the last; killed
before (apply) or after (applied) the cluster made it."""


@pytest.mark.parametrize("number", POINTS)
def test_many_topics_killed_at_a_change_go_on_and_back(tmp_path: Path, number: int) -> None:
    made = replace(desk(tmp_path, MANY), wave=WAVE)
    assert len(changed(MANY)) == max(POINTS)
    with pytest.raises(Killed):
        made.process(forward, Points(number, kinds=(POINTS[number],)))
    assert made.process(resume).code == 0
    assert made.there
    with pytest.raises(Killed):
        made.process(back, Points(number, kinds=(POINTS[number],)))
    assert made.process(resume).code == 0
    assert made.home
    assert (made.run_dir / NAME).stat().st_size < 2_000_000


def refused(made: Desk) -> tuple[Finding, ...]:
    """The findings with which the check before the first change refuses."""
    ended = made.process(forward)
    assert ended.code == 3
    assert made.cluster.altered == []
    return tuple(f for f in ended.findings if f.blocks)


def test_the_brokers_of_another_cluster_are_refused(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.cluster_id = "B" * 22
    [finding] = refused(made)
    assert (finding.id, finding.needed) == ("topics.cluster", ID)


def test_each_entry_that_means_no_topic_is_named(tmp_path: Path) -> None:
    [finding] = refused(desk(tmp_path, topics=("t*", "x*", "t99999")))
    assert (finding.id, finding.seen) == ("topics.names", "nothing matches x*, t99999")


def test_a_pattern_means_no_internal_topic_unless_it_says_so(tmp_path: Path) -> None:
    made = desk(tmp_path, topics=("*",))
    assert made.process(forward).code == 0
    assert made.there
    named = desk(tmp_path / "named", topics=("__consumer_offsets",))
    assert named.process(forward).code == 0
    assert [c.topic for c in named.cluster.altered] == ["__consumer_offsets"]


def test_a_topic_that_is_left_out_is_neither_looked_at_nor_set(tmp_path: Path) -> None:
    made = desk(tmp_path, leave_out=("t00001",))
    made.cluster.denied = frozenset({"t00001"})
    assert made.process(forward).code == 0
    assert "t00001" not in {c.topic for c in made.cluster.altered}


def test_an_unknown_config_is_refused(tmp_path: Path) -> None:
    [finding] = refused(desk(tmp_path, key="retention.min"))
    assert (finding.id, finding.seen) == ("topics.key", "none of this name")


def test_a_read_only_config_is_refused(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.read_only = frozenset({KEY})
    [finding] = refused(made)
    assert (finding.id, finding.seen) == (
        "topics.read-only", "read-only for t00000, t00001, t00002, t00003, t00004 and 3 more"
    )  # fmt: skip


def test_a_topic_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.denied = frozenset({"t00003"})
    [finding] = refused(made)
    assert (finding.id, finding.held) == ("topics.readable", Held.UNKNOWN)
    assert finding.seen.startswith("t00003: unknown (denied): ")


def test_refusals_of_a_value_are_told_once_for_each_reason(tmp_path: Path) -> None:
    made = desk(tmp_path)
    why = {"t00001": "policy: no", "t00002": "not for 't00002'", "t00003": "not for 't00003'"}
    made.cluster.refuses = lambda topic, _key, _value: why.get(topic, "")
    assert [f.seen for f in refused(made)] == [
        "t00001: policy: no",
        "t00002, t00003: not for TOPIC",
    ]
    assert {f.id for f in refused(made)} == {"topics.value"}


def test_silent_brokers_are_refused_before_the_first_change(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.silent = True
    [finding] = refused(made)
    assert (finding.id, finding.cause) == ("topics.answer", "timeout")


def test_the_step_looks_again_itself_before_its_first_change(tmp_path: Path) -> None:
    """Days may pass between the check and the consent."""
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    made.cluster.cluster_id = "B" * 22
    ended = made.process(resume)
    assert ended.code == 6
    assert [f.id for f in ended.findings if f.blocks] == ["topics.cluster"]


def test_a_topic_that_may_not_be_read_stops_the_way_back_after_the_others(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.process(forward)
    wave = changed()[: made.wave]
    made.cluster.denied = frozenset(wave)
    ended = made.process(back)
    assert (ended.code, [f.id for f in ended.findings]) == (8, ["topics.readable"])
    assert [name for name, own in made.cluster.topics.items() if own != made.first[name]] == wave
    made.cluster.denied = frozenset()
    assert made.process(resume).code == 0
    assert made.home


def test_a_run_that_changed_nothing_goes_back_without_the_cluster(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.process(lambda walk: walk.forward(until="preflight"))
    made.cluster.cluster_id = "B" * 22
    assert made.process(resume).code == 6
    made.cluster.silent = True
    assert made.process(back).code == 0


def test_when_kafka_refuses_everything_the_rest_is_not_sent(tmp_path: Path) -> None:
    made = desk(tmp_path, 60)
    sent: list[str] = []

    def no_more(change: Change) -> None:
        assert isinstance(change, AlterTopicConfig)
        sent.append(change.topic)
        if len(sent) == 3:
            made.cluster.refuses = lambda *_: "policy: no"

    made.before_change = no_more
    assert made.process(forward).code == 8
    assert len(set(sent)) <= 2 * made.wave + 1


def test_what_another_hand_sets_again_after_the_way_back_is_named_and_not_fought(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.process(forward)
    mine = changed()[0]

    def again() -> None:
        assert made.cluster.topics[mine] == made.first[mine], "its wave is over"
        made.cluster.topics[mine][KEY] = VALUE

    made.before_change = at(made.wave + 1, again)
    assert made.process(back).code == 0
    assert made.cluster.topics == {**made.first, mine: {**made.first[mine], KEY: VALUE}}
    assert found(made, "topics.back").held is Held.NO
