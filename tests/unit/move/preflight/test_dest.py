"""Checks of dest that weigh two places: source's disk against dest's buffer, settings beside JVM flags."""

from __future__ import annotations

import pytest

from tests.unit.preflight_world import (
    PreflightWorld,
    context,
    file_entry,
    healthy,
    inventory,
    recorded,
    run_preflight,
)
from tests.unit.zkdata_fixtures import create_payload, log_from, set_payload, snapshot_of
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Context

VERSION_2 = "/var/lib/zookeeper/version-2"
BIG = 3 << 20
"""Bytes in one znode: three times what a server with the default buffer takes."""


def dest_findings(world: PreflightWorld, id: str, c: Context | None = None) -> dict[str, Finding]:
    """The findings of one check of the first gate, by dest host."""
    return {f.target: f for f in run_preflight(c or context(), world, "preflight") if f.id == id}


def much_data(**disk: bytes) -> PreflightWorld:
    """A world whose source holds more data in all than dest takes in one znode, with these files (``log_1``
    for ``log.1``) on its leader's disk."""
    world = healthy()
    mntr = recorded("leader.mntr")
    told = mntr.replace("zk_approximate_data_size\t261", "zk_approximate_data_size\t5000000")
    assert told != mntr
    world.words["source2", "mntr"] = Seen(told)
    files = {name.replace("_", "."): content for name, content in disk.items()}
    world.listings["source2", VERSION_2] = Seen(tuple(file_entry(n, len(c)) for n, c in files.items()))
    world.contents.update({("source2", f"{VERSION_2}/{n}"): c for n, c in files.items()})
    return world


SMALL = {"/kafka": b"", "/kafka/controller": b"1", "/solr": b"of the other tenant"}
QUIET_LOG = log_from([set_payload(0x100000008, "/solr", b"still the other tenant's")])


@pytest.mark.parametrize(
    "disk",
    [
        {"snapshot_100000007": snapshot_of({**SMALL, "/solr/big": bytes(BIG)}), "log_100000008": QUIET_LOG},
        {
            "snapshot_100000007": snapshot_of(SMALL),
            "log_100000008": log_from([create_payload(0x100000008, "/solr/big", bytes(BIG))]),
        },
    ],
    ids=["in the snapshot", "in the log"],
)
def test_a_znode_above_dests_buffer_is_found_on_disk(disk: dict[str, bytes]) -> None:
    findings = dest_findings(much_data(**disk), "dest.jute-maxbuffer")
    assert set(findings) == {"dest1", "dest2", "dest3"}
    for finding in findings.values():
        assert finding.held is Held.NO
        assert finding.blocks
        assert finding.seen == (
            "1048575 bytes; source allows 1048575; "
            f"largest znode {BIG} bytes (/solr/big on the disk of source2)"
        )
        assert finding.needed == f"at least {BIG}"
        assert f"set -Djute.maxbuffer={BIG} in dest's JVM flags" in finding.moves


def test_much_data_in_small_znodes_is_taken() -> None:
    """The big znode was shrunk after the snapshot, so the log has to be read too."""
    disk = {
        "snapshot_100000007": snapshot_of({**SMALL, "/solr/big": bytes(BIG)}),
        "log_100000008": log_from([set_payload(0x100000008, "/solr/big", bytes(100))]),
    }
    findings = dest_findings(much_data(**disk), "dest.jute-maxbuffer")
    assert {f.held for f in findings.values()} == {Held.YES}
    assert "largest znode 100 bytes (/solr/big on the disk of source2)" in findings["dest1"].seen


def test_with_a_buffer_as_large_as_the_znode_dest_takes_it() -> None:
    world = much_data(snapshot_100000007=snapshot_of({**SMALL, "/solr/big": bytes(BIG)}))
    flags = f'JVMFLAGS="-Djute.maxbuffer={BIG}"\n'.encode()
    world.files["dest1", "/etc/zookeeper/conf/java.env"] = Seen(flags)
    findings = dest_findings(world, "dest.jute-maxbuffer")
    assert {host: f.held for host, f in findings.items()} == {
        "dest1": Held.YES,
        "dest2": Held.NO,
        "dest3": Held.NO,
    }


def test_where_sources_disk_tells_nothing_the_largest_znode_is_unknown() -> None:
    """mntr tells of more data than dest takes in one znode, and neither snapshot nor log is there to read."""
    findings = dest_findings(much_data(), "dest.jute-maxbuffer")
    assert {f.held for f in findings.values()} == {Held.UNKNOWN}
    assert "there is no snapshot or transaction to start from" in findings["dest1"].seen


def test_what_source_allows_is_not_guessed() -> None:
    world = healthy()
    for n in (1, 2, 3):
        world.files[f"source{n}", "/etc/zookeeper/conf/java.env"] = Unknown("denied", "permission denied")
        del world.process_lists[f"source{n}"]
    finding = dest_findings(world, "dest.jute-maxbuffer")["dest1"]
    assert finding.held is Held.UNKNOWN
    assert "what source allows is not known" in finding.seen


@pytest.mark.parametrize(
    ("id", "key", "value", "seen"),
    [
        ("dest.sync-enabled", "syncEnabled", "false", "setting false, JVM flag true"),
        (
            "dest.security",
            "kerberos.removeHostFromPrincipal",
            "true",
            "kerberos.removeHostFromPrincipal: Kerberos has never been tried",
        ),
        ("dest.security", "ssl.crl", "true", "ssl.crl: lists of revoked certificates have never been tried"),
    ],
)
def test_what_dest_settings_would_do_to_every_host_is_refused(
    id: str, key: str, value: str, seen: str
) -> None:
    asked = inventory()
    settings = {**asked.dest.settings, key: value}
    asked = asked.model_copy(update={"dest": asked.dest.model_copy(update={"settings": settings})})
    findings = dest_findings(healthy(), id, Context("r1", asked))
    assert {(f.held, f.seen) for f in findings.values()} == {(Held.NO, seen)}
    assert all(f.blocks for f in findings.values())
    assert {f.held for f in dest_findings(healthy(), id).values()} == {Held.YES}
