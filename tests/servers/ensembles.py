"""Real ZooKeeper servers on loopback that form ensembles, and clients of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from tests.ports import free_port
from tests.servers.process import ADDRESS, START_SECONDS, server, wait_for
from zkmigrate.lab import provision


@dataclass(frozen=True)
class Member:
    """One server: its number, its folder (``data`` is the dataDir), its ports."""

    number: int
    folder: Path
    port: int = field(default_factory=free_port)
    peers: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def line(self, *, observer: bool = False) -> str:
        role = "observer" if observer else "participant"
        return f"server.{self.number}={ADDRESS}:{self.peers[0]}:{self.peers[1]}:{role}\n"


@contextmanager
def serving(
    version: str,
    member: Member,
    *,
    observes: Member | None = None,
    options: Sequence[str] = (),
    settings: str = "",
) -> Iterator[Member]:
    """The server, by itself an ensemble of one (unlike a standalone server it begins a new epoch with each
    start), or an observer of another; ended with the block. options: of its JVM. settings: more lines of
    zoo.cfg."""
    member.data.mkdir(parents=True, exist_ok=True)
    (member.data / "myid").write_text(str(member.number))
    config, log = member.folder / "zoo.cfg", member.folder / "zookeeper.log"
    config.write_text(
        f"tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={member.data}\nclientPort={member.port}\n"
        f"clientPortAddress={ADDRESS}\nstandaloneEnabled=false\n4lw.commands.whitelist=*\n"
        f"admin.enableServer=false\n{settings}"
        + (f"peerType=observer\n{observes.line()}" if observes else "")
        + member.line(observer=observes is not None)
    )
    main = [*options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    mode = "observer" if observes else "standalone" if version.startswith("3.4.") else "leader"
    with server("java", provision.zookeeper_classpath(version), main, log) as process:
        wait_for(f"ZooKeeper {version}", process, log, member.port, "srvr", f"Mode: {mode}")
        yield member


@contextmanager
def quorum(version: str, folder: Path, addresses: Sequence[str]) -> Iterator[int]:
    """An ensemble with a server at each address; the client port that they share."""
    ports = [free_port() for _ in range(3)]
    lines = "".join(
        f"server.{number}={address}:{ports[1]}:{ports[2]}\n" for number, address in enumerate(addresses, 1)
    )
    with ExitStack() as stack:
        begun = []
        for number, address in enumerate(addresses, 1):
            home = folder / f"server{number}"
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(number))
            (home / "zoo.cfg").write_text(
                f"tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={home / 'data'}\nclientPort={ports[0]}\n"
                f"clientPortAddress={address}\n4lw.commands.whitelist=*\nadmin.enableServer=false\n{lines}"
            )
            main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(home / "zoo.cfg")]
            log = home / "zookeeper.log"
            process = stack.enter_context(server("java", provision.zookeeper_classpath(version), main, log))
            begun.append((address, process, log))
        for address, process, log in begun:
            wait_for(f"ZooKeeper {version}", process, log, ports[0], "srvr", "Mode: ", address)
        yield ports[0]


@contextmanager
def client(member: Member) -> Iterator[KazooClient]:
    """A session on that server."""
    made = KazooClient(f"{ADDRESS}:{member.port}")
    made.start(START_SECONDS)
    try:
        yield made
    finally:
        made.stop()
        made.close()
