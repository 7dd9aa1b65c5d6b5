"""The two configs of a dest host, line by line: whose ensemble it is in, and as what."""

from __future__ import annotations

import pytest

from tests.world.operator import inventory
from zkmigrate.inventory.inventory import Inventory, Ports
from zkmigrate.move.rules.reform import observer_config, reformed_config
from zkmigrate.zookeeper.facts.members import Members

SOURCE = ("server.1=a:2888:3888:participant;2181", "server.2=b:2888:3888")
GIVEN = {"tickTime": "2000", "syncLimit": "5"}
OWN = ["syncLimit=5", "tickTime=2000", "dataDir=/var/lib/zookeeper", "clientPort=2183"]
VOTE = ["server.11=10.0.0.11:2889:3889", "server.12=[fd00::12]:2889:3889", "server.13=10.0.0.13:2889:3889"]
WATCH = ["peerType=observer", *SOURCE, *(f"{line}:observer" for line in VOTE)]


def dest(log_dir: str | None = None, **settings: str) -> Inventory:
    """Ports of dest's own; its second host has an IPv6 address."""
    asked = inventory()
    hosts = tuple(
        h.model_copy(update={"address": "fd00::12"}) if h.name == "dest2" else h for h in asked.dest.hosts
    )
    ports = Ports(client=2183, quorum=2889, election=3889)
    changes = {"hosts": hosts, "ports": ports, "settings": GIVEN | settings, "log_dir": log_dir}
    return asked.model_copy(update={"dest": asked.dest.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("asked", "members", "observes", "reformed"),
    [
        (dest(), Members(SOURCE), [*OWN, *WATCH], [*OWN, *VOTE]),
        (
            dest(log_dir="/log"),
            Members(SOURCE),
            [*OWN, "dataLogDir=/log", *WATCH],
            [*OWN, "dataLogDir=/log", *VOTE],
        ),
        (
            dest(reconfigEnabled="true"),
            Members(SOURCE, version=0x10000000A),
            ["reconfigEnabled=false", *OWN, WATCH[0], "version=10000000a", *WATCH[1:]],
            ["reconfigEnabled=true", *OWN, *VOTE],
        ),
    ],
    ids=["one directory", "logs elsewhere", "source and dest reconfigure themselves"],
)
def test_it_observes_among_sources_members_and_votes_among_dests_own(
    asked: Inventory, members: Members, observes: list[str], reformed: list[str]
) -> None:
    assert observer_config(asked, members).decode().splitlines() == observes
    assert reformed_config(asked).decode().splitlines() == reformed
