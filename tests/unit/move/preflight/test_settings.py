"""The checks of ZooKeeper's settings, of what its servers say of themselves, and of what they could bear."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.unit.move.preflight import test_checks
from tests.unit.move.preflight.test_checks import (
    DATA,
    JAVA_ENV,
    ZOO_CFG,
    Break,
    both,
    config,
    dynamic,
    file,
    no_entries,
    no_file,
    no_word,
    program,
    word,
)
from tests.unit.preflight_world import (
    PROCESSES,
    TIMEOUT,
    WHITELIST,
    WORDS,
    PreflightWorld,
    conf,
    context,
    file_entry,
    healthy,
    inventory,
    recorded,
    run_preflight,
    runs_with,
)
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Context

Settings = Mapping[str, str | None]

VERSIONS = ("3.4.14", "3.5.8", "3.6.4", "3.8.4", "3.9.3")


def of_version(version: str, name: str) -> str:
    """What a server of that version answered, ``ROLE.WORD``."""
    return (WORDS.parent.parent / version / "words" / name).read_text()


def with_settings(**settings: str | None) -> Context:
    """A context whose ``dest.settings`` say this too, ``_`` for ``.``; without the keys that are None."""
    asked = inventory()
    changed: dict[str, str | None] = {**asked.dest.settings}
    changed |= {key.replace("_", "."): value for key, value in settings.items()}
    left = {key: value for key, value in changed.items() if value is not None}
    return Context("r1", asked.model_copy(update={"dest": asked.dest.model_copy(update={"settings": left})}))


def findings(
    world: PreflightWorld, id: str, target: str, gate: str = "preflight", c: Context | None = None
) -> Finding:
    """The one finding of a check about a target."""
    (found,) = (f for f in run_preflight(c or context(), world, gate) if (f.id, f.target) == (id, target))
    return found


def flags(host: str, *said: str) -> Break:
    """In its java_env, and so in the process where it runs already."""
    return both(file(host, JAVA_ENV, f'JVMFLAGS="{" ".join(said)}"\n'.encode()), process(host, *said))


def process(host: str, *said: str) -> Break:
    return lambda w: w.process_lists.update({host: Seen(runs_with(*said))})


def unseen(host: str) -> Break:
    """Neither its process nor its java_env."""
    return both(no_file(host, JAVA_ENV), no_process(host))


def no_process(host: str) -> Break:
    return lambda w: w.process_lists.update({host: TIMEOUT})


def much_on_disk(w: PreflightWorld) -> None:
    """A snapshot of 300 MiB on source's leader: 30 s at the assumed pace, twice reckoned."""
    w.listings["source2", f"{DATA}/version-2"] = Seen((file_entry("snapshot.100000000", 300 << 20),))


def old(text: str, version: str) -> str:
    return text.replace("3.5.8", version)


SLOW = re.sub(r"(?m)^Latency min/avg/max: .*$", "Latency min/avg/max: 1/300/900", recorded("observer.srvr"))
ADDED = "server.4=10.71.0.14:2888:3888:participant\nversion=0"

# check, gate, target, what breaks it, what of it must be told; what makes it unknown. As in test_checks.
# fmt: off
CASES: list[tuple[str, str, str, Break, str, Break]] = [
    (
        "source.words", "preflight", "source3", word("source3", "cons", "cons" + WHITELIST),
        "cons not allowed", no_word("cons", "source3"),
    ),
    (
        "source.words", "cutover", "source1",
        both(word("source1", "dump", "dump" + WHITELIST), word("source1", "mntr", "mntr" + WHITELIST)),
        "mntr, dump not allowed", no_word("dump", "source1"),
    ),
    (
        "source.flags", "preflight", "source1", process("source1", "-Djute.maxbuffer=4194304"),
        "jute.maxbuffer", no_process("source1"),
    ),
    (
        "source.flags", "cutover", "source2", file("source2", JAVA_ENV, b"-Dzookeeper.skipACL=yes"),
        "zookeeper.skipACL", no_file("source2", JAVA_ENV),
    ),
    (
        "dest.flags", "roll", "dest1", process("dest1", "-Dzookeeper.forceSync=no"), "zookeeper.forceSync",
        lambda w: w.process_lists.update({"dest1": Seen("/sbin/init\n")}),
    ),
    (
        "source.local-sessions", "preflight", "source2",
        config("tickTime=2000", "tickTime=2000\nlocalSessionsEnabled=true"), "localSessionsEnabled here",
        no_file("source2", ZOO_CFG),
    ),
    (
        "source.snapshots", "preflight", "source2",
        flags("source2", "-Dzookeeper.snapshot.compression.method=zstd"),
        "compression zstd", unseen("source2"),
    ),
    (
        "source.snapshots", "roll", "source2",
        config("tickTime=2000", "tickTime=2000\nsnapshot.compression.method=zstd"), "compression zstd",
        no_file("source2", ZOO_CFG),
    ),
    (
        "source.running", "preflight", "source2",
        word("source2", "conf", conf(2).replace("tickTime=2000", "tickTime=3000")),
        "tickTime is 3000, in the file 2000", word("source2", "conf", "conf" + WHITELIST),
    ),
    (
        "source.running", "preflight", "source1",
        word("source1", "conf", conf(1).replace("version=0", ADDED)), "server.4=10.71.0.14:2888:3888",
        no_word("conf", "source1"),
    ),
    (
        "source.reconfig", "cutover", "source1",
        word("source1", "conf", conf(1).replace("version=0", "version=400000003")),
        "version 0x0, runs with 0x400000003", no_file("source1", ZOO_CFG),
    ),
    (
        "source.running", "preflight", "source3", word("source3", "conf", conf(1)),
        "serverId is 1, in the file 3", no_word("conf", "source3"),
    ),
    (
        "source.running", "preflight", "source3",
        word("source3", "conf", conf(3).replace("dataLogDir=/var/lib/zookeeper", "dataLogDir=/logs")),
        "dataLogDir is /logs/version-2", no_word("conf", "source3"),
    ),
    (
        "source.known-defect", "preflight", "source1",
        word("source1", "srvr", old(recorded("follower.srvr"), "3.5.3")), "3.5.3: ZOOKEEPER-2959",
        no_word("srvr", "source1"),
    ),
    (
        "source.known-defect", "preflight", "source1",
        word("source1", "srvr", of_version("3.4.14", "follower.srvr").replace("3.4.14", "3.4.12")),
        "3.4.12: ZOOKEEPER-2959", no_word("srvr", "source1"),
    ),
    (
        "source.latency", "roll", "source1",
        word("source1", "mntr", of_version("3.8.4", "follower.mntr").replace("zk_avg_fsynctime\t1.25",
        "zk_avg_fsynctime\t180.5")),
        "fsync 180.5 ms", no_word("srvr", "source1"),
    ),
    (
        "source.latency", "preflight", "source3",
        word("source3", "mntr", of_version("3.4.14", "follower.mntr").replace("exceed_count\t0",
        "exceed_count\t7")),
        "7 fsyncs above their limit", no_word("srvr", "source3"),
    ),
    (
        "dest.latency", "cutover", "dest2", word("dest2", "srvr", SLOW), "requests 300 ms",
        no_word("srvr", "dest2"),
    ),
    (
        "dest.settings", "preflight", "dest2", flags("dest2", "-Dzookeeper.forceSync=no"),
        "forceSync=no: a power failure may lose", no_file("dest2", JAVA_ENV),
    ),
    (
        "dest.same-flags", "preflight", "dest1", flags("source3", "-Dzookeeper.extendedTypesEnabled=true"),
        "extendedTypesEnabled: this host false, source1 false, source2 false, source3 true",
        unseen("source1"),
    ),
    (
        "dest.same-flags", "roll", "dest3", flags("dest3", "-Dzookeeper.skipACL=yes"),
        "skipACL: this host yes", unseen("dest3"),
    ),
    (
        "dest.init-limit", "preflight", "", much_on_disk, "dest 20 s, source1 20 s",
        no_entries("source2", f"{DATA}/version-2"),
    ),
    (
        "dest.present-config", "preflight", "dest1",
        file("dest1", ZOO_CFG, b"tickTime=2000\nadmin.serverPort=8099\ndataDir=/srv/zk\n"),
        "admin.serverPort=8099, dataDir=/srv/zk", no_file("dest1", ZOO_CFG),
    ),
]
# fmt: on


@pytest.mark.parametrize(("id", "gate", "target", "broken", "told", "hidden"), CASES)
def test_check(id: str, gate: str, target: str, broken: Break, told: str, hidden: Break) -> None:
    test_checks.test_check(id, gate, target, broken, told, hidden)


# check, dest.settings, what of it must be told.
# fmt: off
SETTINGS: list[tuple[str, Settings, str]] = [
    ("dest.words", {"4lw_commands_whitelist": "srvr,mntr"}, "4lw.commands.whitelist=srvr,mntr"),
    ("dest.words", {"4lw_commands_whitelist": None}, "no 4lw.commands.whitelist"),
    ("dest.settings", {"snapshot_trust_empty": "true"}, "snapshot.trust.empty=true"),
    ("dest.settings", {"readonlymode_enabled": "true"}, "readonlymode.enabled=true"),
    ("dest.settings", {"leaderServes": "no"}, "leaderServes=no"),
    ("dest.settings", {"leaderServes": "false"}, "leaderServes=false"),
    ("dest.settings", {"forceSync": "false"}, "forceSync=false"),
    ("dest.settings", {"observerMasterPort": "2191"}, "observerMasterPort=2191"),
    ("dest.settings", {"clientPortAddress": "10.71.0.21"}, "clientPortAddress=10.71.0.21"),
    ("dest.settings", {"admin.serverAddress": "10.71.0.21"}, "admin.serverAddress=10.71.0.21"),
    ("dest.settings", {"metricsProvider.httpHost": "zk1.example"}, "metricsProvider.httpHost=zk1.example"),
    ("dest.settings", {"electionAlg": "0"}, "electionAlg=0"),
    ("dest.settings", {"fastleader_maxNotificationInterval": "120000"}, "Interval=120000"),
    ("dest.same-flags", {"extendedTypesEnabled": "true"}, "extendedTypesEnabled: this host true"),
    ("dest.same-flags", {"digest_enabled": "false"}, "digest.enabled: this host false"),
    ("dest.config", {"initLimit": None}, "no initLimit in dest.settings"),
    ("dest.config", {"syncLimit": "0"}, "no syncLimit in dest.settings"),
    ("dest.config", {"tickTime": "two"}, "tickTime"),
    ("source.local-sessions", {"localSessionsEnabled": "true"}, "localSessionsEnabled in dest.settings"),
    ("source.local-sessions", {"localSessionsUpgradingEnabled": "true"}, "localSessionsUpgradingEnabled in"),
    ("dest.init-limit", {"initLimit": "ten"}, "not known of dest"),
]
# fmt: on


@pytest.mark.parametrize(("id", "settings", "told"), SETTINGS)
def test_a_setting_of_dest_that_would_do_harm(id: str, settings: dict[str, str | None], told: str) -> None:
    found = [f for f in run_preflight(with_settings(**settings), healthy(), "preflight") if f.id == id]
    assert found
    for finding in found:
        assert finding.held is not Held.YES
        assert told in finding.seen
        assert finding.moves
        assert finding.blocks == (finding.severity is Severity.BLOCK)


@pytest.mark.parametrize(
    "settings",
    [
        {
            "forceSync": "yes",
            "leaderServes": "yes",
            "observerMasterPort": "0",
            "clientPortAddress": "0.0.0.0",
        },
        {"extendedTypesEnabled": "false", "digest_enabled": "TRUE", "skipACL": "no", "electionAlg": "3"},
        {"4lw_commands_whitelist": "*", "fastleader_maxNotificationInterval": "1000"},
        {"localSessionsEnabled": "false", "snapshot_compression_method": "snappy"},
    ],
)
def test_a_setting_that_says_the_default_does_none(settings: dict[str, str]) -> None:
    found = run_preflight(with_settings(**settings), healthy(), "preflight")
    assert [f for f in found if f.held is not Held.YES and f.severity is not Severity.INFO] == []


def test_what_cannot_be_read_of_dests_settings_is_unknown() -> None:
    """The words may be allowed by a flag, where dest.settings do not say so; and server lines that source
    does not show cannot be written beside dest's."""
    world = healthy()
    no_file("dest1", JAVA_ENV)(world)
    without = with_settings(**{"4lw_commands_whitelist": None})
    assert findings(world, "dest.words", "dest1", c=without).held is Held.UNKNOWN
    flags("dest1", "-Dzookeeper.4lw.commands.whitelist=*")(world)
    assert findings(world, "dest.words", "dest1", c=without).held is Held.YES
    world = healthy()
    for n in (1, 2, 3):
        no_file(f"source{n}", ZOO_CFG)(world)
    assert findings(world, "dest.config", "").held is Held.UNKNOWN


def test_a_key_of_the_config_counts_above_the_flag() -> None:
    """As QuorumPeerConfig does: what zoo.cfg says overwrites the system property."""
    world = healthy()
    flags("dest1", "-Dzookeeper.forceSync=no")(world)
    assert findings(world, "dest.settings", "dest1").held is Held.NO
    assert findings(world, "dest.settings", "dest1", c=with_settings(forceSync="yes")).held is Held.YES


def test_a_config_of_dest_with_a_number_of_sources() -> None:
    """The inventory refuses it where it knows of it; here one that only source's own config has."""
    world = healthy()
    for n in (1, 2, 3):
        config("server.3=10.71.0.13", "server.12=10.71.0.13", f"source{n}")(world)
    found = findings(world, "dest.config", "")
    assert found.held is Held.NO
    assert "a server of source has the same number as a server of dest" in found.seen


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_how_it_runs(version: str) -> None:
    world = healthy()
    for n, role in ((1, "follower"), (2, "leader"), (3, "follower")):
        for asked in ("srvr", "mntr"):
            world.words[f"source{n}", asked] = Seen(of_version(version, f"{role}.{asked}"))
        world.words[f"source{n}", "conf"] = Seen(conf(n, of_version(version, f"{role}.conf")))
    for n in (1, 2, 3):
        world.words[f"dest{n}", "mntr"] = Seen(of_version(version, "observer.mntr"))
    for gate in ("preflight", "roll", "cutover"):
        for id in ("source.running", "source.latency", "source.words", "dest.latency"):
            held = {f.held for f in run_preflight(context(), world, gate) if f.id == id and f.target}
            assert held <= {Held.YES}, (gate, id)


def test_an_unserving_server_has_answered() -> None:
    """That it does not serve is told by source.quorum, not once more by each word."""
    world = healthy()
    for asked in ("srvr", "mntr", "cons"):
        world.words["source3", asked] = Seen(recorded(f"unserving.{asked}"))
    assert findings(world, "source.words", "source3").held is Held.YES


def test_room_is_asked_for_once_less_after_the_join() -> None:
    world = healthy()
    # 1 MiB + 1000 bytes on source: 3 of them do not fit into 2.5 MiB, 2 do
    program("dest1", "facts", "disk_free_kib=1048576", "disk_free_kib=2560")(world)
    assert findings(world, "dest.disk", "dest1").held is Held.NO
    assert findings(world, "dest.disk", "dest1", "roll").held is Held.YES


def test_the_checks_go_by_the_flags_that_the_server_runs_with() -> None:
    """Its limit stands in the unit, and java_env is not there: that file's silence says nothing."""
    world = healthy()
    del world.files["source3", JAVA_ENV]
    process("source3", "-Djute.maxbuffer=4194304")(world)
    found = findings(world, "dest.jute-maxbuffer", "dest1")
    assert found.held is Held.NO
    assert "source allows 4194304" in found.seen
    world.process_lists["source3"] = Seen(f"runuser -u zk -- {PROCESSES.splitlines()[1]}\n{PROCESSES}")
    assert findings(world, "source.flags", "source3").held is Held.YES, "what started it is no server"
    world.process_lists["source3"] = Seen(runs_with() * 2)
    assert findings(world, "source.flags", "source3").held is Held.UNKNOWN, "two servers"


def test_no_flags_value_is_told() -> None:
    world = healthy()
    secret = "super:Zm9vYmFy"
    process("source3", f"-Dzookeeper.DigestAuthenticationProvider.superDigest={secret}")(world)
    found = run_preflight(context(), world, "preflight")
    assert findings(world, "source.flags", "source3").held is Held.NO
    assert secret not in repr(found)


STALE: list[tuple[str, str, Break]] = [
    ("source.config", "source2", config("server.3=10.71.0.13", "server.3=10.71.0.99")),
    ("source.security", "source2", config("tickTime=2000", "tickTime=2000\nssl.crl=true")),
    ("source.purge", "source2", config("autopurge.purgeInterval=0", "autopurge.purgeInterval=1")),
    ("source.reconfig", "source1", dynamic("source2")),
    ("dest.disk", "dest1", program("dest1", "facts", "disk_free_kib=1048576", "disk_free_kib=9")),
    (
        "host.tools", "broker1",
        program("broker1", "facts", "flock=flock from util-linux 2.38.1", "flock=missing"),
    ),
    ("host.clock", "dest3", program("dest3", "facts", "time=1000.25", "time=1090.5")),
    (
        "run.alone", "dest1",
        both(
            lambda w: w.listings.update({
                ("dest1", "/var/lib/zkmigrate"): Seen(
                    (replace(file_entry("o"), kind="d"),)
                )
            }),
            file("dest1", "/var/lib/zkmigrate/o/phase", b"armed 1000 3\n"),
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("id", "target", "changed"), STALE)
@pytest.mark.parametrize("gate", ["roll", "cutover"])
def test_what_changed_since_the_preflight_is_seen_at_the_next_gate(
    id: str, target: str, changed: Callable[[PreflightWorld], None], gate: str
) -> None:
    """P40: a gate rests on no old result, it looks again."""
    world = healthy()
    assert findings(world, id, target, gate).held is Held.YES
    changed(world)
    assert findings(world, id, target, gate).held is not Held.YES
