"""Reads hosts by ssh at their addresses, before there is an inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from zkmigrate.discovery import host_survey
from zkmigrate.discovery.host_survey import HostSurvey
from zkmigrate.errors import UsageError
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown

T = TypeVar("T")

FILE_LIMIT = 1 << 20
_AT_ONCE = 16
_SURVEY_S = 60.0


@dataclass(frozen=True)
class DirectHosts:
    """The transport's hosts without an inventory: each host's name is its address."""

    ssh: Ssh

    def address(self, name: str) -> str:
        """The name."""
        return name


class HostReader:
    """Reads hosts by ssh. source: hosts on which it never uses sudo."""

    def __init__(self, transport: Transport, source: Iterable[str] = ()) -> None:
        self._transport = transport
        self._plain = set(source)

    def survey(self, host: str) -> Reading[HostSurvey]:
        """What the host runs."""
        try:
            done = self._transport.exec(host, ["sh", "-c", host_survey.SCRIPT], deadline_s=_SURVEY_S)
            return Seen(host_survey.parse(done.text))
        except (TransportError, UsageError) as error:
            return unknown(error)
        except ValueError as error:
            return Unknown("garbled", f"{host}: {error}")

    def file(self, host: str, path: str) -> Reading[str]:
        """A small text file, through sudo where the account may not read it; without sudo on source."""
        try:
            return Seen(self._transport.read(host, path, FILE_LIMIT).decode("utf-8", "replace"))
        except FileNotFoundError:
            return Absent(path)
        except PermissionError:
            if host in self._plain:
                return Unknown("denied", f"{host}: {path}: the ssh account may not read it")
        except OSError as error:
            return Unknown("failed", f"{host}: {path}: {error}")
        except TransportError as error:
            return unknown(error)
        return self._through_sudo(host, path)

    def _through_sudo(self, host: str, path: str) -> Reading[str]:
        try:
            done = self._transport.exec(host, ["env", "LC_ALL=C", "sudo", "-n", "cat", "--", path])
        except TransportError as error:
            return unknown(error)
        if done.rc == 0:
            return Seen(done.text)
        absent = "No such file" in done.last_line
        return Absent(path) if absent else Unknown("denied", f"{host}: {path}: {done.last_line}")

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Ask several hosts at once; results in their order."""
        names = list(dict.fromkeys(hosts))
        with ThreadPoolExecutor(_AT_ONCE, "init") as pool:
            return dict(zip(names, pool.map(ask, names), strict=True))


def unknown(error: Exception) -> Unknown:
    """A failed question."""
    if isinstance(error, TransportError):
        return Unknown(error.cause, f"{error.host}: {error.why}")
    return Unknown("failed", str(error))
