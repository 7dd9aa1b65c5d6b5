"""Who leads a topic, as a cluster keeps it, and the verbs that ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from tests.unit.topics.mirror.batches import built
from tests.unit.topics.mirror.model_cluster import Alone, Log, ModelCluster
from tests.unit.topics.mirror.test_groups import cluster
from zkmigrate.errors import HostError, LockedError
from zkmigrate.topics.mirror.changes import MIRRORED, SetDirection
from zkmigrate.topics.mirror.clients import alter, copier, follow, groups, leads, listing
from zkmigrate.topics.mirror.clients.alter import set_direction
from zkmigrate.topics.mirror.clients.leads import GROUP, Leads
from zkmigrate.topics.mirror.clients.survey import Mirrored
from zkmigrate.topics.mirror.rules.direction import Lead
from zkmigrate.topics.mirror.verbs import follow as told
from zkmigrate.topics.mirror.verbs import run, show
from zkmigrate.topics.mirror.verbs.request import Request

NOT_READY, MOVED, DENIED = 15, 16, 30
ASKED = Request((), (), ("orders", "audit"))


class Coordinator(Alone):
    """The brokers' answers. errors: of the next questions, by their class; None for silence."""

    def __init__(self, **errors: Any) -> None:
        self.kept: dict[str, tuple[int, str]] = {}
        self.errors = errors
        self.asked: list[Any] = []
        self.retention_ms = 0

    def begin(self, request: Any, node: int | None = None) -> Any:
        self.asked.append((request, node))
        return request

    def end(self, sent: Any) -> Any:
        told = self.errors.get(type(sent).__name__, [])
        error = told.pop(0) if told else 0
        if error is None:
            raise HostError("no answer")
        if isinstance(sent, FindCoordinatorRequest):
            return SimpleNamespace(error_code=error, node_id=-1 if error else 4)
        if isinstance(sent, OffsetCommitRequest):
            self.retention_ms = sent.retention_time_ms
            parts = {one.name: one.partitions[0] for one in sent.topics}
            if not error:
                self.kept |= {n: (p.committed_offset, p.committed_metadata) for n, p in parts.items()}
            return SimpleNamespace(topics=[_topic(name, error_code=error) for name in parts])
        assert isinstance(sent, OffsetFetchRequest)
        found = {one.name: self.kept.get(one.name, (-1, "")) for one in sent.topics}
        rows = [
            _topic(name, committed_offset=at, metadata=text, error_code=0)
            for name, (at, text) in found.items()
        ]
        return SimpleNamespace(error_code=error, topics=[] if error else rows)


def _topic(name: str, **partition: Any) -> Any:
    return SimpleNamespace(name=name, partitions=[SimpleNamespace(**partition)])


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leads, "_AGAIN_S", 0.0)


def made(**errors: Any) -> tuple[Coordinator, Leads]:
    broker = Coordinator(**errors)
    return broker, Leads("target", broker.begin, broker.end)


def asked(one: Leads) -> dict[str, Lead]:
    return one.told(["orders"], one.ask(["orders"]))


def test_what_is_kept_is_told_and_stays_for_good() -> None:
    broker, one = made()
    assert asked(one) == {}
    one.keep({"orders": Lead("b", 7), "audit": Lead("a", 7)})
    assert asked(one) == {"orders": Lead("b", 7)}
    assert broker.retention_ms > 50 * 365 * 86_400_000
    nodes = [node for sent, node in broker.asked if not isinstance(sent, FindCoordinatorRequest)]
    assert nodes == [4, 4, 4]


def test_an_answer_without_a_topic_does_not_mean_that_every_copier_may_write_it() -> None:
    _, one = made()
    sent = one.ask(["orders"])
    sent.topics = []
    with pytest.raises(
        HostError, match=r"^target does not report the recorded direction of topic audit, orders$"
    ):
        one.told(["orders", "audit"], sent)
    one.keep({"orders": Lead("b", 7)})
    with pytest.raises(HostError, match=r"the recorded direction of topic audit$"):
        one.told(["orders", "audit"], one.ask(["orders"]))


@pytest.mark.parametrize("error", [NOT_READY, MOVED])
def test_a_coordinator_that_comes_or_goes_is_waited_for(error: int) -> None:
    requests = ("FindCoordinatorRequest", "OffsetCommitRequest", "OffsetFetchRequest")
    _, one = made(**{name: [error, error] for name in requests})
    one.keep({"orders": Lead("b", 7)})
    assert asked(one) == {"orders": Lead("b", 7)}


@pytest.mark.parametrize(
    ("request_", "act"),
    [
        ("FindCoordinatorRequest", asked),
        ("OffsetFetchRequest", asked),
        ("OffsetCommitRequest", lambda one: one.keep({"orders": Lead("b", 7)})),
    ],
)
def test_a_right_that_is_missing_is_told(request_: str, act: Callable[[Leads], Any]) -> None:
    _, one = made(**{request_: [DENIED]})
    with pytest.raises(HostError, match=f"GROUP_AUTHORIZATION_FAILED for the group {GROUP}"):
        act(one)


def test_a_coordinator_that_never_comes_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leads, "_MOST_S", 0.05)
    _, one = made(FindCoordinatorRequest=[NOT_READY] * 1_000_000)
    with pytest.raises(HostError, match="COORDINATOR_NOT_AVAILABLE"):
        asked(one)


def test_after_silence_the_coordinator_is_looked_for_again() -> None:
    broker, one = made(OffsetFetchRequest=[None])
    with pytest.raises(HostError, match="no answer"):
        asked(one)
    assert asked(one) == {}
    assert sum(isinstance(request, FindCoordinatorRequest) for request, _ in broker.asked) == 2


def test_the_mirrors_own_group_is_none_of_those_that_are_mirrored() -> None:
    here, there = cluster("source", {"a": "", GROUP: ""}), cluster("target", {GROUP: "Empty"})
    assert [one.name for one in groups.read(here, there, ["orders"], []).groups] == ["a"]
    assert groups.others(here, ["orders"], ["a"]).commits == {}


def test_a_look_asks_no_coordinator_and_only_where_the_group_is_there() -> None:
    told = list[Any]()

    def told_by(node: int, names: Any) -> dict[str, Lead]:
        told.append((node, names))
        return {}

    for states in ({"a": ""}, {"a": "", GROUP: ""}):
        one = cluster("source", states)
        one.leads = SimpleNamespace(told_by=told_by)
        one.described = {GROUP: SimpleNamespace(error_code=MOVED)}
        listing.leads(one, ["orders"])
        assert not any(isinstance(request, FindCoordinatorRequest) for request in one.asked)
    assert told == [(1, ["orders"])]


# -- verbs


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> tuple[ModelCluster, ModelCluster]:
    """Two clusters with two topics, of which target leads the first one."""
    parts = [(name, 0) for name in ASKED.topics]
    here, there = (ModelCluster(name, {part: Log() for part in parts}) for name in ("source", "target"))
    for log in here.logs.values():
        log.append(built(3))
    there.leads.kept["orders"] = Lead("target", 7)
    for name in ("SETTLE_S", "RETRY_S"):
        monkeypatch.setattr(copier, name, 0.0)

    @contextmanager
    def both(_: Request) -> Iterator[Any]:
        yield here, there

    def mirrored(_here: Any, _there: Any, names: Any) -> list[Mirrored]:
        return [Mirrored(name, 1, 1, 1, {}, {}, {}, "") for name in names]

    for module in (run, show):
        monkeypatch.setattr(module, "both", both)
        monkeypatch.setattr(module, "topics", mirrored)
    monkeypatch.setattr(follow.Follower, "look", lambda *_: False)
    return here, there


def test_run_leaves_out_a_topic_that_target_leads(sides: tuple[ModelCluster, ModelCluster]) -> None:
    said = list[str]()
    with pytest.raises(LockedError, match="clients of topic orders"):
        run.run(ASKED, said.append, said.append, once=True, refresh_s=10)
    assert [log.end for log in sides[1].logs.values()] == [0, 3]
    assert said[0].startswith("FENCED orders: clients of topic orders")


def test_run_touches_nothing_where_target_leads_every_topic(
    sides: tuple[ModelCluster, ModelCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    sides[1].leads.kept["audit"] = Lead("target", 7)
    monkeypatch.setattr(run, "topics", None)
    monkeypatch.setattr(sides[1], "take", None)
    with pytest.raises(LockedError, match=r"Next: look at zkmigrate mirror status"):
        run.run(ASKED, lambda _: None, lambda _: None, once=False, refresh_s=10)


def test_an_error_ends_the_events_of_run(sides: tuple[ModelCluster, ModelCluster]) -> None:
    """Also when topics are copied before the error, and when none is."""
    asked = replace(ASKED, as_json=True)
    for more in ({}, {"audit": Lead("target", 7)}):
        sides[1].leads.kept |= more
        said = list[str]()
        with pytest.raises(LockedError) as caught:
            run.run(asked, said.append, said.append, once=True, refresh_s=10)
        last = json.loads(said[-1])
        assert (last["event"], last["code"], last["message"]) == ("RunEnded", 5, str(caught.value))


def test_status_tells_the_direction(
    sides: tuple[ModelCluster, ModelCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = dict[str, dict[str, Lead]](source={}, target={})
    monkeypatch.setattr(listing, "leads", lambda one, _: kept[one.what])
    monkeypatch.setattr(show, "beside", lambda *_: cast(Any, None))
    monkeypatch.setattr(told, "lines", lambda _: ())
    monkeypatch.setattr(told, "body", lambda _: {})
    said = list[str]()
    show.status(ASKED, said.append)
    assert said[-1] == "direction: copiers may write on either cluster, because no switch was recorded"
    kept["source"] = kept["target"] = dict.fromkeys(ASKED.topics, Lead("target", 7))
    show.status(ASKED, said.append)
    assert (
        said[-1]
        == "direction: copiers may write on source only: clients use target, by the run with number 7"
    )
    show.status(Request((), (), ASKED.topics, as_json=True), said.append)
    assert '"direction": {"copies": "backward", "number": 7, "unnoted": []}' in said[-1]


def test_status_tells_where_the_direction_is_hidden(
    sides: tuple[ModelCluster, ModelCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account that may not see the mirror's group must not take it for absent."""
    one = cluster("source", {"a": ""})
    one.described = {GROUP: SimpleNamespace(error_code=DENIED)}
    with pytest.raises(
        HostError, match="source does not report the recorded direction: GROUP_AUTHORIZATION_FAILED"
    ):
        listing.leads(one, ["orders"])

    def hidden(*_: object) -> None:
        raise HostError("hidden")

    monkeypatch.setattr(listing, "leads", hidden)
    monkeypatch.setattr(show, "beside", lambda *_: cast(Any, None))
    monkeypatch.setattr(told, "lines", lambda _: ())
    monkeypatch.setattr(told, "body", lambda _: {})
    said = list[str]()
    assert show.status(ASKED, said.append) == 0
    assert said[-1] == "direction: not known: hidden"
    show.status(Request((), (), ASKED.topics, as_json=True), said.append)
    assert '"direction": {"copies": null, "why": "hidden"}' in said[-1]


# -- a switch notes the direction


class Site(ModelCluster):
    """A cluster that keeps what it is told. told: each write, in order, of both. refuses: Kafka's errors for
    the next questions for transactional ids."""

    def __init__(self, what: str, told: list[Any], refuses: list[int]) -> None:
        super().__init__(what, {(name, n): Log() for name in ASKED.topics for n in range(2)})
        self.told, self.refuses = told, refuses
        self.leads.keep = self.keep  # type: ignore[attr-defined]

    def keep(self, kept: dict[str, Lead]) -> None:
        self.told.append((self.what, {one.cluster for one in kept.values()}))
        self.leads.kept |= kept

    def take(self, names: Any) -> Any:
        if self.refuses:
            return dict.fromkeys(names, self.refuses.pop(0))
        return super().take(names)


def noted(copies: Any, number: int = 7, refuses: tuple[int, ...] = ()) -> tuple[Any, list[Any], Site]:
    told = list[Any]()
    here, there = (Site(name, told, list(refuses)) for name in ("source", "target"))
    here.leads.kept["audit"] = Lead("source", 7)
    change = SetDirection(MIRRORED, copies, tuple(ASKED.topics), number)
    return set_direction(cast(Any, here), cast(Any, there), change), told, there


@pytest.mark.parametrize(
    ("copies", "kept"),
    [
        ("forward", [("source", {"source"}), ("target", {"source"})]),
        ("none", [("target", {"target"}), ("source", {"source"})]),
        ("backward", [("target", {"target"}), ("source", {"target"})]),
    ],
)
def test_a_direction_is_kept_on_both_clusters(copies: str, kept: list[Any]) -> None:
    (code, text), told, there = noted(copies)
    assert (code, told) == (0, kept), text
    taken = {f"zkmigrate-mirror-{name}-{n}" for name in ASKED.topics for n in range(2)}
    assert set(there.owners) == (taken if copies == "backward" else set()), "copiers of earlier versions"


def test_a_run_changes_nothing_where_a_newer_one_noted_a_direction() -> None:
    (code, text), told, _ = noted("none", 6)
    assert (code, told) == (1, [])
    assert "source has recorded the number 7 of a newer run for topic audit, and this run has 6" in text


@pytest.mark.parametrize(("errors", "code"), [((51, 16), 0), ((53,), 1)])
def test_the_ids_of_former_copiers_are_taken(
    monkeypatch: pytest.MonkeyPatch, errors: tuple[int, ...], code: int
) -> None:
    """A coordinator that is busy or moves is asked again; a right that is missing is told."""
    monkeypatch.setattr(alter, "_AGAIN_S", 0.0)
    (found, text), _, there = noted("backward", refuses=errors)
    assert (found, there.refuses) == (code, [])
    assert ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in text) == bool(code)
