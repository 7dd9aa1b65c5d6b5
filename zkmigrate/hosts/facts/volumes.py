"""Facts about the volumes that hold given directories of a host, from ``df``.

Format: POSIX.1-2017, df, "STDOUT" with ``-P``: a header, then one line for each operand with the file
system's name, total, used and available blocks, percentage and mount point. ``-k`` sets blocks of 1024 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from zkmigrate.hosts.facts import keyvalue
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Volume

DF = ("df", "-Pk", "--")
"""The command, without the directories that follow it."""

PLAIN = re.compile(r"/[A-Za-z0-9._/@%+=,:-]*")
"""The form of a directory that may be part of the command. Brokers report the names, so they are not trusted.
"""

_LINE = re.compile(r".*\S\s+([0-9]+)\s+[0-9]+\s+([0-9]+)\s+(?:[0-9]+%|-)\s+(/.*)")
_BLOCK = 1024


def parse(text: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
    """Parse the output of ``DF`` for these paths into one volume per path."""
    lines = keyvalue.lines(text)[1:]
    found = [_LINE.fullmatch(line) for line in lines]
    if len(found) != len(paths) or not all(found):
        return Unknown("garbled", f"cannot parse the answer {text[-120:]!r} of df about {', '.join(paths)}")
    return Seen(
        {
            path: Volume(one[3], int(one[1]) * _BLOCK, int(one[2]) * _BLOCK)
            for path, one in zip(paths, found, strict=True)
            if one
        }
    )
