"""Copiers that come back after a switch of direction, on real brokers: 2.8.2 and 4.3.1 with KRaft."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest
from kafka import KafkaProducer

from tests.answers import Mirrored
from tests.servers import kraft
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.process import stand_still
from tests.servers.test_mirror import WAIT_S, behind, ended, make, mirror, ran, read
from tests.servers.test_mirror_moves import heard
from tests.servers.test_versions import zookeeper
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.topics.mirror.changes import MIRRORED, SetDirection
from zkmigrate.topics.mirror.clients.alter import Alter
from zkmigrate.topics.mirror.questions import ClusterAt
from zkmigrate.topics.mirror.rules.direction import Copies, Direction

TOPIC = "orders"
FREEZES = 3
"""How often a copier stands still through a switch."""


@dataclass
class Site:
    """Two clusters of one broker. leads, follows: their addresses, which change places at a switch. number:
    of the last run. written: values of the records."""

    leads: str
    follows: str
    number: int = 0
    written: list[str] = field(default_factory=list)
    copiers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def pair(self) -> tuple[str, str]:
        return self.leads, self.follows

    @property
    def ends(self) -> tuple[ClusterAt, ClusterAt]:
        """As an inventory has them."""
        return ClusterAt((self.leads,)), ClusterAt((self.follows,))

    def write(self, count: int, apart_s: float = 0.0) -> None:
        """A client writes on the cluster that leads."""
        with closing(KafkaProducer(bootstrap_servers=[self.leads], acks="all", linger_ms=0)) as producer:
            for _ in range(count):
                self.written.append(f"value {len(self.written)}")
                producer.send(TOPIC, self.written[-1].encode()).get(WAIT_S)
                time.sleep(apart_s)

    def note(self, copies: Copies) -> None:
        with closing(Alter(self)) as alter:
            code, text = alter(SetDirection(MIRRORED, copies, (TOPIC,), self.number))
        assert code == 0, text

    def switch(self) -> None:
        """As the playbook does it, once both logs are equal."""
        self.number += 1
        self.note("none")
        self.note("backward")
        self.leads, self.follows = self.follows, self.leads

    def copier(self, *more: str) -> subprocess.Popen[str]:
        """One from the cluster that leads."""
        self.copiers.append(mirror(self.pair, "run", [TOPIC], *more))
        return self.copiers[-1]

    def even(self) -> None:
        wait_until("the mirror is even", heard(lambda: behind(self.pair, [TOPIC])), WAIT_S)

    def once(self, address: str) -> None:
        """Every record is there once."""
        found = Counter(one[3].decode() for one in read(address, TOPIC))
        twice = {value for value, times in found.items() if times > 1}
        assert (set(found), twice) == (set(self.written), set()), address


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("direction")
    old = Broker("2.8.2", ALONE)
    with ExitStack() as stack:
        port = stack.enter_context(zookeeper("3.5.8", folder))
        stack.enter_context(serve(folder, port, old))
        made = Site(old.address, stack.enter_context(kraft.broker("4.3.1", folder, 7)))
        make(made.leads, TOPIC)
        yield made
        for one in made.copiers:
            one.kill()
            one.communicate()


def direction(site: Site) -> Direction:
    with closing(Mirrored(*site.ends)) as look:
        told = look.direction([TOPIC])
    assert isinstance(told, Seen), told
    return told.value


def test_a_copier_that_comes_back_or_is_started_by_hand_writes_nothing(site: Site) -> None:
    site.write(100)
    first = site.copier()
    site.even()
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    assert direction(site) == Direction("", 0), "no switch yet, so no note"
    before = site.pair
    site.switch()
    assert direction(site) == Direction("forward", 1)
    site.copier()
    for _ in range(3):
        wrong = mirror(before, "run", [TOPIC])
        site.write(40, 0.02)
        code, output = ended(wrong)
        assert code == 5, output
        assert f"clients of topic {TOPIC} use target, since the run with number 1" in output
    site.even()
    for address in site.pair:
        site.once(address)
    code, output = ran(site.pair, "status", [TOPIC])
    assert code == 0, output
    assert (
        "direction: copiers may write on target only: clients use source, by the run with number 1" in output
    )


def test_an_older_run_changes_no_direction(site: Site) -> None:
    kept, site.number = site.number, site.number - 1
    with closing(Alter(site)) as alter:
        code, text = alter(SetDirection(MIRRORED, "none", (TOPIC,), site.number))
    site.number = kept
    assert code == 1
    assert "has recorded the number 1 of a newer run" in text
    assert direction(site) == Direction("forward", 1)


def test_a_copier_that_stood_still_through_a_switch_writes_nothing(site: Site) -> None:
    """It is stopped at a random moment, while records come or none. Another one copies the rest, if any."""
    chance = random.Random()
    for number in range(FREEZES):
        frozen = site.copiers[-1]
        moment = chance.uniform(0.0, 0.4)
        if number % 2:
            site.write(20, moment / 10)
        else:
            site.write(5)
            site.even()
            time.sleep(moment)
        stand_still(frozen.pid)
        if behind(site.pair, [TOPIC]):
            code, output = ended(site.copier("--once"))
            assert code == 0, output
        site.even()
        site.switch()
        site.copier()
        site.write(30)
        site.even()
        frozen.send_signal(signal.SIGCONT)
        site.write(30, 0.02)
        code, output = ended(frozen)
        assert code in (5, 8), f"{number}: {output}"  # 8: it saw the records of clients before the direction
        site.even()
        for address in site.pair:
            site.once(address)
