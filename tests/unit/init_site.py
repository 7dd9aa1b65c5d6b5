"""Hosts for ``init`` on loopback: a real sshd at many addresses, processes and units of its own for each.

Every host has the same files, those of this machine; what runs there is told by a ``/proc`` of its own and a
stand-in for systemctl. Source's four-letter words are answered by a real listener.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit import sshd as daemon
from tests.unit.loopback import listening
from tests.unit.sshd import Sshd
from tests.world.model import ensemble
from zkmigrate.inventory.discovery.draft import SshDraft
from zkmigrate.inventory.discovery.init_request import InitOptions

SOURCE = tuple(f"127.0.0.{n}" for n in (11, 12, 13))
DEST = tuple(f"127.0.0.{n}" for n in (21, 22, 23))
BROKER = "127.0.0.31"
CLUSTER_ID = "Q9fEx3xTRZmWq0oUGfGc9A"
SESSION = 0x100000000000007

_SH = """#!/bin/sh
# Each host's processes are those of the address that was connected to.
set -- "$@"
at=${SSH_CONNECTION% *}
ZKM_PROC=FOLDER/hosts/${at##* } exec /bin/sh "$@"
"""
_SYSTEMCTL = """#!/bin/sh
case $1 in
  list-unit-files) cd "$ZKM_PROC/units" 2>/dev/null && ls | sed 's/$/ enabled/' ;;
  show) for u; do :; done; cat "$ZKM_PROC/units/$u" ;;
esac
"""
_UNAME = "#!/bin/sh\ncat $ZKM_PROC/name\n"


@dataclass
class Site:
    """The hosts. words: answers to four-letter words, changed by a test at will."""

    sshd: Sshd
    folder: Path
    port: int
    words: dict[str, str] = field(default_factory=dict)

    def options(self, **more: object) -> InitOptions:
        """A call that names one source host and the dest hosts."""
        key, pins = self.sshd.folder / "user_key", self.sshd.pin((*SOURCE, *DEST, BROKER))
        ssh = SshDraft(daemon.user(), self.sshd.port, str(key), str(pins))
        given: dict[str, object] = {
            "source": (f"{SOURCE[1]}:{self.port}",),
            "dest": DEST,
            "operator": ("127.0.0.1",),
            "ssh": ssh,
            "out": self.folder / "migration.yml",
        }
        return InitOptions(**{**given, **more})  # type: ignore[arg-type]

    def host(self, address: str, name: str, process: Mapping[str, str] | None = None, unit: str = "") -> None:
        """A host. process: what is in its /proc directory; unit: ``NAME`` and its properties below it."""
        proc = self.folder / "hosts" / address
        (proc / "units").mkdir(parents=True)
        (proc / "name").write_text(f"{name}\n")
        if process:
            (proc / "100").mkdir()
            for file, text in process.items():
                (proc / "100" / file).write_text(text)
        if unit:
            unit_name, _, properties = unit.partition("\n")
            (proc / "units" / unit_name).write_text(properties)


def _process(unit: str, *arguments: str) -> dict[str, str]:
    return {"cgroup": f"0::/system.slice/{unit}\n", "cmdline": "\0".join(arguments) + "\0"}


def _unit(name: str, account: str, command: str, environment: str) -> str:
    start = f"{{ path=/usr/bin/java ; argv[]={command} ; ignore_errors=no ; start_time=[n/a] }}"
    return (
        f"{name}\nLoadState=loaded\nUser={account}\nGroup={account}s\n"
        f"EnvironmentFiles={environment} (ignore_errors=yes)\nExecStart={start}\n"
    )


@contextmanager
def running(folder: Path) -> Iterator[Site]:
    """Three source servers, three dest hosts with ZooKeeper installed, one broker."""
    (folder / "sshd").mkdir()
    with daemon.running(folder / "sshd", "MaxStartups 100") as sshd, _answering() as (port, words):
        for name, text in (("sh", _SH), ("systemctl", _SYSTEMCTL), ("uname", _UNAME)):
            sshd.program(name, text.replace("FOLDER", str(folder)))
        sshd.allow_sudo()
        site = Site(sshd, folder, port, words)
        _write_files(site)
        words |= {
            "dump": dump({SESSION: ["/east/brokers/ids/7", "/east/controller"], 0x9: ["/other/lock"]}),
            "cons": ensemble.cons([(BROKER, 40000, SESSION, 18000)]),
        }
        yield site


def dump(owned: Mapping[int, list[str]]) -> str:
    """An answer to ``dump``."""
    lines = [f"0x{s:x}:\n" + "".join(f"\t{p}\n" for p in paths) for s, paths in owned.items()]
    head = "SessionTracker dump:\nSession Sets (0):\nephemeral nodes dump:\n"
    return f"{head}Sessions with Ephemerals ({len(owned)}):\n" + "".join(lines)


def _write_files(site: Site) -> None:
    files = site.folder / "files"
    for name in ("zk", "logs"):
        (files / name).mkdir(parents=True)
    config, properties = files / "zoo.cfg", files / "server.properties"
    lines = [f"server.{n}={address}:2888:3888\n" for n, address in enumerate(SOURCE, 1)]
    config.write_text(
        f"tickTime=2000\ndataDir={files}/zk/\nclientPort={site.port}\nmaxClientCnxns=0\nreconfigEnabled=true\n"
        "4lw.commands.whitelist=srvr, ruok\n" + "".join(lines)
    )
    (files / "zk" / "myid").write_text("2\n")
    properties.write_text(
        f"broker.id=7\nlisteners=SSL://:1,PLAINTEXT://:19092\nlog.dirs={files}/logs,/other\nzookeeper.connect={SOURCE[0]}:{site.port}/east\n"
    )
    (files / "logs" / "meta.properties").write_text(f"version=0\nbroker.id=7\ncluster.id={CLUSTER_ID}\n")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    server = ("/usr/bin/java", "-cp", "a:b", main, str(config))
    unit = _unit("zookeeper.service", "zk", " ".join(server), f"{files}/java.env")
    for n, address in enumerate(SOURCE, 1):
        site.host(address, f"old-{n}.example.com", _process("zookeeper.service", *server), unit)
    for n, address in enumerate(DEST, 1):
        site.host(address, f"new-{n}", None, unit)
    broker = ("/usr/bin/java", "kafka.Kafka", str(properties))
    kafka = _unit("kafka.service", "kafka", " ".join(broker), "/etc/kafka.env")
    site.host(BROKER, "kafka-7", _process("kafka.service", *broker), kafka)


@contextmanager
def _answering() -> Iterator[tuple[int, dict[str, str]]]:
    """A listener on every loopback address that answers four-letter words; none is not whitelisted."""
    words: dict[str, str] = {}

    def serve(client: socket.socket) -> None:
        word = client.recv(4, socket.MSG_WAITALL).decode("ascii", "replace")
        refusal = f"{word} is not executed because it is not in the whitelist.\n"
        client.sendall(words.get(word, refusal).encode())

    with listening(serve, "0.0.0.0") as port:
        yield port, words
