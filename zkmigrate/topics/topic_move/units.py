"""Check which topics the units of mirror hosts copy, because a switch stops and starts whole units."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from zkmigrate.hosts.facts.start_command import start_commands
from zkmigrate.hosts.facts.status import HostFacts, host_facts
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.topics.topic_move.facts import backward_unit, forward_unit
from zkmigrate.topics.topic_move.section import mirror_hosts

_SPLIT = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)$")
"""The pattern of a variable whose value systemd splits into words, so that it may contain several options."""
_IN_WORD = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LINE = re.compile(r"""([A-Za-z_][A-Za-z0-9_]*)=("[^"'\\]*"|'[^"'\\]*'|[^"'\\]*)$""")
"""The pattern of a line in an EnvironmentFile that sets a single variable."""


@dataclass(frozen=True)
class UnitTopics:
    """The topics that a unit copies, as its command names them.

    unclear: the reason why there may be further topics; empty if all are known.
    """

    topics: frozenset[str]
    unclear: str = ""


def variables(text: str) -> dict[str, str] | None:
    """Return the variables that an EnvironmentFile of systemd sets, or None if they are not certain.

    They are not certain if the file has escapes, continued lines, or quotation marks within a value, because
    systemd has rules of its own for these.
    """
    lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] not in "#;"]
    matched = [_LINE.match(line) for line in lines]
    known = [one for one in matched if one is not None]
    if len(known) < len(lines) or "\\" in text:
        return None
    return {one[1]: one[2].strip("\"'") for one in known}


def _environment(look: Look, host: str, facts: HostFacts) -> dict[str, str]:
    """Return the variables that a unit's environment files set, or none if a file cannot be read.

    If several files set a variable, the last file wins.
    """
    found: dict[str, str] = {}
    for path in start_commands(facts.unit).files:
        told = look.file(host, path)
        if isinstance(told, Absent):
            continue
        values = variables(told.value.decode(errors="replace")) if isinstance(told, Seen) else None
        if values is None:
            return {}
        found |= values
    return found


def _expand(words: Iterable[str], values: Mapping[str, str]) -> Iterator[str]:
    """Yield the words with variables replaced by their values, as systemd does.

    A variable without a value stays as it is.
    """
    for word in words:
        split = _SPLIT.match(word)
        if split and split[1] in values:
            yield from values[split[1]].split()
        else:
            yield _IN_WORD.sub(lambda one: values.get(one[1], one[0]), word)


def unit_topics(reading: Reading[HostFacts], values: Mapping[str, str]) -> UnitTopics:
    """Return the topics that the command of a unit names.

    reading: the state of the unit, in which systemd shows the command. values: the unit's variables.
    """
    if not isinstance(reading, Seen):
        return UnitTopics(frozenset(), str(reading))
    shown = {"ExecStart": reading.value.unit.get("ExecStart", "")}
    arguments = (word for command in start_commands(shown).commands for word in command if word)
    words = " ".join(_expand(arguments, values)).replace("--topic=", "--topic ").split()
    named = {word.strip("\"'") for option, word in pairwise(words) if option == "--topic"}
    topics = frozenset(name for name in named if "$" not in name)
    hidden = sorted({*(named - topics), *filter(_SPLIT.match, words)})
    none = "the unit's command names no topic" if words else "systemd shows no command of the unit"
    unclear = f"the unit's command has {few(hidden)}" if hidden else "" if topics else none
    return UnitTopics(topics, unclear)


def read_unit_topics(c: Context, look: Look) -> dict[tuple[str, str], UnitTopics]:
    """Read the topics of the units of both directions on each mirror host.

    Returns the topics by host and unit.
    """
    units = forward_unit(c), backward_unit(c)
    told = look.each(
        mirror_hosts(c.inventory), lambda host: {unit: _read_unit(look, host, unit) for unit in units}
    )
    return {(host, unit): one for host, of_host in told.items() for unit, one in of_host.items()}


def _read_unit(look: Look, host: str, unit: str) -> UnitTopics:
    facts = host_facts(look, host, unit)
    return unit_topics(facts, _environment(look, host, facts.value) if isinstance(facts, Seen) else {})


def check_units(found: Mapping[tuple[str, str], UnitTopics], topics: Collection[str]) -> Iterator[Finding]:
    """Check that each unit copies only topics of the set.

    A command that cannot be read gives only a warning. found: the topics by host and unit.
    """
    for (host, unit), one in found.items():
        others = sorted(one.topics - {*topics})
        unknown = not others and one.unclear
        yield claim(
            "switch.unit-topics",
            "the mirror's unit copies only topics of the set",
            None if unknown else not others,
            target=f"{host}:{unit}",
            seen=one.unclear if unknown else f"the unit copies {few(others or sorted(one.topics))}",
            needed="only topics of the set, because the switch stops the unit with all its topics",
            severity=Severity.WARN if unknown else Severity.BLOCK,
        )


MEANINGS = meanings(
    """
    switch.unit-topics: A unit of the mirror copies topics that are not in the set, or its command does not
    name its topics. Cause: Two sets share the unit, or its ExecStart has a variable that no EnvironmentFile
    sets. The switch stops the unit with all its topics. To do: Give each set units of its own, in an
    inventory of its own. If the command names no topics, check that the unit copies no other topic, or name
    them with --topic in ExecStart.
    """
)
