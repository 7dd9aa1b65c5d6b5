"""Checks of source: it must be healthy before the start, and configured as the inventory says."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

from zkmigrate.hosts.facts.host_names import Resolve, resolver, same_host, unresolved
from zkmigrate.inventory.checks import spelled
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.connections import addresses
from zkmigrate.move.preflight.check import ALWAYS, NOT_HEARD, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.drilled import DRILLED, NEEDED
from zkmigrate.move.preflight.evidence import NOT_ASKED, Evidence, door, first_address
from zkmigrate.move.preflight.security import security_of
from zkmigrate.move.rules import server_down
from zkmigrate.runbook.model.fact import NotHeard, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held, Severity
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.four_letter_words import Conf, Mntr, Srvr
from zkmigrate.zookeeper.data.zoocfg import ServerLine
from zkmigrate.zookeeper.data.zxid import counter, format_zxid
from zkmigrate.zookeeper.facts.config import ZooConfig, is_one_host, parse

COUNTER_LIMIT = 0xF0000000
"""The zxid counter above which an overflow is possible during the move. An overflow forces an election."""


_ALLOW_MNTR = (
    "allow mntr in 4lw.commands.whitelist of source's leader, or let this machine reach its AdminServer"
)


@check(
    "source.quorum",
    "source has a quorum: one server leads, the others follow in sync, and observers observe",
    Scope.CLUSTER,
    ALWAYS,
)
def quorum(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P01. The move depends on source's quorum until dest has its own. A follower that is out of sync weakens
    that quorum, and so does a server that does not answer. A host with ``observer: true`` has no vote. If one
    server alone is down, ``source.server-down`` reports it, and this check judges the others.

    To do: Repair source before anything else.
    """
    modes = e.source.modes()
    needed = f"{e.source.wanted}, all in sync"
    seen = ", ".join(f"{host} {mode}" for host, mode in modes.items())
    moves = ("repair source before anything else",)
    if not e.source.complete:
        unasked = any(isinstance(reading, Unknown) for reading in e.source.servers.values())
        yield Judged(None if unasked else False, seen, needed, moves=(NOT_HEARD,) if unasked else moves)
        return
    # zk_synced_followers counts only voting followers, not observers.
    synced = e.leader.value.synced_followers if isinstance(e.leader, Seen) else None
    if synced is None:
        unknown = why(e.leader) if not isinstance(e.leader, Seen) else "not reported by the leader"
        move = (
            NOT_HEARD
            if isinstance(e.leader, Unknown) and e.leader.cause in get_args(NotHeard)
            else _ALLOW_MNTR
        )
        yield Judged(None, f"{seen}; synced followers: {unknown}", needed, moves=(move,))
        return
    yield Judged(synced == e.source.followers, f"{seen}; {synced} in sync", needed, moves=moves)


@check(server_down.ID, server_down.CLAIM, Scope.SOURCE, ALWAYS)
def server(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P01. Without this server the quorum holds, but has fewer servers to spare, or none. A server that is
    down holds no acknowledged transaction that the others lack, so no proof needs it. It counts as down only
    if source's leader counts no follower but those that answer. While it is down, no other check reads it.

    To do: Start this server. If the move must not wait, accept source.server-down for it in migration.yml. A
    second server that is down cannot be accepted.
    """
    for f in server_down.findings(e.source, e.down):
        held = None if f.held is Held.UNKNOWN else f.held is Held.YES
        yield Judged(held, f.seen, f.needed, f.target, f.moves, f.cause)


@check("source.ports", "every dest host reaches this server's quorum and election ports", Scope.SOURCE)
def ports(c: Context, e: Evidence) -> Iterator[Judged]:
    """P02. A server whose election listener has died looks healthy, but no observer can join through it. Only
    the leader listens on its quorum port, so the other servers may refuse there. A timeout comes from a
    firewall.

    To do: Open the quorum and election ports between dest and source. If only the election port refuses,
    restart that server.
    """
    quorum, election = c.inventory.source.ports.quorum, c.inventory.source.ports.election
    for name in e.source.servers:
        wrong: list[str] = []
        unknown: dict[str, list[str]] = {}
        connects = 0
        for dest in c.inventory.dest_names:
            reading = e.reach[dest]
            for port in (quorum, election):
                connects += 1
                idle = port == quorum and name != e.source.leader
                where = door(first_address(c.inventory.source_host(name)), port)
                how = reading.value.get(where, "not told") if isinstance(reading, Seen) else ""
                if not isinstance(reading, Seen) or how == "not told":
                    outcome = how or why(reading)
                    unknown.setdefault(f"from {dest}: {outcome}", []).append(str(port))
                elif how != "open" and not (idle and how == "refused"):
                    wrong.append(f"{port} from {dest}: {how}")
        yield Judged(
            False if wrong else None if unknown or not connects else True,
            "; ".join((*wrong, *(f"{' and '.join(p)} {text}" for text, p in unknown.items())))
            or f"{connects} connects as expected",
            "open",
            name,
            (
                "open the ports between dest and source",
                "if only the election port refuses, its listener has died: restart that server",
            )
            if wrong
            else (),
        )


@check(
    "source.config",
    "the server's own config agrees with the inventory's source section",
    Scope.SOURCE,
    ALWAYS,
)
def config(c: Context, e: Evidence) -> Iterator[Judged]:
    """P05. Dest copies the server lines of this file, and the proof reads logs in its directories. A
    difference from the inventory would break both in the window.

    To do: Correct the source section of migration.yml, or the server's config. Let the ssh account read
    the file.
    """
    for host, reading in e.source_config.items():
        if not isinstance(reading, Seen):
            yield unseen(
                reading,
                f"{c.inventory.source.config}, readable by the ssh account",
                host,
                ("let the ssh account read it", "correct source.config in migration.yml"),
            )
            continue
        resolve = resolver(e.resolved, host, addresses(c.inventory.source_host(host)))
        mistakes = dict(_server_mistakes(c.inventory, host, reading.value, resolve))
        mistakes |= dict(_path_mistakes(c.inventory, reading.value, e.confs.get(host, NOT_ASKED)))
        yield Judged(
            False if False in mistakes.values() else None if mistakes else True,
            "; ".join(mistakes) or f"{len(reading.value.servers)} servers, ports and directories equal",
            "the same servers, addresses, ports and directories",
            host,
            (
                "correct the source part of migration.yml",
                "correct this server's config",
                *(("let each name in the config resolve on that host",) if None in mistakes.values() else ()),
            ),
        )


def _server_mistakes(
    inventory: Inventory, host: str, config: ZooConfig, resolve: Resolve
) -> Iterator[tuple[str, bool | None]]:
    """Yield a text and False for each mistake in a server's lines, and a text and None for each unknown
    value.
    """
    known = {one.myid: one for one in inventory.source.hosts}
    ports = (inventory.source.ports.quorum, inventory.source.ports.election)
    own = inventory.source_host(host)
    for odd in config.odd:
        yield f"a server line that cannot be parsed: {odd}", False
    for myid, server in config.servers.items():
        if myid == own.myid and not is_one_host(server.host):
            server = replace(server, host=own.address)
        if myid not in known:
            yield f"server.{myid}={server.host} is not in the inventory", False
            continue
        same = same_host(server.host, (known[myid].address, *known[myid].also), resolve)
        if same is None:
            yield f"server.{myid}: {unresolved(server.host, resolve(server.host), host)}", None
        elif not same:
            yield f"server.{myid} is {server.host}, in the inventory {known[myid].address}", False
        role = "observer" if known[myid].observer else "participant"
        if server.role != role:
            yield f"server.{myid} is {server.role}, in the inventory {role}", False
        if (server.quorum_port, server.election_port) != ports:
            used = f"{server.quorum_port}:{server.election_port}"
            yield f"server.{myid} uses ports {used}, not {ports[0]}:{ports[1]}", False
    for myid in sorted(set(known) - set(config.servers)):
        yield f"no line for server.{myid} ({known[myid].name})", False


def _path_mistakes(
    inventory: Inventory, config: ZooConfig, conf: Reading[Conf]
) -> Iterator[tuple[str, bool | None]]:
    source = inventory.source
    data_dir = config.values.get("dataDir", "").strip()
    log_dir = config.values.get("dataLogDir", data_dir).strip()
    wanted = {"dataDir": (data_dir, source.data_dir), "dataLogDir": (log_dir, source.txn_dir)}
    for key, (given, path) in wanted.items():
        runs = _running_directory(key, given, conf)
        if runs is None:
            yield (
                f"{key}={given} is a relative path, and conf did not report the directory: {why(conf)}",
                None,
            )
        elif runs.rstrip("/") != path.rstrip("/"):
            meant = f", which is {runs}" if runs != given else ""
            yield f"{key}={given or '(none)'}{meant}, in the inventory {path}", False
    named = source.ports.settings
    in_lines = {str(server.client_port) for server in config.servers.values() if server.client_port}
    for key in ("clientPort", "secureClientPort"):
        seen_ports = {config.values[key].strip()} if key in config.values else set()
        seen_ports |= in_lines if key == "clientPort" else set()
        if seen_ports != ({str(named[key])} if key in named else set()):
            seen = ", ".join(sorted(seen_ports)) or "none"
            yield f"{key} {seen}, in the inventory {named.get(key, 'none')}", False


def _running_directory(key: str, given: str, conf: Reading[Conf]) -> str | None:
    """Return the absolute path of a directory setting as the running server uses it; None if not known.

    A relative path is below the server's working directory, which ``conf`` shows. key: the setting. given:
    its value in the file.
    """
    if given.startswith("/") or not given:
        return given and posixpath.normpath(given)
    path = conf.value.values.get(key, "") if isinstance(conf, Seen) else ""
    return posixpath.normpath(path).removesuffix("/version-2") if path.startswith("/") else None


@check("source.myid", "the server's myid file agrees with the inventory", Scope.SOURCE)
def myid(c: Context, e: Evidence) -> Iterator[Judged]:
    """P14. The host has another myid than the inventory says. Two hosts may be swapped in the inventory.

    To do: Correct myid or address of this host in migration.yml.
    """
    for host, reading in e.source_myid.items():
        needed = str(c.inventory.source_host(host).myid)
        moves = ("correct myid or address of this host in migration.yml",)
        if isinstance(reading, Seen):
            yield Judged(reading.value == needed, f"myid {reading.value}", needed, host, moves)
        else:
            yield unseen(reading, needed, host)


@check("source.security", "source has no SASL or TLS that a move does not support", Scope.SOURCE, ALWAYS)
def security(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A move supports SASL with DIGEST-MD5, TLS, and ACLs of the schemes sasl, x509, digest. Kerberos,
    lists of revoked certificates and other providers have never been tried, so zkmigrate refuses them by
    name.

    To do: Do not move this ensemble with zkmigrate, unless you can remove what the finding names.
    """
    move = "do not move this ensemble with zkmigrate yet, or remove what the finding names"
    for host in e.source_config:
        yield security_of(host, e.secured[host], move)


@check("source.sync-enabled", "source's config lets observers keep a log", Scope.SOURCE, ALWAYS)
def sync_enabled(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P16. With syncEnabled=false an observer keeps no log. Then its newest zxid is not on its disk, and the
    proof is impossible. People often copy dest's settings from source.

    To do: Remove syncEnabled=false from the config.
    """
    for host, reading in e.source_config.items():
        if not isinstance(reading, Seen):
            yield unseen(reading, "a readable config", host)
            continue
        value = reading.value.values.get("syncEnabled", "true").strip()
        yield Judged(
            value.lower() == "true", f"syncEnabled={value}", "true", host, ("remove syncEnabled=false",)
        )


@check(
    "source.reconfig",
    "source's servers have one version of their members, in files and processes",
    Scope.SOURCE,
    ALWAYS,
)
def reconfig(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P05. A source with dynamic reconfiguration keeps its members in a file with a version. An observer that
    starts with an older version never follows source: it restarts its election hundreds of times a minute.

    To do: Let the reconfiguration end, or restart the server that uses other members. Change no member of
    source until the move is over.
    """
    newest = newest_members(e)
    needed = f"version {newest:#x} in the files and in the process"
    moves = ("let the reconfiguration of source end", "restart the server that uses other members")
    for host, reading in e.source_config.items():
        if not isinstance(reading, Seen):
            yield unseen(reading, "a readable config", host)
            continue
        conf = e.confs[host]
        runs = conf.value.values.get("version") if isinstance(conf, Seen) else None
        held = reading.value.version == newest and runs in (None, f"{newest:x}")
        seen = f"version {reading.value.version:#x}" + ("" if runs is None else f", runs with 0x{runs}")
        yield Judged(held, seen, needed, host, moves)


def newest_members(e: Evidence) -> int:
    """Return the newest version number of the members in source's files; 0 if the members are static."""
    return max((r.value.version for r in e.source_config.values() if isinstance(r, Seen)), default=0)


@check(
    "source.version", "a move from the server's version has been drilled", Scope.SOURCE,
    severity=Severity.WARN,
)  # fmt: skip
def version(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P03, P12. Nobody has drilled a move from this version of ZooKeeper. It may work, but the rehearsal is
    then its first trial. dest.version checks dest's version after the join, kafka.version checks Kafka's.

    To do: Rehearse with particular care.
    """
    known = {drill.source for drill in DRILLED}
    for host, reading in e.source.servers.items():
        if isinstance(reading, Seen):
            seen = reading.value.version.number
            yield Judged(seen in known, f"ZooKeeper {seen}", NEEDED, host, ("rehearse with particular care",))
        else:
            yield unseen(reading, NEEDED, host)


@check(
    "source.zxid-counter", "source's zxid counter will not overflow during the move", Scope.CLUSTER, ALWAYS
)
def zxid_counter(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P07. When the zxid counter overflows, source elects a new leader in the middle of the move.

    To do: Restart source's leader: a new epoch starts the counter again.
    """
    newest = max(e.source.zxids().values(), default=None)
    needed = f"a counter below {COUNTER_LIMIT:#x}"
    if newest is None:
        yield Judged(None, "no source server answers", needed)
        return
    moves = ("restart source's leader: a new epoch starts the counter again",)
    yield Judged(counter(newest) < COUNTER_LIMIT, f"newest zxid {format_zxid(newest)}", needed, moves=moves)


@check("source.purge", "source does not purge logs by itself", Scope.SOURCE, ALWAYS, Severity.WARN)
def purge(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P08. The proof reads source's logs from the last snapshot on. A purge that keeps few logs may
    delete one of them.

    To do: Set autopurge.purgeInterval=0 until the move is over, or keep more logs than the move needs.
    """
    for host, reading in e.source_config.items():
        if isinstance(reading, Seen):
            interval = reading.value.values.get("autopurge.purgeInterval", "0").strip()
            seen = f"autopurge.purgeInterval={interval}"
            moves = (
                "set autopurge.purgeInterval=0 until the move is over, or keep more logs than the move needs",
            )
            yield Judged(interval == "0", seen, "0, or logs kept for longer than the move", host, moves)
        else:
            yield unseen(reading, "a readable config", host)


FIXED_IN = {(3, 4): 13, (3, 5): 4}
"""The first release of each minor version that contains the fix of ZOOKEEPER-2959.

Later minor versions never had the bug.
"""


@check("source.known-defect", "no known defect of the server's version affects the move", Scope.SOURCE,
       severity=Severity.WARN)  # fmt: skip
def known_defect(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P03. ZOOKEEPER-2959: before 3.4.13 and 3.5.4 an observer's answer counts in the vote for a new
    epoch. So an election on source, while dest observes, may end without a true majority. The steps
    themselves handle ZOOKEEPER-3829 (START removes the config that 3.5.8 leaves behind) and
    ZOOKEEPER-4712 (STOP looks on the disk for transactions that a stop may lose).

    To do: Update source first, or make sure that source elects no leader while dest observes.
    """
    needed = "3.4.13, 3.5.4 or later"
    moves = ("update source first", "or make sure that source elects no leader while dest observes")
    for host, reading in e.source.servers.items():
        if isinstance(reading, Seen):
            version = reading.value.version
            *line, release = version.numbers
            held = release >= FIXED_IN.get((line[0], line[1]), 0)
            seen = version.number if held else f"{version.number}: ZOOKEEPER-2959"
            yield Judged(held, seen, needed, host, moves)
        else:
            yield unseen(reading, needed, host)


RUNS_WITH = ("tickTime", "initLimit", "syncLimit", "minSessionTimeout", "maxSessionTimeout", "clientPort")
"""The keys whose values have the same form in ``conf`` as in the file."""


@check("source.running", "the server runs with the config that is on its disk", Scope.SOURCE, ALWAYS,
       severity=Severity.WARN)  # fmt: skip
def running(c: Context, e: Evidence) -> Iterator[Judged]:
    """P05, P11. The checks take members, limits and session bounds from the file. The server uses the values
    that it read when it started or received later. The check compares the file with the answer to conf;
    3.4 does not report its members there.

    To do: Find out who changed the file, and restart the server if the file is right.
    """
    moves = ("find out who changed the file, and when this server is going to read it",)
    for host, told in e.confs.items():
        file = e.source_config[host]
        if not isinstance(told, Seen) or not isinstance(file, Seen):
            reading = file if isinstance(told, Seen) else told
            yield unseen(reading, "the config, and an answer to conf", host, ("allow conf on source",))
            continue
        wrong = list(_differs(c.inventory, host, told.value, file.value))
        yield Judged(not wrong, "; ".join(wrong) or "as in the file", "as in the file", host, moves)


def _differs(inventory: Inventory, host: str, conf: Conf, file: ZooConfig) -> Iterator[str]:
    wanted = {key: file.values[key].strip() for key in RUNS_WITH if key in file.values}
    conf = replace(conf, values=_normal_directories(conf.values))
    wanted["dataDir"] = f"{inventory.source.data_dir.rstrip('/')}/version-2"
    wanted["dataLogDir"] = f"{inventory.source.txn_dir.rstrip('/')}/version-2"
    wanted["serverId"] = str(inventory.source_host(host).myid)
    for key, value in wanted.items():
        if value != "-1" and conf.values.get(key, value) != value:
            yield f"{key} is {conf.values[key]}, in the file {value}"
    if not conf.servers:
        return
    if _lines(_members(conf)) != _lines(file.servers):
        servers = ", ".join(f"{key}={value}" for key, value in conf.servers.items())
        yield f"its servers are {servers}; the file has other servers"


def _normal_directories(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of ``conf`` with normalized directories.

    If the file has a relative path, ``conf`` may show it with dots.
    """
    keys = [key for key in ("dataDir", "dataLogDir") if values.get(key)]
    return {**values, **{key: posixpath.normpath(values[key]) for key in keys}}


def _lines(servers: Mapping[int, ServerLine]) -> set[tuple[object, ...]]:
    """Return the server lines of one host in a form that can be compared.

    Two spellings of the same host name are equal in this form.
    """
    return {(n, spelled(s.host), s.quorum_port, s.election_port, s.role) for n, s in servers.items()}


def _members(conf: Conf) -> Mapping[int, ServerLine]:
    lines = "".join(f"{key}={value}\n" for key, value in conf.servers.items())
    return parse(lines, "conf").servers


SLOW_MS = 50
"""The milliseconds that a request or an fsync may take on average."""


@check("source.latency", "source's servers and their disks answer quickly enough", Scope.SOURCE, ALWAYS,
       severity=Severity.WARN)  # fmt: skip
def latency(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P18. Every write of every client waits for a majority of these disks, and dest adds to their work. The
    check takes the average since the server's start from srvr, and that of fsync from mntr. Version 3.5
    does not report fsync times.

    To do: See whether the disk of the logs is shared or slow.
    """
    for host, reading in e.source.servers.items():
        yield slowness(host, reading, e.mntrs[host])


def tells_of_fsync(mntr: Reading[Mntr]) -> bool:
    """Return whether this version's ``mntr`` reports fsync times."""
    keys = ("zk_avg_fsynctime", "zk_fsync_threshold_exceed_count")
    return isinstance(mntr, Seen) and any(mntr.value.number(key) is not None for key in keys)


def slowness(host: str, srvr: Reading[Srvr], mntr: Reading[Mntr]) -> Judged:
    """Check one server's average latency, and its fsync times if its ``mntr`` reports them."""
    needed = f"at most {SLOW_MS} ms on average; no fsync above its limit"
    if not isinstance(srvr, Seen):
        return unseen(srvr, needed, host)
    average = srvr.value.latency_ms[1]
    averages = [f"requests {average:g} ms"]
    slow = average > SLOW_MS
    if isinstance(mntr, Seen):
        if (fsync := mntr.value.number("zk_avg_fsynctime")) is not None:
            averages.append(f"fsync {fsync:g} ms")
            slow |= fsync > SLOW_MS
        if count := mntr.value.number("zk_fsync_threshold_exceed_count"):
            averages.append(f"{count:g} fsyncs above their limit")
            slow = True
    return Judged(
        not slow, ", ".join(averages), needed, host, ("check whether the disk of the logs is shared",)
    )


CHECKS = (
    quorum, server, ports, config, myid, running, security, sync_enabled, reconfig, version, known_defect,
    zxid_counter, purge, latency,
)  # fmt: skip
