"""The kernel rules that arm, fence and cut set on a host, as zkm-host prints them.

``plan`` shows the rules of hosts on which nothing is installed yet. For that, zkm-host runs on this machine
with ``--print``: it neither changes nor reads anything on this machine, and needs only the shell.
"""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.resources import as_file, files

from zkmigrate.errors import HostError

_LIMIT_S = 60.0


@cache
def lines(spec: str, verb: str, *ttl_ms: int) -> tuple[str, ...]:
    """Return the kernel rules that a verb sets on a host, one line each.

    spec: the text that ``arm`` takes. ttl_ms: the lease in milliseconds, for fence and cut. The rules contain
    TAG instead of the tag in names of chains and sets, OWN instead of the host's addresses, and 22 as sshd's
    port. Raises HostError if zkm-host rejects the spec or cannot run.
    """
    words = ("--print", verb, *map(str, ttl_ms))
    try:
        with as_file(files(__package__) / "zkm-host") as program:
            done = subprocess.run(
                ["/bin/sh", str(program), *words],
                input=spec,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(f"cannot run zkm-host {' '.join(words)}: {error}") from None
    if done.returncode:
        raise HostError(done.stderr.strip())
    rules = (line for line in done.stdout.splitlines() if line)
    return tuple(line for line in rules if not line.startswith(("phase ", "killed=")))
