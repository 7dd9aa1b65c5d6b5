"""The harms of the cases of ``window_faults``, and how each is undone.

``begin`` returns once the harm has taken effect. ``mend`` repairs the lab and returns, in words, what the
hosts did wrong in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from kazoo.exceptions import NoNodeError

from tests.lab.footprint import phases, without_process
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Policy
from zkmigrate.lab import fault, network
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator, ToolProcess
from zkmigrate.lab.readiness import mode_of
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.move.rules.window_rules import deadlines
from zkmigrate.runbook.model.window import Phase, Trouble

SERVED_S = 90.0
ALARM_S, EXPIRED_S, BOOTED_S, ELECTED_S, JOINED_S = 30.0, 120.0, 60.0, 60.0, 90.0
SHUT = Phase.SEALED.until(Phase.OPEN)
UNIT = "zookeeper.service"


@dataclass
class Scene:
    """A lab, its load, its operator at work, and what a harm leaves for the judgement.

    source: the required state of source's hosts. new_owners: znodes that get a new owner because of the harm.
    noticed: what went wrong during a harm. served: measures whether brokers have a server. stranded: sessions
    of clients that know only a host that was frozen for too long. silence: seconds from FENCE until brokers
    had a server again, and the limit. notes: facts for the case's outcome, right or wrong.
    """

    lab: Lab
    operator: Operator
    load: LoadRunner
    new_owners: set[str] = field(default_factory=set)
    noticed: list[str] = field(default_factory=list)
    killed_broker: str = ""
    tool: ToolProcess | None = None
    served: ServedAgain | None = None
    stranded: set[str] = field(default_factory=set)
    silence: tuple[float, float] | None = None
    notes: list[str] = field(default_factory=list)
    source: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.source = source_state(self.lab)

    @property
    def run(self) -> str:
        """The run's id."""
        return self.operator.run


@dataclass(frozen=True)
class Harm:
    """No harm; the base of all harms."""

    def begin(self, _scene: Scene) -> None:
        """Do the harm."""

    def mend(self, _scene: Scene) -> list[str]:
        """Undo the harm and return what the hosts did wrong."""
        return []


NO_HARM = Harm()


@dataclass(frozen=True)
class LinkCut(Harm):
    """The operator reaches no host."""

    def begin(self, scene: Scene) -> None:
        fault.operator_cut(scene.lab)

    def mend(self, scene: Scene) -> list[str]:
        fault.operator_restore(scene.lab)
        return []


@dataclass(frozen=True)
class HostDead(Harm):
    """A dest host loses power, with its rules and sets.

    Its unit is enabled, so systemd starts ZooKeeper at boot.
    """

    host: str

    def begin(self, scene: Scene) -> None:
        fault.power_cut(scene.lab, self.host)

    def mend(self, scene: Scene) -> list[str]:
        fault.power_on(scene.lab, self.host)
        return boot_mistakes(scene, self.host)


@dataclass(frozen=True)
class HostReboots(HostDead):
    """A dest host loses power and is on again at once."""

    def begin(self, scene: Scene) -> None:
        fault.power_cut(scene.lab, self.host)
        fault.power_on(scene.lab, self.host)
        scene.noticed += boot_mistakes(scene, self.host)

    def mend(self, _scene: Scene) -> list[str]:
        return []


@dataclass(frozen=True)
class HostLate(HostDead):
    """A dest host loses power after GO; the others open, and an operator lets it join later.

    docs/reference/zkm-host.md describes the commands.
    """

    def mend(self, scene: Scene) -> list[str]:
        wrong = super().mend(scene)
        others = [host for host in scene.lab.role(Role.DEST) if host.name != self.host]
        first = ",".join(f"{host.address}:{scene.lab.spec.client_port}" for host in others)
        self._hand(scene, "halt", "hand-halt")
        self._hand(scene, "go", "hand-go", "rest", first, str(len(others)), "10000")
        wait_until(f"{self.host} has joined", lambda: self._not_open(scene), JOINED_S)
        return wrong

    def _not_open(self, scene: Scene) -> str | None:
        phase = phases(scene.lab, scene.run, [self.host])[self.host]
        return None if phase == "open" else phase

    def _hand(self, scene: Scene, *words: str) -> None:
        program = [zkm_host.INSTALLED_PATH, "--run", scene.run]
        status = scene.lab.exec(self.host, [*program, "status"]).stdout
        fencing = dict(line.split("=", 1) for line in status.splitlines())["fencing"]
        scene.lab.exec(self.host, [*program, "--as", fencing, *words])


Silent: TypeAlias = Literal["frozen", "ssh", "dropped"]
_SILENCED: Mapping[Silent, tuple[Callable[[Lab, str], None], Callable[[Lab, str], None]]] = {
    "frozen": (fault.freeze, fault.thaw),
    "ssh": (fault.pause_ssh, fault.resume_ssh),
    "dropped": (
        partial(fault.partition, other=network.OPERATOR), partial(fault.heal, other=network.OPERATOR)
    ),
}  # fmt: skip
"""The functions that begin and end each kind of silence."""


@dataclass(frozen=True)
class Silence(Harm):
    """A dest host stops answering the operator; its connections stay.

    It measures for how long after FENCE brokers find no server on the other hosts, against the window's
    deadline. If FENCE never began, it counts from the silence and allows 2 s.
    """

    host: str
    kind: Silent

    def begin(self, scene: Scene) -> None:
        others = [h.address for h in scene.lab.role(Role.DEST) if h.name != self.host]
        scene.served = ServedAgain(network.netns(scene.lab.id, "broker1"), others)
        _SILENCED[self.kind][0](scene.lab, self.host)

    def mend(self, scene: Scene) -> list[str]:
        _SILENCED[self.kind][1](scene.lab, self.host)
        assert scene.served is not None
        assert scene.tool is not None
        begun = scene.tool.events_of("StepBegun")
        forward = {e["step"] for e in begun if e["way"] == "forward"}
        since = scene.served.since
        fenced = next((e["at"] for e in begun if (e["stage"], e["step"]) == ("cutover", "fence")), since)
        session_s = scene.lab.spec.session_timeout_ms / 1000
        # A sealed host stays shut while it is frozen; an idle client's last ping may be a third of T old.
        if self.kind == "frozen" and ("go" in forward or time.time() - since > session_s * 2 / 3):
            scene.stranded |= sessions_on(self.host, load_recording(scene.load.directory, "raw").events)
        again = served_again(scene.served.end(SERVED_S), fenced)
        allowed = deadlines(session_s, Policy().way_back_s)
        limit = allowed.forward if "serve" in forward else allowed.start_back if "fence" in forward else 0.0
        limit = round(limit + 2, 1)
        after = round(again - fenced, 1)
        scene.silence = (after, limit)
        if after == 0:
            scene.notes.append(f"brokers had a server all the time, limit {limit} s")
            return []
        when = f"after FENCE, {round(again - since, 1)} s after the silence, limit {limit} s"
        scene.notes.append(f"served again {after} s {when}")
        return [] if after <= limit else [f"served again only {after} s {when}"]


def sessions_on(host: str, events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the last session that the raw client of this host got from it; at most one."""
    given = [event["session"] for event in events if event["event"] == "connected" and event["host"] == host]
    return set(given[-1:])


def served_again(asked: Iterable[tuple[float, bool]], since: float) -> float:
    """Return the end of the longest time without a server that began at ``since`` or later.

    It is ``since`` if there was none. asked: the times at which brokers' servers were asked, and whether one
    served; the last answer must be that one did.
    """
    longest, again, began = 0.0, since, None
    for at, serves in asked:
        if at < since:
            continue
        if not serves and began is None:
            began = at
        elif serves and began is not None:
            if at - began > longest:
                longest, again = at - began, at
            began = None
    return again


class ServedAgain:
    """A thread that asks ten times a second, from a broker's network, whether one of these servers serves.

    since: when asking began, in seconds since the epoch.
    """

    def __init__(self, namespace: str, addresses: list[str]) -> None:
        self.since = time.time()
        self._namespace, self._addresses = namespace, addresses
        self._asked: list[tuple[float, bool]] = []
        self._over = threading.Event()
        threading.Thread(target=self._ask, name="served-again", daemon=True).start()

    def end(self, limit_s: float) -> list[tuple[float, bool]]:
        """Stop asking once a server serves; return the times and answers. Raises NotReady after the limit."""
        try:
            wait_until("a broker is served", lambda: None if self._served() else "no server", limit_s)
        finally:
            self._over.set()
        return list(self._asked)

    def _served(self) -> bool:
        return bool(self._asked) and self._asked[-1][1]

    def _ask(self) -> None:
        with network.inside(self._namespace):
            while not self._over.is_set():
                began = time.time()
                serves = any(self._serves(address) for address in self._addresses)
                self._asked.append((time.time() if serves else began, serves))
                self._over.wait(0.1)

    @staticmethod
    def _serves(address: str) -> bool:
        return mode_of(address) is not None


def boot_mistakes(scene: Scene, host: str) -> list[str]:
    """Return what a host did wrong that has booted in a phase in which no server may start."""

    def booting() -> str | None:
        state = scene.lab.exec(host, ["systemctl", "is-system-running"], check=False).stdout.strip()
        return None if state in ("running", "degraded") else state

    wait_until(f"{host} has booted", booting, BOOTED_S)
    phase = phases(scene.lab, scene.run, [host])[host]
    if phase not in SHUT:
        return []
    state = scene.lab.exec(host, ["systemctl", "is-active", UNIT], check=False).stdout.strip()
    log = scene.lab.exec(host, ["journalctl", "-b", "-o", "cat", "-u", UNIT]).stdout
    wrong = [] if state in ("inactive", "failed") else [f"{host} rebooted {phase}: its unit is {state}"]
    if "must not start" not in log:
        wrong.append(f"{host} rebooted {phase}: the guard has not refused a start")
    return wrong


@dataclass(frozen=True)
class NoRules(Harm):
    """A command that runs as root on a dest host; ``$tag`` is the part of our chains' and sets' names."""

    host: str
    command: str

    def begin(self, scene: Scene) -> None:
        script = f"tag=$(cat {zkm_host.run_dir(scene.run)}/tag) && {self.command}"
        scene.lab.exec(self.host, ["sh", "-c", script])


@dataclass(frozen=True)
class FirstRule(Harm):
    """Another program's rule above ours: ``CHAIN 1 RULE``."""

    host: str
    rule: str

    def begin(self, scene: Scene) -> None:
        scene.lab.exec(self.host, ["iptables", "-I", *self.rule.split()])

    def mend(self, scene: Scene) -> list[str]:
        chain, _, *rule = self.rule.split()
        scene.lab.exec(self.host, ["iptables", "-D", chain, *rule])
        return []


@dataclass(frozen=True)
class SourceLeaderDead(Harm):
    """Source's leader is killed; the servers that are down are started again once the tool has ended."""

    def begin(self, scene: Scene) -> None:
        fault.kill(scene.lab, _leader(scene))

    def mend(self, scene: Scene) -> list[str]:
        down = [
            host.name
            for host in scene.lab.role(Role.SOURCE)
            if scene.lab.exec(host.name, ["systemctl", "is-active", UNIT], check=False).returncode
        ]
        for host in down:
            fault.start(scene.lab, host)
        scene.lab.wait_for_quorum(Role.SOURCE, ELECTED_S)
        for host, text in source_state(scene.lab).items():
            if host in down and without_process(text) == without_process(scene.source[host]):
                scene.source[host] = text  # a new process: this drill started it

        return [] if len(down) == 1 else [f"source servers down: {down}"]


def _leader(scene: Scene) -> str:
    modes = scene.lab.zookeeper_modes(scene.lab.names(Role.SOURCE))
    leading = [host for host, mode in modes.items() if mode == "leader"]
    assert leading, f"source has no leader: {modes}"
    return leading[0]


@dataclass(frozen=True)
class BrokerDead(Harm):
    """A broker that is not the controller is killed; it comes back when its session has expired.

    wait_for_alarm: the harm has taken effect only once the tool has reported it.
    """

    wait_for_alarm: bool = False

    def begin(self, scene: Scene) -> None:
        with scene.lab.zookeeper() as client:
            controller = client.get(f"{scene.lab.spec.chroot.rstrip('/')}/controller")[0].decode()
        plans = scene.lab.plans
        broker = next(
            host.name
            for host in scene.lab.role(Role.BROKER)
            if f'"brokerid":{plans[host.name].number}' not in controller.replace(" ", "")
        )
        fault.kill(scene.lab, broker)
        scene.killed_broker = broker
        scene.new_owners.add(self._path(scene))
        if self.wait_for_alarm:

            def unnoticed() -> str | None:
                assert scene.tool is not None
                alarms = [e["finding"]["id"] for e in scene.tool.events_of("Alarm")]
                return None if Trouble.BROKER_LOST in alarms else f"alarms {alarms}"

            wait_until("the tool has noticed", unnoticed, ALARM_S)

    def mend(self, scene: Scene) -> list[str]:
        path = self._path(scene)

        def registered() -> str | None:
            with scene.lab.zookeeper(Role.DEST) as client:
                try:
                    client.get(path)
                except NoNodeError:
                    return None
            return f"{path} is still there"

        wait_until(f"the session of {scene.killed_broker} has expired", registered, EXPIRED_S, 1.0)
        fault.start(scene.lab, scene.killed_broker)
        scene.lab.wait_for_brokers(Role.DEST)
        return []

    def _path(self, scene: Scene) -> str:
        number = scene.lab.plans[scene.killed_broker].number
        return f"{scene.lab.spec.chroot.rstrip('/')}/brokers/ids/{number}"
