"""What the first look lets pass, which groups it names, and how many records they would get twice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.inventory.test_inventory import GOOD
from tests.unit.topics.topic_move.facts import (
    BOTH,
    SHORT,
    SILENT,
    UNHEARD,
    C,
    P,
    Q,
    app,
    copiers,
    groups,
    short,
    warned,
    way,
    why,
)
from tests.world.switch.look import FACTS, SwitchLook
from tests.world.switch.site import Shape, World
from zkmigrate.hosts.facts.status import parse_facts
from zkmigrate.inventory.accept import Accept
from zkmigrate.inventory.inventory import load
from zkmigrate.lab import between
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Held, Severity, blocking
from zkmigrate.runbook.model.step import Blocked, Done, Verdict, Waiting
from zkmigrate.topics.gateway.rules.outcomes import DELIVERY_S
from zkmigrate.topics.gateway.rules.seen import Seen as SeenClients
from zkmigrate.topics.mirror.questions import BothEnds, GroupReads, MirrorSurvey
from zkmigrate.topics.mirror.rules.needed import Lacking
from zkmigrate.topics.topic_move.facts import AppSeen, Copiers, Ends, Gateways
from zkmigrate.topics.topic_move.look_step import Delivered, LookFacts, LookStep
from zkmigrate.topics.topic_move.rules import check_survey
from zkmigrate.topics.topic_move.units import UnitTopics, read_unit_topics, unit_topics

SURVEY = MirrorSurvey(("one", "other"), ([], []), {}, {}, {}, {}, (), (), {}, {}, ())


def seen(now: float, end: int, *, q: int | None = 4, **groups: GroupReads) -> LookFacts:
    """A look at this time, with the ends of both partitions. The time to settle is 1.5 s."""
    ends: Reading[Ends] = Seen({P: BothEnds(end, end, end), Q: BothEnds(q, q, q)})
    none = Copiers("unit", {})
    return LookFacts(
        Gateways({}, ()), Seen(SURVEY), none, none, 0.0, Delivered(ends, now, Seen(groups)), way("")
    )


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
    assert "at most 1,024, and the records written until the switch" in named.seen
    assert (others.held, others.seen) == (Held.YES, "groups with members: 1 of 2")


def test_h12_a_partition_without_a_commit_counts_whole() -> None:
    [named] = looked(seen(5.0, 9, mail=reads(None)), seen(6.5, 9, mail=reads(None)))
    assert "at most 0, all of orders-0, and the" in named.seen
    [named] = looked(seen(5.0, 9, mail=reads(8)), seen(6.5, 9, q=None, mail=reads(8)))
    assert "at most 1, all of orders-1, and the records" in named.seen


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


CLIENTS = {**SeenClients().body(0.0), "software": {"librdkafka 2.16.0": 1}, "topics": {"orders": 1}}
HERE = Gateways({key: replace(one, seen=CLIENTS) for key, one in app("open").at.items()}, ())
WELL = replace(seen(5.0, 9), gateways=HERE, forward=copiers("active", "active"), back=copiers())


def clients(**odd: Any) -> Gateways:
    """Both gateways, of which the last one differs."""
    last = ("gw2", "orders")
    return replace(HERE, at={**HERE.at, last: replace(HERE.at[last], **odd)})


def survey(**odd: Any) -> Seen[MirrorSurvey]:
    """All is mirrored, but for this."""
    return Seen(replace(SURVEY, partitions={P: ("equal", ""), Q: ("behind", "")}, **odd))


def looks(**wrong: Any) -> Verdict:
    """The verdict where this is wrong alone."""
    return LookStep().check(C, replace(WELL, **wrong))


def test_h20_h21_nothing_is_found_where_all_is_well() -> None:
    verdict = looks(survey=survey(groups=groups("behind").value))
    assert isinstance(verdict, Done)
    assert [one.id for one in verdict.findings if one.held is not Held.YES] == []


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, [("switch.gateway", "gw2"), ("switch.reach", "")]),
        ({"gateways": clients(gate="held")}, [("switch.start", "gw2:orders")]),
        ({"gateways": clients(route="new")}, [("switch.start", "gw2:orders")]),
        ({"survey": SILENT}, [(BOTH, "")]),
        ({"survey": survey(ids=("one", "one"))}, [("switch.two-clusters", "")]),
        ({"survey": survey(refused={"orders": "compacted"})}, [("switch.topics", "")]),
        ({"survey": survey(differ={"orders": "retention.ms"})}, [("switch.settings", "")]),
        ({"survey": survey(groups=groups("active").value)}, [("switch.groups", "")]),
        ({"survey": survey(groups=groups("ahead").value)}, [("switch.groups", "")]),
        ({"survey": survey(groups=groups("refused").value)}, [("switch.groups", "")]),
        ({"survey": survey(brokers=([], [1]))}, [("switch.reach", "")]),
        ({"survey": survey(transactional={"pay": "it wrote"})}, [("switch.transactions", "pay")]),
        ({"survey": survey(transactional_dark="no answer")}, [("switch.transactions", "")]),
        (
            {"survey": survey(transactional={"pay": "it wrote"}, transactional_dark="no answer")},
            [("switch.transactions", "pay"), ("switch.transactions", "")],
        ),
        ({"forward": copiers("inactive", "active")}, [("switch.copies", "")]),
        ({"forward": copiers("", "active")}, [("switch.copier", "m2"), ("switch.copies", "")]),
        ({"back": copiers("active")}, [("switch.copies-back", "")]),
        ({"back": copiers("deactivating")}, [("switch.copies-back", "")]),
        ({"back": copiers(file="enabled")}, [("switch.copies-back", "")]),
        ({"direction": SILENT}, [(BOTH, "")]),
        ({"direction": way("none")}, [("switch.direction", "")]),
        ({"direction": way("backward")}, [("switch.direction", "")]),
        ({"direction": way("mixed")}, [("switch.direction", "")]),
        ({"back": copiers("")}, [("switch.copier", "m2"), ("switch.copies-back", "")]),
    ],
)
def test_h20_a_switch_does_not_begin_while_one_thing_is_wrong(
    wrong: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    if "survey" in wrong:
        wrong = {**wrong, "gateways": replace(HERE, brokers={"gw1": {"old": {}, "new": {}}})}
    assert why(looks(**wrong)) == found


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("--topic orders", UnitTopics(frozenset({"orders"}))),
        ("--source ${S} --topic orders --topic=mail", UnitTopics(frozenset({"orders", "mail"}))),
        ("$TOPICS --topic mail", UnitTopics(frozenset({"mail"}), "the unit's command has $TOPICS")),
        ("$MANY --topic=${ONE}", UnitTopics(frozenset({"orders", "bills", "audit"}))),
        ("--topic ${T} --topic orders", UnitTopics(frozenset({"orders"}), "the unit's command has ${T}")),
        ("--refresh 1", UnitTopics(frozenset(), "the unit's command names no topic")),
    ],
)
def test_the_topics_of_a_unit_are_read_from_its_command(command: str, told: UnitTopics) -> None:
    argv = f"{{ path=/z ; argv[]=/z mirror run {command} ; ignore_errors=no ; pid=0 }}"
    facts = parse_facts(re.sub("unit.ExecStart=.*", f"unit.ExecStart={argv}", FACTS))
    values = {"MANY": "--topic orders --topic=bills", "ONE": "audit"}
    assert unit_topics(Seen(facts), values) == told
    assert unit_topics(SILENT, values) == UnitTopics(frozenset(), str(SILENT))
    bare = Seen(replace(facts, unit={}))
    assert unit_topics(bare, {}) == UnitTopics(frozenset(), "systemd shows no command of the unit")


UNIT = between.EXAMPLES / "zkmigrate-mirror-new.service"


class OfTheUnit(SwitchLook):
    """Mirror hosts with the shipped unit, as systemd shows it. files: those that can be read there."""

    def __init__(self, files: Mapping[str, Reading[bytes]]) -> None:
        super().__init__(World(1, Shape()))
        self.files = files

    def zkm(self, host: str, *words: str) -> Reading[str]:
        told = super().zkm(host, *words)
        if words[0] != "facts" or not isinstance(told, Seen):
            return told
        shipped = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
        command = f"{{ path=/z ; argv[]={shipped['ExecStart']} ; ignore_errors=no ; pid=0 }}"
        file = shipped["EnvironmentFile"].replace("%p", words[1].removesuffix(".service"))
        files = f"{file} (ignore_errors=no)", "/etc/more (ignore_errors=yes)"
        more = "".join(f"\nunit.EnvironmentFiles={one}" for one in files)
        return Seen(
            re.sub("unit.ExecStart=.*", lambda _: f"unit.ExecStart={command}", told.value.rstrip()) + more
        )

    def file(self, host: str, path: str) -> Reading[bytes]:
        return self.files.get(path, Absent(path))


ENV = "/etc/zkmigrate/zkmigrate-mirror-{}.env"
DARK = "the unit's command has $ZKM_TOPICS"
TOPICS = b"# of one set\nZKM_SHARE=1/1\nZKM_TOPICS=--topic orders --topic mail\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (Absent("/etc/more"), UnitTopics(frozenset({"orders", "mail"}))),
        (Seen(b'ZKM_TOPICS="--topic orders"\n'), UnitTopics(frozenset({"orders"}))),
        (Seen(b"ZKM_TOPICS=--topic orders \\\n--topic mail\n"), UnitTopics(frozenset(), DARK)),
        (Seen(b"# no \\\nZKM_TOPICS=--topic bills\n"), UnitTopics(frozenset(), DARK)),
        (SILENT, UnitTopics(frozenset(), DARK)),
    ],
    ids=[
        "one file",
        "the last file wins",
        "a continued line",
        "a continued comment",
        "a file that cannot be read",
    ],
)
def test_the_topics_of_the_shipped_unit_are_read_from_its_environment(
    more: Reading[bytes], told: UnitTopics
) -> None:
    look = OfTheUnit({ENV.format("new"): Seen(TOPICS), ENV.format("old"): Seen(TOPICS), "/etc/more": more})
    assert set(read_unit_topics(C, cast(Any, look)).values()) == {told}


def test_a_unit_that_copies_topics_of_another_set_too_is_refused() -> None:
    shared = {("m1", "new"): UnitTopics(frozenset({"orders", "mail"}), "the unit's command has $MORE")}
    verdict = looks(units=shared)
    assert why(verdict) == [("switch.unit-topics", "m1:new")]
    assert isinstance(verdict, Blocked)
    assert [one.seen for one in verdict.findings if one.blocks] == ["the unit copies mail"]


def test_a_unit_that_does_not_tell_its_topics_is_a_warning() -> None:
    one = warned(looks(units={("m1", "new"): UnitTopics(frozenset(), "no answer")}), "switch.unit-topics")
    assert (one.held, one.target, one.seen) == (Held.UNKNOWN, "m1:new", "no answer")


def test_a_look_reads_the_units_of_both_directions_on_each_mirror_host() -> None:
    world = World(1, Shape())
    world.unit_topics.append("mail")
    verdict = LookStep().check(C, LookStep().observe(C, cast(Any, SwitchLook(world))))
    units = [(f"m{n}", f"zkmigrate-mirror-{to}.service") for n in (1, 2) for to in ("new", "old")]
    assert [("switch.unit-topics", f"{host}:{unit}") for host, unit in units] == [
        one for one in why(verdict) if one[0] == "switch.unit-topics"
    ]


def test_a_switch_of_another_run_that_is_newer_is_named_once_the_lock_is_taken() -> None:
    """Before that a run has no number."""
    for fencing, blocked in ((0, False), (2, True), (3, False)):
        verdict = LookStep().check(replace(C, fencing=fencing), replace(WELL, direction=way("forward")))
        assert (["switch.direction-newer"] if blocked else []) == [one for one, _ in _blocking(verdict)]


def _blocking(verdict: Verdict) -> list[tuple[str, str]]:
    return why(verdict) if isinstance(verdict, Blocked) else []


@pytest.mark.parametrize("target", [False, True])
def test_a_switch_does_not_begin_while_too_few_replicas_are_in_sync(target: bool) -> None:
    told = replace(WELL.delivered, ends=short(target=target))
    held = replace(SURVEY, partitions={P: ("equal", ""), Q: ("held", SHORT)})
    assert why(looks(delivered=told, survey=Seen(held))) == [("switch.in-sync", "")]


@pytest.mark.parametrize("state", ["failed", "missing", "unknown"])
def test_h2_a_partition_that_is_not_mirrored_is_never_switched_to(state: str) -> None:
    odd = replace(SURVEY, partitions={P: ("equal", ""), Q: (state, "somebody wrote there")})
    verdict = looks(survey=Seen(odd))
    assert why(verdict) == [("switch.partitions", "")]
    assert isinstance(verdict, Blocked)
    [named] = [one.seen for one in verdict.findings if one.blocks]
    assert named == f"orders-1: {state}, somebody wrote there"


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"software": {"apache-kafka-java 2.7.0": 1}}, "gateway.client-stuck"),
        ({"transactional": {"pay": 1}}, "gateway.transactions"),
        ({"refused": {"api: CONSUMER_GROUP_HEARTBEAT": 2}}, "gateway.new-groups"),
    ],
)
def test_h21_a_client_that_cannot_switch_shows_before_anybody_waits(
    table: dict[str, Any], found: str
) -> None:
    target = "gw2:orders:pay" if "transactional" in table else "gw2:orders"
    assert why(looks(gateways=clients(seen={**CLIENTS, **table}))) == [(found, target)]


@pytest.mark.parametrize("id", ["pay", "pay (eu) / ä", "a\nb\x01", "p" * 2_000, "producer id 5"])
def test_a_switch_goes_on_without_a_transactional_producer_that_somebody_answers_for(
    id: str, tmp_path: Path
) -> None:
    seen = {**CLIENTS, "transactional": {id: 1}}
    wrong: dict[str, Any] = {"survey": survey(transactional={id: "it wrote"}), "gateways": clients(seen=seen)}
    entries = [("switch.transactions", id), ("gateway.transactions", f"gw2:orders:{id}")]
    assert sorted(why(looks(**wrong))) == sorted(entries)
    words = {"who": "Lea", "why": "it is stopped", "until": "2099-01-01T00:00Z"}
    listed = [{"finding": finding, "target": target, **words} for finding, target in entries]
    file = tmp_path / "migration.yml"
    file.write_text(f"{GOOD}accept: {json.dumps(listed)}\n")
    inventory = C.inventory.model_copy(update={"accept": load(file).accept})
    verdict = LookStep().check(replace(C, inventory=inventory), replace(WELL, **wrong))
    assert isinstance(verdict, Done)
    assert [one.target for one in verdict.findings if one.accepted] == [
        target for _, target in sorted(entries)
    ]


def test_an_open_outcome_and_a_gateway_that_may_have_lost_some_are_named_before_consent() -> None:
    found = warned(looks(gateways=clients(unsure="producer 5")), "switch.outcomes")
    assert (found.held, found.target, found.seen) == (Held.NO, "gw2:orders", "producer 5")
    again = replace(HERE, restarted={"gw1": DELIVERY_S, "gw2": 20.0})
    found = warned(looks(gateways=again), "switch.restarted")
    assert (found.held, found.target) == (Held.UNKNOWN, "gw2")
    assert found.moves == ("begin the switch 280 s later",)


def test_h21_whether_an_application_is_a_super_user_is_unknown_where_there_are_some() -> None:
    here = replace(clients(seen={**CLIENTS, "principals": {"shop": 3}}), brokers={})
    found = warned(looks(survey=survey(super_users=("target",)), gateways=here), "switch.superusers")
    assert found.held is Held.UNKNOWN
    assert found.seen == "super.users is set on target, but Kafka hides its value; users of the set: shop"
    for well in ({"survey": survey(super_users=("target",))}, {"survey": survey(), "gateways": here}):
        there = {"gateways": replace(HERE, brokers={}), **well}
        assert warned(looks(**there), "switch.superusers").held is Held.YES


def test_who_logs_in_is_named_because_target_must_know_the_same_users() -> None:
    here = replace(clients(seen={**CLIENTS, "principals": {"shop": 3}}), brokers={})
    found = warned(looks(gateways=here), "switch.users")
    assert (found.held, found.seen) == (Held.UNKNOWN, "shop")
    assert found.needed.startswith("the same users with the same passwords on new")
    assert warned(looks(gateways=replace(HERE, brokers={})), "switch.users").held is Held.YES


def test_h21_a_client_that_does_not_tell_its_release_is_a_warning() -> None:
    verdict = looks(gateways=clients(seen={**CLIENTS, "answered": {"API_VERSIONS": 2}}))
    assert isinstance(verdict, Done)
    told = [one for one in verdict.findings if one.id == "gateway.client-stuck"]
    assert [(one.target, one.held) for one in told] == [
        ("gw1:orders", Held.YES),
        ("gw2:orders", Held.UNKNOWN),
    ]


@pytest.mark.parametrize(
    ("odd", "id", "held", "told"),
    [
        ({"grants": ("READ of User:mail",)}, "switch.rights", Held.NO, "READ of User:mail"),
        ({"notes": {"ACLs": "no authorizer"}}, "switch.unread", Held.UNKNOWN, "ACLs: no authorizer"),
    ],
)
def test_h7_rights_that_target_lacks_or_does_not_tell_are_a_warning(
    odd: dict[str, Any], id: str, held: Held, told: str
) -> None:
    found = warned(looks(survey=survey(**odd)), id)
    assert (found.held, found.seen) == (held, told)


def test_h12_h20_h21_what_the_set_leaves_out_is_found_at_the_first_look() -> None:
    def asks(staged: str, *topics: str) -> AppSeen:
        seen = {**SeenClients().body(0.0), "topics": dict.fromkeys(topics, 1)}
        return AppSeen("old", staged, "open", "", False, 0, 1, 0, seen)

    asked = Gateways(
        {("g1", "orders"): asks("third", "dead")}, (), {}, {("g1", "others"): asks("", "orders")}
    )
    shifted = replace(SURVEY, brokers=((1, 2), (2, 3)), others={"mail": "the group has members"})
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


def test_settings_that_only_one_release_has_are_a_warning() -> None:
    left = {"orders: message.downconversion.enable": "target's Kafka has no such setting"}
    [told] = [one for one in check_survey(replace(SURVEY, left=left)) if one.id == "switch.settings-left"]
    assert (told.held, told.blocks, told.seen) == (Held.NO, False, ": ".join(*left.items()))
    assert [one for one in check_survey(SURVEY) if one.id == "switch.settings-left"] == []


def test_each_right_that_the_run_lacks_is_named_with_its_command() -> None:
    write = Lacking("target", "User:run", "b:1", ("Write",), "transactional-id", "zkmigrate-mirror-")
    users = Lacking("source", "User:run", "a:1", ("DescribeConfigs",), "cluster", "")
    found = [
        one for one in check_survey(replace(SURVEY, lacking=(write, users))) if one.id == "switch.own-rights"
    ]
    assert [(one.target, one.severity) for one in found] == [
        ("target:transactional-id:zkmigrate-mirror-", Severity.BLOCK),
        ("source:cluster", Severity.WARN),
    ]
    assert found[0].seen == write.words
    assert found[0].moves[0] == write.command
    [fine] = [one for one in check_survey(SURVEY) if one.id == "switch.own-rights"]
    assert fine.held is Held.YES
