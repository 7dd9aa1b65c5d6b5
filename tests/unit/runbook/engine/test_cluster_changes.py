"""A toy runbook: run, killed anywhere, resumed, walked back.

It has a change on hosts, one on a cluster, and a question to the cluster. The cluster is a store of values,
which remembers no operation: what came of a change is told by a look alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.engine_world import (
    HOSTS,
    ROLES,
    Hosts,
    Killed,
    Points,
    Tiny,
    TinyInventory,
    WriteStep,
    back,
    forward,
    resume,
)
from tests.world.model.look import WorldLook
from tests.world.operator import quiet_world
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import (
    KAFKA,
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    ElectLeaders,
    PlaceReplica,
    ReassignPartition,
)
from zkmigrate.kafka.questions import TopicSetting
from zkmigrate.runbook.engine import journal, plan
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import (
    Applied,
    Change,
    Changes,
    ClusterChange,
    Outcome,
    PutFile,
    inverses,
    undoes,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.look import Look, Request
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Context, Done, Hazard, Ready, Verdict, Way
from zkmigrate.runbook.site.observe import Observe

TOPICS = ("a", "b", "c", "d", "e")
BEFORE = {"a": "1", "c": "3"}
AFTER = dict.fromkeys(TOPICS, "new")
FILES = {(host, "/file"): b"new" for host in HOSTS}
STEP = "main.setting"
CLUSTER = "s1"
"""As the source host of the inventory is called: clusters and hosts have names of their own."""


@dataclass(frozen=True)
class SetValue(ClusterChange):
    """The toy's own change. The engine, the journal and the plan know it by its definition alone."""

    cluster: str
    topic: str
    value: str | None
    before: str | None
    verb = "set-value"
    expect = ""

    def describe(self) -> str:
        return f"set {self.topic} to {self.value} (found: {self.before})"

    def inverse(self, _operation: str = "") -> SetValue:
        return replace(self, value=self.before, before=self.value)


@dataclass(frozen=True)
class ReadValues(Request[Reading[dict[str, str]]]):
    """The toy's own question. The look knows it by its definition alone."""

    cluster: str
    answered_by = f"{__name__}:StoreAnswers.values"


class StoreInventory(TinyInventory):
    """An inventory by which the store is reached."""

    store: dict[str, str]


class StoreAnswers:
    """Answers the toy's question from the store of its inventory."""

    def __init__(self, inventory: Inventory, _look: Look) -> None:
        assert isinstance(inventory, StoreInventory)
        self._store = inventory.store

    def close(self) -> None:
        pass

    def values(self, asked: ReadValues) -> Reading[dict[str, str]]:
        return Seen(dict(self._store)) if asked.cluster == CLUSTER else Absent(asked.cluster)


@dataclass
class Site(Hosts):
    """Hosts, and a store. wrong: what befalls the next changes of the store, one after the other: it is
    ``down``, the answer is ``lost``, or it is ``refused``."""

    values: dict[str, str] = field(default_factory=lambda: dict(BEFORE))
    wrong: list[str] = field(default_factory=list)
    altered: list[tuple[str, str | None]] = field(default_factory=list)

    def apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        if not isinstance(change, ClusterChange):
            return super().apply(change, operation, fencing)
        assert isinstance(change, SetValue)
        self.points.hit("apply")
        self._intent_is_durable(operation)
        trouble = self.wrong.pop(0) if self.wrong else ""
        if trouble == "down":
            raise HostError("store: no answer")
        if trouble == "refused":
            return Outcome(1, "store: not now")
        self.altered.append((change.topic, change.value))
        self.values.pop(change.topic, None)
        if change.value is not None:
            self.values[change.topic] = change.value
        self.points.hit("applied")
        if trouble == "lost":
            raise HostError("store: the connection broke")
        return Outcome(0)


@dataclass
class SettingStep:
    """Sets one value of each topic, two topics at a time; records first what it found."""

    id: str = "setting"
    title: str = "set"
    hazard: Hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> dict[str, str]:
        seen = look.ask(ReadValues(CLUSTER))
        assert isinstance(seen, Seen)
        return seen.value

    def check(self, c: Context, f: dict[str, str]) -> Verdict:
        found = {topic: f.get(topic) for topic in TOPICS}
        original = c.records[STEP]["original"] if c.begun else found
        wanted = original if c.way is Way.BACK else AFTER
        left = tuple(topic for topic in TOPICS if f.get(topic) != wanted[topic])
        if left:
            return Ready(left[:2], record={"original": original})
        return Done((claim("toy.set", "every topic has its value", True),))

    def plan(self, c: Context, f: dict[str, str], target: str) -> Changes:
        return (SetValue(CLUSTER, target, "new", f.get(target)),)

    def undo(self, c: Context, f: dict[str, str], target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)


@dataclass
class Toy(Tiny):
    hosts: Site = field(default_factory=Site)

    @property
    def playbook(self) -> Playbook:
        steps: tuple[Any, ...] = (WriteStep("file", self.hosts), SettingStep())
        stages = (Stage("main", "do", cast(tuple[AnyStep, ...], steps)),)
        return Playbook("toy", "A toy", stages, inventory=StoreInventory, roles=ROLES, alters_clusters=True)

    def walk(self, journal: journal.Journal) -> Walk:
        walk, nobody = super().walk(journal), cast(Any, None)
        known = StoreInventory.model_construct(store=self.hosts.values)
        walk.ports = replace(walk.ports, look=Observe(known, nobody, nobody, nobody))
        return walk

    @property
    def home(self) -> bool:
        return self.hosts.values == BEFORE and self.hosts.files == {}

    @property
    def there(self) -> bool:
        return self.hosts.values == AFTER and self.hosts.files == FILES


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "r")


def test_the_inverse_of_a_setting_is_what_was_found_newest_first() -> None:
    def applied(topic: str, value: str | None, before: str | None, number: int) -> Applied:
        change = SetValue("store", topic, value, before)
        return Applied(change, f"o{number}", confirmed=number != 1)

    sent = (
        applied("a", "5", None, 1),
        applied("a", "5", None, 2),
        applied("a", "7", "5", 3),
        applied("a", None, "7", 4),
    )
    assert [c.value for c in inverses(sent) if isinstance(c, SetValue)] == ["7", "5", None]
    assert inverses(sent)[-1] == SetValue("store", "a", None, "5")
    assert undoes(SetValue("store", "a", "7", "by another hand"), sent[3])
    assert not undoes(SetValue("store", "b", "7", None), sent[3])
    assert not undoes(SetValue("store", "a", "5", None), sent[3])
    assert not undoes(ElectLeaders("store"), sent[3])


def test_a_change_of_either_kind_tells_what_it_touches() -> None:
    assert (PutFile("d1", "/f", b"", "root:root").where, ElectLeaders("store").where) == (
        "d1",
        "store",
    )


@pytest.mark.parametrize(
    ("value", "by_hand"),
    [("1", "--add-config 'retention.ms=[1]'"), ("a b,c", "--add-config 'retention.ms=[a b,c]'"),
     (None, "--delete-config retention.ms")],
)  # fmt: skip
def test_a_setting_by_hand_is_a_line_for_kafkas_own_tool(value: str | None, by_hand: str) -> None:
    change = AlterTopicConfig("kafka", "t", "retention.ms", value, None)
    tool = "kafka-configs.sh --bootstrap-server BOOTSTRAP --alter --entity-type topics --entity-name t"
    assert plan.command(change) == f"{tool} {by_hand}"


def test_the_model_of_a_move_keeps_what_a_topic_sets() -> None:
    world = quiet_world()
    change = AlterTopicConfig("kafka", "t", "retention.ms", "1", None)
    assert world.apply(change, "o.1", 1)[0] == 0
    assert world.settings == {("t", "retention.ms"): "1"}
    look = WorldLook(world)
    assert look.topic_settings("kafka", "retention.ms", ("t", "load", "x")) == Seen(
        {"t": Seen(TopicSetting("1")), "load": Seen(TopicSetting(None)), "x": Absent("x")}
    )
    for again in ("o.2", "o.3"):
        assert world.apply(replace(change, value=None, before="1"), again, 1)[0] == 0
    assert world.settings == {}


def test_there_and_back(toy: Toy) -> None:
    assert toy.process(forward) == RunEnded(0, "toy is complete")
    assert toy.there
    assert toy.process(back).code == 0
    assert toy.home
    history = journal.read(toy.run_dir)
    assert history.touched(STEP) == ()
    assert not history.touched_in("main")


def killed(tmp_path: Path, act: Callable[[Walk], RunEnded], whole: bool) -> list[Toy]:
    """One toy for each point at which ``act`` can be killed. whole: the way forward was walked before."""
    toys: list[Toy] = []
    while True:
        toy = Toy(tmp_path / f"r{len(toys)}")
        if whole:
            assert toy.process(forward).code == 0
        try:
            toy.process(act, Points(len(toys) + 1))
        except Killed:
            toys.append(toy)
        else:
            return toys


def test_killed_anywhere_it_goes_on_or_back(tmp_path: Path) -> None:
    """Each change has a point before it, one after it, and those of the journal around it."""
    onward = killed(tmp_path / "on", forward, whole=False)
    for number, toy in enumerate(onward):
        assert toy.process(resume).code == 0, number
        assert toy.there, number
        assert toy.process(back).code == 0, number
        assert toy.home, number
    homeward = killed(tmp_path / "home", forward, whole=False)
    for number, toy in enumerate(homeward):
        assert toy.process(back).code == 0, number
        assert toy.home, number
    assert len(onward) == len(homeward) > 60


def test_killed_anywhere_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    toys = killed(tmp_path, back, whole=True)
    for number, toy in enumerate(toys):
        way = journal.read(toy.run_dir).way
        assert toy.process(resume if way is Way.BACK else back).code == 0, number
        assert toy.home, number
    assert len(toys) > 60


@pytest.mark.parametrize("at", range(len(TOPICS)))
@pytest.mark.parametrize(("trouble", "times"), [("lost", 1), ("down", 2), ("refused", 2), ("", 1)])
@pytest.mark.parametrize("way", list(Way))
def test_a_change_is_sent_again_only_where_a_look_says_that_it_did_not_happen(
    toy: Toy, at: int, trouble: str, times: int, way: Way
) -> None:
    if way is Way.BACK:
        toy.process(forward)
        toy.hosts.altered.clear()
    toy.hosts.wrong = [""] * at + [trouble]
    assert toy.process(forward if way is Way.FORWARD else back).code == 0
    assert toy.there if way is Way.FORWARD else toy.home
    assert sorted(topic for topic, _ in toy.hosts.altered) == list(TOPICS)
    intents = [e.body for e in journal.kept_lines(toy.run_dir) if e.kind == "intent"]
    of_way = [b["target"] for b in intents if (b["step"], b["way"]) == ("setting", way.value)]
    assert sorted(of_way.count(topic) for topic in TOPICS) == [1, 1, 1, 1, times]


def test_the_way_back_starts_from_an_intent_without_an_outcome(toy: Toy) -> None:
    toy.hosts.values["a"] = "odd"
    with pytest.raises(Killed):
        toy.process(forward, Points(len(HOSTS) + 1, kinds=("applied",)))
    first = toy.hosts.altered[0][0]
    (applied,) = journal.read(toy.run_dir).applied(STEP, first)
    assert (applied.confirmed, toy.hosts.values[first]) == (False, "new")
    assert toy.process(back).code == 0
    assert toy.hosts.values == {**BEFORE, "a": "odd"}


def test_what_nobody_confirmed_is_in_doubt_until_it_is_done_or_undone(toy: Toy) -> None:
    toy.hosts.wrong = ["refused"]
    with pytest.raises(Killed):
        toy.process(forward, Points(len(HOSTS) + 1, kinds=("applied",)))
    assert journal.read(toy.run_dir).in_doubt(STEP) == {"a", "b"}
    toy.process(resume)
    assert journal.read(toy.run_dir).in_doubt(STEP) == {"a", "b"}, "and no topic that was confirmed"
    toy.process(back)
    assert journal.read(toy.run_dir).in_doubt(STEP) == frozenset()


def test_what_is_put_back_is_not_to_be_put_back_again(toy: Toy) -> None:
    toy.hosts.wrong = ["lost"]
    toy.process(forward)
    with pytest.raises(Killed):
        toy.process(back, Points(3, kinds=("apply",)))
    history = journal.read(toy.run_dir)
    assert history.touched(STEP) == ("c", "d", "e")
    assert history.unrestored(STEP) == {"c", "d", "e"}


def test_the_original_is_durable_before_the_first_change_and_stays(toy: Toy) -> None:
    original = {"original": {topic: BEFORE.get(topic) for topic in TOPICS}}
    with pytest.raises(Killed):
        toy.process(forward, Points(len(HOSTS) + 1, kinds=("apply",)))
    assert toy.hosts.altered == []
    assert journal.read(toy.run_dir).records()[STEP] == original
    with pytest.raises(Killed):
        toy.process(resume, Points(1, kinds=("applied",)))
    assert toy.process(resume).code == 0
    records = journal.read(toy.run_dir).records()
    assert records[STEP] == records["setting"] == original


def test_what_is_recorded_on_the_way_stands_before_the_intents_and_once_in_a_visit(toy: Toy) -> None:
    toy.process(forward)
    toy.process(back)
    kinds = [e.kind for e in journal.kept_lines(toy.run_dir) if e.body.get("step") == "setting"]
    assert kinds.count("record") == 1
    assert kinds.index("record") < kinds.index("intent")


def test_a_second_way_forward_starts_from_what_it_finds_then(toy: Toy) -> None:
    toy.process(forward)
    toy.process(back)
    toy.hosts.values["b"] = "by another hand"
    assert toy.process(forward).code == 0
    assert toy.process(back).code == 0
    assert toy.hosts.values == {**BEFORE, "b": "by another hand"}


def test_the_journal_holds_what_was_found_with_the_intent(toy: Toy) -> None:
    toy.process(forward)
    changes = [e.body["change"] for e in journal.kept_lines(toy.run_dir) if e.kind == "intent"]
    found = {c["topic"]: c["before"] for c in changes if c["type"] == "SetValue"}
    assert found == {topic: BEFORE.get(topic) for topic in TOPICS}


def test_a_change_that_never_comes_true_is_the_clusters_fault(toy: Toy) -> None:
    toy.hosts.wrong = ["refused"] * 99
    ended = toy.process(forward)
    assert ended.code == 8
    assert {f.moves[0] for f in ended.findings} == {"fix the cluster, then resume"}


def test_a_replica_set_goes_back_to_the_one_before_in_its_order() -> None:
    move = ReassignPartition(KAFKA, "a", 3, (2, 3), (3, 1))
    [back] = inverses((Applied(move, "o.1", confirmed=True),))
    assert back == ReassignPartition(KAFKA, "a", 3, (3, 1), (2, 3))
    applied = Applied(move, "o.1", confirmed=False)
    assert undoes(replace(back, before=(2, 4)), applied), "whatever it found before"
    assert not undoes(replace(back, replicas=(1, 3)), applied), "the order counts"
    assert not undoes(CancelReassignment(KAFKA, "a", 3, (2, 3)), applied), "which does not restore the order"
    assert inverses((Applied(CancelReassignment(KAFKA, "a", 3, (2, 3)), "o.2", confirmed=True),)) == ()


def test_a_replica_goes_back_into_the_directory_where_it_was() -> None:
    placed = PlaceReplica(KAFKA, 2, "a", 3, "/d2", "/d1")
    assert placed.describe() == "move a-3 on broker 2 to the directory /d2 (found: /d1)"
    [back] = inverses((Applied(placed, "o.1", confirmed=True),))
    assert back == PlaceReplica(KAFKA, 2, "a", 3, "/d1", "/d2")
    told = replace(placed, before="")
    assert told.describe() == "move a-3 on broker 2 to the directory /d2 (the broker has no replica yet)"
    assert inverses((Applied(told, "o.1", confirmed=True),)) == (), "the reassignment goes back"


def test_a_brokers_config_goes_back_to_what_was_found() -> None:
    rate = AlterBrokerConfig(KAFKA, 1, "r", "5", None)
    applied = Applied(rate, "o.1", confirmed=True)
    assert inverses((applied,)) == (AlterBrokerConfig(KAFKA, 1, "r", None, "5"),)
    assert undoes(AlterBrokerConfig(KAFKA, 1, "r", None, "7"), applied)
    assert not undoes(AlterTopicConfig(KAFKA, "1", "r", None, "5"), applied)


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (
            AlterBrokerConfig(KAFKA, 1, "r", "5", None),
            "kafka-configs.sh --bootstrap-server BOOTSTRAP --alter --entity-type brokers --entity-name 1 "
            "--add-config 'r=[5]'",
        ),
        (
            ReassignPartition(KAFKA, "a", 3, (2, 3), (1, 3)),
            "kafka-reassign-partitions.sh --bootstrap-server BOOTSTRAP --execute --additional "
            '--reassignment-json-file <(echo \'{"version": 1, "partitions": '
            '[{"topic": "a", "partition": 3, "replicas": [2, 3]}]}\')',
        ),
        (
            CancelReassignment(KAFKA, "a", 3, (2, 3)),
            "kafka-reassign-partitions.sh --bootstrap-server BOOTSTRAP --cancel --preserve-throttles "
            '--reassignment-json-file <(echo \'{"version": 1, "partitions": '
            '[{"topic": "a", "partition": 3, "replicas": [2, 3]}]}\')',
        ),
        (
            ElectLeaders(KAFKA, (("a", 3),)),
            "kafka-leader-election.sh --bootstrap-server BOOTSTRAP --election-type preferred "
            '--path-to-json-file <(echo \'{"partitions": [{"topic": "a", "partition": 3}]}\')',
        ),
    ],
)
def test_a_reassignment_is_said_as_kafkas_own_tools_take_it(change: ClusterChange, command: str) -> None:
    assert change.command == command
