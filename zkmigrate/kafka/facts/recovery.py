"""Read the log recovery of a starting broker, and parse time spans as systemd prints them.

After an unclean stop a broker recovers every log before it registers; half an hour is normal. Kafka 2.6 and
later count the loaded logs (LogManager: ``(312/800 loaded in DIR)``, later ``completed in``).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from zkmigrate.hosts.facts import keyvalue
from zkmigrate.hosts.facts.status import parsed
from zkmigrate.runbook.model.change import command_words
from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Look

_SPAN_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
           "month": 2629800.0, "y": 31557600.0}  # fmt: skip
"""Units of time spans in ``systemctl show`` (systemd.time(7))."""


@dataclass(frozen=True)
class Recovery:
    """The progress of a broker's log recovery.

    logs: logs loaded so far. of: logs in all. segments: segments recovered so far. All are 0 if the broker
    does not count.
    """

    logs: int
    of: int
    segments: int

    @property
    def words(self) -> str:
        """The progress as text, such as ``recovered 312 of 800 logs``; empty if the broker does not count."""
        return f"recovered {self.logs} of {self.of} logs" if self.of else ""


def recovery(look: Look, host: str, unit: str, commands: tuple[str, ...] = ()) -> Reading[Recovery]:
    """Read the log recovery of a starting broker.

    commands: as for ``hosts.facts.status.unit_status``.
    """
    return parsed(look.zkm(host, "recovery", unit, *command_words(commands)), parse_recovery)


def parse_recovery(text: str) -> Recovery:
    """Parse one line ``logs=N of=N segments=N``.

    Raises ValueError for a value that is not a whole number, or KeyError for a missing key.
    """
    values = keyvalue.words(text)
    counts = []
    for key in ("logs", "of", "segments"):
        if not re.fullmatch(r"[0-9]{1,9}", values[key]):
            raise ValueError(f"{key}={values[key][:40]!r} is not a whole number")
        counts.append(int(values[key]))
    return Recovery(*counts)


def parse_span(text: str) -> float:
    """Return the seconds in a time span such as ``1min 30s``; ``infinity`` is math.inf.

    Raises ValueError for any other text.
    """
    if text == "infinity":
        return math.inf
    total = 0.0
    for word in text.split():
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([a-z]+)", word)
        if match is None or match[2] not in _SPAN_S:
            raise ValueError(f"{text[:80]!r} is not a time span")
        total += float(match[1]) * _SPAN_S[match[2]]
    if not text.strip():
        raise ValueError("an empty time span")
    return total
