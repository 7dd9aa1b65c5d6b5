"""A test run that was killed leaves namespaces; the next one takes them down as it begins, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import namespaces
from tests.unit.zkm_net import eventually, need_root
from zkmigrate.lab.processes import ProcessId

ROOT = Path(__file__).parents[2]
STANDS = """
import subprocess, threading
from pathlib import Path
from tests.unit.zkm_net import net

def test_stands():
    with net() as made:
        inside = subprocess.Popen(made.inside("dest", "sleep", "1000"))
        part = Path(__file__).with_name("part")
        part.write_text(f"{made.prefix} {inside.pid}")
        part.rename(part.with_name("made"))
        threading.Event().wait()
"""


@dataclass(frozen=True)
class Apart:
    """A place with an empty /run/netns of its own, so that no run beside this one sweeps there. holder: a
    process in it."""

    holder: subprocess.Popen[bytes]

    @property
    def known(self) -> Path:
        return Path(f"/proc/{self.holder.pid}/root{namespaces.KNOWN}")

    def there(self) -> set[str]:
        return {path.name for path in self.known.glob("zkmu*")}

    def argv(self, *words: str) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-m", f"--wd={ROOT}", *words]

    def pytest(self, *words: str) -> list[str]:
        return self.argv(sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *words)

    def begin_a_run(self) -> None:
        """A session that runs no test."""
        argv = self.pytest("--collect-only", "tests/unit/test_clean.py")
        subprocess.run(argv, check=True, capture_output=True, timeout=180)


@pytest.fixture
def apart() -> Iterator[Apart]:
    need_root()
    namespaces.KNOWN.mkdir(exist_ok=True)
    script = f"mount -t tmpfs tmpfs {namespaces.KNOWN} && echo && exec sleep 1000"
    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        made = Apart(holder)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"\n"
            yield made
            for name in made.there():
                for pid in subprocess.check_output(made.argv("ip", "netns", "pids", name)).split():
                    os.kill(int(pid), signal.SIGKILL)
        finally:
            holder.kill()


def test_what_a_killed_run_left_is_swept_as_the_next_one_begins(tmp_path: Path, apart: Apart) -> None:
    (tmp_path / "test_it.py").write_text(STANDS)
    ready = tmp_path / "made"
    with subprocess.Popen(apart.pytest(str(tmp_path)), stdout=subprocess.DEVNULL) as run:
        try:
            eventually("it has made its namespaces", lambda: ready.exists() or run.poll() is not None)
        finally:
            run.kill()
    prefix, pid = ready.read_text().split()
    left = {name for name in apart.there() if name.startswith(prefix)}
    assert len(left) == 6
    inside = ProcessId.of(int(pid))
    assert inside is not None, "it outlives the run"
    apart.begin_a_run()
    assert apart.there() == set()
    eventually("what ran there is killed", lambda: not inside.alive())


def test_what_a_killed_process_started_a_moment_before_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that starts a server while the list is read leaves it in the next list."""
    lists, killed = [["11", "12"], ["13"], []], list[int]()
    monkeypatch.setattr(namespaces, "ip", lambda *_: " ".join(lists.pop(0)))
    monkeypatch.setattr(os, "kill", lambda pid, _signal: killed.append(pid))
    namespaces.kill_all("zkmu1.1-dest")
    assert killed == [11, 12, 13]


def test_a_living_run_keeps_its_own_and_a_pid_that_came_again_is_no_owner(apart: Apart) -> None:
    living = f"{namespaces.own()}-dest"
    other = f"zkmu{os.getpid()}.{ProcessId.mine().start - 1}-0000-dest"
    for name in (living, other):
        subprocess.run(apart.argv("ip", "netns", "add", name), check=True)
    apart.begin_a_run()
    assert apart.there() == {living}
