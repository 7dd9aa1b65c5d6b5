"""The ssh transport of a run: opens, keeps and reopens connections to the hosts of the inventory.

Fabric builds the clients, paramiko channels do the work. What fabric leaves open is closed here: host keys
are verified against the inventory's known_hosts, and what an ssh_config adds that the inventory names; no
other ssh configuration, key or agent is used; sockets are ours (TCP_NODELAY, TCP_USER_TIMEOUT), every connect
and command has a deadline, and at most ``Limits.connects`` hosts are being connected to at a time (sshd's
MaxStartups drops the rest of a burst). Behind a bastion each lane has one connection to it, which carries all
connections of that lane. Only connects are retried, and only those that an overloaded sshd dropped; a command
never is.
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
from zkmigrate.hosts.transport.connection import Connection, Output
from zkmigrate.hosts.transport.failure import TransportError, socket_cause, socket_text
from zkmigrate.hosts.transport.route import Hosts, Place, Routes
from zkmigrate.hosts.transport.trust import HostKey, Reject, Trust, UnknownHostKey, load, pinned, shown

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what matters is in the errors

T = TypeVar("T")

Lane: TypeAlias = Literal["looks", "steps", "watch"]
"""Who uses a connection. Each has its own, so that a large read never delays a lease renewal."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the transport: seconds and counts."""

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
    """The server closed the connection before it said who it is: it has too many at once."""


class Transport:
    """Connections to every host of one inventory, opened on demand and held open until ``close``."""

    def __init__(self, hosts: Hosts, limits: Limits = Limits()) -> None:
        """Reads the key and known_hosts files; UsageError when either cannot be trusted. Where the inventory
        says nothing of ssh, no host is reached, and whoever asks one is told so."""
        self._limits = limits
        self._routes = Routes(hosts)
        self._trusted: dict[tuple[str, tuple[str, ...]], Trust] = {}
        with suppress(InventoryError):
            key, pins = hosts.ssh.key, (hosts.ssh.known_hosts,)
            self._trusted[key, pins] = load(key, *pins)
        self._connecting = threading.BoundedSemaphore(limits.connects)
        self._lock = threading.Lock()
        self._locks: dict[tuple[Place, str], threading.Lock] = {}
        self._open: dict[tuple[Place, str], Connection] = {}
        self._closed = False

    def exec(
        self, host: str, argv: Sequence[str], stdin: bytes = b"", deadline_s: float | None = None
    ) -> Output:
        """Run a command on a host, whatever its exit code. Raises TransportError."""
        wait = self._limits.command_s if deadline_s is None else deadline_s
        return self.connection(host).run(argv, stdin, deadline.remaining(wait), self._limits.output)

    def read(self, host: str, path: str, limit: int = 1 << 20) -> bytes:
        """A whole file by SFTP as the ssh account. OSError as the host says, TransportError."""
        return self.connection(host).read_file(path, limit, self.file_s)

    @property
    def file_s(self) -> float:
        """Seconds that one SFTP request may take."""
        return deadline.remaining(self._limits.file_s)

    @property
    def _connect_s(self) -> float:
        """Seconds that one wait on the way to a login may take."""
        return deadline.remaining(self._limits.connect_s)

    def user(self, host: str) -> str:
        """The account that is logged in to on a host. Raises TransportError."""
        return self._routes.to(host).user

    def connection(self, host: str, lane: Lane = "looks") -> Connection:
        """The open connection to a host, reconnected when it broke. Raises TransportError."""
        return self._held(self._routes.to(host), lane)

    def unpinned(self, host: str) -> list[HostKey]:
        """The host keys that are not pinned yet on the way to a host and at it, as they are shown now.

        At most one: what lies behind a bastion without a pin cannot be asked. Raises TransportError.
        """
        way: list[Place] = []
        place: Place | None = self._routes.to(host)
        while place is not None:
            way.insert(0, place)
            place = place.via
        for stop in way:
            if not any(pinned(pins, stop.pin) for pins in self._trust(stop).known_hosts):
                return [HostKey(stop.name, stop.pin, self._undropped(stop, partial(self._shown, stop)))]
        return []

    def _shown(self, place: Place) -> paramiko.PKey:
        """The key that a host shows; nothing is logged in to."""
        limits = self._limits
        gateway = self._held(place.via, "looks") if place.via else None
        with self._connecting:
            session = paramiko.Transport(self._socket(place, gateway))
            try:
                session.banner_timeout = limits.connect_s
                session.start_client(timeout=limits.connect_s)
                return session.get_remote_server_key()
            except (paramiko.SSHException, OSError, EOFError) as error:
                if _dropped(error):
                    raise _Dropped(str(error) or "connection closed") from error
                raise TransportError(place.name, "failed", f"shows no host key: {error}") from error
            finally:
                session.close()

    def _held(self, place: Place, lane: Lane) -> Connection:
        key = (place, lane)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        if not lock.acquire(timeout=deadline.remaining(math.inf) if deadline.bounded() else -1):
            raise TransportError(place.name, "timeout", "connecting to it has not ended yet")
        try:
            found = self._open.get(key)
            if found is not None and found.alive:
                return found
            if found is not None:
                found.close()
            if self._closed:
                raise TransportError(place.name, "failed", "the transport has been closed")
            opened = self._connect(place, lane)
            self._open[key] = opened
            return opened
        finally:
            lock.release()

    def close(self) -> None:
        """Close every connection; nothing can be opened afterwards."""
        self._closed = True
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _connect(self, place: Place, lane: Lane) -> Connection:
        return self._undropped(place, lambda: self._connect_once(place, lane))

    def _undropped(self, place: Place, attempt: Callable[[], T]) -> T:
        """What an attempt gives, tried again where an overloaded sshd dropped it. Raises TransportError."""
        attempts = 1 if deadline.bounded() else self._limits.attempts
        tries = Retrying(
            retry=retry_if_exception_type(_Dropped),
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=0.3, max=3.0),
            reraise=True,
        )
        try:
            return tries(attempt)
        except _Dropped as error:
            raise TransportError(
                place.name,
                "refused",
                f"the connection was dropped {attempts} times before login ({error}); sshd may "
                "refuse bursts (MaxStartups) or this address, or what answers there is no sshd",
            ) from error

    def _connect_once(self, place: Place, lane: Lane) -> Connection:
        limits = self._limits
        # The bastion is opened first: two connects of one thread must never wait for each other's place.
        gateway = self._held(place.via, lane) if place.via else None
        with self._connecting:
            sock = self._socket(place, gateway)
            try:
                return Connection(place.name, self._login(place, sock), limits.sessions)
            except BaseException:
                sock.close()
                raise

    def _socket(self, place: Place, gateway: Connection | None) -> socket.socket | paramiko.Channel:
        if gateway is None:
            return _dial(place.name, place.address, place.port, self._connect_s, self._limits.silent_s)
        return gateway.tunnel(place.name, place.address, place.port, self._connect_s)

    def _login(self, place: Place, sock: socket.socket | paramiko.Channel) -> paramiko.SSHClient:
        connect_s, trust = self._connect_s, self._trust(place)
        # Lazy and with an empty ssh configuration: nothing of the machine or the user is read.
        config = fabric.Config(
            lazy=True, overrides={"load_ssh_configs": False}, ssh_config=paramiko.SSHConfig()
        )
        opener = fabric.Connection(
            place.address,
            user=place.user,
            port=place.port,
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
                "transport_factory": _quick,
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
            raise self._refusal(place, error, connect_s, time.monotonic() - begun) from error
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(self._limits.keepalive_s)
        return client

    def _trust(self, place: Place) -> Trust:
        """The checked key and pins of a place. Raises TransportError where they cannot be trusted."""
        wanted = (place.key, place.known_hosts)
        with self._lock:
            found = self._trusted.get(wanted)
        if found is None:
            try:
                found = load(place.key, *place.known_hosts)
            except UsageError as error:
                raise TransportError(place.name, "denied", str(error)) from error
            with self._lock:
                self._trusted[wanted] = found
        return found

    def _refusal(self, place: Place, error: Exception, connect_s: float, waited_s: float) -> Exception:
        """What a failed login, which had ``connect_s`` for each of its waits, means to the operator."""
        host, pins = place.name, " or ".join(place.known_hosts)
        if isinstance(error, UnknownHostKey):
            why = f"{error}; check that fingerprint at the host's console, then pin it in {pins}"
            return TransportError(host, "denied", why)
        if isinstance(error, paramiko.BadHostKeyException):
            why = (
                f"host key changed: it shows {shown(error.key)}, {pins} has "
                f"{shown(error.expected_key)}; another machine may answer at {place.address}: find out first"
            )
            return TransportError(host, "denied", why)
        if isinstance(error, paramiko.AuthenticationException):
            why = f"login as {place.user} with key {place.key} refused ({error})"
            return TransportError(host, "denied", f"{why}; that account's authorized_keys must hold the key")
        # paramiko reports a login that takes too long in several ways, each after the whole time.
        if waited_s >= connect_s or isinstance(error, TimeoutError):
            return TransportError(host, "timeout", f"no ssh login within {connect_s:.3g} s")
        if _dropped(error):
            return _Dropped(str(error) or "connection closed")
        return TransportError(host, "failed", f"ssh login failed: {error}")


_AES_GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


def _quick(*args: Any, **kwargs: Any) -> paramiko.Transport:
    """paramiko's transport, but for AES-GCM (OpenSSH 6.2 of 2013) as the first cipher of its choice: one pass
    in C both deciphers and authenticates, and a disk is read faster."""
    transport = paramiko.Transport(*args, **kwargs)
    options = transport.get_security_options()
    options.ciphers = _AES_GCM + tuple(cipher for cipher in options.ciphers if cipher not in _AES_GCM)
    return transport


def _dropped(error: Exception) -> bool:
    """Before the key exchange ends, a dropped connection is all that can be seen of a full MaxStartups."""
    return isinstance(error, EOFError | ConnectionError) or "banner" in str(error)


def _dial(host: str, address: str, port: int, connect_s: float, silent_s: float) -> socket.socket:
    """A connected socket of our own: no delay for small requests, broken once data stays unacknowledged."""
    try:
        sock = socket.create_connection((address, port), timeout=connect_s)
    except OSError as error:
        raise TransportError(
            host, socket_cause(error), f"cannot connect to {address}:{port}: {socket_text(error)}"
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silent_s * 1000))
    return sock
