"""Drive dest hosts through zkm-host itself, without the tool, over one root channel each.

This is for actions that the tool never takes, or only as a second safeguard: places in the start order, kills
between two verbs.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from zkmigrate.hosts import zkm_host
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import ZOO_CFG, ZOOKEEPER_DATA, source_zoo_cfg
from zkmigrate.lab.spec import CLIENT_PORT, ELECTION_PORT, OPERATOR_ADDRESS, QUORUM_PORT, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model import policy

RUN = "run-1"
UNIT = "zookeeper.service"
SERVES_S = 60.0
_NUMBERS = count(1)
"""Numbers for operation ids, so that no id is used twice on any channel."""


def encode(text: str) -> str:
    """Return text as one word of a request: base64."""
    return base64.b64encode(text.encode()).decode()


class Channel:
    """A ``zkm-host serve`` process held open on one host."""

    def __init__(self, lab: Lab, host: str, fencing: str = "1") -> None:
        argv = lab.exec_command(host, [zkm_host.INSTALLED_PATH, "--run", RUN, "--as", fencing, "serve"])
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.host = host

    def send(self, *words: str) -> None:
        """Send one request. Receive its answer before sending the next one."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(("1", *words)) + "\n")
        self.process.stdin.flush()

    def receive(self) -> tuple[int, list[str]]:
        """Return the exit code and the lines of an answer. Raises LabError if the channel has ended."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(". 1 "):
                return int(line.split()[2]), lines
            lines.append(line.removeprefix("= ").rstrip("\n"))
        raise LabError(f"{self.host} closed the channel")

    def ask(self, *words: str) -> list[str]:
        """Send a request and return the lines of its answer. Raises LabError unless it ends with 0."""
        self.send(*words)
        rc, lines = self.receive()
        if rc:
            raise LabError(f"{self.host}: {words[0]} ended with {rc}: {lines}")
        return lines

    def do(self, verb: str, *arguments: str) -> list[str]:
        """Send a mutating verb with a new operation id and return the lines of its answer."""
        return self.ask(verb, operation(verb), *arguments)

    def status(self) -> dict[str, str]:
        """Return the host's status, by key."""
        return dict(line.split("=", 1) for line in self.ask("status"))

    def kill(self) -> None:
        """End the channel as a lost connection does."""
        self.process.kill()
        self.process.communicate()


def operation(verb: str) -> str:
    """Return a new operation id."""
    return f"op-{next(_NUMBERS)}-{verb}"


@dataclass
class DestHosts:
    """The dest hosts of a lab, driven in parallel."""

    lab: Lab
    channels: list[Channel]

    def do(self, verb: str, *arguments: str) -> list[list[str]]:
        """Send one mutating verb to every host at once; it must succeed on all."""
        return self.each({channel.host: (verb, *arguments) for channel in self.channels})

    def each(self, words: Mapping[str, Sequence[str]]) -> list[list[str]]:
        """Send each of these hosts its mutating verb with arguments, to all before reading any answer.

        Returns the lines of each answer. Raises LabError if one fails.
        """
        chosen = [channel for channel in self.channels if channel.host in words]
        for channel in chosen:
            verb, *arguments = words[channel.host]
            channel.send(verb, operation(verb), *arguments)
        answers = {channel.host: channel.receive() for channel in chosen}
        if failed := {host: answer for host, answer in answers.items() if answer[0]}:
            raise LabError(f"refused or failed: {failed}")
        return [lines for _, lines in answers.values()]

    def channel(self, host: str) -> Channel:
        """Return the channel of one host."""
        return next(channel for channel in self.channels if channel.host == host)

    def reconnect(self, *hosts: str) -> None:
        """Open new channels to these hosts, or to all if none is named."""
        for number, channel in enumerate(self.channels):
            if not hosts or channel.host in hosts:
                channel.kill()
                self.channels[number] = Channel(self.lab, channel.host)

    def wait(self, name: str, key: str, value: str, deadline_s: float = SERVES_S) -> None:
        """Wait until each host's status has this value."""
        wait_until(name, lambda: self._differing(key, value), deadline_s)

    def _differing(self, key: str, value: str) -> str | None:
        seen = {channel.host: channel.status()[key] for channel in self.channels}
        return None if all(v == value for v in seen.values()) else f"{key}: {seen}"

    def observing(self) -> None:
        """Wait until every host observes source."""

        def missing() -> str | None:
            answers = {c.host: c.ask("drain")[0] for c in self.channels}
            return None if all("mode=observer" in answer for answer in answers.values()) else str(answers)

        wait_until("dest observes", missing, SERVES_S)

    def arm(self, rehearsal: str = "no") -> None:
        """Stage both configs and arm every host."""
        for channel in self.channels:
            for name, content in (
                ("reform", reformed_config(self.lab)),
                ("observer", observer_config(self.lab)),
            ):
                digest = hashlib.sha256(content.encode()).hexdigest()
                channel.do("put", f"staged/{name}.cfg", "0600", "root:root", digest, encode(content))
        self.do("arm", encode(armed_spec(self.lab, rehearsal)))

    def seal(self) -> None:
        """Bring every host from armed to sealed, without a proof."""
        self.do("fence", "20000")
        self.do("cut", "20000")
        self.do("service", UNIT, "kill")
        self.do("stopped")
        for channel in self.channels:
            stamp = dict(line.split("=") for line in channel.ask("stamp"))
            channel.do("seal", stamp["boot_id"], stamp["stamp"])

    def go(self, limit_ms: int) -> None:
        """Send GO to every host, all in the first place of the start order."""
        first = ",".join(f"{h.address}:{CLIENT_PORT}" for h in self.lab.role(Role.DEST))
        self.do("go", "first", first, "2", str(limit_ms))

    def go_back(self) -> None:
        """Go back after GO: stop all, restore the images, observe again, disarm."""
        self.do("halt")
        self.do("image", "restore")
        self.unseal()

    def unseal(self) -> None:
        """Bring sealed hosts with restored images back to observing, and disarm them."""
        self.do("unseal", "20000", "20000")
        self.do("started-observer")
        self.do("uncut")
        self.observing()
        self.do("reopen")
        self.do("disarm")

    def close(self) -> None:
        """End all channels."""
        for channel in self.channels:
            channel.kill()


def _servers(lab: Lab, kind: str = "") -> str:
    return "".join(
        f"server.{h.myid}={h.address}:{QUORUM_PORT}:{ELECTION_PORT}{kind}\n" for h in lab.role(Role.DEST)
    )


def observer_config(lab: Lab) -> str:
    """Return the zoo.cfg of a dest host that observes source."""
    return source_zoo_cfg(lab.spec) + "peerType=observer\n" + _servers(lab, ":observer")


def reformed_config(lab: Lab) -> str:
    """Return the zoo.cfg of a dest host as a member of dest's own ensemble."""
    settings = [line for line in source_zoo_cfg(lab.spec).splitlines() if not line.startswith("server.")]
    return "\n".join(settings) + "\n" + _servers(lab)


def armed_spec(lab: Lab, rehearsal: str = "no") -> str:
    """Return the spec with which ARM prepares a dest host."""
    sources, peers = lab.role(Role.SOURCE), lab.role(Role.DEST)
    values = {
        "unit": UNIT,
        "user": "zookeeper:zookeeper",
        "client_ports": CLIENT_PORT,
        "quorum_port": QUORUM_PORT,
        "election_port": ELECTION_PORT,
        "operator": OPERATOR_ADDRESS,
        "peers": ",".join(h.address for h in peers),
        "source": ",".join(h.address for h in sources),
        "data_dir": ZOOKEEPER_DATA,
        "log_dir": ZOOKEEPER_DATA,
        "config_path": ZOO_CFG,
        "dynamic_glob": f"{ZOO_CFG}.dynamic*",
        "members": ",".join(f"{h.address}:{CLIENT_PORT}" for h in peers),
        "rehearsal": rehearsal,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def write(lab: Lab, host: str, path: str, mode: str, content: str) -> None:
    """Write a file on a host, as root."""
    lab.exec(host, ["sh", "-c", f"cat >{path} && chmod {mode} {path}"], stdin=content)


def joined(lab: Lab) -> DestHosts:
    """Install zkm-host on the dest hosts, start them as observers of source, and return them."""
    spec, kill = armed_spec(lab), policy.service(UNIT, ("kill",))
    limits = policy.text((policy.LOCK, policy.WINDOW, *kill, *policy.arm(spec)))
    for host in lab.role(Role.DEST):
        program = zkm_host.program().decode()
        lab.exec(host.name, ["mkdir", "-m", "700", "-p", zkm_host.STATE_DIR, zkm_host.run_dir(RUN)])
        write(lab, host.name, zkm_host.policy_path(RUN), "0600", limits)
        write(lab, host.name, zkm_host.INSTALLED_PATH, "0755", program)
        write(lab, host.name, f"{ZOOKEEPER_DATA}/myid", "0640", f"{host.myid}\n")
        write(lab, host.name, ZOO_CFG, "0644", observer_config(lab))
        lab.exec(host.name, ["chown", "-R", "zookeeper:zookeeper", ZOOKEEPER_DATA])
        lab.exec(host.name, ["systemctl", "start", UNIT])
    for name in lab.names(Role.DEST):
        wait_until(f"{name} observes", partial(_not_observing, lab, name), SERVES_S)
    return DestHosts(lab, [Channel(lab, name) for name in lab.names(Role.DEST)])


def _not_observing(lab: Lab, host: str) -> str | None:
    mode = lab.zookeeper_modes([host])[host]
    return None if mode == "observer" else f"mode {mode}"
