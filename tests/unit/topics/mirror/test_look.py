"""What a run sees of two clusters, one of which mirrors the other, and what it commits on the mirror."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.answers import Mirrored
from tests.ports import free_port
from tests.unit.topics.mirror.batches import built, marker
from tests.unit.topics.mirror.model_cluster import Alone, Log, ModelCluster
from zkmigrate import deadline
from zkmigrate.errors import HostError, UsageError
from zkmigrate.kafka.changes import ElectLeaders
from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.topics.mirror.changes import AlterAcls, CopyOffsets
from zkmigrate.topics.mirror.clients import groups, pair, rights, survey
from zkmigrate.topics.mirror.clients.alter import Alter, alterer
from zkmigrate.topics.mirror.clients.cluster import Cluster, Latest, Part, Topic
from zkmigrate.topics.mirror.clients.pair import Pair
from zkmigrate.topics.mirror.clients.survey import Place
from zkmigrate.topics.mirror.questions import (
    BothEnds,
    ClusterAt,
    Granted,
    GroupPair,
    RangeCompared,
)
from zkmigrate.topics.mirror.rules.commits import Commit, Group
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.rules.topic import Settings
from zkmigrate.topics.mirror.rules.transactions import Writers
from zkmigrate.topics.mirror.verbs.compare import _compared
from zkmigrate.topics.topic_move.rules import check_groups

P, Q = ("orders", 0), ("orders", 1)
AT = ClusterAt(("a:1",)), ClusterAt(("b:1",), "/etc/b.properties")


class Side(ModelCluster):
    """A cluster of the model that also tells its id, its topics and its latest offsets. errors: partitions
    that it does not tell the latest offsets of. open: by partition, the last stable offset."""

    def __init__(self, what: str, logs: dict[Part, Log], settings: dict[str, str] | None = None) -> None:
        super().__init__(what, logs)
        self.settings = settings or {}
        self.errors: set[Part] = set()
        self.open: dict[Part, int] = {}
        self.closed = 0
        self.secret = False

    def id(self) -> str:
        return f"id-{self.what}"

    def brokers(self) -> list[int]:
        return [1, 2]

    def super_users(self, _node: int) -> bool:
        if self.secret:
            raise HostError("ClusterAuthorizationFailed")
        return self.what == "target"

    def topics(self, names: Sequence[str]) -> tuple[dict[str, Topic], dict[str, str]]:
        led = {name: numbers for name, numbers in self.leaders(names).items() if numbers}
        own = Settings(self.settings, frozenset(self.settings), dict.fromkeys(self.settings))
        return {name: Topic(numbers, 1, own) for name, numbers in led.items()}, {}

    def latest(self, topics: Iterable[str]) -> dict[Part, Latest]:
        return {
            part: Latest(None, None, None, (1, 2), (1, 2))
            if part in self.errors
            else one._replace(stable=self.open.get(part, one.stable))
            for part, one in super().latest(topics).items()
        }

    def close(self) -> None:
        self.closed += 1


def log(*counts: int, first: int = 0) -> Log:
    made = Log()
    for n, count in enumerate(counts):
        made.append(built(count, first_value=first + 100 * n))
    return made


@contextmanager
def looking(monkeypatch: pytest.MonkeyPatch, here: Side, there: Side) -> Iterator[Mirrored]:
    """A look whose connections are these."""
    opened = iter((here, there))
    monkeypatch.setattr(pair, "Cluster", lambda *_: next(opened))
    monkeypatch.setattr(pair, "settings", lambda _file: {})
    look = Mirrored(*AT)
    yield look
    look.close()
    assert (here.closed, there.closed) == (1, 1)


def value(reading: Reading[Any]) -> Any:
    assert isinstance(reading, Seen), reading
    return reading.value


def test_h14_both_ends_stand_by_sources_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Side("source", {P: log(3, 2), Q: log(4)}), Side("target", {P: log(3)})
    here.open[P] = 3
    with looking(monkeypatch, here, there) as look:
        found = value(look.ends(["orders"]))
        assert found == {P: BothEnds(5, 3, 3), Q: BothEnds(4, 4, None)}
        here.errors.add(Q)
        assert value(look.ends(["orders"]))[Q] == BothEnds(None, None, None)


SHORT = "in sync: 1 of replicas 1, 2, min.insync.replicas: 2"


def test_records_that_too_few_replicas_have_count_as_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader has acknowledged them with acks=1, and nobody can read them."""
    here, there = Side("source", {P: log(3), Q: log(4)}), Side("target", {P: log(3), Q: log(4)})
    here.above, here.in_sync[P], there.in_sync[Q] = {P: 2, Q: 1}, (1,), (1,)
    unread = "source's log ends at {}, but consumers can read only up to {}"
    with looking(monkeypatch, here, there) as look:
        assert value(look.ends(["orders"])) == {
            P: BothEnds(5, 3, 3, f"{unread.format(5, 3)}; {SHORT}", SHORT),
            Q: BothEnds(5, 4, 4, unread.format(5, 4), target_below=SHORT),
        }
        here.least = 1
        assert value(look.ends(["orders"]))[P] == BothEnds(5, 3, 3, unread.format(5, 3))
        here.least = None
        told = value(look.ends(["orders"]))[P].below
        assert told == SHORT.replace("replicas: 2", "replicas is not known: TopicAuthorizationFailedError")


def test_more_replicas_than_there_are_need_not_be_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Side("source", {P: log(3)}), Side("target", {P: log(3)})
    here.least = 3
    with looking(monkeypatch, here, there) as look:
        assert value(look.ends(["orders"]))[P].below == ""
        here.in_sync[P] = (1,)
        assert value(look.ends(["orders"]))[P].below


def test_a_survey_names_partitions_that_hold_records_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, EQUAL)
    monkeypatch.setattr(rights, "read", lambda _: set())
    here, there = Side("source", {P: log(3), Q: log(4)}), Side("target", {P: log(3), Q: log(4)})
    here.above, here.in_sync[P] = {P: 2, Q: 1}, (1,)
    with looking(monkeypatch, here, there) as look:
        found = value(look.survey(["orders"], [])).partitions
    why = f"source's log ends at 5, but consumers can read only up to 3; {SHORT}"
    assert found == {P: ("held", why), Q: ("behind", "")}


def test_h14_a_topic_that_source_does_not_have_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no partition to compare, everything would be equal."""
    with looking(monkeypatch, Side("source", {P: log(3)}), Side("target", {P: log(3)})) as look:
        assert look.ends(["orders", "audit"]) == Unknown("failed", "source has no topic audit")


def same(records: int, note: str = "") -> Seen[RangeCompared]:
    """A range without a difference."""
    return Seen(RangeCompared("", records, note))


def test_h11_records_of_a_range_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Side("source", {P: log(3, 2), Q: log(4)}), Side("target", {P: log(3, 2), Q: log(4)})
    with looking(monkeypatch, here, there) as look:
        assert value(look.differences({P: (1, 5), Q: (0, 4)})) == {P: same(4), Q: same(4)}
        there.logs[P] = log(3, 2, first=1)
        found = value(look.differences({P: (1, 5), Q: (0, 4)}))
        apart = "offset 1: source's value is b'value 1', target's b'value 2'"
        assert found == {P: Seen(RangeCompared(apart, 0)), Q: same(4)}
        # An aborted batch is no record, and stands elsewhere than a marker of target's.
        here.logs[P], there.logs[P] = log(3), log(3)
        here.logs[P].append(marker(3, 9, commit=False))
        there.logs[P].append(marker(3, 1 << 62, commit=False))
        assert value(look.differences({P: (0, 4)})) == {P: same(3)}


def test_the_part_of_a_range_that_both_logs_still_have_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cluster deletes whole segments, so retention may have left less on either side."""
    here, there = Side("source", {P: log(3, 2), Q: log(4)}), Side("target", {P: log(3, 2), Q: log(4)})
    for part, start in ((P, 3), (Q, 4)):
        here.drop(part, start)
        there.logs[part].batches[0] = built(there.logs[part].batches[0].count, first_value=7)
    with looking(monkeypatch, here, there) as look:
        assert value(look.differences({P: (0, 5), Q: (0, 4)})) == {P: same(2), Q: same(0)}
        note = "target lacks source's records from offset 3 to {}, where its log begins"
        there.drop(P, 4)
        assert value(look.differences({P: (0, 5)})) == {P: same(1, note.format(4))}
        kept, there.logs[P] = there.logs[P], log(3, 2, first=1)
        there.drop(P, 4)
        found = value(look.differences({P: (0, 5)}))[P]
        assert isinstance(found, Seen)
        assert found.value.first.startswith("offset 4: ")
        there.logs[P] = kept
        there.drop(P, 5)
        assert value(look.differences({P: (0, 5)})) == {P: same(0, note.format(5))}
        monkeypatch.setattr(there, "ends", lambda _parts: {P: 6})
        told = value(look.differences({P: (0, 5)}))[P]
    assert told == Unknown("failed", "target: orders-0 does not report where its log begins")


def test_h11_what_retention_deletes_while_it_is_compared_is_named_and_the_rest_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = Side("source", {P: log(2, 2, 2)}), Side("target", {P: log(2, 2, 2)})
    moves = [(here, 2), (there, 3)]

    def moving() -> bool:
        if moves:
            side, start = moves.pop(0)
            side.drop(P, start)
        return False

    here.away = moving
    gone = "retention deleted the records from offset 0 to {} while they were compared"
    with looking(monkeypatch, here, there) as look:
        assert value(look.differences({P: (0, 6)})) == {P: same(3, gone.format(3))}
        here.logs[P], there.logs[P] = log(2, 2, 2), log(2, 2, 2)
        there.drop(P, 2)
        moves += [(there, 6)]
        lacks = "target lacks source's records from offset 0 to 2, where its log begins; "
        whole = "retention deleted the records from offset 2 to 5 while they were compared"
        assert value(look.differences({P: (0, 5)})) == {P: same(0, lacks + whole)}
        # The start moves at each try: that is said, with what to do.
        here.logs[P], there.logs[P] = log(*[1] * 9), log(*[1] * 9)
        moves += [(here, start) for start in (1, 2, 3, 4, 5, 6)]
        told = value(look.differences({P: (0, 9)}))[P]
        assert isinstance(told, Unknown)
        assert "Retention deletes these records faster than they are compared. Next: raise" in told.why
        # A leader that has moved is no retention, even if a log begins later by now.
        here.logs[P], there.logs[P] = log(2, 2), log(2, 2)
        moves[:] = [(here, 2)]
        monkeypatch.setattr(here, "away", lambda: bool(moves) and not moving())
        told = value(look.differences({P: (0, 4)}))[P]
        assert told == Unknown("failed", "source: orders-0: NOT_LEADER_FOR_PARTITION")
        here.away = moving
        # An offset that is out of range though no log begins later is no retention.
        moves.clear()
        here.logs[P], there.logs[P] = log(3), log(1)
        told = value(look.differences({P: (2, 3)}))[P]
        assert told == Unknown("failed", "target: orders-0: OFFSET_OUT_OF_RANGE")


def test_mirror_compare_tells_from_which_offset_it_compared_where_retention_deletes_meanwhile() -> None:
    here, there = Side("source", {P: log(2, 2, 2)}), Side("target", {P: log(2, 2, 2)})
    place = Place(P, Ends(0, 6), 6, Ends(0, 6), "equal")
    there.drop(P, 2)
    told = _compared(cast(Any, here), cast(Any, there), place)
    assert (told.state, told.records, told.begun, told.end) == ("equal", 4, 2, 6)


def test_h11_a_range_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Side("source", {P: log(3)}), Side("target", {P: log(3)})
    led = {"orders": {0: -1}}
    with looking(monkeypatch, here, there) as look:
        there.silent = lambda: True
        assert value(look.differences({P: (0, 3)})) == {P: Unknown("failed", "silent")}
        monkeypatch.setattr(there, "leaders", lambda _names: led)
        assert value(look.differences({P: (0, 3)})) == {
            P: Unknown("failed", "target: orders-0 has no leader")
        }


def test_h11_what_is_not_a_batch_is_garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Side("source", {P: log(3)}), Side("target", {P: log(3)})
    fetched = there.fetched

    def damaged(asked: Any) -> Any:
        return {part: SimpleNamespace(error=0, aborted=(), records=one.records[:-1] + b"\xff")
                for part, one in fetched(asked).items()}  # fmt: skip

    monkeypatch.setattr(there, "fetched", damaged)
    with looking(monkeypatch, here, there) as look:
        told = value(look.differences({P: (0, 3)}))[P]
    assert isinstance(told, Unknown)
    assert (told.cause, "CRC" in told.why) == ("garbled", True)


def reads(monkeypatch: pytest.MonkeyPatch, *known: Group, troubles: dict[str, str] | None = None) -> None:
    brokers = {one.name: 1 for one in known if one.state != "Dead"}
    monkeypatch.setattr(groups, "read", lambda *_: groups.Read(known, brokers, troubles or {}))


EQUAL = Group("a", "Empty", {P: Commit(3)}, {P: Commit(3)})
BEHIND = Group("b", "Dead", {P: Commit(3, "mine"), Q: Commit(9)}, {})
ACTIVE = Group("c", "Stable", {P: Commit(3)}, {P: Commit(1)})


def test_h5_commits_of_both_sides_are_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, EQUAL, BEHIND, ACTIVE, troubles={"d": "source does not have this group"})
    with looking(monkeypatch, Side("source", {}), Side("target", {})) as look:
        assert value(look.commits(["orders"], [])) == {
            "a": GroupPair("equal", 0, "equal"),
            "b": GroupPair("behind", 12, "target's commits are behind by 12 offsets"),
            "c": GroupPair(
                "active", 2, "the group is active on target (Stable), so its commits are not copied"
            ),
            "d": GroupPair("unknown", 0, "source does not have this group"),
        }


def test_a_survey_tells_all_that_is_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, EQUAL, troubles={"d": "no answer"})
    rule = Acl("TOPIC", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW")
    write = rule._replace(operation="WRITE")
    monkeypatch.setattr(rights, "read", lambda one: {rule, write} if one.what == "source" else set())
    kept = {"retention.ms": "5", "segment.ms": "9", "message.timestamp.type": "x", "zstd": "1"}
    here = Side("source", {P: log(3), Q: log(1)}, kept)
    there = Side("target", {P: Log()}, {"segment.ms": "7", "retention.ms": "5", "new": "1"})
    refused = {"orders": {"segment.ms": "POLICY_VIOLATION: no"}}
    monkeypatch.setattr(survey, "try_configuring", lambda _, changes: refused if list(changes) else {})
    monkeypatch.setattr(survey, "transactional", lambda *_: Writers({"pay": "it wrote"}, "no answer"))
    with looking(monkeypatch, here, there) as look:
        found = value(look.survey(["orders"], []))
    assert found.ids == ("id-source", "id-target")
    assert found.refused == {}
    assert found.groups == {"a": GroupPair("equal", 0, "equal"), "d": GroupPair("unknown", 0, "no answer")}
    assert found.differ == {
        "orders: segment.ms": "7, needed: 9; target does not accept the change: POLICY_VIOLATION: no",
    }
    assert found.left == {
        "orders: message.timestamp.type": "target keeps source's timestamps, as CreateTime",
        "orders: new": "source's Kafka has no such setting",
        "orders: zstd": "target's Kafka has no such setting",
    }
    assert found.partitions == {P: ("behind", ""), Q: ("missing", "")}
    assert found.grants == ("ALLOW READ to User:a from * on topic orders",)
    assert found.later == (write,)
    assert found.notes == {}
    assert found.super_users == ("target",)
    assert (found.transactional, found.transactional_dark) == ({"pay": "it wrote"}, "no answer")


def test_groups_that_cannot_be_read_are_no_groups_that_can_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain would find that out while clients wait."""
    monkeypatch.setattr(groups, "read", failing(HostError("source: no answer")))
    monkeypatch.setattr(rights, "read", lambda _: set())
    with looking(monkeypatch, Side("source", {P: log(3)}), Side("target", {P: log(3)})) as look:
        found = value(look.survey(["orders"], []))
    assert (found.groups, found.notes) == (
        {"every group": GroupPair("unknown", 0, "source: no answer")},
        {},
    )
    refused = check_groups(found.groups)
    assert (refused.held, refused.seen) == (Held.NO, "every group: source: no answer")


def test_h21_super_users_that_a_cluster_does_not_show_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, EQUAL)
    monkeypatch.setattr(rights, "read", lambda _: set())
    here, there = Side("source", {P: log(3)}), Side("target", {P: log(3)})
    there.secret = True
    with looking(monkeypatch, here, there) as look:
        found = value(look.survey(["orders"], []))
    assert (found.super_users, found.notes) == ((), {"super users": "ClusterAuthorizationFailed"})


@pytest.mark.parametrize(
    ("without", "notes"), [("source", {}), ("target", {"ACLs": "no authorizer on target"})]
)
def test_only_acls_that_target_cannot_have_are_a_note(
    without: str, notes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads(monkeypatch, EQUAL)
    monkeypatch.setattr(rights, "read", lambda one: None if one.what == without else set())
    with looking(monkeypatch, Side("source", {P: log(3)}), Side("target", {P: log(3)})) as look:
        assert value(look.survey(["orders"], [])).notes == notes


def test_h12_groups_beside_the_named_ones_count_where_their_commits_are_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads(monkeypatch, EQUAL)
    monkeypatch.setattr(rights, "read", lambda _: None)
    commits = {"late": {P: 2, Q: 1}, "edge": {P: 3}, "old": {P: 2}, "busy": {P: 0}}
    told = groups.Others(
        commits, {"busy": "the group has members", "new": "the group has members"}, {"dark": "no answer"}
    )
    monkeypatch.setattr(groups, "others", lambda _side, _topics, named: {("a",): told}[tuple(named)])
    here, there = Side("source", {P: log(3, 3), Q: log(3)}), Side("target", {P: Log(), Q: Log()})
    here.logs[P].start = 3
    with looking(monkeypatch, here, there) as look:
        assert value(look.survey(["orders"], [])).others == {}, "all of them are of the set"
        found = value(look.survey(["orders"], ["a"]))
        assert found.others == {
            "busy": "the group has members",
            "edge": "the group committed on orders-0",
            "late": "the group committed on orders-1",
            "new": "the group has members",
        }
        assert found.notes["group dark"] == "no answer"
        monkeypatch.setattr(groups, "others", failing(HostError("no answer")))
        found = value(look.survey(["orders"], ["a"]))
        assert (found.others, found.notes["other groups"]) == ({}, "no answer")


def test_h7_a_right_is_there_once_every_broker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[int, set[Acl] | None] = {1: {WRITE, DELETE}, 2: {WRITE}}
    monkeypatch.setattr(rights, "read", lambda _there, node: known[node])
    with looking(monkeypatch, Side("source", {}), Side("target", {})) as look:
        assert value(look.granted([WRITE, DELETE])) == Granted(frozenset({WRITE}), frozenset({WRITE, DELETE}))
        known[2] = None
        assert value(look.granted([WRITE])) == Granted(frozenset(), frozenset({WRITE}))


WRITE = Acl("TOPIC", "orders", "LITERAL", "User:a", "*", "WRITE", "ALLOW")
DELETE = WRITE._replace(operation="DELETE")


# -- the connections


def test_a_look_that_fails_is_unknown_and_the_next_one_connects_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Side] = []

    def opened(what: str, *_: object) -> Side:
        made.append(Side(what, {P: log(3)}))
        return made[-1]

    monkeypatch.setattr(pair, "Cluster", opened)
    monkeypatch.setattr(pair, "settings", lambda _file: {})
    look = Mirrored(*AT)
    assert isinstance(look.ends(["orders"]), Seen)
    assert isinstance(look.ends(["orders"]), Seen)
    assert len(made) == 2
    monkeypatch.setattr(made[1], "latest", failing(HostError("no answer")))
    assert look.ends(["orders"]) == Unknown("failed", "no answer")
    assert [one.closed for one in made] == [1, 1]
    assert isinstance(look.ends(["orders"]), Seen)
    monkeypatch.setattr(made[3], "latest", failing(KeyError("orders")))
    garbled = look.ends(["orders"])
    assert isinstance(garbled, Unknown)
    assert garbled.cause == "garbled"
    assert [one.closed for one in made] == [1, 1, 1, 1]


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_one_cluster_does_not_mirror_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Side] = []

    def opened(_what: str, *_: object) -> Side:
        made.append(Side("one", {P: log(3)}))
        return made[-1]

    monkeypatch.setattr(pair, "Cluster", opened)
    monkeypatch.setattr(pair, "settings", lambda _file: {})
    why = "source and target are the same cluster, id-one; needed: two clusters"
    assert Mirrored(*AT).ends(["orders"]) == Unknown("failed", why)
    assert [one.closed for one in made] == [1, 1]


def test_a_question_waits_no_longer_for_the_one_before_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = threading.Event(), threading.Event()
    here, there = Side("source", {P: log(3)}), Side("target", {P: log(3)})

    def slow(_names: object) -> Any:
        begun.set()
        assert over.wait(60)
        return {P: Latest(3, 3)}

    monkeypatch.setattr(here, "latest", slow)
    with looking(monkeypatch, here, there) as look:
        first = threading.Thread(target=look.ends, args=(["orders"],), daemon=True)
        first.start()
        assert begun.wait(60)
        with deadline.within(0.01):
            told = look.ends(["orders"])
        over.set()
        first.join(60)
        assert told == Unknown("failed", "the previous query has no response yet")


def test_a_file_of_properties_is_read_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    sides = iter((Side("source", {}), Side("target", {})))

    def opened(*words: object) -> Side:
        asked.append(words)
        return next(sides)

    monkeypatch.setattr(pair, "Cluster", opened)
    monkeypatch.setattr(pair, "settings", lambda file: {"from": file and str(file)})
    with Pair(*AT).clusters():
        pass
    assert asked == [
        ("source", ("a:1",), {"from": None}),
        ("target", ("b:1",), {"from": "/etc/b.properties"}),
    ]


class Answers(Alone):
    """kafka-python below a :class:`Cluster`: its answers to requests, by the request's name and isolation."""

    def __init__(self, offsets: Mapping[int, Mapping[int, tuple[int, int] | None]]) -> None:
        """offsets: by isolation, -2 for a debugging replica, and by partition Kafka's error and the offset;
        None: its leader is silent."""
        self.offsets = offsets
        self.sent: list[Any] = []

    def begin(self, request: Any, node: int | None = None) -> Any:
        self.sent.append((request, node))
        return request, node

    def end(self, sent: Any) -> Any:
        request, node = sent
        if request.name == "MetadataRequest":
            parts = [
                SimpleNamespace(partition_index=n, leader_id=leader, replica_nodes=[1, 2], isr_nodes=[1])
                for n, leader in enumerate((1, 2, -1))
            ]
            return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=parts)])
        asker = -2 if request.replica_id == -2 else request.isolation_level
        told = self.offsets[asker][node - 1]
        if told is None:
            raise HostError("no answer")
        error, offset = told
        part = SimpleNamespace(partition_index=node - 1, error_code=error, offset=offset)
        return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[part])])


def test_the_latest_offsets_take_three_questions_to_each_leader_at_once() -> None:
    """The end of the log comes first: what is written meanwhile does not look as if it could not be read."""
    offsets: dict[int, dict[int, tuple[int, int] | None]]
    offsets = {-2: {0: (0, 11), 1: (0, 5)}, 0: {0: (0, 9), 1: (6, -1)}, 1: {0: (0, 7), 1: None}}
    cluster, told = Cluster.__new__(Cluster), Answers(offsets)
    cluster.begin, cluster.end = told.begin, told.end  # type: ignore[method-assign]
    first, *others = cluster.latest(["orders"]).items()
    assert first == (P, Latest(9, 7, 11, (1,), (1, 2)))
    dark = Latest(None, None, None, (1,), (1, 2))
    assert others == [(Q, dark._replace(log_end=5)), (("orders", 2), dark)]
    assert [one.last for _, one in (first, *others)] == [11, None, None]
    asked = [
        (one.replica_id, one.isolation_level, node)
        for one, node in told.sent
        if one.name == "ListOffsetsRequest"
    ]
    assert asked == [(-2, 0, 1), (-2, 0, 2), (-1, 0, 1), (-1, 0, 2), (-1, 1, 1), (-1, 1, 2)]
    assert len(told.sent) == 7


@pytest.mark.parametrize(("log_end", "last"), [(None, 9), (8, 9), (9, 9), (11, 11)])
def test_a_leader_that_does_not_tell_its_logs_end_is_taken_at_its_word(
    log_end: int | None, last: int
) -> None:
    assert Latest(9, 9, log_end).last == last


def test_an_answer_is_waited_for_within_the_deadline() -> None:
    """kafka-python's own limit is 30 s."""
    waits: list[float] = []

    class Manager:
        def wait_for(self, sent: object, most_ms: float) -> object:
            waits.append(most_ms)
            return sent

        def run(self, do: Callable[..., object], *args: object) -> object:
            return do(*args)

    cluster = Cluster.__new__(Cluster)
    cluster._manager = Manager()
    assert cluster.end("sent") == "sent"
    assert waits == []
    with deadline.within(2.0):
        assert cluster.end("sent") == "sent"
    assert waits == [pytest.approx(2000.0)]


def test_a_cluster_that_does_not_answer_leaves_no_thread_behind() -> None:
    """A look that fails is repeated, for hours."""
    before = set(threading.enumerate())
    with deadline.within(0.2), pytest.raises(HostError, match="did not respond"):
        Cluster("source", [f"127.0.0.1:{free_port()}"])
    assert set(threading.enumerate()) <= before


# -- commits


class Inventory:
    ends = AT


COPY = CopyOffsets("mirrored", ("orders",), ("a", "b"))


@contextmanager
def altering(monkeypatch: pytest.MonkeyPatch, *failed: tuple[str, str | HostError]) -> Iterator[Any]:
    """An alterer of a target with P, whose log ends at 3, and Q, at 4. Yields it, and what was committed."""
    here, there = Side("source", {}), Side("target", {P: log(3), Q: log(4)})
    opened = iter((here, there))
    monkeypatch.setattr(pair, "Cluster", lambda *_: next(opened))
    monkeypatch.setattr(pair, "settings", lambda _file: {})
    committed: list[Any] = []

    def commit(_target: object, wanted: Any) -> Any:
        committed.append(wanted)
        return {name: why for name, why in failed if name in wanted}

    def touch(_target: object, read: groups.Read) -> groups.Read:
        return groups.Read(read.groups, {one.name: 2 for one in read.groups} | dict(read.brokers), {})

    monkeypatch.setattr(groups, "commit", commit)
    monkeypatch.setattr(groups, "touch", touch)
    alter = alterer(Inventory(), cast(Any, None))
    yield alter, committed, there
    alter.close()
    assert (here.closed, there.closed) == (1, 1)


def test_h5_what_differs_is_committed_at_most_up_to_targets_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, EQUAL, BEHIND)
    with altering(monkeypatch) as (alter, committed, _there):
        assert alter(COPY) == (0, "committed on target for 1 of 2 groups, offsets: 2")
        assert committed == [{"b": (2, {P: Commit(3, "mine"), Q: Commit(4)})}]
        reads(monkeypatch, EQUAL)
        assert alter(COPY) == (0, "committed on target for 0 of 1 groups, offsets: 0")
        assert committed[1:] == [{}]


@pytest.mark.parametrize(
    ("known", "troubles", "why"),
    [
        (
            (BEHIND, ACTIVE),
            {},
            "group c: the group is active on target (Stable), so its commits are not copied",
        ),
        ((BEHIND, Group("e", "Empty", {P: Commit(3)}, {}, "a share group")), {}, "group e: a share group"),
        ((BEHIND,), {"d": "source does not have this group"}, "group d: source does not have this group"),
    ],
)
def test_h5_nothing_is_committed_unless_all_groups_can_be(
    monkeypatch: pytest.MonkeyPatch, known: Sequence[Group], troubles: dict[str, str], why: str
) -> None:
    reads(monkeypatch, *known, troubles=troubles)
    with altering(monkeypatch) as (alter, committed, _there):
        assert alter(COPY) == (1, f"nothing was sent: {why}")
        assert committed == []
        reads(monkeypatch, EQUAL)
        assert alter(COPY)[0] == 0


def test_h7_acls_are_granted_and_taken_away_on_target(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(rights, "grant", lambda where, acls: done.append(("grant", where.what, acls)))
    monkeypatch.setattr(rights, "revoke", lambda where, acls: done.append(("revoke", where.what, acls)))
    with altering(monkeypatch) as (alter, _committed, _there):
        for action in ("grant", "revoke"):
            told = alter(AlterAcls("mirrored", cast(Any, action), (tuple(WRITE), tuple(DELETE))))
            assert told == (0, f"{action} on target: 2 ACLs")
    assert done == [("grant", "target", [WRITE, DELETE]), ("revoke", "target", [WRITE, DELETE])]


def test_h5_a_partition_whose_end_target_does_not_tell_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, BEHIND)
    with altering(monkeypatch) as (alter, committed, there):
        monkeypatch.setattr(there, "ends", lambda _parts: {P: Ends(0, 3), Q: 6})
        assert alter(COPY) == (1, "nothing was sent: target does not report the log ends of orders-1")
        assert committed == []


def test_h5_a_coordinator_is_waited_for_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, BEHIND)
    with altering(monkeypatch) as (alter, committed, _there):
        later = iter([{"b": "target does not report the group's coordinator yet"}, {}])

        def touch(_target: object, read: groups.Read) -> groups.Read:
            return groups.Read(read.groups, {"b": 2}, next(later))

        monkeypatch.setattr(groups, "touch", touch)
        assert alter(COPY)[0] == 0
        assert len(committed) == 1
        monkeypatch.setattr(groups, "touch", lambda _t, read: groups.Read(read.groups, {}, {"b": "not yet"}))
        with deadline.within(0.01):
            assert alter(COPY) == (1, "nothing was sent: group b: not yet")
        assert len(committed) == 1


def test_h5_a_refused_commit_is_a_reason_and_a_silent_one_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, BEHIND)
    with altering(monkeypatch, ("b", "the group is active on target, so its commits are not copied")) as (
        alter,
        _committed,
        _there,
    ):
        assert alter(COPY) == (1, "group b: the group is active on target, so its commits are not copied")
    with (
        altering(monkeypatch, ("b", HostError("no answer"))) as (alter, _committed, _there),
        pytest.raises(HostError, match="group b: no answer"),
    ):
        alter(COPY)


def test_a_change_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alter = Alter(Inventory())
    assert alter(ElectLeaders("kafka"))[0] == 1

    def wrong(_file: object) -> Any:
        raise UsageError("b.properties: wrong")

    monkeypatch.setattr(pair, "settings", wrong)
    assert alter(COPY) == (1, "nothing was sent: b.properties: wrong")


def test_a_survey_looks_ahead_and_tells_a_refusal_of_all_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch)
    monkeypatch.setattr(rights, "read", lambda _: set())
    wrong = {"orders": {"": "POLICY_VIOLATION: no"}}
    monkeypatch.setattr(survey, "try_configuring", lambda _, changes: wrong if list(changes) else {})
    here, there = Side("source", {P: log(3)}, {"a": "1"}), Side("target", {P: Log()}, {"a": "2"})
    here.logs[P].batches[0].payload = here.logs[P].batches[0].payload[:-1]  # a record that ends too soon
    with looking(monkeypatch, here, there) as look:
        found = value(look.survey(["orders"], []))
        assert found.differ == {
            "orders: a": "2, needed: 1; target does not accept the change: POLICY_VIOLATION: no"
        }  # fmt: skip
        monkeypatch.setattr(there, "topics", lambda names: ({"orders": Topic({0: 1}, 1, COMPACT)}, {}))
        assert value(look.survey(["orders"], [])).partitions[P][0] == "failed"


COMPACT = Settings({"cleanup.policy": "compact"})
