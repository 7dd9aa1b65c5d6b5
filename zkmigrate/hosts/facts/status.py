"""Typed values for the output of zkm-host's reading verbs (``zkm-host help``).

A bad number or a missing key makes the reading Unknown; unknown keys are stored in ``rest``. Times are in
seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zkmigrate.hosts.facts import keyvalue
from zkmigrate.hosts.facts.start_command import shown_properties
from zkmigrate.runbook.model.change import command_words
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.window import IDLE, Phase
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.zxid import Zxid, parse_zxid

T = TypeVar("T")

PHASES = (IDLE, *Phase)
CHAIN_STATES = ("top", "present", "absent", "changed", "noipv6", "unknown")
UNIT_STATES = (
    "active", "reloading", "inactive", "failed", "activating", "deactivating", "maintenance", "unknown",
)  # fmt: skip
DOWN_STATES = ("inactive", "failed")
FINISHER_STATES = ("running", "done", "failed", "none")


@dataclass(frozen=True, kw_only=True)
class HostPhase:
    """The phase of a host in its run, from the host's own records (``zkm-host phase``).

    lapsed: whether the lease ended by itself. finisher: the state of the program that finishes the host
    alone. finisher_note: the last line of its log. served_s: seconds since the host first served as
    participant, from which its limit for OPEN counts; None before that.
    """

    run: str
    phase: str
    lapsed: bool
    finisher: str
    finisher_note: str
    served_s: float | None = None
    rest: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenFile:
    """The file that zkm-host wrote or restored last, and the time of that change.

    boot_id, uptime_s: the time by the host's uptime. changed_ns: the inode's change time in nanoseconds.
    """

    boot_id: str
    uptime_s: float
    changed_ns: int
    path: str


@dataclass(frozen=True, kw_only=True)
class HostStatus(HostPhase):
    """The phase of a host with its rules, sets, sockets and service (``zkm-host status``).

    - in4, out4, in6, out6: zkm-host's chain in INPUT and OUTPUT of iptables and ip6tables. ``top``: it is the
      first rule. ``present``: another rule is above it. ``changed``: its rules are not those that zkm-host
      wrote. ``absent``: it does not exist. ``noipv6``: the host has no IPv6. ``unknown``: the host has no
      iptables
    - fence_timeout_s, cut_timeout_s: the remaining lease; None if the set is empty or permanent
    - phase_since, unit_since: times on the clock of ``uptime_s``; 0 if unknown
    - client_sockets: the number of connections to the client ports, without those of the operator, of peers
      and of the host's own root, and of its other users to peers' client ports; None while it is not armed
    - source_sockets: the number of connections to source; None while the host is not armed
    - unit_state: unknown while the host is not armed
    - missing: tools that the host lacks
    - clock: the host's wall clock in seconds since the epoch, read together with ``uptime_s``
    - written: the file that zkm-host changed last; None if unknown
    - unit_stop: TimeoutStopSec of the unit as systemd prints it, empty if unknown
    - unit_file: whether systemd starts the unit at boot, as ``systemctl is-enabled`` prints it; empty if
      unknown
    """

    version: str
    boot_id: str
    uptime_s: float
    phase_since: float
    fencing: int
    in4: str
    out4: str
    in6: str
    out6: str
    fence_entries: int
    fence_timeout_s: float | None
    fence_permanent: bool
    cut_entries: int
    cut_timeout_s: float | None
    cut_permanent: bool
    client_sockets: int | None
    source_sockets: int | None
    unit_state: str
    unit_pid: int
    unit_since: float
    image: str
    missing: tuple[str, ...]
    clock: float = 0.0
    written: WrittenFile | None = None
    unit_stop: str = ""
    unit_file: str = ""

    @property
    def unit_started(self) -> float | None:
        """The start time of the unit's process on the host's wall clock, in seconds since the epoch.

        None if the time is unknown or the process does not run.
        """
        if self.unit_state != "active" or not self.unit_since:
            return None
        return self.clock - (self.uptime_s - self.unit_since)

    @property
    def rules_on_top(self) -> bool:
        """Whether zkm-host's rules are complete and come first, for each direction and IP version."""
        four = self.in4 == self.out4 == "top"
        return four and {self.in6, self.out6} in ({"top"}, {"noipv6"})


@dataclass(frozen=True)
class Drain:
    """The outstanding requests, zxid and mode of the local server (``zkm-host drain``)."""

    outstanding: int
    zxid: Zxid
    mode: str


@dataclass(frozen=True)
class HostFacts:
    """The tools and resources of a host (``zkm-host facts``).

    tools: the version of each tool by name, or ``present`` if it prints none. missing: the absent tools.
    disk_free: the free bytes of each directory, None if it is absent. socket_kill: whether ``ss -K`` ended a
    test connection, None if not tried. root: whether zkm-host ran as root. clock: seconds since the epoch.
    unit: systemd's properties of the unit. refused: directories to which zkm-host would not write, and why.
    rule_error: what the kernel said to rules like those of zkm-host; empty if it took all, None if untried.
    """

    tools: Mapping[str, str]
    missing: tuple[str, ...]
    disk_free: Mapping[str, int | None]
    socket_kill: bool | None
    root: bool
    addresses: tuple[str, ...]
    clock: float
    unit: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    rule_error: str | None = None


def host_phase(look: Look, host: str) -> Reading[HostPhase]:
    """Read the phase of a dest host. This is cheap enough to repeat many times a second."""
    return parsed(look.zkm(host, "phase"), parse_phase)


def host_status(look: Look, host: str) -> Reading[HostStatus]:
    """Read the status of a dest or broker host."""
    return parsed(look.zkm(host, "status"), parse_status)


def unit_status(look: Look, host: str, unit: str, commands: tuple[str, ...] = ()) -> Reading[HostStatus]:
    """Read the status of a broker host, or of a dest host that is not armed yet.

    The fields ``unit_…`` describe ``unit``. commands: the service's own commands, used instead of systemd.
    """
    return parsed(look.zkm(host, "status", unit, *command_words(commands)), parse_status)


def runs(status: Reading[HostStatus]) -> bool | None:
    """Return whether the process of a service may be running, or None if that is unknown."""
    if not isinstance(status, Seen) or status.value.unit_state == "unknown":
        return None
    return status.value.unit_state not in DOWN_STATES


def drain(look: Look, host: str) -> Reading[Drain]:
    """Read the outstanding requests of the local server; Absent if it does not serve."""
    reading = look.zkm(host, "drain")
    if isinstance(reading, Seen) and reading.value.strip() == "unserving":
        return Absent("the server does not serve requests")
    return parsed(reading, parse_drain)


def probe(look: Look, host: str) -> Reading[dict[str, str]]:
    """Connect from a dest host to source.

    Returns ``address:port`` → refused, open, timeout or unreachable.
    """
    return parsed(look.zkm(host, "probe"), parse_probe)


def stamp(look: Look, host: str) -> Reading[str]:
    """Read the digest over paths, sizes and modification times of a host's data files."""
    return parsed(look.zkm(host, "stamp"), parse_stamp)


def host_facts(
    look: Look, host: str, unit: str, *directories: str, try_rules: bool = False
) -> Reading[HostFacts]:
    """Read a host's tools and resources, a unit's properties and the free space of these directories.

    try_rules: whether the host tries zkm-host's rules in a network namespace of its own, for which its kernel
    may load modules.
    """
    options = ("--rules",) if try_rules else ()
    return parsed(look.zkm(host, "facts", *options, unit, *directories), parse_facts)


def reach(look: Look, host: str, endpoints: Iterable[tuple[str, int]]) -> Reading[Mapping[str, str]]:
    """Connect from a host to numeric addresses and ports, in parallel, with a time limit of 2 s each.

    Returns ``address:port`` → refused, open, timeout or unreachable.
    """
    # IPv6 without brackets: what follows the last colon is the port
    targets = [f"{address}:{port}" for address, port in endpoints]
    if not targets:
        return Seen({})
    return parsed(look.zkm(host, "reach", ",".join(targets)), parse_probe)


def parsed(reading: Reading[str], parse: Callable[[str], T]) -> Reading[T]:
    """Parse the output of a verb; Unknown (garbled) if it cannot be parsed."""
    if not isinstance(reading, Seen):
        return reading
    try:
        return Seen(parse(reading.value))
    except (ValueError, KeyError, ZkDataError) as error:
        why = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        return Unknown("garbled", f"zkm-host's answer: {why}")


class _Fields:
    """Typed access to ``key=value`` lines. Each access removes its key. ValueError names the key."""

    def __init__(self, values: dict[str, str]) -> None:
        self.left = values

    def text(self, key: str) -> str:
        return self.left.pop(key)

    def whole(self, key: str) -> int:
        value = self.left.pop(key)
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise ValueError(f"{key}={value!r} is not a whole number")
        return int(value)

    def seconds(self, key: str) -> float:
        value = self.left.pop(key)
        if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value):
            raise ValueError(f"{key}={value!r} is not a number of seconds")
        return float(value)

    def lease(self, key: str) -> tuple[float | None, bool]:
        """Return the remaining seconds of a lease, and whether the lease is permanent.

        The first value is None if the set is empty or the lease is permanent.
        """
        if self.left[key] in ("permanent", "-"):
            return None, self.left.pop(key) == "permanent"
        return self.seconds(key), False

    def one_of(self, key: str, values: tuple[str, ...]) -> str:
        return _one_of(key, self.left.pop(key), values)

    def unknown(self, key: str) -> bool:
        """Return whether the value is ``-``, and remove the key if it is."""
        if self.left[key] != "-":
            return False
        del self.left[key]
        return True

    def yes(self, key: str) -> bool:
        return self.one_of(key, ("yes", "no")) == "yes"


def _one_of(key: str, value: str, values: tuple[str, ...]) -> str:
    if value not in values:
        raise ValueError(f"{key}={value!r} is none of {', '.join(values)}")
    return value


def parse_phase(text: str) -> HostPhase:
    """Parse the output of ``phase``. Raises ValueError, or KeyError with the missing key."""
    return HostPhase(**_phase(_Fields(keyvalue.parse(text))))


def _phase(f: _Fields) -> dict[str, Any]:
    finisher, _, note = f.text("finisher").partition(" ")
    return {
        "run": f.text("run"),
        "phase": f.one_of("phase", PHASES),
        "lapsed": f.yes("lapsed"),
        "finisher": _one_of("finisher", finisher, FINISHER_STATES),
        "finisher_note": note,
        "served_s": f.seconds("served_s") if "served_s" in f.left else None,
        "rest": f.left,
    }


def parse_status(text: str) -> HostStatus:
    """Parse the output of ``status``. Raises ValueError, or KeyError with the missing key."""
    f = _Fields(keyvalue.parse(text))
    uptime, clock, phase_clock = f.seconds("uptime_s"), f.seconds("time"), f.seconds("phase_since")
    # A change of the wall clock shifts the phase's time on it, but not on the boot's clock.
    phase_since = max(0.0, uptime - (clock - phase_clock)) if phase_clock else 0.0
    if "phase_up_ms" in f.left:
        phase_since = f.whole("phase_up_ms") / 1000
    fence_timeout, fence_permanent = f.lease("fence_timeout_s")
    cut_timeout, cut_permanent = f.lease("cut_timeout_s")
    return HostStatus(
        **_phase(f),
        version=f.text("version"),
        boot_id=f.text("boot_id"),
        uptime_s=uptime,
        phase_since=phase_since,
        fencing=f.whole("fencing"),
        in4=f.one_of("in4", CHAIN_STATES),
        out4=f.one_of("out4", CHAIN_STATES),
        in6=f.one_of("in6", CHAIN_STATES),
        out6=f.one_of("out6", CHAIN_STATES),
        fence_entries=f.whole("fence_entries"),
        fence_timeout_s=fence_timeout,
        fence_permanent=fence_permanent,
        cut_entries=f.whole("cut_entries"),
        cut_timeout_s=cut_timeout,
        cut_permanent=cut_permanent,
        client_sockets=None if f.unknown("client_sockets") else f.whole("client_sockets"),
        source_sockets=None if f.unknown("source_sockets") else f.whole("source_sockets"),
        unit_state=f.one_of("unit_state", UNIT_STATES),
        unit_pid=f.whole("unit_pid"),
        unit_since=0.0 if f.unknown("unit_since") else f.whole("unit_since") / 1e6,
        image=f.one_of("image", ("none", "begun", "complete")),
        missing=tuple(name for name in f.text("tools_missing").split(",") if name),
        written=_written_file(f.text("written")) if "written" in f.left else None,
        unit_stop=f.left.pop("unit_stop", ""),
        unit_file=f.left.pop("unit_file", ""),
        clock=clock,
    )


def _written_file(text: str) -> WrittenFile:
    match = re.fullmatch(r"([0-9a-zA-Z-]{1,40}) ([0-9]{1,15}) ([0-9]{1,12})\.([0-9]{9}) (/.*)", text)
    if match is None:
        raise ValueError(f"written={text[:120]!r} is not a file with its times")
    return WrittenFile(match[1], int(match[2]) / 1000, int(match[3] + match[4]), match[5])


def parse_drain(text: str) -> Drain:
    """Parse the line ``outstanding=N zxid=0x… mode=…``. Raises ValueError, KeyError or ZkDataError."""
    f = _Fields(keyvalue.words(text))
    return Drain(f.whole("outstanding"), parse_zxid(f.text("zxid")), f.text("mode"))


def parse_probe(text: str) -> dict[str, str]:
    """Parse lines ``probe ADDRESS PORT OUTCOME``. Raises ValueError."""
    found: dict[str, str] = {}
    for line in keyvalue.lines(text):
        match = re.fullmatch(r"probe (\S+) ([0-9]{1,5}) (refused|open|timeout|unreachable)", line)
        if match is None:
            raise ValueError(f"not a probe: {line[:80]!r}")
        found[f"{match[1]}:{match[2]}"] = match[3]
    return found


def parse_stamp(text: str) -> str:
    """Return the digest in the key ``stamp``. Raises ValueError or KeyError."""
    return _digest("stamp", keyvalue.parse(text)["stamp"])


def _digest(what: str, value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError(f"{what} {value[:80]!r} is not a SHA-256 in hex")
    return value


def parse_facts(text: str) -> HostFacts:
    """Parse the output of ``facts``. Raises ValueError or KeyError.

    Lines: ``tool.NAME=``, ``address=INTERFACE ADDRESS/LENGTH``, ``disk_free_kib=N DIRECTORY``,
    ``refused=REASON``, ``unit.KEY=`` and plain keys. Keys may repeat: a property of a unit with several
    values has one line for each value.
    """
    tools: dict[str, str] = {}
    free: dict[str, int | None] = {}
    unit: list[str] = []
    addresses: list[str] = []
    refused: list[str] = []
    plain: dict[str, str] = {}
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if line.startswith("unit."):
            unit.append(line.removeprefix("unit."))
        elif not equals:
            if line:
                raise ValueError(f"not key=value: {line[:80]!r}")
        elif key.startswith("tool."):
            tools[key.removeprefix("tool.")] = value
        elif key == "address":
            addresses.append(value.split()[-1].partition("/")[0])
        elif key == "refused":
            refused.append(value)
        elif key == "disk_free_kib":
            amount, _, directory = value.partition(" ")
            free[directory] = None if amount == "-" else _Fields({key: amount}).whole(key) * 1024
        else:
            plain[key] = value
    f = _Fields(plain)
    kill = f.one_of("ss_kill", ("yes", "no", "unknown"))
    rules, _, error = plain.get("rules", "unknown").partition(" ")
    return HostFacts(
        tools={name: version for name, version in tools.items() if version != "missing"},
        missing=tuple(name for name, version in tools.items() if version == "missing"),
        disk_free=free,
        socket_kill=None if kill == "unknown" else kill == "yes",
        root=f.whole("uid") == 0,
        addresses=tuple(addresses),
        clock=f.seconds("time"),
        unit=shown_properties(unit),
        refused=tuple(refused),
        rule_error={"yes": "", "no": error or "no reason told"}.get(rules),
    )
