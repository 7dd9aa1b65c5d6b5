"""One server of source that is down: what the gates say of it, what they ask it, and who may accept it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.preflight_world import (
    TIMEOUT,
    WHITELIST,
    PreflightWorld,
    context,
    healthy,
    recorded,
    run_preflight,
)
from zkmigrate.inventory.accept import Accept
from zkmigrate.inventory.inventory import SourceHost
from zkmigrate.move.preflight import Gate
from zkmigrate.move.rules.server_down import ID, servers_to_ask
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Context

UNSERVING = Seen(recorded("unserving.srvr"))
REFUSED = Unknown("refused", "source3: connection refused")
UNREACHABLE = Unknown("unreachable", "source3: no route to host")


def leader(synced: int) -> Seen[str]:
    """What source2 says of its followers."""
    text = recorded("leader.mntr")
    assert "zk_synced_followers\t2" in text
    return Seen(text.replace("zk_synced_followers\t2", f"zk_synced_followers\t{synced}"))


def without_source3(why: Reading[str] = TIMEOUT, synced: int = 1) -> PreflightWorld:
    """Source3 is down, and its host as well; the leader counts so many followers in sync."""
    world = healthy()
    for word in ("srvr", "mntr", "cons", "dump", "conf"):
        world.words["source3", word] = why
    for host, path in [key for key in world.files if key[0] == "source3"]:
        world.files[host, path] = TIMEOUT
    for host, path in [key for key in world.listings if key[0] == "source3"]:
        world.listings[host, path] = TIMEOUT
    del world.dates["source3"], world.process_lists["source3"]
    for n in (1, 2, 3):
        world.reached[f"dest{n}"] |= {"10.71.0.13:2888": "timeout", "10.71.0.13:3888": "timeout"}
    world.words["source2", "mntr"] = leader(synced)
    return world


def accepting(*hosts: str, until: str = "2099-01-01T00:00Z") -> Context:
    c = context()
    entries = tuple(Accept(finding=ID, target=h, who="Ada", why="it broke", until=until) for h in hosts)
    return replace(c, inventory=c.inventory.model_copy(update={"accept": entries}))


def wrong(found: Sequence[Finding]) -> list[tuple[str, str, Held]]:
    """What does not hold and is no mere remark."""
    return [
        (f.id, f.target, f.held)
        for f in found
        if f.held is not Held.YES and f.severity is not Severity.INFO and not f.accepted
    ]


@pytest.mark.parametrize("gate", list(Gate))
@pytest.mark.parametrize("why", [TIMEOUT, REFUSED, UNREACHABLE, UNSERVING], ids=repr)
def test_it_is_the_one_finding_and_can_be_accepted(gate: Gate, why: Reading[str]) -> None:
    before = wrong(run_preflight(context(), healthy(), gate))
    found = run_preflight(context(), without_source3(why), gate)
    assert [f for f in wrong(found) if f not in before] == [(ID, "source3", Held.NO)]
    (told,) = [f for f in found if (f.id, f.target) == (ID, "source3")]
    assert told.blocks
    assert "2 of 3 servers with a vote serve under source2, none to spare" in told.seen
    assert any("accept entry for source.server-down with target source3" in move for move in told.moves)
    found = run_preflight(accepting("source3"), without_source3(why), gate)
    assert wrong(found) == before
    assert [f.target for f in found if f.accepted] == ["source3"]


@pytest.mark.parametrize("gate", list(Gate))
def test_nothing_more_is_asked_of_it(gate: Gate) -> None:
    """Each look at a dead host lasts for seconds."""
    world = without_source3()
    run_preflight(context(), world, gate)
    assert [look for look in world.asked if "source3" in look] == [("word", "source3", "srvr")]


@pytest.mark.parametrize(
    ("c", "held"),
    [(accepting("source1"), Held.NO), (accepting("source3", until="1970-01-01T00:01Z"), Held.NO)],
    ids=["another server", "it is over"],
)
def test_an_acceptance_holds_for_its_server_until_its_end(c: Context, held: Held) -> None:
    found = run_preflight(c, without_source3(), "preflight")
    assert [(f.id, f.target, f.held) for f in found if f.blocks] == [(ID, "source3", held)]


def refusal(world: PreflightWorld, c: Context | None = None) -> str:
    """What is said of source3 that nobody can accept, although somebody has."""
    found = run_preflight(c or accepting("source1", "source3"), world, "preflight")
    blocks = {(f.id, f.target): f for f in found if f.blocks}
    assert ("source.quorum", "") in blocks
    told = blocks[ID, "source3"]
    assert told.held is Held.UNKNOWN
    return told.seen


def test_a_server_that_the_leader_counts_is_not_down() -> None:
    """This machine does not reach it, and it may have clients."""
    assert "source2 counts 2 followers in sync, and 1 answer" in refusal(without_source3(synced=2))


def test_a_leader_that_does_not_count_its_followers_proves_nothing() -> None:
    world = without_source3()
    world.words["source2", "mntr"] = Seen("mntr" + WHITELIST)
    assert "source2 does not report its followers in sync" in refusal(world)


def test_a_server_that_answers_is_not_down() -> None:
    world = without_source3(Seen("srvr" + WHITELIST))
    seen = refusal(world)
    assert "unknown (denied)" in seen
    assert "its answer does not show that it is down" in seen


def test_a_second_server_that_is_down_cannot_be_accepted() -> None:
    world = without_source3()
    world.words["source1", "srvr"] = REFUSED
    assert "2 servers do not serve: source1, source3" in refusal(world)


def test_without_a_leader_there_is_nothing_to_accept() -> None:
    world = without_source3()
    world.words["source2", "srvr"] = Seen(recorded("follower.srvr"))
    assert "the other servers are not one leader with followers" in refusal(world)


def with_hosts(c: Context, hosts: tuple[SourceHost, ...]) -> Context:
    source = c.inventory.source.model_copy(update={"hosts": hosts})
    return replace(c, inventory=c.inventory.model_copy(update={"source": source}))


def test_an_observer_of_sources_own_cannot_be_accepted() -> None:
    c = accepting("source3")
    first, second, third = c.inventory.source.hosts
    seen = refusal(
        without_source3(), with_hosts(c, (first, second, third.model_copy(update={"observer": True})))
    )
    assert "it has no vote" in seen


def test_of_two_servers_none_can_be_lost() -> None:
    c = accepting("source3")
    _, second, third = c.inventory.source.hosts
    assert "the number of servers that serve is 1" in refusal(
        without_source3(synced=0), with_hosts(c, (second, third))
    )


def test_it_is_not_asked_for_its_clients_once_it_is_accepted() -> None:
    def asked(c: Context, world: PreflightWorld) -> tuple[str, ...]:
        return servers_to_ask(c.inventory, world)

    every = ("source1", "source2", "source3")
    assert asked(accepting("source3"), without_source3()) == every[:2]
    assert asked(accepting("source3"), without_source3(synced=2)) == every, "it may have clients"
    assert asked(accepting("source1"), without_source3()) == every
    assert asked(accepting("source3", until="1970-01-01T00:01Z"), without_source3()) == every
    assert asked(accepting("source3"), healthy()) == every
    world = without_source3()
    assert asked(context(), world) == every
    assert world.asked == [], "where nobody accepts anything, nothing is asked"


def test_names_are_not_resolved_on_it() -> None:
    c, world = accepting("source3"), without_source3()
    named = tuple(h.model_copy(update={"address": f"zk{n}", "also": (h.address,)}) for n, h in
                  enumerate(c.inventory.source.hosts, 1))  # fmt: skip
    for asker in ("", *(f"{role}{n}" for role in ("source", "dest", "broker") for n in (1, 2, 3))):
        for n in (1, 2, 3):
            world.resolved[asker, f"zk{n}"] = TIMEOUT if asker == "source3" else Seen((f"10.71.0.1{n}",))
    found = run_preflight(with_hosts(c, named), world, "preflight")
    assert [f.held for f in found if f.id == "host.names"] == [Held.YES]
