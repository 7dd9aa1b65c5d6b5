"""Plan, status and run where a topic is refused, or its next records are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkmigrate.errors import UsageError
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.survey import Mirrored, Place
from zkmigrate.topics.mirror.rules.needed import Lacking
from zkmigrate.topics.mirror.rules.position import Ends
from zkmigrate.topics.mirror.verbs import run, show
from zkmigrate.topics.mirror.verbs.request import Request

ASKED = Request(("a:1",), ("b:1",), ("orders", "odd"))
ORDERS = Mirrored("orders", 1, 1, 1, {}, {}, {}, "")
ODD = Mirrored("odd", 1, 0, 1, {}, {}, {}, "target would not create the topic")
BEHIND = Place(("orders", 0), Ends(0, 3), 3, Ends(0, 1), "behind")


@contextmanager
def both(_asked: Request) -> Iterator[tuple[None, None]]:
    yield None, None


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters with the topics orders and odd."""
    for verb in (show, run):
        monkeypatch.setattr(verb, "both", both)
        monkeypatch.setattr(verb, "topics", lambda *_: [ORDERS, ODD])
    monkeypatch.setattr(show, "places", lambda *_: [BEHIND])
    monkeypatch.setattr(show, "beside", lambda *_: SimpleNamespace(groups={"billing": None}, hidden=["odd"]))
    monkeypatch.setattr(show, "follow", SimpleNamespace(lines=lambda _: (), body=lambda _: {}))
    direction = SimpleNamespace(copies="", number=0, words="none")
    monkeypatch.setattr(show, "standing_direction", lambda *_: direction)


def test_plan_looks_ahead_and_names_what_target_would_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "target would refuse the next records: no key"
    monkeypatch.setattr(show, "looked", lambda *_: [replace(BEHIND, state="failed", why=why)])
    said: list[str] = []
    assert show.plan(ASKED, said.append) == 3
    assert f"orders-0: failed: {why}" in said
    monkeypatch.setattr(show, "topics", lambda *_: [ORDERS])
    assert show.plan(ASKED, said.append) == 10


LACKING = Lacking("target", "User:mirror", "b:1", ("Write",), "topic", "orders", ("orders",))


def test_plan_names_a_missing_right_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "topics", lambda *_: [ORDERS])
    monkeypatch.setattr(show, "looked", lambda *_: [BEHIND])
    asked: list[Any] = []

    def missing(_here: object, _there: object, *given: Any) -> list[Lacking]:
        asked.append(given)
        return [LACKING]

    monkeypatch.setattr(show, "missing_rights", missing)
    said: list[str] = []
    assert show.plan(ASKED, said.append) == 3
    assert asked == [("mirror", {"orders": 1}, {"billing": None}, ["odd"])]
    assert said[-1] == f"missing right: {LACKING.words}. Next: {LACKING.command}"
    assert show.plan(replace(ASKED, as_json=True), said.append) == 3
    assert json.loads(said[-1])["rights"][0]["command"] == LACKING.command


def test_run_refuses_a_topic_that_it_may_not_write_and_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "topics", lambda *_: [replace(ORDERS, found=0)])
    monkeypatch.setattr(run, "fenced_off", lambda *_: {})
    monkeypatch.setattr(run, "missing_rights", lambda *_: [LACKING])
    said: list[str] = []
    with pytest.raises(
        UsageError, match=r"User:mirror lacks Write on topic orders at target\. Next: kafka-acls"
    ):
        run.run(ASKED, said.append, said.append, once=True, refresh_s=1.0)
    assert said[0] == f"missing right: {LACKING.words}. Next: {LACKING.command}"
    assert said[1].startswith("REFUSED orders: ")


def test_status_names_a_topic_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert show.status(ASKED, said.append) == 10
    assert "odd: refused: target would not create the topic" in said
    monkeypatch.setattr(show, "topics", lambda *_: [ORDERS])
    assert show.status(ASKED, said.append) == 0


def test_run_copies_what_is_not_refused_and_ends_with_8(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    class Copier:
        def __init__(self, _here: object, _there: object, parts: object, *_: object) -> None:
            given.append(list(cast(Any, parts)))
            self.partitions: dict[object, object] = {}

        def copy(self, *_: object, once: bool) -> None:
            assert once

    monkeypatch.setattr(run, "Copier", Copier)

    def follower(_here: object, _there: object, names: object, *_: object) -> SimpleNamespace:
        given.append(names)
        return SimpleNamespace(unread=())

    monkeypatch.setattr(run, "Follower", follower)
    monkeypatch.setattr(run, "_finish", lambda *_: None)
    monkeypatch.setattr(run, "fenced_off", lambda *_: {})
    said: list[str] = []
    assert run.run(ASKED, said.append, said.append, once=True, refresh_s=1.0) == 8
    assert given == [[("orders", 0)], ["orders"]]
    assert said[0] == "REFUSED odd: target would not create the topic"
    assert said[-1].endswith(", refused: odd")


def test_a_refused_batch_is_told_by_the_sentence_about_its_first_wrong_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka 3.9's sentence about the whole batch holds text of Java."""
    record = SimpleNamespace(batch_index_error_message="no key")
    parts = [
        SimpleNamespace(index=n, error_code=code, base_offset=-1, record_errors=errors, error_message=whole)
        for n, (code, errors, whole) in enumerate(
            [(87, [record], "RecordError(…)"), (32, [], "out of range"), (7, None, None), (0, [], None)]
        )
    ]
    answer = SimpleNamespace(responses=[SimpleNamespace(name="t", partition_responses=parts)])
    monkeypatch.setattr(Cluster, "end", lambda *_: answer)
    told = Cluster.__new__(Cluster).produced(None)
    assert [why for _, _, why in told.values()] == [
        "INVALID_RECORD: no key",
        "INVALID_TIMESTAMP: out of range",
        "REQUEST_TIMED_OUT",
        "",
    ]
