"""After the move: one false fact, and the claim that must not hold; what is not known never holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import servers
from tests.world.operator import inventory
from zkmigrate.move.facts.after_move import NOT_READ, AfterMove, LogPosition, NewWrites
from zkmigrate.move.facts.connections import SourceClients
from zkmigrate.move.facts.sessions import Sessions
from zkmigrate.move.rules.after_move import findings
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.zookeeper.data.delta import DeltaFinding
from zkmigrate.zookeeper.data.four_letter_words import Mntr
from zkmigrate.zookeeper.facts.ensemble import EnsembleView

SILENT = Unknown("timeout", "no answer in 3 s")
REFUSED = Unknown("refused", "connection refused")
NOW = 2 << 32
BROKERS = ("broker1", "broker2", "broker3")
OWNERS = {0x10 + n: (f"/kafka/brokers/ids/{n}",) for n in (1, 2, 3)}
DEST = servers(dest1=("follower", NOW), dest2=("leader", NOW), dest3=("follower", NOW))
SOURCE = servers(source1=("follower", 9), source2=("leader", 9), source3=("follower", 9))
GOOD = AfterMove(
    source=SOURCE,
    dest=DEST,
    leader=Seen(Mntr({"zk_synced_followers": "2"})),
    source_owners=Seen(Sessions(OWNERS, {})),
    dest_owners=Seen(Sessions(OWNERS, {})),
    at_source={},
    clients=SourceClients({}, dict.fromkeys(BROKERS, ()), ()),
    connect=dict.fromkeys(BROKERS, Seen("10.0.0.11:2181,10.0.0.12:2181/kafka")),
    written=Seen(NewWrites(5, (), LogPosition("source1", 9))),
)


def doubtful(facts: AfterMove) -> dict[str, Held]:
    """The claims that do not hold, by id and target."""
    found = findings(inventory(), facts)
    return {f"{f.id} {f.target}".strip(): f.held for f in found if f.held is not Held.YES}


def with_dest(**servers: Any) -> EnsembleView:
    """Dest, with what these hosts say instead."""
    there = {**DEST.servers, **servers}
    return EnsembleView(there, None)


def test_a_whole_move_is_fine() -> None:
    assert doubtful(GOOD) == {}


MODES = servers(leader=("leader", NOW), follower=("follower", NOW), standalone=("standalone", NOW))
OBSERVERS = servers(dest1=("observer", NOW), dest2=("observer", NOW), dest3=("observer", NOW))
WROTE = DeltaFinding(8, 0, "create", "/kafka/x", 0x99)
NO, UNKNOWN = Held.NO, Held.UNKNOWN
WRONG: dict[str, tuple[Mapping[str, Any], dict[str, Held]]] = {
    "followers alone": ({"dest": with_dest(dest2=MODES.servers["follower"])}, {"watch.dest": NO}),
    "two leaders": ({"dest": with_dest(dest1=MODES.servers["leader"])}, {"watch.dest": NO}),
    "one alone": ({"dest": with_dest(dest1=MODES.servers["standalone"])}, {"watch.dest": NO}),
    "one serves nobody": ({"dest": with_dest(dest1=Absent("no quorum"))}, {"watch.dest": NO}),
    "one refuses": ({"dest": with_dest(dest1=REFUSED)}, {"watch.dest": NO}),
    "one is silent": ({"dest": with_dest(dest1=SILENT)}, {"watch.dest": UNKNOWN}),
    "one is not in sync": ({"leader": Seen(Mntr({"zk_synced_followers": "1"}))}, {"watch.dest": NO}),
    "nobody tells who is in sync": ({"leader": Seen(Mntr({}))}, {"watch.dest": UNKNOWN}),
    "the leader is silent": ({"leader": SILENT}, {"watch.dest": UNKNOWN}),
    "followers alone and nobody tells": (
        {"dest": with_dest(dest2=MODES.servers["follower"]), "leader": Absent("no single leader")},
        {"watch.dest": NO},
    ),
    "a broker is not registered": (
        {"dest_owners": Seen(Sessions({k: v for k, v in OWNERS.items() if k != 0x12}, {}))},
        {"watch.registered broker2": NO, "watch.strays": NO},
    ),
    "dest's owners are not told": (
        {"dest_owners": SILENT},
        {**{f"watch.registered {b}": UNKNOWN for b in BROKERS}, "watch.strays": UNKNOWN},
    ),
    "a file names source": (
        {"connect": {**GOOD.connect, "broker2": Seen("10.0.0.11:2181,10.0.0.1:2181/kafka")}},
        {"watch.config broker2": NO},
    ),
    "a file is not read": (
        {"connect": {**GOOD.connect, "broker2": SILENT}},
        {"watch.config broker2": UNKNOWN},
    ),
    "a broker on source": (
        {
            "clients": replace(
                GOOD.clients, members={**GOOD.clients.members, "broker2": ("client of source1",)}
            )
        },
        {"watch.left-source broker2": NO},
    ),
    "a broker on source, others not told": (
        {
            "clients": SourceClients(
                {}, {**GOOD.clients.members, "broker2": ("client of source1",)}, ("source2: denied",)
            )
        },
        {
            "watch.left-source broker1": UNKNOWN,
            "watch.left-source broker2": NO,
            "watch.left-source broker3": UNKNOWN,
        },
    ),
    "a stray": ({"source_owners": Seen(Sessions({**OWNERS, 0x99: ("/kafka/x",)}, {}))}, {"watch.strays": NO}),
    "source's owners are not told": ({"source_owners": SILENT}, {"watch.strays": UNKNOWN}),
    "a write on source": (
        {"written": Seen(NewWrites(5, (WROTE,), LogPosition("source1", 9)))},
        {"watch.writes 0x9": NO},
    ),
    "a hole in source's log": (
        {"written": Seen(NewWrites(5, (), LogPosition("source1", 9), "a hole"))},
        {"watch.writes 0x9": UNKNOWN},
    ),
    "source's log is not read": ({"written": SILENT}, {"watch.writes": UNKNOWN}),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_false_fact_is_found(name: str) -> None:
    changes, wanted = WRONG[name]
    assert doubtful(replace(GOOD, **changes)) == wanted


def test_a_source_that_nobody_serves_any_more_has_no_strays_and_no_writes() -> None:
    gone = EnsembleView(dict.fromkeys(SOURCE.servers, REFUSED), None)
    facts = replace(GOOD, source=gone, source_owners=SILENT, written=SILENT)
    assert doubtful(facts) == {}
    silent = EnsembleView({**gone.servers, "source1": SILENT}, None)
    assert doubtful(replace(facts, source=silent)) == {"watch.strays": UNKNOWN, "watch.writes": UNKNOWN}


def test_while_dest_observes_its_hosts_serve_and_writes_are_not_looked_for() -> None:
    before = replace(GOOD, dest=OBSERVERS, written=NOT_READ)
    assert doubtful(before) == {"watch.writes": UNKNOWN}
    one = EnsembleView({**OBSERVERS.servers, "dest1": SILENT}, None)
    assert doubtful(replace(before, dest=one)) == {"watch.dest": UNKNOWN, "watch.writes": UNKNOWN}
    mixed = EnsembleView({**OBSERVERS.servers, "dest1": MODES.servers["follower"]}, None)
    assert doubtful(replace(before, dest=mixed))["watch.dest"] == NO


def test_a_log_that_was_not_read_is_no_claim_that_nobody_wrote() -> None:
    assert doubtful(replace(GOOD, written=NOT_READ)) == {"watch.writes": UNKNOWN}
