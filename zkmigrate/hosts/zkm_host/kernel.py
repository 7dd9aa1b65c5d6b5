"""What arm, fence and cut put into a host's kernel, as zkm-host itself says it.

``plan`` must show the rules of hosts on which nothing is installed yet. So the program says them here, with
``--print``: it acts on nothing, looks at nothing of this machine, and needs no tool but the shell.
"""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.resources import as_file, files

from zkmigrate.errors import HostError

_LIMIT_S = 60.0


@cache
def lines(spec: str, verb: str, *ttl_ms: int) -> tuple[str, ...]:
    """What ``verb`` makes on a host that is armed with ``spec``, the text that ``arm`` takes.

    ttl_ms: the lease, for fence and cut. TAG stands for what names chains and sets, OWN for the host's own
    addresses; sshd's port is taken for 22. HostError where zkm-host refuses the spec or cannot be run.
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
        raise HostError(f"zkm-host {' '.join(words)} cannot be run here: {error}") from None
    if done.returncode:
        raise HostError(done.stderr.strip())
    said = (line for line in done.stdout.splitlines() if line)
    return tuple(line for line in said if not line.startswith(("phase ", "killed=")))
