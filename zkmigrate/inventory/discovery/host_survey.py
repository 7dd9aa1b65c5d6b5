"""Find the ZooKeeper and Kafka processes of a host and their systemd units.

One POSIX sh script reads ``/proc`` and asks systemd, without root. Each line of its answer is a word and a
text, so an argument may contain anything but a line end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.hosts.facts.servers import SERVERS, Server, starts
from zkmigrate.hosts.facts.start_command import (
    Program,
    StartCommands,
    shown_properties,
    start_commands,
    started,
)

_MAINS = " ".join(f"-e {main}" for server in SERVERS for main in server.mains)

SCRIPT = r"""
LC_ALL=C; export LC_ALL
show() {
  echo "unit $1"
  systemctl show -p LoadState,User,Group,EnvironmentFiles,Environment,WorkingDirectory,ExecStart "$1" \
    2>/dev/null | sed 's/^/show /'
}
echo "host $(uname -n)"
for p in "${ZKM_PROC:-/proc}"/[0-9]*; do
  grep -qsaF MAINS "$p/cmdline" || continue
  u=$(sed -n 's#^[0-9]*:[^:]*:.*/\([^/]*\.service\).*#\1#p' "$p/cgroup" 2>/dev/null | head -n 1)
  echo "process $(stat -c '%U %G' "$p" 2>/dev/null) $u"
  echo "pid ${p##*/} $(sed -n 's/^PPid:[[:space:]]*//p' "$p/status" 2>/dev/null)"
  tr '\0' '\n' <"$p/cmdline" | sed 's/^/arg /'
  [ -z "$u" ] || show "$u"
done
{
  systemctl list-unit-files --no-legend --type=service '*zookeeper*' 'zk*' '*kafka*' 2>/dev/null
  systemctl list-units --all --plain --no-legend --type=service '*zookeeper*@*' 'zk*@*' '*kafka*@*' \
    2>/dev/null
} |
  while read -r u _; do case $u in *@.service) ;; *) show "$u" ;; esac; done
""".replace("MAINS", _MAINS)


@dataclass(frozen=True)
class Process:
    """A running JVM.

    main: its main class. config: the first argument after the class, else "". unit: its systemd unit. parent:
    id of the process that started it.
    """

    main: str
    config: str
    user: str
    group: str
    unit: str
    pid: int = 0
    parent: int = 0


@dataclass(frozen=True)
class Unit:
    """A loaded systemd unit, from ``systemctl show``."""

    name: str
    user: str = ""
    group: str = ""
    start: StartCommands = field(default_factory=StartCommands)

    def programs(self, more: Mapping[str, str] | None = None) -> tuple[Program, ...]:
        """Return the programs that the unit's commands start.

        more: the variables of its environment files.
        """
        variables = {**self.start.variables, **(more or {})}
        found = (started(command, variables, self.start.directory) for command in self.start.commands)
        return tuple(program for one in found for program in one.programs)


@dataclass(frozen=True)
class HostSurvey:
    """The ZooKeeper and Kafka processes and units of a host.

    name: the host's own name.
    """

    name: str
    processes: tuple[Process, ...] = ()
    units: Mapping[str, Unit] = field(default_factory=dict)

    def running(self, server: Server) -> tuple[Process, ...]:
        """Return the processes of this kind of server.

        A wrapper that has the same words and started one of them is left out.
        """
        found = [process for process in self.processes if process.main in server.mains]
        parents = {process.parent for process in found}
        return tuple(process for process in found if process.pid not in parents or not process.pid)

    def process(self, server: Server) -> Process | None:
        """Return the only process of this kind of server, or None if there are none or several."""
        found = self.running(server)
        return found[0] if len(found) == 1 else None

    def unit(self, server: Server) -> Unit | None:
        """Return the unit of the only process of this kind of server.

        Without a process it is the only unit that starts such a server, or else the only one with its name.
        """
        process = self.process(server)
        if process is not None:
            return self.units.get(process.unit)
        starting = [u for u in self.units.values() if starts(server, u.programs())]
        named = [u for u in self.units.values() if server.word in u.name]
        return next((found[0] for found in (starting, named) if len(found) == 1), None)


def parse(text: str) -> HostSurvey:
    """Parse the script's answer. Raises ValueError."""
    name, processes, units = "", list[Process](), dict[str, Unit]()
    owner, ids, arguments = "", "", list[str]()
    shown: list[str] = []
    current = ""

    def finish_block() -> None:
        nonlocal owner, ids, current
        if owner and (made := _process(owner, ids, arguments)) is not None:
            processes.append(made)
        properties = shown_properties(shown)
        if current and properties.get("LoadState") == "loaded":
            units[current] = _unit(current, properties)
        owner, ids, current = "", "", ""
        arguments.clear()
        shown.clear()

    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "host":
            name = rest.strip()
        elif word == "process":
            finish_block()
            owner = rest
        elif word == "pid":
            ids = rest
        elif word == "arg":
            arguments.append(rest)
        elif word == "unit":
            finish_block()
            current = rest.strip()
        elif word == "show":
            shown.append(rest)
    finish_block()
    if not name:
        raise ValueError(
            f"no host name in {text[:80]!r}. Check whether the login shell prints text of its own"
        )
    return HostSurvey(name, tuple(processes), units)


def _process(owner: str, ids: str, arguments: list[str]) -> Process | None:
    found = [(server, rest) for server in SERVERS if (rest := server.arguments(arguments)) is not None]
    if not found:  # the survey's own shell, a tool, an editor
        return None
    rest = found[0][1]
    user, group, unit = [*owner.split(), "", "", ""][:3]
    pid, parent = [int(text) if text.isdecimal() else 0 for text in [*ids.split(), "", ""][:2]]
    main = arguments[len(arguments) - len(rest) - 1]
    return Process(main, rest[0] if rest else "", user, group, unit, pid, parent)


def _unit(name: str, shown: Mapping[str, str]) -> Unit:
    return Unit(name, shown.get("User", ""), shown.get("Group", ""), start_commands(shown))
