"""Checks of the hosts that the move changes, that is dest hosts and members, and of other runs on these
hosts.
"""

from __future__ import annotations

from collections.abc import Iterator

from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.inventory.inventory import ZooKeeperHost
from zkmigrate.move.dependent import Member
from zkmigrate.move.facts.connections import addresses, numeric
from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.finding import ACCESS, Severity
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import IDLE

CLOCK_LIMIT_S = 1.0
FOUR_LETTER_TOOLS = ("nc", "bash")
"""The tools that can send four-letter words. A host needs one of them."""

OPTIONAL_TOOLS = ("systemd-run", "systemctl", "java")
"""The tools that may be missing.

zkm-host works without systemd if the inventory gives commands; java may lie outside root's path.
"""

BROKER_SPARES = ("ipset", "iptables", "ip6tables", "ss")
"""The tools that only the window needs, on dest hosts.

If the inventory gives service commands, ``ss`` is also needed on members: it shows which process listens.
"""


@check(ACCESS, "the host answers by ssh, with its pinned host key, as root through sudo", Scope.OWN, ALWAYS)
def access(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. zkm-host's reading verbs run as root, over the same connection that will change the host. The
    transport refuses an unknown or changed host key, and this check shows it.

    To do: Check ssh.user, ssh.key and the host's key in ssh.known_hosts. Give the account sudo, or
    install zkm-host by hand.
    """
    moves = (
        "check ssh.user, ssh.key and the host's key in ssh.known_hosts",
        "give the account sudo for the install, or install zkm-host by hand",
    )
    for host, status in e.statuses.items():
        facts = e.facts.get(host)
        if not isinstance(status, Seen):
            yield unseen(status, "an answer of zkm-host as root", host, moves)
        elif facts is None:
            yield Judged(True, f"zkm-host {status.value.version}", "an answer of zkm-host as root", host)
        elif isinstance(facts, Seen):
            seen = "as root" if facts.value.root else "not as root"
            yield Judged(facts.value.root, seen, "as root", host, moves)
        else:
            yield unseen(facts, "an answer of zkm-host as root", host, moves)


@check("host.one-role", "no machine has two roles that exclude each other", Scope.OWN)
def one_role(c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. The cut blocks traffic between dest's and source's addresses, so a machine of both would cut
    itself off. A {one} may be on the machine of one ZooKeeper server, but not with `policy.cut: all`, which
    would block it from dest or source. On a dest host it must not run as root: the fence lets root through,
    because zkm-host asks dest as root. The check compares the addresses that each host shows.

    To do: Correct migration.yml, or give each role its own machine. For a {one} beside a ZooKeeper server,
    set `policy.cut: zookeeper`, and run it as a user of its own.
    """
    parts: tuple[ZooKeeperHost | Member, ...] = (
        *c.inventory.source.hosts,
        *c.inventory.dest.hosts,
        *e.dependent.members(c.inventory),
    )
    needed = "no address that a host with a role that excludes its own has"
    for host, facts in e.facts.items():
        if not isinstance(facts, Seen):
            yield unseen(facts, needed, host)
            continue
        here = {a for text in facts.value.addresses for a in numeric(text)}
        beside = [p for p in parts if p.name != host and addresses(p) & here]
        machine = c.inventory.machine(host)
        servers = (*c.inventory.source_names, *c.inventory.dest_names)
        fit = servers if host in e.files else tuple(e.files) if host in c.inventory.dest_names else ()
        allowed = [name for name in fit if name in machine]
        all_cut = c.inventory.policy.cut == "all"
        others = [p for p in beside if all_cut or p.name not in allowed]
        named = ", ".join(f"{p.name} ({a})" for p in others for a in sorted(addresses(p) & here))
        moves: tuple[str, ...] = (
            "correct migration.yml",
            "give each its own machine: this layout is not supported",
        )
        if others and all(p.name in allowed for p in others):
            one = e.dependent.words.one
            moves = (f"set policy.cut: zookeeper in migration.yml: all blocks the {one} from ZooKeeper",)
        elif others and all(p.name in fit for p in others):
            moves = ("name the address in migration.yml for both, in address or also",)
        if not others and host in e.files and set(machine) & set(c.inventory.dest_names):
            yield _not_root(e, host)
            continue
        yield Judged(
            not others, f"it has the address of {named} too" if others else "none", needed, host, moves
        )


def _not_root(e: Evidence, host: str) -> Judged:
    """Judge whether the service that listens on a member's port, on a dest host, is not root's."""
    around, needed, one = e.around.get(host), f"a {e.dependent.words.one} that does not run as root", "user"
    moves = (f"run the {e.dependent.words.one} as a user of its own, or on a machine of its own",)
    if not isinstance(around, Seen):
        return unseen(around if around is not None else Unknown("failed", "not read"), needed, host, moves)
    users = around.value.users
    seen = f"it runs as {one} {', '.join(map(str, users))} on a dest host" if users else "nothing listens"
    return Judged(0 not in users if users else None, seen, needed, host, moves)


@check("host.tools", "the host has the tools that zkm-host uses there", Scope.OWN, ALWAYS)
def tools(c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. zkm-host calls these programs on the host. A missing one would stop the window.

    To do: Install what the finding names. Debian's packages are iptables, ipset, iproute2 (ss), util-linux
    (setsid, flock) and netcat-openbsd (nc).
    """
    for host, facts in e.facts.items():
        if not isinstance(facts, Seen):
            yield unseen(facts, "every tool", host)
            continue
        spared: tuple[str, ...] = OPTIONAL_TOOLS
        if host in e.files:
            needed = ("ss",) if e.dependent.service(c.inventory).has_commands else ()
            spared = (*spared, *(tool for tool in BROKER_SPARES if tool not in needed))
        missing = [tool for tool in facts.value.missing if tool not in (*spared, *FOUR_LETTER_TOOLS)]
        if all(tool in facts.value.missing for tool in FOUR_LETTER_TOOLS):
            missing.append("nc (netcat-openbsd) or bash")
        moves = (f"install {', '.join(missing)}",)
        yield Judged(
            not missing, ", ".join(missing) + " missing" if missing else "all there", "all", host, moves
        )


@check("host.own-links", "no other account can redirect the files that zkm-host writes", Scope.OWN, ALWAYS)
def own_links(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. An account that may change a link could redirect what root writes. So zkm-host refuses such a
    link when it writes the config or the image.

    To do: Name the directory by its real path in migration.yml, or let root own the directory of the
    link.
    """
    moves = ("name the directory by its real path in migration.yml", "let root own the directory of the link")
    needed = "only links that root alone could have made"
    for host, facts in e.facts.items():
        if isinstance(facts, Seen):
            refused = facts.value.refused
            yield Judged(not refused, "; ".join(refused) or "none", needed, host, moves)
        else:
            yield unseen(facts, needed, host)


@check("host.socket-kill", "the host's kernel ends established connections on demand", Scope.DEST, ALWAYS)
def socket_kill(c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. Without `ss -K` (INET_DIAG_DESTROY) open connections outlive the fence by ten seconds and
    more. zkmigrate has no other way to end them. The check tries it on a connection of its own over
    loopback.

    To do: Use a kernel with CONFIG_INET_DIAG_DESTROY. Where the trial failed for lack of nc, install
    netcat-openbsd.
    """
    for host in c.inventory.dest_names:
        facts = e.facts[host]
        if not isinstance(facts, Seen):
            yield unseen(facts, "ss -K works", host)
            continue
        works = facts.value.socket_kill
        seen = {True: "ss -K works", False: "ss -K ended no connection", None: "could not be tried (no nc)"}[
            works
        ]
        untried = works is None
        moves = ("install netcat-openbsd" if untried else "use a kernel with CONFIG_INET_DIAG_DESTROY",)
        yield Judged(works, seen, "ss -K works", host, moves)


@check(
    "host.rules",
    "the kernel takes zkm-host's rules, no rule is above them, and no earlier run left rules",
    Scope.DEST,
    ALWAYS,
)
def rules(c: Context, e: Evidence) -> Iterator[Judged]:
    """P23. zkm-host's chain must be first in INPUT and OUTPUT: a rule above it that accepts ESTABLISHED would
    let fenced clients through. Before ARM no chain of zkm-host may exist; later the chain must be the
    first rule. zkm-host tries its rules in a network namespace of its own, which it then removes.

    To do: Remove the rule above zkm-host's chain, or the rules that an earlier run left. The finding shows
    them. If the kernel refuses a rule, load the module that it lacks.
    """
    for host in c.inventory.dest_names:
        status = e.statuses[host]
        if not isinstance(status, Seen):
            yield unseen(status, "the state of iptables and ip6tables", host)
            continue
        facts = e.facts[host]
        if isinstance(facts, Seen) and facts.value.rule_error:
            seen, modules = f"rules tried: {facts.value.rule_error}", "xt_owner, xt_set, xt_multiport"
            lacks = (f"load the kernel module that is missing, such as {modules} or ipt_REJECT",)
            yield Judged(False, seen, "a kernel that takes zkm-host's rules", host, lacks)
            continue
        states = [status.value.in4, status.value.out4, status.value.in6, status.value.out6]
        seen = f"INPUT {states[0]}, OUTPUT {states[1]}; IPv6 {states[2]}, {states[3]}"
        if isinstance(facts, Seen) and facts.value.rule_error is None:
            seen += "; zkm-host's rules could not be tried"
        held = None if "unknown" in states else _absent(status.value) or status.value.rules_on_top
        moves: tuple[str, ...] = ("install iptables and ip6tables",) if held is None else ()
        moves += (
            ("find the program that puts rules above zkm-host's, and stop it",) if "present" in states else ()
        )
        moves += (
            ("find the program that changes zkm-host's rules, and stop it",) if "changed" in states else ()
        )
        yield Judged(
            held, seen, "no chain of zkm-host, or its chain as the first rule", host, moves or (_SOME_LEFT,)
        )


_SOME_LEFT = "roll back the run whose rules are left: zkmigrate status"


def _absent(status: HostStatus) -> bool:
    return {status.in4, status.out4, status.in6, status.out6} <= {"absent", "noipv6"}


GUARD = b"zkm-host guard"


@check(
    "host.commands", "the inventory's own commands can be run and report whether the service runs", Scope.OWN
)
def commands(_c: Context, e: Evidence) -> Iterator[Judged]:
    """This check applies only if the inventory gives commands. With a wrong status command a server could be
    started twice, or a running server be taken for dead. So the command must agree with the service's
    port: a {one} runs, a dest host's ZooKeeper does not.

    To do: Let the status command exit 0 exactly while the service's process runs.
    """
    for (host, path), reading in e.own.programs.items():
        needed, moves = f"the program {path}", ("correct the command in migration.yml",)
        if isinstance(reading, Unknown):
            yield unseen(reading, needed, host, moves)
        elif not isinstance(reading, Seen):
            yield Judged(False, why(reading), needed, host, moves)
        elif not reading.value:
            yield Judged(False, f"{path} may not be run", needed, host, moves)
    for host, status in e.own.statuses.items():
        wanted = "active" if host in e.files else "inactive"
        needed = f"{wanted}, and {'a' if wanted == 'active' else 'no'} process listens on its port"
        if not isinstance(status, Seen):
            yield unseen(status, needed, host)
            continue
        state, pid = status.value.unit_state, status.value.unit_pid
        seen = f"{state}, {f'process {pid} listens' if pid else 'no process listens'}"
        moves = ("let the status command exit 0 exactly while the service's process exists",)
        held = None if state == "unknown" else (state, bool(pid)) == (wanted, wanted == "active")
        yield Judged(held, seen, needed, host, moves)


@check(
    "host.start-guard",
    "ZooKeeper cannot be started on a sealed dest host",
    Scope.DEST,
    severity=Severity.WARN,
)
def start_guard(_c: Context, e: Evidence) -> Iterator[Judged]:
    """Under systemd zkm-host puts a guard into the unit. With the inventory's own commands only zkm-host
    itself refuses to start ZooKeeper. A supervisor, cron or a boot script could start it on a sealed host
    after a reboot: ZooKeeper would follow source again, or let clients in.

    To do: Let the start command call `zkm-host guard` first and end if that fails. Or switch off everything
    else that starts ZooKeeper, until finalize.
    """
    needed = f"a start command that runs `{GUARD.decode()}`, or nothing else that starts ZooKeeper"
    moves = (
        f"let the start command begin with: {zkm_host.ASK_GUARD}",
        "or switch off everything else that starts ZooKeeper until finalize: supervisors, cron, boot scripts",
    )
    for host, script in e.own.start_scripts.items():
        if not isinstance(script, Seen):
            yield unseen(script, needed, host, moves)
            continue
        asks = GUARD in script.value
        seen = f"the start command {'runs' if asks else 'does not run'} the guard"
        yield Judged(asks, seen, needed, host, moves)


@check("host.clock", "the host's clock agrees with the operator's", Scope.OWN, ALWAYS, Severity.WARN)
def clock(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P25. No decision rests on clocks, but logs and journal are hard to read when they differ.

    To do: Run NTP on this host.
    """
    needed = f"within {CLOCK_LIMIT_S:.0f} s"
    for host, facts in e.facts.items():
        if isinstance(facts, Seen):
            before, after = e.fact_times[host]
            # The host read its clock between the two times: only a difference outside them is certain.
            apart = min(0.0, facts.value.clock - before) + max(0.0, facts.value.clock - after)
            seen = f"its clock is {apart:+.1f} s off"
            yield Judged(abs(apart) <= CLOCK_LIMIT_S, seen, needed, host, ("run NTP",))
        else:
            yield unseen(facts, needed, host)


@check("run.alone", "no other run is under way on this host", Scope.OWN, ALWAYS)
def alone(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P36. Two runs would undo each other's rules and files.

    To do: Finish or roll back the other run first: zkmigrate status shows it.
    """
    for host, runs in e.runs.items():
        if not isinstance(runs, Seen):
            yield unseen(runs, "zkm-host's state directory, readable through sudo", host)
            continue
        busy = [f"run {run} in phase {phase}" for run, phase in runs.value.items() if phase != IDLE]
        moves = ("finish or roll back that run first (zkmigrate status shows it)",)
        yield Judged(not busy, ", ".join(busy) or "none", "none", host, moves)


@check("host.unit", "the service's unit is loaded and in the expected state", Scope.OWN)
def unit(c: Context, e: Evidence) -> Iterator[Judged]:
    """This check applies only with systemd. The unit's name may be wrong, or the unit may be masked. A {one}
    must run under its unit; dest's ZooKeeper must not run yet.

    To do: Correct a unit that is not loaded in migration.yml, or unmask it. Start a {one} that is down; stop
    a ZooKeeper that runs on a dest host.
    """
    for host, facts in e.facts.items():
        member = host in e.files
        service = e.dependent.service(c.inventory) if member else c.inventory.dest.service
        if service.has_commands:
            continue
        states = ("active",) if member else ("inactive", "failed")
        needed = f"{service.unit} loaded and {' or '.join(states)}"
        if not isinstance(facts, Seen):
            yield unseen(facts, needed, host)
            continue
        load, state = (facts.value.unit.get(key, "not told") for key in ("LoadState", "ActiveState"))
        moves: tuple[str, ...] = (
            "correct the unit in migration.yml, or give commands where there is no systemd",
        )
        if load == "masked":
            moves = (
                f"systemctl unmask {service.unit}",
                "if the service has another unit: correct the unit in migration.yml",
            )
        elif load == "loaded":
            moves = (f"start the {e.dependent.words.one}" if member else "stop ZooKeeper on this host",)
        held = load == "loaded" and state in states
        yield Judged(held, f"{service.unit} {load}, {state}", needed, host, moves)


@check("host.keepers", "no other software on the host restarts the service or writes its files", Scope.OWN,
       ALWAYS, Severity.WARN)  # fmt: skip
def keepers(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P21. A configuration agent restores a config that the move has changed. A supervisor, a timer or cron
    starts a service that must stay down. The check looks for processes, enabled units and cron files of
    Puppet, Chef, Salt, CFEngine, ansible-pull, Exhibitor, supervisord, monit, runit, s6, Cloudera and
    Ambari. systemd's own Restart= obeys the guard.

    To do: Switch this software off on the host until the move is finalized, or see that it leaves the service
    alone.
    """
    needed = "no such software, or switched off for this service until finalize"
    moves = (
        "switch that software off here until the move is finalized, or make sure it leaves the service alone",
    )
    for host, around in e.around.items():
        facts = e.facts[host]
        if not isinstance(around, Seen):
            yield unseen(around, needed, host)
        elif not isinstance(facts, Seen):
            yield unseen(facts, needed, host)
        else:
            found = list(around.value.keepers)
            settings = facts.value.unit
            found += (
                [f"the unit is started by {settings['TriggeredBy']}"] if settings.get("TriggeredBy") else []
            )
            if settings.get("NeedDaemonReload") == "yes":
                found.append("the unit's file has changed since systemd read it")
            yield Judged(not found, "; ".join(found) or "none seen", needed, host, moves)


CHECKS = (
    access, one_role, unit, keepers, tools, own_links, socket_kill, rules, commands, start_guard, clock,
    alone,
)  # fmt: skip
