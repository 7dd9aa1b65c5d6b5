"""Facts about a service's surroundings on its host, from ``zkm-host surroundings``.

The surroundings are the service's process, its network namespace, and other software on the host that manages
programs or files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.hosts.facts import keyvalue
from zkmigrate.hosts.facts.status import parsed
from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Look

_PROCESS = re.compile(r"([0-9]{1,10}) (net:\[[0-9]+\]|-) (.+)")
_COUNT = re.compile(r"([0-9]{1,9}) ([0-9]{1,9})")


@dataclass(frozen=True)
class Process:
    """A process on a host.

    netns: its network namespace from ``/proc/PID/ns/net``, ``-`` if unreadable. name: the name of its
    command.
    """

    pid: int
    netns: str
    name: str


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of one service on its host.

    netns: the network namespace in which zkm-host sees sockets and sets rules. listeners: the processes in it
    that listen on the service's port. main: the unit's main process.

    users: the numbers of the users as which the listeners run.

    keepers: software that manages other programs or files, as ``process PID NAME``, ``unit NAME`` or ``cron
    FILE``. slow_fsyncs: how many lines of the unit's journal since the boot report a slow fsync, and how many
    of the newest lines were read; None without a journal.
    """

    netns: str
    listeners: tuple[Process, ...] = ()
    main: Process | None = None
    keepers: tuple[str, ...] = ()
    slow_fsyncs: tuple[int, int] | None = None
    users: tuple[int, ...] = ()


def surroundings(look: Look, host: str, unit: str, port: int) -> Reading[Surroundings]:
    """Read the surroundings of a service. unit: ``-`` if systemd does not run it."""
    return parsed(look.zkm(host, "surroundings", unit, str(port)), parse_surroundings)


def parse_surroundings(text: str) -> Surroundings:
    """Parse the output of ``zkm-host surroundings``.

    Its lines are ``netns=``, ``listener=PID NETNS NAME``, ``user=UID``, ``main=PID NETNS NAME``, ``keeper=``
    and ``slow_fsyncs=N OF``. Raises ValueError for any other line, KeyError without ``netns=``.
    """
    single: dict[str, str] = {}
    listeners: list[Process] = []
    keepers: list[str] = []
    users: list[int] = []
    for line in keyvalue.lines(text):
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"not key=value: {line[:80]!r}")
        if key == "listener":
            listeners.append(_process(value))
        elif key == "keeper":
            keepers.append(value)
        elif key == "user":
            users.append(int(value))
        else:
            single[key] = value
    return Surroundings(
        single["netns"],
        tuple(listeners),
        _process(single["main"]) if "main" in single else None,
        tuple(keepers),
        _counted(single),
        tuple(users),
    )


def _process(value: str) -> Process:
    match = _PROCESS.fullmatch(value)
    if match is None:
        raise ValueError(f"not a process: {value[:80]!r}")
    return Process(int(match[1]), match[2], match[3])


def _counted(values: Mapping[str, str]) -> tuple[int, int] | None:
    if "slow_fsyncs" not in values:
        return None
    match = _COUNT.fullmatch(values["slow_fsyncs"])
    if match is None:
        raise ValueError(f"slow_fsyncs={values['slow_fsyncs']!r} is not two numbers")
    return int(match[1]), int(match[2])
