"""A real sshd on a high loopback port, with its own keys, configuration and programs in a temporary
folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_port
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Limits, Transport
from zkmigrate.inventory.inventory import Inventory

PRIVILEGE_SEPARATION = Path("/run/sshd")
"""Every connection of an sshd that root runs needs it."""


@dataclass(frozen=True)
class Sshd:
    """The running daemon. ``programs`` is the folder that its sessions' PATH starts with."""

    port: int
    folder: Path
    programs: Path
    process: subprocess.Popen[bytes]

    @property
    def host_key(self) -> str:
        return (self.folder / "host_key.pub").read_text().rsplit(" ", 1)[0].strip()

    def pin(self, addresses: Iterable[str] = ("127.0.0.1",), key: str = "") -> Path:
        """Write known_hosts for these addresses (with another key if given) and return it."""
        path = self.folder / "known_hosts"
        path.write_text("".join(f"[{a}]:{self.port} {key or self.host_key}\n" for a in addresses))
        path.chmod(0o600)
        return path

    @property
    def options(self) -> tuple[str, ...]:
        """The options by which a verb reaches the daemon."""
        key, pins = self.folder / "user_key", self.folder / "known_hosts"
        return ("--ssh-port", str(self.port), "--ssh-key", str(key), "--known-hosts", str(pins))

    def program(self, name: str, text: str) -> None:
        """Put an executable first on the PATH of every session."""
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def allow_sudo(self) -> None:
        """A ``sudo`` that lets everything through, as NOPASSWD: ALL does."""
        self.program("sudo", '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n')

    def refuse_sudo(self) -> None:
        """A ``sudo`` that wants a password."""
        self.program("sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")


def user() -> str:
    """The account the tests run as: the one that an sshd of ours can log in."""
    return pwd.getpwuid(os.getuid()).pw_name


def make_key(path: Path, passphrase: str = "") -> Path:
    """A new ed25519 key pair at ``path`` and ``path.pub``."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


@contextmanager
def running(folder: Path, extra: str = "", environment: str = "") -> Iterator[Sshd]:
    """Start sshd and wait until it answers; it and every session of it are gone afterwards."""
    with _privilege_separation(), (folder / "sshd.log").open("wb") as log:
        port, programs, config = _configured(folder, extra, environment)
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        assert sshd, "openssh-server is not installed: run setup/install.sh"
        argv = [sshd, "-D", "-e", "-f", str(config)]
        # Every host of a test has one address, which sshd would refuse after a few key scans.
        unpunished = ["-o", "PerSourcePenalties=no"]  # since OpenSSH 9.8
        known = subprocess.run([*argv, "-t", *unpunished], capture_output=True, check=False)
        argv += unpunished if known.returncode == 0 else []
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log)
        try:
            _answers(port, process)
            yield Sshd(port, folder, programs, process)
        finally:
            process.terminate()
            process.wait(10)


def _configured(folder: Path, extra: str, environment: str) -> tuple[int, Path, Path]:
    """The port, the folder of programs and the configuration of a new sshd."""
    make_key(folder / "host_key")
    make_key(folder / "user_key")
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    programs = folder / "bin"
    programs.mkdir()
    port = free_port()
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 0.0.0.0\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n"
        f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n"
        f"LogLevel INFO\nMaxSessions 20\nUseDNS no\n{extra}\n"
        # SHLVL keeps bash from reading the account's .bashrc, which bash does for a first shell under sshd.
        f'SetEnv SHLVL=2 "PATH={programs}:{os.environ["PATH"]}" {environment}\n'
    )
    return port, programs, config


def inventory(
    sshd: Sshd, *, key: Path | None = None, known_hosts: Path | None = None, hosts: int = 0
) -> Inventory:
    """An inventory whose every host is reached through this sshd.

    hosts: how many further source hosts at 127.0.0.101 and on, which are pinned too.
    """
    many = [f"127.0.0.{100 + n}" for n in range(1, hosts + 1)]
    pinned = known_hosts or sshd.pin(("127.0.0.1", "127.0.0.2", *many))
    source = [{"name": "s1", "address": "127.0.0.1", "myid": 1}]
    source += [{"name": f"s{n + 100}", "address": a, "myid": n + 100} for n, a in enumerate(many, start=1)]
    return Inventory.model_validate_json(
        json.dumps(
            {
                "version": 1,
                "name": "test",
                "operator": ["127.0.0.1"],
                "ssh": {
                    "user": user(),
                    "port": sshd.port,
                    "key": str(key or sshd.folder / "user_key"),
                    "known_hosts": str(pinned),
                },
                "source": {"hosts": source},
                "dest": {
                    "hosts": [{"name": f"d{n}", "address": "127.0.0.1", "myid": 10 + n} for n in (1, 2, 3)]
                },
                "kafka": {
                    "cluster_id": "abcdefghijklmnopqrstuv",
                    "chroot": "/kafka",
                    "brokers": [{"name": "b1", "address": "127.0.0.2", "id": 1}],
                },
            }
        )
    )


@contextmanager
def _privilege_separation() -> Iterator[None]:
    """The folder is there for as long as the block lasts, and removed by the last of all processes that need
    it, if one of them made it. A lock on a file counts them; that file has a byte if it was made."""
    if os.getuid() != 0:
        yield
        return
    with (Path(tempfile.gettempdir()) / "zkmigrate-tests-sshd.lock").open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileExistsError):
            PRIVILEGE_SEPARATION.mkdir(0o755)
            lock.write(b"1")
            lock.flush()
        try:
            yield
        finally:
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock.fileno()).st_size:
                    PRIVILEGE_SEPARATION.rmdir()
                    lock.truncate(0)


def _answers(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
                if sock.recv(4) == b"SSH-":
                    return
        except OSError:
            process_wait(process)
    raise AssertionError("sshd does not answer within 10 s")


def process_wait(process: subprocess.Popen[bytes]) -> None:
    """Wait a little for a process that may end instead of coming up."""
    try:
        process.wait(0.05)
    except subprocess.TimeoutExpired:
        return


def with_ssh(inventory: Inventory, **values: object) -> Inventory:
    """The inventory with other values below ``ssh``."""
    return inventory.model_copy(update={"ssh": inventory.ssh.model_copy(update=values)})


def refused(inventory: Inventory, match: str | None = None, limits: Limits | None = None) -> TransportError:
    """The error of a command on s1."""
    with (
        Transport(inventory, limits or Limits()) as transport,
        pytest.raises(TransportError, match=match) as caught,
    ):
        transport.exec("s1", ["true"])
    return caught.value
