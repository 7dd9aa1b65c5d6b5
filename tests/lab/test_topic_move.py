"""Clients at work are switched to another cluster by the playbook, and back, on lab hosts with real brokers.

One lab for all of it: first a switch whose operator is killed as it is to lead the clients away. `status`
says that every gateway is sealed, and a rollback leaves the clients where they were. Then they go there and
back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.test_topic_move import FAULTS, Switches
from tests.lab import no_trace
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.topic_site import OLD, TopicSite, clients, two_clusters

pytestmark = pytest.mark.lab

CLIENTS = ("librdkafka-newest",)


def test_h11_h17_clients_stay_where_a_rollback_finds_them_and_go_there_and_back(tmp_path: Path) -> None:
    """Each case raises where a record is lost, moved, twice, unseen or delivered again."""
    [killed] = [one for one in FAULTS if one.name == "kill-go-rollback"]
    with Lab.up(two_clusters("2.8.2", "4.3.1"), print) as lab:
        site = TopicSite(lab, tmp_path, CLIENTS, print)
        site.begin()
        switches = Switches(site, clients(CLIENTS, print))
        assert "status 12: sealed, rollback 0: back" in switches.with_fault(killed)
        assert site.open_on() == OLD
        assert "lost 0, twice 0" in switches.there_and_back("switch", 1)
        assert site.open_on() == OLD
        assert "different: 0" in switches.compared()
        lab_id = lab.id
    assert no_trace.traces(lab_id) == []
