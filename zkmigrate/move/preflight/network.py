"""Checks of the network between the hosts, and of names, clocks, login shells and network namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from zkmigrate.hosts.facts.status import HostFacts
from zkmigrate.hosts.facts.surroundings import Surroundings
from zkmigrate.move.facts.connections import addresses, numeric
from zkmigrate.move.preflight.check import ALWAYS, Gate, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import Dated, Evidence, door, first_address, named
from zkmigrate.runbook.model.fact import NotHeard, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import LOGIN, Severity
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.facts.members import MOST_CUT_PORTS, config_ports, cut_ports

CLOCK_LIMIT_S = 1.0
SHELL_LIMIT_S = 2.0
LET_IN = ("check ssh.user, ssh.key and the host's key in ssh.known_hosts",)
"""The advice for a host that answers but refuses the account."""

_CONTAINER = re.compile(
    r"\b(docker|podman|nerdctl|containerd|lxc-start|machinectl|systemd-nspawn|nsenter|unshare)\b"
    r"|\bip netns exec\b"
)
_HOST_NETWORK = re.compile(r"--net(work)?[= ]host\b")
PROXIES = ("docker-proxy", "rootlessport", "slirp4netns", "pasta", "conmon", "systemd-socket-")
"""The names of processes that listen on behalf of a container, cut to 15 characters as in the kernel."""


def _reached(
    e: Evidence,
    own: str,
    wanted: Mapping[tuple[str, str], tuple[str, int]],
    fine: tuple[str, ...],
    needed: str,
    move: str,
) -> Judged:
    """Judge whether a host can connect to these addresses and ports.

    own: the name of the host. wanted: (other host, its port in words) → (address, port). fine: the accepted
    results. If the other host does not answer the operator either, the verdict is unknown, because the failed
    connect then does not show a firewall between the two hosts.
    """
    reading = e.reach[own]
    if not isinstance(reading, Seen):
        return unseen(reading, needed, own)
    wrong: list[str] = []
    unknown: list[str] = []
    for (host, words), where in wanted.items():
        how = reading.value.get(door(*where))
        status = e.statuses[host]
        if how is None:
            unknown.append(f"{host}{words} not reported")
        elif how in fine:
            continue
        elif isinstance(status, Unknown) and status.cause in get_args(NotHeard):
            unknown.append(f"{host}{words} {how}, and {host} does not answer")
        else:
            wrong.append(f"{host}{words} {how}")
    if unknown and not wrong:
        return Judged(None, "; ".join(unknown), needed, own)
    return Judged(not wrong, "; ".join(wrong) or f"{len(wanted)} addresses reached", needed, own, (move,))


@check("dest.cut-ends", "the cut ends no connection but ZooKeeper's own", Scope.DEST, ALWAYS, Severity.WARN)
def cut_ends(c: Context, e: Evidence) -> Iterator[Judged]:
    """From CUT until finalize the dest hosts refuse ZooKeeper's ports between dest's and source's
    addresses, but not what connects from there to dest's client ports. With `policy.cut: all` they refuse
    every port but sshd's. The check sees connections that are open now; a backup that comes and goes shows
    only while it is connected. If a {one} is on any dest host, no dest host refuses source's client ports.

    To do: Let that service use another host until finalize. With `policy.cut: all`, consider `policy.cut:
    zookeeper`.
    """
    source, dest = c.inventory.source, c.inventory.dest
    refused = set(_refused(c, e))
    everything = c.inventory.policy.cut == "all"
    of = {a: h.name for h in source.hosts for a in addresses(h)}
    own = {p for ports in (source.ports, dest.ports) for p in (ports.quorum, ports.election)}
    needed = "no connection with source except quorum, election and ssh"
    for host, reading in e.dest_sockets.items():
        if not isinstance(reading, Seen):
            yield unseen(reading, needed, host)
            continue
        ends = [
            f"port {s.local_port} with {of[s.peer]} port {s.peer_port}"
            for s in reading.value
            if s.peer in of
            and not own & {s.local_port, s.peer_port}
            and s.local_port != c.inventory.ssh.port
            and (everything or s.peer_port in refused or s.local_port in refused - {*dest.ports.clients})
        ]
        moves = (
            "find the service: it is refused from CUT until finalize, so let it use another host meanwhile",
            *(
                ("set policy.cut: zookeeper in migration.yml, which refuses ZooKeeper's ports alone",)
                * everything
            ),
        )
        yield Judged(not ends, ", ".join(ends) or "none", needed, host, moves)


@check("dest.cut-ports", "one rule can refuse all ports of ZooKeeper", Scope.CLUSTER, ALWAYS)
def cut_at_once(c: Context, e: Evidence) -> Iterator[Judged]:
    """CUT refuses ZooKeeper's ports with one rule of iptables, which names at most 15 ports. ARM refuses
    more.

    To do: Set `policy.cut: all` in migration.yml, which needs no list of ports.
    """
    ports, needed = _refused(c, e), f"at most {MOST_CUT_PORTS}"
    if not any(isinstance(reading, Seen) for reading in e.source_config.values()):
        yield Judged(None, "source's configs, which name ports too, could not be read", needed)
        return
    yield Judged(
        c.inventory.policy.cut == "all" or len(ports) <= MOST_CUT_PORTS,
        f"{len(ports)} ports: {', '.join(map(str, ports))}",
        needed,
        moves=("set policy.cut: all in migration.yml, which needs no list of ports",),
    )


def _refused(c: Context, e: Evidence) -> tuple[int, ...]:
    """Return the ports that `policy.cut: zookeeper` refuses."""
    configs = [r.value for r in e.source_config.values() if isinstance(r, Seen)]
    return cut_ports(c.inventory, (port for config in configs for port in config_ports(config)))


@check("dest.ports", "the dest host reaches the other dest hosts' quorum and election ports", Scope.DEST)
def dest_ports(c: Context, e: Evidence) -> Iterator[Judged]:
    """P02. Dest's own quorum needs these ports, for the first time in the rehearsal. Before the rehearsal
    nothing listens there, so a refused connection is right. A timeout comes from a firewall. If dest has only
    a port with TLS, its hosts ask each other's AdminServer too.

    To do: Open the quorum and election ports between the dest hosts, both ways, and the AdminServer's port if
    dest has only a port with TLS.
    """
    dest = c.inventory.dest
    ports = {"quorum": dest.ports.quorum, "election": dest.ports.election}
    if dest.ports.client is None:
        ports["AdminServer"] = dest.admin_port
    needed = "open, or refused as long as nothing listens"
    move = f"open the {' and '.join(ports)} ports between the dest hosts, both ways"
    for own in c.inventory.dest.hosts:
        others = {
            (other.name, f"'s {name} port {port}"): (first_address(other), port)
            for other in c.inventory.dest.hosts
            for name, port in ports.items()
            if other != own
        }
        yield _reached(e, own.name, others, ("open", "refused"), needed, move)


@check("dest.client-port", "the {one} reaches every dest host's client port", Scope.BROKERS,
       (Gate.PREFLIGHT, Gate.ROLL))  # fmt: skip
def client_port(c: Context, e: Evidence) -> Iterator[Judged]:
    """P02. The roll sends the {one} to this port. Before the join a refused connection is right and a timeout
    is not. Before the roll the port must be open.

    To do: Open dest's client port for the {many}.
    """
    dest = c.inventory.dest
    doors = {
        (host.name, f" {port}"): (first_address(host), port)
        for host in dest.hosts
        for port in dest.ports.clients
    }
    fine = ("open",) if e.joined else ("open", "refused")
    needed = "open" if e.joined else "open, or refused as long as nothing listens"
    move = f"open dest's client port for the {e.dependent.words.many}"
    for member in e.files:
        yield _reached(e, member, doors, fine, needed, move)


@check("dest.from-operator", "the operator's machine reaches the dest host's client port", Scope.DEST)
def from_operator(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P20. zkmigrate reads modes, zxids and clients through this port. Before the join a refused connection
    is right. A timeout comes from a firewall.

    To do: Open dest's client port for the operator's machine.
    """
    needed = "an answer, or refused as long as nothing listens"
    for host, reading in e.knocks.items():
        answers = isinstance(e.statuses[host], Seen)
        if not isinstance(reading, Unknown):
            yield Judged(True, "it answers", needed, host)
        elif reading.cause == "refused":
            yield Judged(True, "refused: the host is reached, nothing listens", needed, host)
        elif answers and reading.cause in ("timeout", "unreachable"):
            moves = ("open dest's client port for the operator's machine",)
            yield Judged(False, f"no answer: {reading.cause}", needed, host, moves)
        else:
            yield unseen(reading, needed, host)


@check(
    "host.names",
    "every name in the inventory resolves to the same addresses everywhere",
    Scope.CLUSTER,
    ALWAYS,
)
def names(c: Context, e: Evidence) -> Iterator[Judged]:
    """P26. Rules and client lists hold the addresses of the inventory. A host that resolves a name to
    another address bypasses them, for example through a stale record or 127.0.1.1 in its own /etc/hosts.

    To do: Correct DNS or /etc/hosts on that host, add the address to also in migration.yml, or use
    addresses.
    """
    needed = "the addresses of the inventory, on every host and on this machine"
    wrong: list[str] = []
    unknown: list[str] = []
    hosts = named(c.inventory, e.dependent)
    for (asker, name), reading in e.resolved.items():
        if name not in hosts:
            continue
        known = addresses(hosts[name])
        where = asker or "this machine"
        if isinstance(reading, Unknown):
            unknown.append(f"{name} on {where}: {reading}")
        elif not isinstance(reading, Seen):
            wrong.append(f"{name} is unknown on {where}")
        elif strange := sorted({a for text in reading.value for a in numeric(text)} - known):
            wrong.append(f"{name} is {', '.join(strange)} on {where}")
    seen = "; ".join((wrong or unknown)[:5]) or f"{len(hosts)} names, the same everywhere"
    moves = ("correct DNS or /etc/hosts there", "add the address to also in migration.yml", "use addresses")
    yield Judged(False if wrong else None if unknown else True, seen, needed, moves=moves)


@check(
    "host.namespace",
    "dest's ZooKeeper uses the network namespace in which zkm-host's rules apply",
    Scope.DEST,
    ALWAYS,
)
def namespace(c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. In a container, or in a unit with a network of its own, ZooKeeper's connections bypass the rules
    of zkm-host. Before the join the check reads the unit or the start command; afterwards it reads the
    process and which processes listen.

    To do: Give ZooKeeper the host's own network: docker run --network host, no PrivateNetwork= in the unit.
    """
    moves = ("give ZooKeeper the host's own network (docker run --network host; no PrivateNetwork=)",)
    needed = "the network namespace of the host itself"
    for host in c.inventory.dest_names:
        if e.joined:
            around = e.around[host]
            found = _where(around.value) if isinstance(around, Seen) else None
            idle = isinstance(around, Seen) and not around.value.listeners
            do = ("see in its log why ZooKeeper does not serve", *moves) if idle else moves
            yield unseen(around, needed, host) if found is None else Judged(*found, needed, host, do)
            continue
        script = e.own.start_scripts.get(host)
        unit = _of_unit(e.facts[host]) if script is None else _of_script(script)
        if isinstance(unit, Seen):
            yield Judged(not unit.value, unit.value or "the host's own", needed, host, moves)
        else:
            yield unseen(unit, needed, host)


def _where(around: Surroundings) -> tuple[bool | None, str]:
    """Return whether listeners and unit run in the network namespace of zkm-host's rules, and a text about
    it.

    The first value is None if that is not known.
    """
    if not around.listeners:
        return False, f"no process listens on the client port in {around.netns}"
    processes = {p.pid: p for p in (*around.listeners, *((around.main,) if around.main else ()))}.values()
    seen = ", ".join(f"{p.name} ({p.pid}) in {p.netns}" for p in processes)
    if any(p.name.startswith(PROXIES) for p in around.listeners):
        return False, f"{seen}: a proxy of a container"
    if any(p.netns not in (around.netns, "-") for p in processes):
        return False, f"{seen}, the rules in {around.netns}"
    return (None if any(p.netns == "-" for p in processes) else True), seen


def _of_unit(facts: Reading[HostFacts]) -> Reading[str]:
    """Return the unit's settings that keep it out of the host's network namespace, or an empty string."""
    if not isinstance(facts, Seen):
        return facts if isinstance(facts, Unknown) else Unknown("failed", why(facts))
    unit = facts.value.unit
    if unit.get("LoadState") != "loaded":
        return Unknown("failed", f"the unit is {unit.get('LoadState', 'not known')}")
    keys = ("NetworkNamespacePath", "JoinsNamespaceOf")
    found = [f"{key}={unit[key]}" for key in keys if unit.get(key)]
    found += ["PrivateNetwork=yes"] if unit.get("PrivateNetwork") == "yes" else []
    found += _container(unit.get("ExecStart", ""))
    return Seen(", ".join(found))


def _of_script(script: Reading[bytes]) -> Reading[str]:
    if not isinstance(script, Seen):
        return script if isinstance(script, Unknown) else Unknown("failed", why(script))
    return Seen(", ".join(_container(script.value.decode("utf-8", "replace"))))


def _container(command: str) -> list[str]:
    found = _CONTAINER.search(command)
    return [] if found is None or _HOST_NETWORK.search(command) else [f"started by {found[0]}"]


@check(LOGIN, "a login shell starts without delay", Scope.EACH, ALWAYS, Severity.WARN)
def login(_c: Context, e: Evidence) -> Iterator[Judged]:
    """Every look runs in a login shell of the ssh account. Each look waits for login scripts that contact a
    directory service or a mount, and for a slow banner. The check measures `date` over an open connection.

    To do: See what /etc/profile, ~/.profile, pam and sshd's AuthorizedKeysCommand wait for. If the host
    refuses the account, check ssh.user, ssh.key and ssh.known_hosts.
    """
    needed = f"at most {SHELL_LIMIT_S:g} s"
    moves = ("see what /etc/profile, ~/.profile, pam and sshd's AuthorizedKeysCommand wait for",)
    for host, dated in e.dates.items():
        if isinstance(dated.clock, Seen):
            yield Judged(dated.took_s <= SHELL_LIMIT_S, f"it took {dated.took_s:.1f} s", needed, host, moves)
        else:
            yield unseen(dated.clock, needed, host, LET_IN)


@check(
    "run.clocks",
    "the clocks of the hosts agree, as far as they are known",
    Scope.CLUSTER,
    ALWAYS,
    Severity.WARN,
)
def clocks(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P25. No decision depends on clocks, but logs of hosts with different clocks are hard to put in order.
    Two hosts may differ by as much as both together differ from the operator's clock. Only a difference
    that is certain counts.

    To do: Run NTP on these hosts.
    """
    needed = f"within {CLOCK_LIMIT_S:g} s"
    bounds = {host: bound for host, dated in e.dates.items() if (bound := _ahead(dated)) is not None}
    if len(bounds) < 2:
        yield Judged(None, f"{len(bounds)} of {len(e.dates)} hosts report their clock", needed)
        return
    first = max(bounds, key=lambda host: bounds[host][0])
    last = min(bounds, key=lambda host: bounds[host][1])
    apart = max(0.0, bounds[first][0] - bounds[last][1])
    seen = f"{first} is {apart:.1f} s ahead of {last}" if apart else f"{len(bounds)} hosts, none surely apart"
    yield Judged(apart <= CLOCK_LIMIT_S, seen, needed, moves=("run NTP on these hosts",))


def _ahead(dated: Dated) -> tuple[float, float] | None:
    """Return by how many seconds a host's clock is ahead of the operator's: the least and the most."""
    if not isinstance(dated.clock, Seen):
        return None
    return dated.clock.value - dated.after, dated.clock.value - dated.before


CHECKS = (cut_ends, cut_at_once, dest_ports, client_port, from_operator, names, namespace, login, clocks)
