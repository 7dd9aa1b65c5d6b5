"""The ssh transport of a run: opens, keeps and reopens connections to the inventory's hosts.

Fabric builds the clients, paramiko does the work. This transport is stricter than fabric. Host keys are
verified against the known_hosts of the inventory and of the ssh_config that it names; no other ssh
configuration, key or agent is used. The sockets are created here (TCP_NODELAY, TCP_USER_TIMEOUT).

Every connect and command has a deadline. At most ``Limits.connects`` connects run at a time, because sshd
drops further connects (MaxStartups). One connection to a bastion carries all connections of one purpose. A
connect that an overloaded sshd dropped is retried; a command is never repeated.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import fabric
import paramiko
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from zkmigrate import deadline
from zkmigrate.errors import InventoryError, UsageError
from zkmigrate.hosts.transport import command_log
from zkmigrate.hosts.transport.connection import Connection, Output
from zkmigrate.hosts.transport.failure import TransportError, socket_cause, socket_text
from zkmigrate.hosts.transport.ordered import OrderedTransport
from zkmigrate.hosts.transport.route import Hosts, Login, Routes
from zkmigrate.hosts.transport.trust import HostKey, Reject, Trust, UnknownHostKey, fingerprint, load, pinned

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # the errors say what matters

T = TypeVar("T")

Purpose: TypeAlias = Literal["looks", "steps", "watch"]
"""The purpose of a connection. Each purpose has its own connection, so a large read never delays a renewal.
"""


@dataclass(frozen=True)
class Limits:
    """The limits of the transport.

    Fields ending in ``_s`` are seconds, ``output`` is the largest output in bytes, and the others are counts.
    keepalive_s: the interval of keepalive packets. silent_s: how long sent data may stay unacknowledged.
    connects: connects at a time. attempts: how often a dropped connect is tried. sessions: commands at a time
    on one connection.
    """

    connect_s: float = 10.0
    command_s: float = 30.0
    file_s: float = 15.0
    silent_s: float = 10.0
    keepalive_s: int = 5
    connects: int = 8
    attempts: int = 4
    sessions: int = 6
    output: int = 16 << 20


class _Dropped(Exception):
    """Raised if sshd closed the connection before its banner, because it has too many new connections."""


class Transport:
    """Connections to every host of one inventory, opened on demand and kept open until ``close``."""

    def __init__(self, hosts: Hosts, limits: Limits = Limits()) -> None:
        """Read the key and known_hosts files. Raises UsageError if one of them cannot be trusted.

        Without ssh settings in the inventory every connection fails, and its error says so.
        """
        self._limits = limits
        self._routes = Routes(hosts)
        self._trusted: dict[tuple[str, tuple[str, ...]], Trust] = {}
        with suppress(InventoryError):
            key, pins = hosts.ssh.key, (hosts.ssh.known_hosts,)
            self._trusted[key, pins] = load(key, *pins)
        self._connecting = threading.BoundedSemaphore(limits.connects)
        self._lock = threading.Lock()
        self._locks: dict[tuple[Login, str], threading.Lock] = {}
        self._open: dict[tuple[Login, str], Connection] = {}
        self._closed = False

    def exec(
        self, host: str, argv: Sequence[str], stdin: bytes = b"", deadline_s: float | None = None
    ) -> Output:
        """Run a command on a host and return its output, whatever its exit code. Raises TransportError."""
        wait = self._limits.command_s if deadline_s is None else deadline_s
        command_log.sent(host, argv, stdin)
        try:
            output = self.connection(host).run(argv, stdin, deadline.remaining(wait), self._limits.output)
        except TransportError as error:
            command_log.failed(host, error)
            raise
        command_log.answered(host, output.rc, output.text, argv)
        return output

    def read(self, host: str, path: str, limit: int = 1 << 20) -> bytes:
        """Return the content of a file, read by SFTP as the ssh account.

        Raises TransportError, or the host's OSError.
        """
        return self.connection(host).read_file(path, limit, self.file_s)

    @property
    def file_s(self) -> float:
        """The time limit of one SFTP request, in seconds."""
        return deadline.remaining(self._limits.file_s)

    @property
    def _connect_s(self) -> float:
        """The time limit of each wait during a login, in seconds."""
        return deadline.remaining(self._limits.connect_s)

    def user(self, host: str) -> str:
        """Return the account used on a host. Raises TransportError."""
        return self._routes.to(host).user

    def connection(self, host: str, purpose: Purpose = "looks") -> Connection:
        """Return the open connection to a host for this purpose. A broken connection is reopened.

        Raises TransportError.
        """
        return self._connection(self._routes.to(host), purpose)

    def unpinned(self, host: str) -> list[HostKey]:
        """Return the current host keys of a host and its bastions that are not pinned.

        The list has at most one key, because nothing behind a bastion without a pinned key can be reached.
        Raises TransportError.
        """
        way: list[Login] = []
        login: Login | None = self._routes.to(host)
        while login is not None:
            way.insert(0, login)
            login = login.via
        for stop in way:
            if not any(pinned(pins, stop.pin) for pins in self._trust(stop).known_hosts):
                return [HostKey(stop.name, stop.pin, self._retried(stop, partial(self._host_key, stop)))]
        return []

    def _host_key(self, login: Login) -> paramiko.PKey:
        """Return the host key that a host presents, without logging in."""
        gateway = self._connection(login.via, "looks") if login.via else None
        with self._connecting:
            session = paramiko.Transport(self._socket(login, gateway))
            try:
                session.banner_timeout = self._connect_s
                session.start_client(timeout=self._connect_s)
                return session.get_remote_server_key()
            except (paramiko.SSHException, OSError, EOFError) as error:
                if _dropped(error):
                    raise _Dropped(str(error) or "connection closed") from error
                raise TransportError(
                    login.name, "failed", f"the host presents no host key: {error}"
                ) from error
            finally:
                session.close()

    def _connection(self, login: Login, purpose: Purpose) -> Connection:
        key = (login, purpose)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        if not lock.acquire(timeout=deadline.remaining(math.inf) if deadline.bounded() else -1):
            raise TransportError(
                login.name, "timeout", "another connection attempt to this host has not ended yet"
            )
        try:
            found = self._open.get(key)
            if found is not None and found.alive:
                return found
            if found is not None:
                found.close()
            if self._closed:
                raise TransportError(login.name, "failed", "the transport has been closed")
            opened = self._connect(login, purpose)
            self._open[key] = opened
            return opened
        finally:
            lock.release()

    def close(self) -> None:
        """Close every connection. No connection can be opened afterwards."""
        self._closed = True
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _connect(self, login: Login, purpose: Purpose) -> Connection:
        return self._retried(login, lambda: self._connect_once(login, purpose))

    def _retried(self, login: Login, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``, and retry it when an overloaded sshd drops the connection.

        Raises TransportError.
        """
        attempts = 1 if deadline.bounded() else self._limits.attempts
        retrying = Retrying(
            retry=retry_if_exception_type(_Dropped),
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=0.3, max=3.0),
            reraise=True,
        )
        try:
            return retrying(attempt)
        except _Dropped as error:
            raise TransportError(
                login.name,
                "refused",
                f"the connection was dropped {attempts} times before login ({error}). sshd may limit "
                "bursts (MaxStartups). From OpenSSH 9.8 on sshd blocks an address for a while after failed "
                "logins (PerSourcePenalties). Or the server is not an sshd. Next: wait a minute and try "
                "again",
            ) from error

    def _connect_once(self, login: Login, purpose: Purpose) -> Connection:
        limits = self._limits
        # Open the bastion first: two connects of one thread must never wait for each other's slot.
        gateway = self._connection(login.via, purpose) if login.via else None
        with self._connecting:
            sock = self._socket(login, gateway)
            try:
                return Connection(login.name, self._log_in(login, sock), limits.sessions)
            except BaseException:
                sock.close()
                raise

    def _socket(self, login: Login, gateway: Connection | None) -> socket.socket | paramiko.Channel:
        if gateway is None:
            return _dial(login.name, login.address, login.port, self._connect_s, self._limits.silent_s)
        return gateway.tunnel(login.name, login.address, login.port, self._connect_s)

    def _log_in(self, login: Login, sock: socket.socket | paramiko.Channel) -> paramiko.SSHClient:
        connect_s, trust = self._connect_s, self._trust(login)
        # Lazy, with an empty ssh configuration: read nothing of the machine or the user.
        config = fabric.Config(
            lazy=True, overrides={"load_ssh_configs": False}, ssh_config=paramiko.SSHConfig()
        )
        opener = fabric.Connection(
            login.address,
            user=login.user,
            port=login.port,
            config=config,
            connect_kwargs={
                "sock": sock,
                "pkey": trust.key,
                "allow_agent": False,
                "look_for_keys": False,
                "timeout": connect_s,
                "banner_timeout": connect_s,
                "auth_timeout": connect_s,
                "channel_timeout": connect_s,
                "transport_factory": _fast_transport,
            },
        )
        client: paramiko.SSHClient = opener.client
        client.set_missing_host_key_policy(Reject())
        for pins in trust.known_hosts:
            client.load_system_host_keys(str(pins))
        begun = time.monotonic()
        try:
            opener.open()
        except (paramiko.SSHException, OSError, EOFError) as error:
            with suppress(Exception):
                client.close()
            raise self._login_error(login, error, connect_s, time.monotonic() - begun) from error
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(self._limits.keepalive_s)
        return client

    def _trust(self, login: Login) -> Trust:
        """Return the checked key and pins of a login. Raises TransportError if they cannot be trusted."""
        wanted = (login.key, login.known_hosts)
        with self._lock:
            found = self._trusted.get(wanted)
        if found is None:
            try:
                found = load(login.key, *login.known_hosts)
            except UsageError as error:
                raise TransportError(login.name, "denied", str(error)) from error
            with self._lock:
                self._trusted[wanted] = found
        return found

    def _login_error(self, login: Login, error: Exception, connect_s: float, waited_s: float) -> Exception:
        """Return the error for a failed login.

        connect_s: the time limit of each wait of the login. waited_s: how long the login took.
        """
        host, pins = login.name, " or ".join(login.known_hosts)
        if isinstance(error, UnknownHostKey):
            why = f"{error}; check that fingerprint at the host's console, then pin it in {pins}"
            return TransportError(host, "denied", why)
        if isinstance(error, paramiko.BadHostKeyException):
            why = (
                f"host key changed: the host shows {fingerprint(error.key)}, {pins} has "
                f"{fingerprint(error.expected_key)}; another machine may have the address {login.address}. "
                "Next: find out which key is right"
            )
            return TransportError(host, "denied", why)
        if isinstance(error, paramiko.AuthenticationException):
            why = f"login as {login.user} with key {login.key} refused ({error})"
            return TransportError(host, "denied", f"{why}. Needed: the key in that account's authorized_keys")
        # paramiko reports a late login in several ways, always after the whole limit.
        if waited_s >= connect_s or isinstance(error, TimeoutError):
            return TransportError(host, "timeout", f"no ssh login within {connect_s:.3g} s")
        if _dropped(error):
            return _Dropped(str(error) or "connection closed")
        return TransportError(host, "failed", f"ssh login failed: {error}")


_AES_GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


def _fast_transport(*args: Any, **kwargs: Any) -> paramiko.Transport:
    """Return a transport whose first cipher is AES-GCM (OpenSSH 6.2, 2013).

    One pass in C decrypts and authenticates, so disks are read faster.
    """
    transport = OrderedTransport(*args, **kwargs)
    options = transport.get_security_options()
    options.ciphers = _AES_GCM + tuple(cipher for cipher in options.ciphers if cipher not in _AES_GCM)
    return transport


def _dropped(error: Exception) -> bool:
    """Return whether an error shows that sshd has too many new connections (MaxStartups).

    sshd then drops a connection before the key exchange ends.
    """
    return isinstance(error, EOFError | ConnectionError) or "banner" in str(error)


def _dial(host: str, address: str, port: int, connect_s: float, silent_s: float) -> socket.socket:
    """Return a connected socket that sends small requests without delay.

    The connection breaks when sent data stays unacknowledged for ``silent_s`` seconds. Raises TransportError.
    """
    try:
        sock = socket.create_connection((address, port), timeout=connect_s)
    except OSError as error:
        raise TransportError(
            host, socket_cause(error), f"cannot connect to {address}:{port}: {socket_text(error)}"
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silent_s * 1000))
    return sock
