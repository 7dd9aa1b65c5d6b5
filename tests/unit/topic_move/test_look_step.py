"""Which groups the first look names, and how many records they would get twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.world.switch.operator import inventory
from tests.world.switch.site import Shape, World
from zkmigrate.gateway.rules.seen import Seen as SeenClients
from zkmigrate.inventory.accept import Accept
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, Held, blocking
from zkmigrate.model.look import BothEnds, GroupReads, MirrorSurvey
from zkmigrate.model.step import Blocked, Context, Done, Verdict, Waiting
from zkmigrate.topic_move.facts import AppSeen, Copiers, Ends, Gateways
from zkmigrate.topic_move.look_step import Delivered, LookFacts, LookStep

P, Q = ("orders", 0), ("orders", 1)
C = Context("r-1", inventory(World(1, Shape())))
SILENT = Unknown("timeout", "no answer")
SURVEY = MirrorSurvey(("one", "other"), ([], []), {}, {}, {}, {}, (), (), {}, {})


def seen(now: float, end: int, *, q: int | None = 4, **groups: GroupReads) -> LookFacts:
    """A look at this time, with the ends of both partitions. The time to settle is 1.5 s."""
    ends: Reading[Ends] = Seen({P: BothEnds(end, end, end), Q: BothEnds(q, q, q)})
    none = Copiers("unit", {})
    return LookFacts(Gateways({}, ()), Seen(SURVEY), none, none, 0.0, Delivered(ends, now, Seen(groups)))


def reads(p: int | None, q: int | None = 4) -> GroupReads:
    return GroupReads({P: p, Q: q})


def settled(verdict: Verdict) -> list[Finding]:
    assert isinstance(verdict, Done)
    return [one for one in verdict.findings if one.id == "switch.settled"]


def looked(first: LookFacts, last: LookFacts) -> list[Finding]:
    """What two looks find, the first one of which waits."""
    waiting = LookStep().check(C, first)
    assert isinstance(waiting, Waiting)
    return settled(LookStep().check(replace(C, kept=waiting.keep), last))


def test_h12_nobody_waits_where_every_group_has_committed_all() -> None:
    [told] = settled(LookStep().check(C, seen(5.0, 9, mail=reads(9), billing=reads(12))))
    assert (told.held, told.seen) == (Held.YES, "groups with members: 2 of 2")
    assert settled(LookStep().check(C, seen(5.0, 0, q=0, mail=reads(None, None))))[0].held is Held.YES


def test_h12_a_group_that_commits_in_time_is_not_named() -> None:
    first = seen(5.0, 9, mail=reads(7))
    waiting = LookStep().check(C, first)
    assert isinstance(waiting, Waiting)
    assert waiting.progress == "0.0 of 1.5 s: mail"
    later = replace(C, kept=waiting.keep)
    assert isinstance(LookStep().check(later, seen(6.4, 30, mail=reads(8))), Waiting)
    [told] = settled(LookStep().check(later, seen(5.5, 30, mail=reads(9))))
    assert told.held is Held.YES


def test_h12_a_group_that_commits_later_is_named_with_what_it_lacks_at_the_second_look() -> None:
    first = seen(5.0, 9, mail=reads(7), billing=reads(9))
    named, others = looked(first, seen(6.5, 1_030, q=6, mail=reads(8), billing=reads(10)))
    assert (named.target, named.held, named.blocks) == ("mail", Held.NO, False)
    assert "at most 1,024, and those that come until the switch" in named.seen
    assert (others.held, others.seen) == (Held.YES, "groups with members: 1 of 2")


def test_h12_a_partition_without_a_commit_counts_whole() -> None:
    [named] = looked(seen(5.0, 9, mail=reads(None)), seen(6.5, 9, mail=reads(None)))
    assert "at most 0, all of orders-0, and those" in named.seen
    [named] = looked(seen(5.0, 9, mail=reads(8)), seen(6.5, 9, q=None, mail=reads(8)))
    assert "at most 1, all of orders-1, and those" in named.seen


def test_h12_a_group_that_does_not_tell_is_unknown() -> None:
    told = settled(LookStep().check(C, seen(5.0, 9, mail=GroupReads({}, "joining"), billing=reads(9))))
    assert [(one.target, one.held) for one in told] == [("mail", Held.UNKNOWN), ("", Held.YES)]
    assert told[0].seen == "joining"
    whole = seen(5.0, 9, mail=reads(3))
    told_once = whole.delivered
    for silent in (replace(told_once, ends=SILENT), replace(told_once, groups=SILENT)):
        [one] = settled(LookStep().check(C, replace(whole, delivered=silent)))
        assert (one.held, one.blocks, one.seen) == (Held.UNKNOWN, False, str(SILENT))


def test_what_blocks_is_not_waited_for() -> None:
    same = replace(SURVEY, ids=("one", "one"))
    assert isinstance(LookStep().check(C, replace(seen(5.0, 9, mail=reads(3)), survey=Seen(same))), Blocked)


@pytest.mark.parametrize("ends", [SILENT, Seen({})])
def test_h12_ends_that_a_later_look_does_not_tell_are_not_passed_over(ends: Reading[Ends]) -> None:
    last = seen(6.5, 9, mail=reads(8))
    [named] = looked(seen(5.0, 9, mail=reads(8)), replace(last, delivered=replace(last.delivered, ends=ends)))
    assert named.held is not Held.YES


def test_h12_h20_h21_what_the_set_leaves_out_is_found_at_the_first_look() -> None:
    def app(staged: str, *topics: str) -> AppSeen:
        seen = {**SeenClients().body(0.0), "topics": dict.fromkeys(topics, 1)}
        return AppSeen("old", staged, "open", "", False, 0, 1, 0, seen)

    asked = Gateways({("g1", "orders"): app("third", "dead")}, (), {}, {("g1", "others"): app("", "orders")})
    shifted = replace(SURVEY, brokers=((1, 2), (2, 3)), others={"mail": "it has members"})
    verdict = LookStep().check(C, replace(seen(5.0, 9), gateways=asked, survey=Seen(shifted)))
    assert isinstance(verdict, Blocked)
    names = (
        "switch.app-topics",
        "switch.other-apps",
        "switch.other-groups",
        "switch.staged",
        "switch.node-ids",
    )
    told = {one.id: (one.target, one.blocks) for one in verdict.findings if one.id in names}
    assert told == {
        "switch.app-topics": ("orders:dead", True),
        "switch.other-apps": ("others:orders", True),
        "switch.other-groups": ("mail", True),
        "switch.staged": ("g1:orders", False),
        "switch.node-ids": ("", False),
    }
    accepts = [
        {"finding": id, "target": target, "who": "A", "why": "known", "until": "2030-01-01T00:00Z"}
        for id, (target, blocks) in told.items()
        if blocks
    ]
    own = C.inventory.model_copy(update={"accept": tuple(map(Accept.model_validate, accepts))})
    assert {one.id for one in blocking(verdict.findings)} >= {one["finding"] for one in accepts}
    verdict = LookStep().check(
        replace(C, inventory=own), replace(seen(5.0, 9), gateways=asked, survey=Seen(shifted))
    )
    assert isinstance(verdict, Blocked | Done)
    assert not {one["finding"] for one in accepts} & {one.id for one in blocking(verdict.findings)}
