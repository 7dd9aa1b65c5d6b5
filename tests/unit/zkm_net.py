"""Real namespaces for zkm-host: a dest host, a client, an operator and a source host on one bridge.

Each has `10.77.0.N` and `fd77::N`. On dest a small server stands in for ZooKeeper (`fake_zookeeper.py`): it
holds connections, answers four-letter words and, started as participant, changes its data like one.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.namespaces import ip, own, remove
from zkmigrate.runbook.model import policy

PROGRAM = Path(__file__).parents[2] / "zkmigrate" / "hosts" / "zkm_host" / "zkm-host"
FAKE = Path(__file__).with_name("fake_zookeeper.py")
NUMBERS = {"dest": 1, "peer": 2, "source": 5, "operator": 8, "client": 9}
CLIENT_PORT = 2181
SYSTEM_PYTHON = "/usr/bin/python3"
"""That which every user may run."""


def need_root() -> None:
    """Namespaces and rules need root; without it the test fails, because a skip would hide it."""
    if os.geteuid() != 0:
        pytest.fail("this test makes network namespaces and firewall rules: run it as root")


def eventually(name: str, condition: Callable[[], bool], limit_s: float = 180) -> None:
    """Wait until ``condition`` holds; fail under ``name`` when it does not within ``limit_s``."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"did not happen within {limit_s} s: {name}")
        time.sleep(0.02)


def as_user(user: int) -> list[str]:
    """The words before a command that another user runs; none for root."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []


@dataclass
class Net:
    """Named namespaces on one bridge."""

    prefix: str
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def inside(self, host: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self.prefix}-{host}", *argv]

    def connect(
        self, host: str, address: str, port: int = CLIENT_PORT, user: int = 0
    ) -> subprocess.Popen[str]:
        """A client process that holds one idle connection and ends when the connection does."""
        code = (
            "import socket,sys\n"
            f"s=socket.create_connection(({address!r},{port}),3)\n"
            "print('connected',flush=True)\n"
            "s.settimeout(None)\n"
            "try:\n while s.recv(100): pass\n"
            "except OSError as error: sys.exit(str(error))\n"
        )
        child = subprocess.Popen(
            self.inside(host, *as_user(user), SYSTEM_PYTHON, "-c", code),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        return child

    def reaches(self, host: str, address: str, port: int = CLIENT_PORT, user: int = 0) -> str:
        """``open``, or the error of one connection attempt."""
        code = (
            "import socket\n"
            f"try: socket.create_connection(({address!r},{port}),1).close(); print('open')\n"
            "except OSError as error: print(type(error).__name__)\n"
        )
        argv = self.inside(host, *as_user(user), SYSTEM_PYTHON, "-c", code)
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def net() -> Iterator[Net]:
    """Make the namespaces; take them down again with everything in them, also after a failure."""
    need_root()
    made = Net(own())
    hub = f"{made.prefix}-hub"
    with ExitStack() as stack:
        for name in ("hub", *NUMBERS):
            ip("netns", "add", f"{made.prefix}-{name}")
            stack.callback(remove, f"{made.prefix}-{name}")
        ip("-n", hub, "link", "add", "br0", "type", "bridge")
        ip("-n", hub, "link", "set", "br0", "up")
        for name, number in NUMBERS.items():
            namespace = f"{made.prefix}-{name}"
            ip("-n", namespace, "link", "set", "lo", "up")
            ip(
                "-n",
                namespace,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"p{number}",
                "netns",
                hub,
            )
            ip("-n", hub, "link", "set", f"p{number}", "master", "br0", "up")
            ip("-n", namespace, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", namespace, "addr", "add", f"fd77::{number}/64", "dev", "eth0", "nodad")
            ip("-n", namespace, "link", "set", "eth0", "up")
        yield made
        for child in made.children:
            child.kill()
            child.communicate()


@dataclass(frozen=True)
class Answer:
    """Exit code and output (both streams) of one call."""

    rc: int
    text: str

    def lines(self) -> list[str]:
        return self.text.splitlines()

    def values(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.lines())


def encode(content: bytes | str) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode() or "="


def needed(words: tuple[str, ...]) -> tuple[str, ...]:
    """The lines of a policy without which zkm-host refuses this call; none for verbs that only look."""
    verb, at, more = words[0], words[2:3], words[3:]
    match verb:
        case "put" if len(more) >= 2:
            return ("lock", "window", f"put {at[0]} {more[0]} {more[1]}")
        case "edit" if at:
            return ("lock", f"rewrite {at[0]}")
        case "move-aside" if at:
            return ("lock", " ".join(("move-aside", *at, *more)))
        case "service" if more:
            own = (f"commands {' '.join((*at, *more[1:]))}",) if more[1:] else ()
            return ("lock", f"service {at[0]} {more[0]}", *own)
        case "status" | "recovery":
            return (f"commands {' '.join(words[1:])}",) if at else ()
        case "arm" if at:
            with suppress(ValueError):
                spec = base64.b64decode(at[0], validate=True).decode()
                return ("lock", "window", *policy.arm(spec))
    acts = (*HELD, "put", "edit", "move-aside", "service", "arm", "serve")
    return ("lock", "window") if verb in acts and words[2:3] not in (("beat",), ("release",)) else ()


HELD = (
    *("lock", "restore", "discard", "disarm", "fence", "reopen", "cut", "uncut", "stopped", "seal", "unseal"),
    *("started-observer", "go", "halt", "image", "checked", "open", "finalize", "renew", "journal"),
)
"""Verbs that act, whatever their arguments."""


class Host:
    """zkm-host run on one host, with a state directory of its own."""

    def __init__(self, folder: Path, prefix: list[str], run: str = "run-1", fencing: int = 1) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.prefix = prefix
        self.run_id = run
        self.fencing = fencing
        self._count = 0
        self.allows = (
            True  # each call finds a policy that allows it; False: tests write the policy themselves
        )

    @property
    def directory(self) -> Path:
        return self.state / self.run_id

    def allow(self, *lines: str) -> None:
        """Write these lines into the run's policy, as INSTALL does."""
        file = self.directory / "policy"
        kept = file.read_text().splitlines() if file.exists() else []
        if any(line.startswith("arm ") for line in lines):
            kept = [line for line in kept if not line.startswith("arm ")]
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in dict.fromkeys((*kept, *lines)) if "\n" not in line))

    def argv(self, *words: str, fencing: int | None = None, options: tuple[str, ...] = ()) -> list[str]:
        if self.allows and "--print" not in options and (lines := needed(words)):
            self.allow(*lines)
        number = self.fencing if fencing is None else fencing
        return [*self.prefix, str(PROGRAM), *options, "--run", self.run_id, "--as", str(number), *words]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "ZKM_STATE": str(self.state), "ZKM_SETSID": "1"}

    def call(
        self, *words: str, fencing: int | None = None, options: tuple[str, ...] = (), stdin: bytes = b""
    ) -> Answer:
        done = subprocess.run(
            self.argv(*words, fencing=fencing, options=options),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            timeout=60,
            check=False,
        )
        return Answer(done.returncode, done.stdout.decode())

    def operation(self) -> str:
        """A new operation id."""
        self._count += 1
        return f"op-{self._count}"

    def do(self, verb: str, *arguments: str) -> str:
        """One mutating verb that must succeed; its output."""
        answer = self.call(verb, self.operation(), *arguments)
        assert answer.rc == 0, f"{verb}: {answer}"
        return answer.text

    def refused(self, verb: str, *arguments: str, rc: int = 3) -> str:
        """One mutating verb that must be refused; what it says."""
        answer = self.call(verb, self.operation(), *arguments)
        assert answer.rc == rc, f"{verb}: {answer}"
        return answer.text

    def put(self, path: str, content: bytes, mode: str = "0644", operation: str = "") -> Answer:
        digest = hashlib.sha256(content).hexdigest()
        return self.call(
            "put", operation or self.operation(), path, mode, "root:root", digest, encode(content)
        )

    def status(self) -> dict[str, str]:
        answer = self.call("status")
        assert answer.rc == 0, answer
        return answer.values()

    def phase(self) -> str:
        return self.status()["phase"]

    def forget_outcome(self, operation: str) -> None:
        """Leave the record as a kill between effect and outcome leaves it: the intent alone."""
        record = self.directory / "ops" / operation
        record.write_text(record.read_text().splitlines()[0] + "\n")


def lying(host: Host, **files: str) -> None:
    """From now on these stand in the place of programs (by their names) and of /proc/uptime."""
    binds = []
    for name, text in files.items():
        file = host.folder / f"lying-{name}"
        file.write_text(text)
        file.chmod(0o755)
        place = "/proc/uptime" if name == "uptime" else shutil.which(name)
        assert place is not None
        shutil.copy(place, host.folder / f"real-{name}")
        binds.append(f"mount --bind {file} {place}")
    script = f'{" && ".join(binds)} && exec "$@"'
    host.prefix = [*host.prefix, "unshare", "-m", "sh", "-c", script, "sh"]


class Dest(Host):
    """A dest host with directories, configs and a server to start."""

    OBSERVER = b"peerType=observer\nserver.1=10.77.0.5:2888:3888\nserver.11=10.77.0.1:2888:3888:observer\n"
    REFORMED = b"server.11=10.77.0.1:2888:3888\n"

    def __init__(self, folder: Path, made: Net) -> None:
        super().__init__(folder, made.inside("dest"))
        self.net = made
        self.data, self.log, self.config = folder / "data", folder / "log", folder / "zoo.cfg"
        for directory in (self.data, self.log):
            (directory / "version-2").mkdir(parents=True)
        self.config.write_bytes(self.OBSERVER)
        self.config.chmod(0o640)
        data, log = self.data / "version-2", self.log / "version-2"
        (data / "snapshot.0").write_bytes(b"snapshot at nothing")
        (data / "snapshot.100000005").write_bytes(b"snapshot of five")
        (data / "snapshot.100000007").write_bytes(b"snapshot of all seven")
        (data / "acceptedEpoch").write_bytes(b"1")
        (data / "currentEpoch").write_bytes(b"1")
        (log / "log.100000001").write_bytes(b"transactions one to five")
        (log / "log.100000006").write_bytes(b"transactions from six on" + bytes(100_000))

    @property
    def _pid(self) -> str:
        return shlex.quote(str(self.folder / "pid"))

    @property
    def start(self) -> str:
        words = [sys.executable, str(FAKE), str(self.config), str(self.data), str(self.log), str(CLIENT_PORT)]
        return f"setsid {shlex.join(words)} & echo $! >{self._pid}"

    @property
    def status_command(self) -> str:
        # a killed process stays visible until it is reaped
        return f"grep -q '^State:.[^Z]' /proc/$(cat {self._pid})/status"

    @property
    def stop(self) -> str:
        return f"kill $(cat {self._pid})"

    @property
    def kill(self) -> str:
        return f"kill -9 $(cat {self._pid}); while {self.status_command} 2>/dev/null; do sleep 0.005; done"

    @property
    def commands(self) -> dict[str, str]:
        return {
            "start": encode(self.start),
            "stop": encode(self.stop),
            "status": encode(self.status_command),
            "kill": encode(self.kill),
            "ports": f"{CLIENT_PORT},2888,3888",
        }

    def service(self, action: str, **changed: str) -> tuple[str, ...]:
        """The words of ``service`` that say how this server is started, stopped and seen."""
        words = self.commands | changed
        return ("service", "zookeeper", action, *(f"{key}={value}" for key, value in words.items() if value))

    def spec(self, **changed: str) -> str:
        values: dict[str, str] = {
            "unit": "zookeeper",
            "user": "zookeeper:zookeeper",
            "client_ports": str(CLIENT_PORT),
            "quorum_port": "2888",
            "election_port": "3888",
            "operator": "10.77.0.8,fd77::8",
            "peers": "10.77.0.1,10.77.0.2",
            "source": "10.77.0.5,fd77::5",
            "data_dir": str(self.data),
            "log_dir": str(self.log),
            "config_path": str(self.config),
            "dynamic_glob": f"{self.config}.dynamic*",
            "members": "10.77.0.1:2181,10.77.0.2:2181",
            "rehearsal": "no",
            **self.commands,
        } | changed
        return encode("".join(f"{key}={value}\n" for key, value in values.items()))

    def stage(self) -> None:
        assert self.put("staged/reform.cfg", self.REFORMED).rc == 0
        assert self.put("staged/observer.cfg", self.OBSERVER).rc == 0

    def serve(self) -> None:
        """Start the observer and wait until it answers."""
        self.do(*self.service("start"))
        eventually("the observer serves", lambda: self.net.reaches("dest", "127.0.0.1") == "open")

    def armed(self, **changed: str) -> None:
        """Observer running, staged and armed."""
        self.serve()
        self.stage()
        self.do("arm", self.spec(**changed))

    def cut_off(self, **changed: str) -> None:
        self.armed(**changed)
        self.do("fence", "600000")
        self.do("cut", "600000")

    def stopped(self, **changed: str) -> None:
        self.cut_off(**changed)
        self.do("service", "zookeeper", "kill")
        self.do("stopped")

    def seal(self) -> None:
        stamp = self.call("stamp").values()
        self.do("seal", stamp["boot_id"], stamp["stamp"])

    def sealed(self, **changed: str) -> None:
        self.stopped(**changed)
        self.seal()

    def go(self, place: str = "first", limit_ms: int = 60000) -> None:
        self.do("go", place, "10.77.0.1:2181", "1", str(limit_ms))

    def started(self, **changed: str) -> None:
        self.sealed(**changed)
        self.go()
        eventually("the participant serves", lambda: self.phase() == "started")

    def tree(self) -> dict[str, tuple[bytes, int, int, int]]:
        """Every file that ZooKeeper owns: content, mode, uid and gid by path."""
        paths = [*self.data.rglob("*"), *self.log.rglob("*"), *self.folder.glob("zoo.cfg*")]
        return {
            str(path): (path.read_bytes(), path.stat().st_mode, path.stat().st_uid, path.stat().st_gid)
            for path in paths
            if path.is_file() and ".zkm-image-" not in str(path)
        }
