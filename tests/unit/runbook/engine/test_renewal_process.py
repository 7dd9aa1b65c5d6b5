"""The second process that renews: over a real sshd, against a script that speaks zkm-host's protocol."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit import sshd as daemon
from tests.unit.engine_world import eventually
from tests.unit.runbook.engine.test_watch import CONTEXT, Moment, Renewals, fenced
from tests.unit.sshd import Sshd
from zkmigrate.inventory.inventory import Lease
from zkmigrate.runbook.engine.renewal_process import RenewalProcess
from zkmigrate.runbook.engine.watch import Watch

SPEAKER = r"""#!/bin/sh
started="$*"
while read -r id verb rest; do
  [ "$verb" = renew ] && echo "$started: $rest" >>"$ZKM_STATE/renewed"
  [ "$verb" = help ] && echo "$started" >>"$ZKM_STATE/opened"
  if [ -e "$ZKM_STATE/refuse" ]; then printf '= lapsed\n. %s 3\n' "$id"; else printf '. %s 0\n' "$id"; fi
done
"""
LEASE = Lease(fence_ttl_ms=5000, cut_ttl_ms=2000, renew_every_ms=100)
HOSTS = ("d1", "d2", "d3")
HELD_S = 20
PARENT = """
import sys, time
from zkmigrate.runbook.engine.renewal_process import RenewalProcess
from zkmigrate.inventory.inventory import Inventory, Lease
known = Inventory.model_validate_json(sys.argv[1])
process = RenewalProcess(known.dest_names, known, "r1", lambda: 7, sys.argv[2])
process.renew(Lease(renew_every_ms=100), time.monotonic() + 600)
print(process.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    (tmp_path / "state").mkdir()
    with daemon.running(tmp_path, environment=f"ZKM_STATE={tmp_path / 'state'}") as running:
        running.program("speaker", SPEAKER)
        running.allow_sudo()
        yield running


@pytest.fixture
def process(sshd: Sshd) -> Iterator[RenewalProcess]:
    made = RenewalProcess(HOSTS, daemon.inventory(sshd), "r1", lambda: 7, str(sshd.programs / "speaker"))
    yield made
    made.close()


def lines(sshd: Sshd, name: str) -> list[str]:
    path = sshd.folder / "state" / name
    return path.read_text().splitlines() if path.exists() else []


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def all_reached(process: RenewalProcess) -> Callable[[], bool]:
    return lambda: all(process.reached(host) for host in HOSTS)


def test_the_channels_are_open_before_the_first_order(sshd: Sshd, process: RenewalProcess) -> None:
    process.ready()
    eventually("every host is logged in to", lambda: lines(sshd, "opened") == ["--run r1 --as 7 serve"] * 3)
    assert lines(sshd, "renewed") == []
    assert not any(process.reached(host) for host in HOSTS)


def test_no_renewal_reaches_past_the_order(sshd: Sshd, process: RenewalProcess) -> None:
    process.ready()
    eventually("every host is logged in to", lambda: len(lines(sshd, "opened")) == 3)
    end = time.monotonic() + 1.5
    process.renew(LEASE, end)
    eventually("every host is reached", all_reached(process))
    for line in lines(sshd, "renewed"):
        started, _, times = line.partition(": ")
        assert started == "--run r1 --as 7 serve"
        assert [0 < int(ms) <= 1500 for ms in times.split()] == [True, True]
    eventually("the order's end has passed", lambda: time.monotonic() > end)
    seen = [process.reached(host) for host in HOSTS]
    process.renew(LEASE, 0.0)
    eventually("two more periods have passed", lambda: time.monotonic() > end + 0.2)
    assert [process.reached(host) for host in HOSTS] == pytest.approx(seen, abs=1.0)


def test_a_refused_renewal_does_not_count(sshd: Sshd, process: RenewalProcess) -> None:
    process.renew(LEASE, time.monotonic() + 600)
    eventually("every host is reached", all_reached(process))
    (sshd.folder / "state" / "refuse").touch()
    eventually("no host counts as reached", lambda: not any(process.reached(host) for host in HOSTS))


def test_renewals_arrive_while_one_call_holds_the_interpreter(sshd: Sshd, process: RenewalProcess) -> None:
    log = sshd.folder / "state" / "renewed"
    process.renew(LEASE, time.monotonic() + 600)
    eventually("every host is reached", all_reached(process))
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", HELD_S, 0))
    tail = subprocess.Popen(["tail", "-n", "0", "-f", str(log)], stdout=there.fileno())
    try:
        wanted = 12 * len("--run r1 --as 7 serve: 5000 2000\n")
        # Called this way, recv keeps the interpreter until twelve renewals have come.
        came = ctypes.PyDLL(None).recv(
            here.fileno(), ctypes.create_string_buffer(wanted), wanted, socket.MSG_WAITALL
        )
    finally:
        tail.kill()
        tail.wait()
        here.close()
        there.close()
    assert came == wanted


def test_the_process_ends_with_a_parent_that_is_killed(sshd: Sshd) -> None:
    argv = [
        sys.executable,
        "-c",
        PARENT,
        daemon.inventory(sshd).model_dump_json(),
        str(sshd.programs / "speaker"),
    ]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        eventually("renewals arrive", lambda: len(lines(sshd, "renewed")) > 3)
        assert not ended(pid)
        parent.kill()
    try:
        eventually("the renewing process has ended", lambda: ended(pid))
    finally:
        if not ended(pid):
            os.kill(pid, signal.SIGKILL)


def test_where_it_does_not_start_no_host_is_reached(
    process: RenewalProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    process.ready()
    process.renew(LEASE, time.monotonic() + 600)
    assert process.pid == 0
    assert not any(process.reached(host) for host in HOSTS)


def test_ctrl_c_at_the_terminal_does_not_reach_it(process: RenewalProcess) -> None:
    process.ready()
    assert os.getsid(process.pid) != os.getsid(0)


def test_the_watch_renews_itself_once_the_process_is_killed(
    sshd: Sshd, process: RenewalProcess, tmp_path: Path
) -> None:
    moment, renew = Moment(time.monotonic()), Renewals()
    moment.now = time.monotonic  # type: ignore[method-assign]
    stage, history = fenced(tmp_path / "run", deadline_s=600.0)
    line, _, _ = history.first_sent["main.fence"]
    history.first_sent["main.fence"] = (line, moment.wall(), time.monotonic())
    watch = Watch(HOSTS, renew, moment.now, moment.wall, second=process)
    try:
        watch.follow(stage, history, CONTEXT)
        eventually("the process renews every host", all_reached(process))
        os.kill(process.pid, signal.SIGKILL)
        eventually("the process has ended", lambda: ended(process.pid))
        eventually("no host counts as reached", lambda: not any(process.reached(host) for host in HOSTS))
        count = len(renew.sent)
        eventually(
            "every host is renewed again", lambda: {sent[0] for sent in renew.sent[count:]} == set(HOSTS)
        )
        assert watch.finding() is None
    finally:
        watch.close()
    assert process.pid == 0
