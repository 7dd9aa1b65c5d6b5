"""What a host runs: its ZooKeeper and Kafka processes and their systemd units.

One POSIX sh script reads ``/proc`` and asks systemd, without root. Each line of its answer is a word and a
text, so an argument may hold anything but a line end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ZOOKEEPER = (
    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "org.apache.zookeeper.server.ZooKeeperServerMain",
)
KAFKA = ("kafka.Kafka",)

SCRIPT = r"""
LC_ALL=C; export LC_ALL
show() {
  echo "unit $1"
  systemctl show -p LoadState,User,Group,EnvironmentFiles,ExecStart "$1" 2>/dev/null | sed 's/^/show /'
}
echo "host $(uname -n)"
for p in "${ZKM_PROC:-/proc}"/[0-9]*; do
  grep -qsa -e org.apache.zookeeper.server -e kafka.Kafka "$p/cmdline" || continue
  u=$(sed -n 's#^[0-9]*:[^:]*:.*/\([^/]*\.service\).*#\1#p' "$p/cgroup" 2>/dev/null | head -n 1)
  echo "process $(stat -c '%U %G' "$p" 2>/dev/null) $u"
  tr '\0' '\n' <"$p/cmdline" | sed 's/^/arg /'
  [ -z "$u" ] || show "$u"
done
systemctl list-unit-files --no-legend --type=service '*zookeeper*' 'zk*' '*kafka*' 2>/dev/null |
  while read -r u _; do case $u in *@.service) ;; *) show "$u" ;; esac; done
"""

_PATH = re.compile(r"/[^\s;]+")


@dataclass(frozen=True)
class Process:
    """A JVM. main: its class. config: the first argument after it, else "". unit: its systemd unit."""

    main: str
    config: str
    user: str
    group: str
    unit: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unit:
    """A loaded systemd unit, from ``systemctl show``. environment: its EnvironmentFile= paths."""

    name: str
    user: str = ""
    group: str = ""
    environment: tuple[str, ...] = ()
    command: str = ""

    def config_after(self, mains: tuple[str, ...]) -> str:
        """The argument after the main class in its command line; "" without one."""
        words = self.command.split()
        for at, word in enumerate(words[:-1]):
            if word in mains and _PATH.fullmatch(words[at + 1]):
                return words[at + 1]
        return ""


@dataclass(frozen=True)
class HostSurvey:
    """name: the host's own name."""

    name: str
    processes: tuple[Process, ...] = ()
    units: Mapping[str, Unit] = field(default_factory=dict)

    def process(self, mains: tuple[str, ...]) -> Process | None:
        """The only process with such a main class; None for none or several."""
        found = [p for p in self.processes if p.main in mains]
        return found[0] if len(found) == 1 else None

    def unit(self, mains: tuple[str, ...], word: str) -> Unit | None:
        """The unit of that process; without a process the only unit that starts such a class or has that
        name."""
        process = self.process(mains)
        if process is not None:
            return self.units.get(process.unit)
        starting = [u for u in self.units.values() if any(main in u.command for main in mains)]
        named = [u for u in self.units.values() if word in u.name]
        return next((found[0] for found in (starting, named) if len(found) == 1), None)


def parse(text: str) -> HostSurvey:
    """Parse the script's answer. Raises ValueError."""
    name, processes, units = "", list[Process](), dict[str, Unit]()
    owner, arguments = "", list[str]()
    shown: dict[str, str] = {}
    current = ""

    def finish_block() -> None:
        nonlocal owner, current
        if owner and (made := _process(owner, arguments)) is not None:
            processes.append(made)
        if current and shown.get("LoadState") == "loaded":
            units[current] = _unit(current, shown)
        owner, current = "", ""
        arguments.clear()
        shown.clear()

    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "host":
            name = rest.strip()
        elif word == "process":
            finish_block()
            owner = rest
        elif word == "arg":
            arguments.append(rest)
        elif word == "unit":
            finish_block()
            current = rest.strip()
        elif word == "show":
            key, _, value = rest.partition("=")
            shown[key] = f"{shown[key]} {value}" if key in shown else value  # several files, several lines
    finish_block()
    if not name:
        raise ValueError(f"no host name in {text[:80]!r}; does the login shell print something of its own?")
    return HostSurvey(name, tuple(processes), units)


def _process(owner: str, arguments: list[str]) -> Process | None:
    mains = [(at, word) for at, word in enumerate(arguments) if word in (*ZOOKEEPER, *KAFKA)]
    if not mains:  # the survey's own shell, a tool, an editor
        return None
    at, main = mains[0]
    config = arguments[at + 1] if at + 1 < len(arguments) else ""
    user, group, unit = [*owner.split(), "", "", ""][:3]
    return Process(main, config, user, group, unit, tuple(arguments))


def _unit(name: str, shown: Mapping[str, str]) -> Unit:
    files = tuple(_PATH.findall(re.sub(r"\(ignore_errors=\w+\)", "", shown.get("EnvironmentFiles", ""))))
    command = re.search(r"argv\[\]=(.*?) ; ignore_errors", shown.get("ExecStart", ""))
    return Unit(name, shown.get("User", ""), shown.get("Group", ""), files, command[1] if command else "")
