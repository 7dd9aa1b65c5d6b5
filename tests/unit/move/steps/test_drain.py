"""DRAIN: nothing outstanding, then Z, then every dest host has Z; in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import pytest

from tests.answers import Answering
from tests.unit.move.steps.facts import DEST, SILENT, context, stopped_by, well
from zkmigrate.hosts.facts.status import Drain
from zkmigrate.move.steps.drain import DrainFacts, DrainStep
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Done, Verdict, Waiting
from zkmigrate.zookeeper.data.zxid import Zxid

T = TypeVar("T")
Z = 0x100000020


def host(outstanding: int = 0, zxid: int = Z) -> Reading[Drain]:
    return Seen(Drain(outstanding, Zxid(zxid), "observer"))


def facts(
    before: Reading[Drain] | None = None, after: Reading[Drain] | None = None, z: int | None = Z
) -> DrainFacts:
    """All is drained, but for what dest2 says before and after Z was read."""
    good = dict.fromkeys(DEST, host())
    return DrainFacts(
        good | ({"dest2": before} if before else {}), "source2", z, good | ({"dest2": after} if after else {})
    )


def verdict(f: DrainFacts) -> Verdict:
    return DrainStep().check(context(), f)


def test_what_all_hosts_have_is_drained() -> None:
    done = verdict(facts())
    assert well(done)
    assert isinstance(done, Done)
    assert done.record == {"z": hex(Z), "leader": "source2", "zxids": dict.fromkeys(DEST, hex(Z))}


def test_a_zxid_ahead_of_z_is_kept_as_the_hosts_own() -> None:
    done = verdict(facts(after=host(zxid=Z + 7)))
    assert isinstance(done, Done)
    assert done.record is not None
    assert done.record["zxids"]["dest2"] == hex(Z + 7)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (facts(before=host(outstanding=1)), "no request is outstanding on dest"),
        (facts(z=None), "source's leader answers"),
        (facts(after=host(zxid=Z - 1)), "every dest host has source's zxid"),
        (facts(after=host(zxid=Z - 5)), "every dest host has source's zxid"),
    ],
    ids=["something outstanding", "no Z", "one behind", "five behind"],
)
def test_one_false_fact_is_waited_for(f: DrainFacts, what: str) -> None:
    waits = verdict(f)
    assert isinstance(waits, Waiting)
    assert waits.what == what


def test_z_is_kept_while_a_host_is_behind() -> None:
    waits = verdict(facts(after=host(zxid=Z - 1)))
    assert isinstance(waits, Waiting)
    assert waits.keep == {"z": Z, "leader": "source2"}


@pytest.mark.parametrize("f", [facts(before=SILENT), facts(after=SILENT)], ids=["before", "after"])
def test_a_host_that_does_not_answer_blocks(f: DrainFacts) -> None:
    assert stopped_by(verdict(f)) == [("drain.answer", "dest2")]


class Asked(Answering):
    """A look that notes the order of its questions. outstanding: what dest2 has."""

    def __init__(self, outstanding: int) -> None:
        self.outstanding = outstanding
        self.order: list[str] = []

    def zkm(self, host: str, *words: str) -> Reading[str]:
        self.order.append(host)
        outstanding = self.outstanding if host == "dest2" else 0
        return Seen(f"outstanding={outstanding}\nzxid={Z:#x}\nmode=observer\n")

    def word(self, host: str, word: str) -> Reading[str]:
        self.order.append("source")
        return SILENT

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


def observed(look: Any) -> DrainFacts:
    return DrainStep().observe(context(), cast(Look, look))


def test_z_is_not_read_while_something_is_outstanding() -> None:
    look = Asked(outstanding=1)
    f = observed(look)
    assert f.z is None
    assert "source" not in look.order


def test_z_is_read_after_the_first_look_at_dest_and_before_the_second() -> None:
    look = Asked(outstanding=0)
    observed(look)
    assert look.order == [*DEST, "source", "source", "source", *DEST]
