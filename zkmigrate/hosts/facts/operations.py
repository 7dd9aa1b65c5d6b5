"""What a host itself knows of this run's operations: zkm-host's ``ops`` and ``op``.

The host writes each operation down before its effect and keeps it until it is uninstalled, so with the
journal lost this is the best witness of what was applied and what was undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.model.step import Way

_FILES = ("put", "move-aside")
_UNDOES = ("restore", "discard")
_ENDS = re.compile(r"\.(back)?([0-9]{1,15})\.([0-9]{1,6})$")


@dataclass(frozen=True)
class Operation:
    """One operation of a step on one host.

    id: as ``engine.apply.operation_id`` names it. step: ``stage.step``. leg, number: which wave of the run
    and which change of it. done: the host finished it. path: of a ``put`` or ``move-aside``. undoes: the id
    that a ``restore`` or ``discard`` names.
    """

    id: str
    host: str
    step: str
    way: Way
    leg: int
    number: int
    verb: str
    done: bool
    path: str = ""
    undoes: str = ""


def operations(look: Look, host: str, steps: Iterable[str]) -> Reading[tuple[Operation, ...]]:
    """Every operation of these steps (``stage.step``) on the host, oldest first; others are left out.

    Empty where nothing was ever done by this run, and where the program and its record have been removed.
    """
    listed = look.zkm(host, "ops")
    if not isinstance(listed, Seen):
        return listed
    steps = tuple(steps)
    found = []
    for line in listed.value.splitlines():
        id, _, rest = line.partition(" ")
        verb, _, rc = rest.partition(" ")
        if not rc:
            return Unknown("garbled", f"{host}: ops answered {line[:120]!r}")
        step = next((s for s in steps if id.startswith(f"{s}.")), "")
        ends = _ENDS.search(id)
        if not step or ends is None:
            continue
        detail = look.zkm(host, "op", id) if verb in (*_FILES, *_UNDOES) else Seen(f"verb {verb} -\n")
        if not isinstance(detail, Seen):
            return detail
        words = detail.value.split("\n", 1)[0].split(" ")
        if len(words) < 3 or words[:2] != ["verb", verb]:
            return Unknown("garbled", f"{host}: op {id} answered {detail.value[:120]!r}")
        way = Way.BACK if ends[1] else Way.FORWARD
        path = words[2] if verb in _FILES else ""
        undoes = words[2] if verb in _UNDOES else ""
        leg, number = int(ends[2]), int(ends[3])
        found.append(Operation(id, host, step, way, leg, number, verb, rc == "0", path, undoes))
    return Seen(tuple(sorted(found, key=lambda op: (op.leg, op.number))))


def standing(operations: Iterable[Operation], steps: Sequence[str]) -> tuple[Operation, ...]:
    """The operations of the way forward that are not undone, in the order given.

    steps: all steps in the playbook's order. A file is undone when it was put back. Anything else is undone
    when that step, or one before it, was walked back on the same host later: the way back comes from the end,
    and leaves steps alone that the host undid by itself.
    """
    operations = tuple(operations)
    restored = {(op.host, op.undoes) for op in operations if op.undoes and op.done}
    order = {step: number for number, step in enumerate(steps)}
    back = [op for op in operations if op.way is Way.BACK]

    def undone(op: Operation) -> bool:
        if op.verb in _FILES:
            return (op.host, op.id) in restored
        return any(b.host == op.host and b.leg > op.leg and order[b.step] <= order[op.step] for b in back)

    return tuple(op for op in operations if op.way is Way.FORWARD and not undone(op))
