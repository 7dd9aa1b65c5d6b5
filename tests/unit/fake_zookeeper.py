"""A stand-in for a ZooKeeper server: ``fake_zookeeper.py CONFIG DATA_DIR LOG_DIR CLIENT_PORT``.

It listens on the client port and holds what connects, answers ``srvr`` and ``mntr``, observes when its config
says so, else leads. A participant changes its data as a real one does: it edits the newest log in place
(TRUNC), writes the snapshot of its last zxid again in place, adds a snapshot and a log, raises the epochs and
leaves a dynamic config behind.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
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
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=50)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, mode), daemon=True).start()


if __name__ == "__main__":
    main()
