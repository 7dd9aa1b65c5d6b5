"""Facts about the operations of a run that a host has recorded, from zkm-host's ``ops`` and ``op``.

The host records each operation before its effect and keeps the record until uninstall. If the journal is
lost, this is the best record of what was applied and undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkmigrate.hosts.facts import keyvalue
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way

_FILES = ("put", "edit", "move-aside")
_UNDOES = ("restore", "discard")
_ID_END = re.compile(r"\.(back)?([0-9]{1,15})\.([0-9]{1,6})$")


@dataclass(frozen=True)
class Operation:
    """One operation of a step on one host.

    id: from ``engine.step_names.operation_id``. step: ``stage.step``. leg: the number of the wave. number:
    the number of the change in that wave. done: whether the host finished it. path: the file of a ``put``,
    ``edit`` or ``move-aside``. undoes: the id of the operation that a ``restore`` or ``discard`` undoes.
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
    """Return the recorded operations of these steps (``stage.step``) on a host, ordered by wave and change.

    The result is empty if this run did nothing there, or if the program and its record were removed.
    """
    listed = look.zkm(host, "ops")
    if not isinstance(listed, Seen):
        return listed
    steps = tuple(steps)
    found = []
    for line in keyvalue.lines(listed.value):
        id, _, rest = line.partition(" ")
        verb, _, rc = rest.partition(" ")
        if not rc:
            return Unknown("garbled", f"{host}: cannot parse the answer to ops: {line[:120]!r}")
        step = next((s for s in steps if id.startswith(f"{s}.")), "")
        ends = _ID_END.search(id)
        if not step or ends is None:
            continue
        detail = look.zkm(host, "op", id) if verb in (*_FILES, *_UNDOES) else Seen(f"verb {verb} -\n")
        if not isinstance(detail, Seen):
            return detail
        words = detail.value.split("\n", 1)[0].split(" ")
        if len(words) < 3 or words[:2] != ["verb", verb]:
            return Unknown("garbled", f"{host}: cannot parse the answer to op {id}: {detail.value[:120]!r}")
        way = Way.BACK if ends[1] else Way.FORWARD
        path = words[2] if verb in _FILES else ""
        undoes = words[2] if verb in _UNDOES else ""
        leg, number = int(ends[2]), int(ends[3])
        found.append(Operation(id, host, step, way, leg, number, verb, rc == "0", path, undoes))
    return Seen(tuple(sorted(found, key=lambda op: (op.leg, op.number))))


def not_undone(operations: Iterable[Operation], steps: Sequence[str]) -> tuple[Operation, ...]:
    """Return the operations of the way forward that are not undone, in the given order.

    steps: all steps in the playbook's order. A file operation is undone when its file was put back. Any other
    operation is undone when its step or an earlier step was undone later on the same host. The reason: undo
    starts at the last step and skips steps that the host undid by itself.
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
