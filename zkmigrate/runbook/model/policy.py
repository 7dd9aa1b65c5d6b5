"""Write the policy of a host: what zkm-host may change there for one run, as text.

INSTALL puts it in a file of root's, and no verb of zkm-host writes that file. zkm-host refuses a change that
no line allows. Up to its last ``/`` a line is literal; after it ``*`` and ``?`` are wildcards. The lines:

- ``lock``: the run's lock, its copy of the journal, and putting back or deleting what it replaced before
- ``window``: the verbs from ``arm`` to ``finalize``, and the files staged for them
- ``put PATH MODE OWNER:GROUP``: write this file, with this mode and owner
- ``rewrite PATH``: write this file, which keeps the mode and owner that it has
- ``move-aside PATH``: rename this file or directory
- ``leftover PATTERN``: move such directories out of one of Kafka's log directories
- ``service UNIT ACTION``: do this with this service
- ``commands UNIT KEY=VALUE…``: the commands that stand for systemd, for this unit
- ``arm KEY=VALUE``: a line of the only spec that ``arm`` takes, beside ``rehearsal``; the spec may name fewer
  ``cut_ports``
"""

from __future__ import annotations

from collections.abc import Iterable

from zkmigrate.runbook.model.change import ServiceAction, command_words

LOCK, WINDOW = "lock", "window"

FREE_KEY = "rehearsal"
"""The only key of a spec whose value differs within a run: yes for the rehearsal, no for the cut-over."""

CUT_PORTS = "cut_ports"


def put(path: str, owner: str, mode: str = "0644") -> str:
    """Return the line that allows a file to be written with this owner (``user:group``) and mode."""
    return f"put {path} {mode} {owner}"


def rewrite(path: str) -> str:
    """Return the line that allows a file to be written that keeps its owner and mode."""
    return f"rewrite {path}"


def move_aside(path: str) -> str:
    """Return the line that allows a path to be renamed. Its last part may contain ``*``."""
    return f"move-aside {path}"


def leftover(pattern: str) -> str:
    """Return the line that allows directories to be moved out of Kafka's log directories.

    pattern: the whole path; ``*`` and ``?`` stand for any characters, also ``/``.
    """
    return f"leftover {pattern}"


def service(unit: str, actions: Iterable[ServiceAction], commands: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the lines that allow these actions. commands: as in the inventory's ``Service.commands``."""
    own = (f"commands {' '.join((unit, *command_words(commands)))}",) if commands else ()
    return (*(f"service {unit} {action}" for action in actions), *own)


def arm(spec: str) -> tuple[str, ...]:
    """Return the lines that allow this spec, whatever its ``FREE_KEY`` is."""
    return tuple(f"arm {line}" for line in spec.splitlines() if line.partition("=")[0] != FREE_KEY)


def covers(found: str, wanted: str) -> bool:
    """Return whether one policy equals another, except that it may have more ports of the cut.

    A server of source that does not answer hides its ports, so fewer of them may be seen later.
    """
    (kept, ports), (needed, asked) = _without_ports(found), _without_ports(wanted)
    return kept == needed and asked <= ports


def _without_ports(text: str) -> tuple[list[str], set[str]]:
    lines, ports = [], set[str]()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == f"arm {CUT_PORTS}":
            ports.update(value.split(","))
        else:
            lines.append(line)
    return lines, ports


def text(lines: Iterable[str]) -> str:
    """Return the content of the file."""
    return "".join(f"{line}\n" for line in lines)
