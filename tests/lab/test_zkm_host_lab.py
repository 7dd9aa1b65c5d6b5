"""zkm-host on real hosts: systemd units, the start guard, detached parts, three real servers."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from zkmigrate import hostside
from zkmigrate.lab import readiness
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import ZOO_CFG, ZOOKEEPER_DATA, source_zoo_cfg
from zkmigrate.lab.spec import CLIENT_PORT, ELECTION_PORT, OPERATOR_ADDRESS, QUORUM_PORT, LabSpec, Role
from zkmigrate.lab.waiting import wait_until

pytestmark = pytest.mark.lab

RUN = "run-1"
UNIT = "zookeeper.service"
NUMBERS = count(1)
"""Operation ids are never used twice, whatever channel carries them."""


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Channel:
    """``zkm-host serve`` held open on one host."""

    def __init__(self, lab: Lab, host: str, fencing: str = "1") -> None:
        argv = lab.exec_command(host, [hostside.INSTALLED_PATH, "--run", RUN, "--as", fencing, "serve"])
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.host = host

    def send(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(("1", *words)) + "\n")
        self.process.stdin.flush()

    def receive(self) -> tuple[int, list[str]]:
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(". 1 "):
                return int(line.split()[2]), lines
            lines.append(line.removeprefix("= ").rstrip("\n"))
        raise AssertionError(f"{self.host} closed the channel")

    def ask(self, *words: str) -> list[str]:
        self.send(*words)
        rc, lines = self.receive()
        assert rc == 0, f"{self.host} {words[0]}: {lines}"
        return lines

    def do(self, verb: str, *arguments: str) -> list[str]:
        return self.ask(verb, f"op-{next(NUMBERS)}-{verb}", *arguments)

    def status(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.ask("status"))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass
class Dests:
    """The dest hosts of a lab, driven at once."""

    lab: Lab
    channels: list[Channel]

    def do(self, verb: str, *arguments: str) -> list[list[str]]:
        for channel in self.channels:
            channel.send(verb, f"op-{next(NUMBERS)}-{verb}", *arguments)
        answers = [channel.receive() for channel in self.channels]
        assert [rc for rc, _ in answers] == [0] * len(answers), f"{verb}: {answers}"
        return [lines for _, lines in answers]

    def wait(self, name: str, key: str, value: str) -> None:
        wait_until(name, lambda: self._differing(key, value), 60)

    def _differing(self, key: str, value: str) -> str | None:
        seen = {channel.host: channel.status()[key] for channel in self.channels}
        return None if all(v == value for v in seen.values()) else f"{key}: {seen}"

    def observing(self) -> None:
        def missing() -> str | None:
            answers = {c.host: c.ask("drain")[0] for c in self.channels}
            return None if all("mode=observer" in said for said in answers.values()) else str(answers)

        wait_until("dest observes", missing, 60)

    def arm(self, rehearsal: str = "no") -> None:
        sources = self.lab.role(Role.SOURCE)
        peers = self.lab.role(Role.DEST)
        for channel in self.channels:
            for name, content in (("reform", reformed(self.lab)), ("observer", observer(self.lab))):
                digest = hashlib.sha256(content.encode()).hexdigest()
                channel.do("put", f"staged/{name}.cfg", "0600", "root:root", digest, encode(content))
        spec = {
            "unit": UNIT,
            "user": "zookeeper:zookeeper",
            "client_port": CLIENT_PORT,
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
        self.do("arm", encode("".join(f"{key}={value}\n" for key, value in spec.items())))

    def seal(self) -> None:
        self.do("fence", "20000")
        self.do("cut", "20000")
        self.do("service", UNIT, "kill")
        self.do("stopped")
        for channel in self.channels:
            stamp = dict(line.split("=") for line in channel.ask("stamp"))
            channel.do("seal", stamp["boot_id"], stamp["stamp"])

    def go(self, limit_ms: int) -> None:
        first = ",".join(f"{h.address}:{CLIENT_PORT}" for h in self.lab.role(Role.DEST))
        self.do("go", "first", first, "2", str(limit_ms))

    def go_back(self) -> None:
        self.do("halt")
        self.do("image", "restore")
        self.do("unseal", "20000", "20000")
        self.do("started-observer")
        self.do("uncut")
        self.observing()
        self.do("reopen")
        self.do("disarm")

    def trees(self) -> list[str]:
        """Digest, mode and owner of every file of ZooKeeper's on each dest host."""
        command = (
            f"cd {ZOOKEEPER_DATA} && find . -path ./.zkm-image-\\* -prune -o -type f "
            "-exec stat -c '%n %a %U:%G %s' {} + -exec sha256sum {} + | sort; "
            f"stat -c '%a %U:%G' . version-2; sha256sum {ZOO_CFG}*"
        )
        return [self.lab.exec(c.host, ["sh", "-c", command]).stdout for c in self.channels]


def servers(lab: Lab, role: Role, kind: str = "") -> str:
    return "".join(
        f"server.{h.myid}={h.address}:{QUORUM_PORT}:{ELECTION_PORT}{kind}\n" for h in lab.role(role)
    )


def observer(lab: Lab) -> str:
    return source_zoo_cfg(lab.spec) + "peerType=observer\n" + servers(lab, Role.DEST, ":observer")


def reformed(lab: Lab) -> str:
    settings = [line for line in source_zoo_cfg(lab.spec).splitlines() if not line.startswith("server.")]
    return "\n".join(settings) + "\n" + servers(lab, Role.DEST)


def write(lab: Lab, host: str, path: str, mode: str, content: str) -> None:
    lab.exec(host, ["sh", "-c", f"cat >{path} && chmod {mode} {path}"], stdin=content)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(LabSpec(), print) as made:
        yield made


def joined(lab: Lab) -> Dests:
    """Dest hosts that observe source, with zkm-host installed."""
    for host in lab.role(Role.DEST):
        program = hostside.program().decode()
        write(lab, host.name, hostside.INSTALLED_PATH, "0755", program)
        write(lab, host.name, f"{ZOOKEEPER_DATA}/myid", "0640", f"{host.myid}\n")
        write(lab, host.name, ZOO_CFG, "0644", observer(lab))
        lab.exec(host.name, ["chown", "-R", "zookeeper:zookeeper", ZOOKEEPER_DATA])
        lab.exec(host.name, ["systemctl", "start", UNIT])
    with lab.operator():
        for host in lab.role(Role.DEST):
            address = host.address

            def other(address: str = address) -> str | None:
                mode = readiness.server_mode(readiness.four_letter_word(address, "srvr"))
                return None if mode == "observer" else f"mode {mode}"

            wait_until(f"{host.name} observes", other, 60)
    return Dests(lab, [Channel(lab, host.name) for host in lab.role(Role.DEST)])


@pytest.fixture(scope="module")
def dests(lab: Lab) -> Iterator[Dests]:
    made = joined(lab)
    yield made
    for channel in made.channels:
        channel.kill()


def unit_state(lab: Lab, host: str) -> str:
    return lab.exec(host, ["systemctl", "is-active", UNIT], check=False).stdout.strip()


def test_reform_and_all_the_way_back_leave_every_byte(lab: Lab, dests: Dests) -> None:
    dests.arm()
    dests.seal()
    before = dests.trees()
    host = dests.channels[0].host
    lab.exec(host, ["systemctl", "start", UNIT], check=False)
    assert unit_state(lab, host) in ("failed", "inactive"), "the guard holds against systemctl too"
    lab.exec(host, ["systemctl", "reset-failed", UNIT])
    dests.go(120_000)
    lab.exec(host, ["sh", "-c", "systemctl kill -s KILL 'zkm-finish-*'"])
    dests.wait("all serve", "phase", "started")
    assert dests.trees() != before
    dests.do("halt")
    dests.do("image", "restore")
    assert dests.trees() == before
    dests.do("unseal", "20000", "20000")
    dests.do("started-observer")
    dests.do("uncut")
    dests.observing()
    dests.do("reopen")
    dests.do("disarm")
    for channel in dests.channels:
        assert lab.exec(channel.host, ["find", "/etc/systemd/system", "-name", "zkm-*"]).stdout == ""
        assert "ZKM" not in lab.exec(channel.host, ["iptables-save"]).stdout
        assert "ZKM" not in lab.exec(channel.host, ["ipset", "list", "-n"]).stdout


def test_the_lease_outlives_its_connections(lab: Lab, dests: Dests) -> None:
    dests.arm()
    dests.do("fence", "5000")
    dests.do("cut", "2000")
    dests.do("service", UNIT, "kill")
    dests.do("stopped")
    for channel in dests.channels:
        channel.kill()
    dests.channels = [Channel(lab, channel.host) for channel in dests.channels]
    dests.wait("armed by themselves", "phase", "armed")
    for channel in dests.channels:
        seen = channel.status()
        assert (seen["lapsed"], seen["unit_state"], seen["fence_entries"]) == ("yes", "active", "0")
    dests.observing()


def test_the_hosts_finish_and_open_without_their_operator(lab: Lab, dests: Dests) -> None:
    dests.seal()
    dests.go(500)
    for channel in dests.channels:
        channel.kill()
    dests.channels = [Channel(lab, channel.host) for channel in dests.channels]
    dests.wait("open by themselves", "phase", "open")
    lab.wait_for_quorum(Role.DEST)
    dests.do("finalize")
    dests.do("uninstall")
    for channel in dests.channels:
        left = lab.exec(channel.host, ["ls", hostside.INSTALLED_PATH, "/var/lib/zkmigrate"], check=False)
        assert left.stdout == ""
        assert unit_state(lab, channel.host) == "active"
