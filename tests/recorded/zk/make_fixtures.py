"""Make the recorded ZooKeeper directories and four-letter answers of tests/recorded/zk.

    python tests/recorded/zk/make_fixtures.py VERSION LIB_DIR [OUT_DIR] [--only PART ...]

LIB_DIR holds the jars of one ZooKeeper version, as `pom.xml` beside this file fetches them. It starts, on
loopback, for each PART:

- standalone: one server that is driven through every kind of transaction, read by a client, then killed:
  `VERSION/standalone/` (its `version-2`, gzipped, padding cut), `VERSION/expected.json` (what a client read);
- ensemble: three participants and an observer: `VERSION/words/{leader,follower,observer}.WORD` (raw
  answers); `VERSION/observer-snap/`, an observer that joined by a snapshot and saw nothing since,
  and `VERSION/observer/`, the same one after some writes and a kill;
- compressed (3.6+): one tree dumped by three starts of a server, with gzip, with snappy and plain, and read
  by a client: `VERSION/compressed/`, `VERSION/compressed.json`;
- reconfig (3.5+): an ensemble of one that an observer is added to and taken from again by reconfig:
  `VERSION/reconfig/`, `VERSION/reconfig.json` (`/zookeeper/config` as a client read it after each).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import json
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, RolledBackError
from kazoo.retry import KazooRetry
from kazoo.security import make_acl, make_digest_acl

WORDS = ("srvr", "stat", "mntr", "cons", "dump", "conf", "ruok", "isro")
PADDING_KEPT = 4096
DEADLINE_S = 60.0


def wait_until(name: str, condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; raises TimeoutError that names it."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {DEADLINE_S:.0f} s for: {name}")
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


def ask(port: int, word: str) -> str:
    """The raw answer to a four-letter word; "" when nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(word.encode())
            chunks = []
            while chunk := sock.recv(65536):
                chunks.append(chunk)
            return b"".join(chunks).decode()
    except OSError:
        return ""


class Server:
    """One ZooKeeper JVM with its own directory."""

    def __init__(self, home: Path, lib: Path, port: int, lines: list[str], myid: int | None = None) -> None:
        self.data = home / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = port
        if myid is not None:
            (self.data / "myid").write_text(f"{myid}\n")
        self._config = home / "zoo.cfg"
        common = [
            "tickTime=500",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={self.data}",
            f"clientPort={port}",
            "4lw.commands.whitelist=*",
            "admin.enableServer=false",
            "maxSessionTimeout=60000",
        ]
        self._config.write_text("\n".join([*common, *lines]) + "\n")
        self._home = home
        self._lib = lib
        self.properties: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self._home / "out.log").open("ab")
        command = [
            "java",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-Dzookeeper.extendedTypesEnabled=true",
            "-Dzookeeper.4lw.commands.whitelist=*",
            "-Dznode.container.checkIntervalMs=500",
            *(f"-D{name}={value}" for name, value in self.properties.items()),
            "-cp",
            f"{self._lib}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._config),
        ]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._home)

    def serving(self) -> bool:
        return "Mode:" in ask(self.port, "srvr")

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def servers(*all_servers: Server) -> Iterator[None]:
    try:
        for server in all_servers:
            server.start()
        for server in all_servers:
            wait_until(f"server on port {server.port} serving", server.serving)
        yield
    finally:
        for server in all_servers:
            server.kill()


def client(port: int, timeout: float = 30.0) -> KazooClient:
    zk = KazooClient(
        f"127.0.0.1:{port}", timeout=timeout, connection_retry=KazooRetry(max_tries=-1, delay=0.05)
    )
    zk.start(DEADLINE_S)
    return zk


def drive(port: int, modern: bool) -> None:
    """Every kind of transaction. `modern`: the server knows create2, containers and TTLs (3.5+)."""
    zk = client(port)
    zk.create("/kafka", b"root")
    zk.create("/kafka/brokers", b"")
    zk.create("/kafka/brokers/ids", b"")
    zk.create("/kafka/none", None if modern else b"")
    zk.create("/other", b"tenant")
    numbered = [zk.create("/kafka/seq-", str(n).encode(), sequence=True) for n in range(5)]
    zk.create("/kafka/big", b"x" * 20000)
    zk.create("/kafka/text/deep/er", "Zürich €".encode(), makepath=True)
    zk.create("/kafka/ümläut", b"path")
    if modern:
        zk.create("/kafka/two", b"two", include_data=True)
    for n in range(3):
        zk.set("/kafka/brokers", f"v{n}".encode())
    zk.set_acls(
        "/kafka/big", [make_digest_acl("user", "secret", all=True), make_acl("world", "anyone", read=True)]
    )
    zk.set("/kafka/text", b"again")
    multi = zk.transaction()
    multi.create("/kafka/multi", b"m")
    multi.create("/kafka/multi/child", b"c")
    multi.check("/kafka/brokers", 3)
    multi.set_data("/kafka/brokers", b"by multi")
    multi.delete(numbered[1])
    assert not any(isinstance(answer, Exception) for answer in multi.commit())
    failing = zk.transaction()
    failing.create("/kafka/never", b"")
    failing.delete(numbered[0])
    failing.check("/kafka/brokers", 99)
    answers = failing.commit()
    assert isinstance(answers[0], RolledBackError)
    assert isinstance(answers[2], BadVersionError)
    zk.delete(numbered[2])
    zk.create("/kafka/gone/child", b"", makepath=True)
    zk.delete("/kafka/gone", recursive=True)
    with contextlib.suppress(BadVersionError):  # logged as an error transaction
        zk.delete("/kafka/brokers/ids", version=77)
    if modern:
        make_container(port, "/kafka/container")
        make_ttl(port, "/kafka/ttl", 60_000)
        make_container(port, "/kafka/emptied")
        zk.create("/kafka/emptied/child", b"")
        zk.delete("/kafka/emptied/child")
        wait_until("the empty container reaped", lambda: zk.exists("/kafka/emptied") is None)
    closing = client(port)
    closing.create("/kafka/brokers/ids/closed", b"e", ephemeral=True)
    closing.create("/other/closed", b"e", ephemeral=True)
    leave(closing)
    expire(port, zk)
    leave(zk)


def leave(zk: KazooClient) -> None:
    zk.stop()
    zk.close()


def raw_session(port: int, timeout_ms: int = 30_000) -> tuple[socket.socket, int]:
    """A session on a bare socket: what kazoo's client does not offer can be sent on it."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    request = struct.pack(">iqiqi", 0, 0, timeout_ms, 0, 16) + b"\0" * 16
    sock.sendall(struct.pack(">i", len(request)) + request)
    answer = receive(sock)
    return sock, int(struct.unpack_from(">q", answer, 8)[0])


def receive(sock: socket.socket) -> bytes:
    def exactly(length: int) -> bytes:
        data = b""
        while len(data) < length:
            chunk = sock.recv(length - len(data))
            if not chunk:
                raise ConnectionError("server closed the connection")
            data += chunk
        return data

    return exactly(struct.unpack(">i", exactly(4))[0])


def raw_create(port: int, code: int, path: str, flags: int, tail: bytes = b"") -> None:
    sock, _session = raw_session(port)
    with sock:
        name = path.encode()
        acl = struct.pack(">iii", 1, 31, 5) + b"world" + struct.pack(">i", 6) + b"anyone"
        body = (
            struct.pack(">i", len(name))
            + name
            + struct.pack(">i", 4)
            + b"data"
            + acl
            + struct.pack(">i", flags)
        )
        request = struct.pack(">ii", 1, code) + body + tail
        sock.sendall(struct.pack(">i", len(request)) + request)
        _xid, _zxid, error = struct.unpack_from(">iqi", receive(sock))
        assert error == 0, f"create of {path}: error {error}"
        sock.sendall(struct.pack(">iii", 8, 2, -11))
        receive(sock)


def make_container(port: int, path: str) -> None:
    raw_create(port, 19, path, 4)


def make_ttl(port: int, path: str, ttl_ms: int) -> None:
    raw_create(port, 21, path, 5, struct.pack(">q", ttl_ms))


def expire(port: int, zk: KazooClient) -> None:
    """A session that owns an ephemeral and stops to ping: the server expires it."""
    sock, _session = raw_session(port, 1000)
    name = b"/kafka/brokers/ids/expired"
    acl = struct.pack(">iii", 1, 31, 5) + b"world" + struct.pack(">i", 6) + b"anyone"
    body = struct.pack(">i", len(name)) + name + struct.pack(">i", 0) + acl + struct.pack(">i", 1)
    request = struct.pack(">ii", 1, 1) + body
    sock.sendall(struct.pack(">i", len(request)) + request)
    receive(sock)
    wait_until("the silent session expired", lambda: zk.exists(name.decode()) is None)
    sock.close()


def read_tree(zk: KazooClient, path: str, into: dict[str, Any]) -> None:
    data, stat = zk.get(path)
    acls, _stat = zk.get_acls(path)
    into[path] = {
        "sha256": hashlib.sha256(data or b"").hexdigest(),
        "length": -1 if data is None else len(data),
        "acl": [[a.perms, a.id.scheme, a.id.id] for a in acls],
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeralOwner,
        "children": stat.numChildren,
    }
    for child in zk.get_children(path):
        read_tree(zk, f"{path.rstrip('/')}/{child}", into)


def store(version2: Path, into: Path) -> None:
    """Copy a `version-2`, gzipped, the logs' zero padding cut to PADDING_KEPT bytes."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for file in sorted(version2.iterdir()):
        data = file.read_bytes()
        if file.name.startswith("log."):
            used = len(data.rstrip(b"\0"))
            data = data[:used] + b"\0" * min(PADDING_KEPT, len(data) - used)
        (into / f"{file.name}.gz").write_bytes(gzip.compress(data, mtime=0))


def make_standalone(version: str, lib: Path, out: Path, home: Path) -> None:
    """The driven server: two runs, so that there are several logs; killed while two sessions live."""
    port = free_ports(1)[0]
    server = Server(home, lib, port, [])
    modern = not version.startswith("3.4")
    with servers(server):
        drive(port, modern)
        staying = client(port, timeout=40.0)
        staying.create("/kafka/brokers/ids/1", b"living", ephemeral=True)
        staying.create("/other/mine", b"living", ephemeral=True)
        server.kill()
        server.start()
        wait_until("serving after the kill", server.serving)
        wait_until("the session is back", lambda: bool(staying.connected))
        staying.retry(staying.create, "/kafka/after", b"second log")
        staying.retry(staying.set, "/kafka/brokers", b"second log")
        short = client(port, timeout=20.0)
        short.create("/kafka/brokers/ids/2", b"short", ephemeral=True)
        tree: dict[str, Any] = {}
        read_tree(staying, "/", tree)
        sessions = {f"0x{zk.client_id[0] & (1 << 64) - 1:x}": zk._session_timeout for zk in (staying, short)}
        zxid = next(line for line in ask(port, "srvr").splitlines() if line.startswith("Zxid")).split()[1]
        server.kill()
        leave(staying)
        leave(short)
    expected = {"version": version, "zxid": zxid, "sessions_ms": sessions, "tree": tree}
    write_json(out / "expected.json", expected)
    store(server.data / "version-2", out / "standalone")


def write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True) + "\n")


def make_ensemble(lib: Path, out: Path, home: Path) -> None:
    """Raw answers of every role, and the directory of an observer that joined by a snapshot."""
    ports = free_ports(12)
    lines = ["peerType=observer"]
    members = [
        f"server.{n + 1}=127.0.0.1:{ports[3 * n]}:{ports[3 * n + 1]}" + (":observer" if n == 3 else "")
        for n in range(4)
    ]
    voters = [Server(home / f"s{n + 1}", lib, ports[3 * n + 2], members[:3], n + 1) for n in range(3)]
    observer = Server(home / "s4", lib, ports[11], [*members, *lines], 4)
    with servers(*voters):
        zk = client(voters[0].port, timeout=20.0)
        zk.create("/kafka/brokers/ids", b"", makepath=True)
        zk.create("/kafka/brokers/ids/1", b"{}", ephemeral=True)
        zk.create("/kafka/controller", b"{}", ephemeral=True)
        with servers(observer):
            store(observer.data / "version-2", out / "observer-snap")
            through = client(observer.port, timeout=20.0)
            assert through.exists("/kafka/controller")
            words = out / "words"
            shutil.rmtree(words, ignore_errors=True)
            words.mkdir(parents=True)
            roles = {"observer": observer}
            for voter in voters:
                roles["leader" if "Mode: leader" in ask(voter.port, "srvr") else "follower"] = voter
            for role, server in roles.items():
                for word in WORDS:
                    (words / f"{role}.{word}").write_text(
                        ask(server.port, word).replace(str(home), "/srv/zk")
                    )
            lead = client(roles["leader"].port, timeout=20.0)
            lead.create("/kafka/joined", b"")
            (words / "leader-busy.cons").write_text(ask(roles["leader"].port, "cons"))
            observer.kill()
            leave(through)
            leave(lead)
        store(observer.data / "version-2", out / "observer")
        others = [voter for voter in voters if voter is not roles["leader"]]
        for voter in others:
            voter.kill()
        wait_until(
            "the lone leader not serving", lambda: "not currently" in ask(roles["leader"].port, "srvr")
        )
        for word in ("srvr", "mntr", "ruok", "cons"):
            (words / f"unserving.{word}").write_text(ask(roles["leader"].port, word))
        roles["leader"].kill()
        leave(zk)


def make_compressed(version: str, lib: Path, out: Path, home: Path) -> None:
    """A server writes a snapshot at each start: with nothing written in between, all three hold one tree."""
    port = free_ports(1)[0]
    server = Server(home, lib, port, [])
    with servers(server):
        staying = client(port, timeout=40.0)
        staying.create("/bulk", None)
        lines = "".join(f'{{"broker":{n % 7},"partition":{n},"leader":{n * 31 % 11}}}\n' for n in range(2500))
        staying.create("/bulk/text", lines.encode())  # more than one of snappy's blocks of 32 KiB
        staying.create("/bulk/noise", random.Random(1).randbytes(3000))
        for n in range(8):
            staying.create(f"/bulk/text/{n:04}", f"partition {n}".encode())
        staying.set_acls("/bulk/noise", [make_acl("world", "anyone", read=True)])
        staying.create("/bulk/living", b"living", ephemeral=True)
        for method in ("gz", "snappy", ""):
            server.kill()
            server.properties = {"zookeeper.snapshot.compression.method": method}
            server.start()
            wait_until(f"serving with {method or 'plain'} snapshots", server.serving)
        wait_until("the session is back", lambda: bool(staying.connected))
        tree: dict[str, Any] = {}
        read_tree(staying, "/", tree)
        server.kill()
        leave(staying)
    write_json(out / "compressed.json", {"version": version, "tree": tree})
    store(server.data / "version-2", out / "compressed")


def make_reconfig(version: str, lib: Path, out: Path, home: Path) -> None:
    """Two reconfig transactions. Who may reconfigure is not the point here, so access lists are off."""
    ports = free_ports(6)
    own = f"server.1=127.0.0.1:{ports[0]}:{ports[1]}:participant;{ports[2]}"
    server = Server(home, lib, ports[2], ["standaloneEnabled=false", "reconfigEnabled=true", own], 1)
    server.properties = {"zookeeper.skipACL": "yes"}
    other = f"server.2=127.0.0.1:{ports[3]}:{ports[4]}:observer;{ports[5]}"
    seen: list[dict[str, Any]] = []
    with servers(server):
        zk = client(ports[2])
        zk.create("/kafka", b"root")
        for joining, leaving in ((other, None), (None, "2")):
            zk.reconfig(joining=joining, leaving=leaving, new_members=None)
            data, stat = zk.get("/zookeeper/config")
            seen.append({"data": data.decode(), "zxid": stat.mzxid, "version": stat.version})
        zk.create("/kafka/after", b"")
        leave(zk)
        server.kill()
    write_json(out / "reconfig.json", {"version": version, "configs": seen})
    store(server.data / "version-2", out / "reconfig")


def main() -> None:
    parts = {"standalone", "ensemble", "compressed", "reconfig"}
    parser = argparse.ArgumentParser(description="Make the recorded ZooKeeper directories of one version.")
    parser.add_argument("version")
    parser.add_argument("lib", type=Path, help="folder of the server's jars")
    parser.add_argument("out", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--only", nargs="+", choices=sorted(parts), default=parts, metavar="PART")
    given = parser.parse_args()
    version, lib, only = str(given.version), given.lib.resolve(), set(given.only)
    out = given.out / version
    out.mkdir(parents=True, exist_ok=True)
    minor = tuple(int(number) for number in version.split(".")[:2])
    with tempfile.TemporaryDirectory(prefix="zkfix") as temp:
        if "standalone" in only:
            make_standalone(version, lib, out, Path(temp) / "standalone")
        if "ensemble" in only:
            make_ensemble(lib, out, Path(temp) / "ensemble")
        if "compressed" in only and minor >= (3, 6):
            make_compressed(version, lib, out, Path(temp) / "compressed")
        if "reconfig" in only and minor >= (3, 5):
            make_reconfig(version, lib, out, Path(temp) / "reconfig")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"{out}: {size} bytes")


if __name__ == "__main__":
    main()
