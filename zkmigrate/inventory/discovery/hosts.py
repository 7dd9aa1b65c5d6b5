"""Read hosts by ssh at their addresses, before there is an inventory."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.servers import Server, works_in
from zkmigrate.hosts.facts.servers import config_of as config_named
from zkmigrate.hosts.facts.start_command import environment_of
from zkmigrate.hosts.transport import own_addresses
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.discovery import host_survey
from zkmigrate.inventory.discovery.draft import Found
from zkmigrate.inventory.discovery.host_survey import HostSurvey
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

T = TypeVar("T")

_PLACE = r"""
path=$1 proc=${ZKM_PROC:-/proc}
case $path in
  /*) ;;
  *) cd=$(readlink -- "$proc/$2/cwd") && [ "$cd" ] || exit 4; path=$cd/$path ;;
esac
case $path/ in
  *//* | */./* | */../*) readlink -f -- "$path" || exit 5 ;;
  *) if [ -L "$path" ] || [ -L "${path%/*}" ]; then readlink -f -- "$path" || exit 5; else echo "$path"; fi ;;
esac
"""
"""Shell script that prints a path without links. Exit code 4: the process's working directory is not
readable. Exit code 5: the path leads nowhere."""
_CLOSED = 4

FILE_LIMIT = 1 << 20
_AT_ONCE = 16
_SURVEY_S = 60.0


@dataclass(frozen=True)
class DirectHosts:
    """The hosts of a transport without an inventory, where each host's name is its address."""

    ssh: Ssh

    def address(self, name: str) -> str:
        """Return the name, which is the address."""
        return name


class HostReader:
    """A reader of hosts by ssh.

    source: hosts on which it never uses sudo.
    """

    def __init__(self, transport: Transport, source: Iterable[str] = ()) -> None:
        self._transport = transport
        self._plain = set(source)

    def survey(self, host: str) -> Reading[HostSurvey]:
        """Return the processes and units of a host."""
        try:
            done = self._transport.exec(host, ["sh", "-c", host_survey.SCRIPT], deadline_s=_SURVEY_S)
            return Seen(host_survey.parse(done.text))
        except (TransportError, UsageError) as error:
            return unknown(error)
        except ValueError as error:
            return Unknown("garbled", f"{host}: {error}")

    def file(self, host: str, path: str) -> Reading[str]:
        """Read a small text file.

        If the account may not read it, sudo is used, except on source.
        """
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

    def place(self, host: str, path: str, pid: int) -> Reading[str]:
        """Return the absolute path of a file that a process names, in the form that migration.yml accepts.

        The path has no links at its end, ``.`` or ``..``. If the account may not see it, sudo is used, except
        on source.
        """
        command = ["sh", "-c", _PLACE, "sh", path, str(pid)]
        try:
            done = self._transport.exec(host, command)
            if done.rc == _CLOSED and host not in self._plain:
                done = self._transport.exec(host, ["env", "LC_ALL=C", "sudo", "-n", *command])
        except TransportError as error:
            return unknown(error)
        if done.rc == 0 and (found := done.text.strip("\n")).startswith("/"):
            return Seen(found)
        if done.rc == _CLOSED:
            right = "only root or the account of that process may" if host in self._plain else done.last_line
            return Unknown(
                "denied", f"{host}: /proc/{pid}/cwd was not read, because {right or 'sudo may not'}"
            )
        return Unknown("failed", f"{host}: {path} does not exist")

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        """Return the addresses of a name as a host resolves it; Absent if it has none."""
        try:
            done = self._transport.exec(host, ["getent", "ahosts", name])
        except TransportError as error:
            return unknown(error)
        return own_addresses.from_getent(host, name, done)

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
        """Ask several hosts in parallel and return the results in the order of the hosts."""
        names = list(dict.fromkeys(hosts))
        with ThreadPoolExecutor(_AT_ONCE, "init") as pool:
            return dict(zip(names, pool.map(ask, names), strict=True))


def config_of(reader: HostReader, address: str, survey: HostSurvey, server: Server) -> Found[str]:
    """Find the config that a server runs with, or else the one that its unit starts it with."""
    many, process, unit = survey.running(server), survey.process(server), survey.unit(server)
    why = f"{len(many)} are running" if len(many) > 1 else "none is running"
    if process is not None and process.config:
        place = reader.place(address, process.config, process.pid)
        if isinstance(place, Seen):
            return Found(place.value, "argument of the running process")
        why = f"it runs with {process.config}: {place}"
    elif process is not None:
        why = "it runs without a config file"
    if unit is None:
        return Found(None, f"{why}, and no single unit starts it")
    variables: dict[str, str] = {}
    unread: list[str] = []
    for path in unit.start.files:
        text = reader.file(address, path)
        variables |= environment_of(text.value) if isinstance(text, Seen) else {}
        unread += [str(text)] if isinstance(text, Unknown) else []
    named = config_named(server, unit.programs(variables))
    if not named:
        lacks = f"; not read: {', '.join(unread)}" if unread else ""
        return Found(
            None, f"{why}, and the ExecStart of {unit.name} names no config file with an absolute path{lacks}"
        )
    place = reader.place(address, named, 0)
    return Found(
        place.value if isinstance(place, Seen) else posixpath.normpath(named), f"ExecStart of {unit.name}"
    )


def absolute(
    reader: HostReader, address: str, survey: Reading[HostSurvey], server: Server, path: str
) -> Reading[str]:
    """Return a path from a server's config in the form that migration.yml accepts.

    A relative path is resolved against the directory where the server works, or where its unit's command
    starts it.
    """
    if path.startswith("/"):
        odd = {".", "..", ""} & set(path.strip("/").split("/"))
        return reader.place(address, path, 0) if odd else Seen(path)
    if not isinstance(survey, Seen):
        return Unknown("failed", f"{address}: {path} is a relative path, and no process was found: {survey}")
    process, unit = survey.value.process(server), survey.value.unit(server)
    if process is not None and isinstance(place := reader.place(address, path, process.pid), Seen):
        return place
    directory = works_in(server, unit.programs()) if unit is not None else ""
    if not directory:
        why = "is a relative path, and the server's working directory is unknown"
        return Unknown("failed", f"{address}: {path} {why}")
    whole = posixpath.normpath(posixpath.join(directory, path))
    return place if isinstance(place := reader.place(address, whole, 0), Seen) else Seen(whole)


def unknown(error: Exception) -> Unknown:
    """Return a failed question as an Unknown reading."""
    if isinstance(error, TransportError):
        return Unknown(error.cause, f"{error.host}: {error.why}")
    return Unknown("failed", str(error))
