"""A stand-in for a ZooKeeper server: ``fake_zookeeper.py CONFIG DATA_DIR LOG_DIR CLIENT_PORT``.

It listens on the client port, on the port 100 higher (as with ``secureClientPort``, where it answers nothing)
and on 8080 (as AdminServer). It holds what connects, answers ``srvr`` and ``mntr``, observes when its config
says so, else leads. A participant changes its data as a real one does: it edits the newest log in place
(TRUNC), writes the snapshot of its last zxid again in place, adds a snapshot and a log, raises the epochs and
leaves a dynamic config behind.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path


def become_participant(config: Path, data: Path, log: Path) -> None:
    snapshots, logs = data / "version-2", log / "version-2"
    newest = max(logs.glob("log.*"))
    with newest.open("r+b") as file:
        file.write(b"TRUNCATED")
        file.truncate(9)
    with max(snapshots.glob("snapshot.*")).open("r+b") as file:
        file.write(b"WRITTEN AGAIN")
    (snapshots / "snapshot.200000001").write_bytes(b"snapshot of the new epoch")
    (logs / "log.200000001").write_bytes(b"transactions of the new epoch")
    for name in ("acceptedEpoch", "currentEpoch"):
        (snapshots / name).write_bytes(b"2")
    config.with_name(config.name + ".dynamic.next").write_bytes(b"server.11=10.77.0.1:2888:3888")


# The fields that zkm-host reads, in the form of ZooKeeper 3.5.8, 3.8.4 and 3.9.5.
ADMIN = """{
  "read_only" : false,
  "server_stats" : {
    "packets_sent" : 0,
    "server_state" : "%s",
    "last_processed_zxid" : 4294967303,
    "outstanding_requests" : 0
  },
  "synced_followers" : 2,
  "command" : "server_stats",
  "error" : null
}"""


def administer(connection: socket.socket, mode: str) -> None:
    with connection, contextlib.suppress(OSError):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += connection.recv(100) or b"\r\n\r\n"
        if request.startswith((b"GET /commands/srvr HTTP/1.0\r\n", b"GET /commands/mntr HTTP/1.0\r\n")):
            head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
            connection.sendall((head + ADMIN % mode).encode())


def hold(connection: socket.socket, _mode: str) -> None:
    with connection, contextlib.suppress(OSError):
        while connection.recv(100):
            pass


def answer(connection: socket.socket, mode: str) -> None:
    with connection, contextlib.suppress(OSError):
        word = connection.recv(4)
        if word == b"srvr":
            text = (
                f"Zookeeper version: fake\nOutstanding: 0\nZxid: 0x100000007\nMode: {mode}\nNode count: 5\n"
            )
            connection.sendall(text.encode())
        elif word == b"mntr":
            connection.sendall(f"zk_server_state\t{mode}\nzk_synced_followers\t2\n".encode())
        else:
            while connection.recv(100):
                pass


def main() -> None:
    config, data, log, port = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    mode = "observer" if b"peerType=observer" in config.read_bytes() else "leader"
    if mode == "leader":
        become_participant(config, data, log)
    for number, talk in ((port, answer), (port + 100, hold), (8080, administer)):
        listener = socket.create_server(
            ("::", number), family=socket.AF_INET6, dualstack_ipv6=True, backlog=50
        )
        threading.Thread(target=accept, args=(listener, talk, mode)).start()


def accept(listener: socket.socket, talk: Callable[[socket.socket, str], None], mode: str) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=talk, args=(connection, mode), daemon=True).start()


if __name__ == "__main__":
    main()
