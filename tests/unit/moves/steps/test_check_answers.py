"""CHECK: what dest looks like behind the closed door, as its servers answer."""

from __future__ import annotations

import pytest

from tests.world.operator import inventory
from zkmigrate.model.fact import Seen
from zkmigrate.model.finding import Finding
from zkmigrate.model.step import Context
from zkmigrate.moves.facts.records import Drained
from zkmigrate.moves.steps.check import quorum
from zkmigrate.zookeeper.data.four_letter_words import parse_srvr
from zkmigrate.zookeeper.facts.ensemble import EnsembleView

LAST_OF_SOURCE = 0x1000000EC


def context() -> Context:
    return Context("run", inventory(), records={"drain": Drained(LAST_OF_SOURCE, None, {}).encode()})


def seen(**servers: tuple[str, int]) -> EnsembleView:
    """Servers by host: mode and zxid as ``srvr`` gives them."""
    answers = {
        host: Seen(
            parse_srvr(
                "Zookeeper version: 3.5.8-f439ca583e, built on 05/04/2020 15:07 GMT\n"
                "Latency min/avg/max: 0/0/3\nReceived: 5\nSent: 4\nConnections: 1\nOutstanding: 0\n"
                f"Zxid: {zxid:#x}\nMode: {mode}\nNode count: 9\n"
            )
        )
        for host, (mode, zxid) in servers.items()
    }
    leading = [host for host, (mode, _) in servers.items() if mode == "leader"]
    return EnsembleView(answers, leading[0] if len(leading) == 1 else None)


def held(view: EnsembleView) -> dict[str, str]:
    findings: tuple[Finding, ...] = quorum(context(), view)
    return {finding.id: finding.held.value for finding in findings}


def test_a_follower_may_show_the_old_epoch_until_the_first_transaction_of_the_new_one() -> None:
    view = seen(
        dest1=("follower", LAST_OF_SOURCE), dest2=("leader", 2 << 32), dest3=("follower", LAST_OF_SOURCE)
    )
    assert held(view) == {"check.quorum": "yes", "check.epoch": "yes"}


@pytest.mark.parametrize(
    ("leader", "follower"),
    [(LAST_OF_SOURCE, LAST_OF_SOURCE), (2 << 32, 3 << 32)],
    ids=["still source's epoch", "a follower beyond its leader"],
)
def test_a_wrong_epoch_is_seen(leader: int, follower: int) -> None:
    view = seen(dest1=("follower", follower), dest2=("leader", leader), dest3=("follower", leader))
    assert held(view)["check.epoch"] == "no"


@pytest.mark.parametrize("odd_one", ["observer", "leader", "standalone"])
def test_one_leads_and_all_others_follow(odd_one: str) -> None:
    view = seen(dest1=("follower", 2 << 32), dest2=("leader", 2 << 32), dest3=(odd_one, 2 << 32))
    assert held(view)["check.quorum"] == "no"


def test_what_was_seen_of_several_hosts_is_told_in_words() -> None:
    view = seen(dest1=("follower", 2 << 32), dest2=("leader", 2 << 32))
    assert [f.seen for f in quorum(context(), view)] == [
        "dest1: follower; dest2: leader",
        "epochs dest1: 2; dest2: 2; leader dest2",
    ]
