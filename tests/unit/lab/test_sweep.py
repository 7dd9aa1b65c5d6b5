from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from zkmigrate.lab import control_groups, state, teardown
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.state import HostRecord, LabRecord
from zkmigrate.lab.wait import wait_until

OWNER = ProcessId(4711, 99)


def record(*, kept: bool = False, ready: bool = False) -> LabRecord:
    return LabRecord("a1b2c3", OWNER, kept, LabSpec(), ready=ready)


@pytest.mark.parametrize(
    ("alive", "kept", "ready", "expected"),
    [
        (True, False, False, False),
        (True, False, True, False),
        (True, True, False, False),
        (True, True, True, False),
        (False, False, False, True),
        (False, False, True, True),
        (False, True, False, True),  # was to be kept, but its builder died half-way
        (False, True, True, False),
    ],
)
def test_only_labs_without_a_living_owner_are_swept(
    alive: bool, kept: bool, ready: bool, expected: bool
) -> None:
    asked: list[ProcessId] = []

    def is_alive(process: ProcessId) -> bool:
        asked.append(process)
        return alive

    assert state.sweepable(record(kept=kept, ready=ready), is_alive) is expected
    assert asked == [OWNER]


def test_record_survives_json() -> None:
    seen = replace(
        record(kept=True),
        hosts={"dest1": HostRecord(ProcessId(5, 6), ProcessId(7, 8)), "dest2": HostRecord(ProcessId(9, 1))},
    )
    assert LabRecord.from_json(json.loads(json.dumps(seen.to_json()))) == seen


def test_a_record_of_another_format_is_refused() -> None:
    with pytest.raises(LabError, match="format 99; this program reads format 1"):
        LabRecord.from_json({**record().to_json(), "format": 99})


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZKMIGRATE_LAB_DIR", str(tmp_path))
    return tmp_path


def test_created_labs_have_ids_of_their_own_and_belong_to_this_process(base: Path) -> None:
    made = [state.create(LabSpec(), kept=False) for _ in range(5)]
    assert sorted(made) == sorted(state.directories())
    assert len({path.name for path in made}) == 5
    assert all(path.parent == base for path in made)
    assert {state.read(path).owner.pid for path in made} == {os.getpid()}


def test_the_lab_of_another_that_came_meanwhile_is_not_ones_own(base: Path) -> None:
    before = state.create(LabSpec(), kept=False)
    others = state.directories()
    mine, half_made, foreign = (
        state.create(LabSpec(), kept=False),
        base / "zkm-lab-000000",
        base / "zkm-lab-a1b2c3",
    )
    half_made.mkdir()
    foreign.mkdir()
    state.write(foreign, record())
    assert set(state.own(others)) == {mine, half_made}
    assert before in state.own(())
    shutil.rmtree(base)
    assert state.own(()) == ()


def test_sweep_spares_the_living_and_takes_the_dead_and_the_half_made(base: Path) -> None:
    living, dead, kept = (state.create(LabSpec(), kept=False) for _ in range(3))
    gone = subprocess.Popen(["sleep", "60"])
    owner = ProcessId.of(gone.pid)
    assert owner is not None
    gone.kill()
    gone.wait()
    state.update(dead, lambda seen: replace(seen, owner=owner))
    state.update(kept, lambda seen: replace(seen, owner=owner, kept=True, ready=True))
    half_made = base / f"{state.PREFIX}ffffff"
    half_made.mkdir()
    swept = teardown.sweep()
    assert sorted(swept) == sorted([dead.name.removeprefix(state.PREFIX), "ffffff"])
    assert sorted(state.directories()) == sorted([living, kept])


def test_a_lab_is_gone_once_the_kernel_has_let_go_of_its_disks(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = state.create(LabSpec(), kept=False)
    held = [f"{dead}/hosts/new1/disk1.img (deleted)\n/elsewhere/disk.img\n"] * 2

    def run(argv: Sequence[str]) -> str:
        assert argv[0] == "losetup"
        assert not dead.exists()
        return held.pop() if held else "/elsewhere/disk.img\n"

    monkeypatch.setattr(teardown, "run", run)
    teardown.remove(dead)
    assert held == []


def test_sweep_leaves_a_lab_that_another_is_taking_down(base: Path) -> None:
    dead = state.create(LabSpec(), kept=False)
    assert dead.parent == base
    state.update(dead, lambda seen: replace(seen, owner=ProcessId(1, 1)))
    with state.locked(dead / "lock") as mine:
        assert mine
        assert teardown.sweep() == []
    assert teardown.sweep() == [dead.name.removeprefix(state.PREFIX)]


def test_a_reused_pid_is_another_process() -> None:
    me = ProcessId.mine()
    assert me.alive()
    assert not replace(me, start=me.start + 1).alive()
    assert not replace(me, start=me.start + 1).send(signal.SIGKILL)


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    process = ProcessId.of(child.pid)
    assert process is not None
    assert process.alive()
    assert process.send(signal.SIGKILL)
    wait_until("child ended", lambda: "child" if process.alive() else None, 10, poll_s=0.01)
    assert Path(f"/proc/{child.pid}").exists()
    child.wait()


def test_mounts_are_undone_last_mounted_first() -> None:
    text = (
        "31 23 0:28 / / rw - ext4 /dev/vda rw\n"
        "40 31 0:40 / /labs/one/hosts/dest1/root rw - overlay overlay rw\n"
        "41 40 7:0 / /labs/one/hosts/dest1/root/var/lib/zookeeper rw - ext4 /dev/loop0 rw\n"
        "42 31 0:42 / /labs/one-more/hosts/dest1/root rw - overlay overlay rw\n"
    )
    assert teardown.mounts_below(text, Path("/labs/one")) == [
        "/labs/one/hosts/dest1/root/var/lib/zookeeper",
        "/labs/one/hosts/dest1/root",
    ]


V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / {root}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / {root}/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "40 31 0:37 / {root}/systemd rw,relatime shared:9 - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / {root}/unified rw,relatime - cgroup2 cgroup2 rw\n"
)
V2 = "30 23 0:26 / {root}/v2 rw,relatime - cgroup2 cgroup2 rw\n"


def test_cgroup_hierarchies_without_cpuset() -> None:
    assert control_groups.hierarchies(V1.format(root="/cg")) == (
        control_groups.Hierarchy(Path("/cg/cpu"), True),
        control_groups.Hierarchy(Path("/cg/systemd"), False),
        control_groups.Hierarchy(Path("/cg/unified"), False),
    )
    assert control_groups.hierarchies(V2.format(root="/cg")) == (
        control_groups.Hierarchy(Path("/cg/v2"), True),
    )


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("3:cpu,cpuacct:/limited/inner\n1:name=systemd:/other\n0::/other\n", "limited/inner"),
        ("3:cpuset:/other\n2:cpuacct:/other\n1:cpu:/\n0::/other\n", ""),
        ("0::/user.slice/session-3.scope\n", "user.slice/session-3.scope"),
    ],
)
def test_the_group_of_a_process_is_the_one_that_shares_out_the_processors(text: str, group: str) -> None:
    assert control_groups.own_group(text) == group


@pytest.mark.parametrize(("table", "limited"), [(V1, "cpu/quota"), (V2, "v2/quota")])
def test_a_lab_stands_below_its_makers_group_and_is_found_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, limited: str
) -> None:
    own = ["/quota"]
    mounted = control_groups.hierarchies(table.format(root=tmp_path))
    monkeypatch.setattr(control_groups, "mounted", lambda: mounted)
    monkeypatch.setattr(control_groups, "_own_group", lambda: own[0].strip("/"))
    lab = tmp_path / limited / "zkm-a1b2c3"
    for name in ("cpu.shares", "cpu.weight"):  # as the kernel does when a group is made
        (lab / "dest1").mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("")
        (lab / "dest1" / name).write_text("")
    files = control_groups.create("a1b2c3", "dest1", weight=3)
    assert lab / "dest1" / "cgroup.procs" in files
    assert len(files) == len(mounted)
    assert (lab / "cpu.shares").read_text() == "10240"
    assert (lab / "dest1" / "cpu.shares").read_text() == "3072"
    assert (lab / "dest1" / "cpu.weight").read_text() == "300"
    (lab / "dest1" / "cgroup.procs").write_text("4242\n")
    own[0] = "/"
    assert control_groups.pids("a1b2c3") == {4242}
    assert control_groups.pids("a1b2c3", "dest1") == {4242}
    assert control_groups.pids("ffffff") == set()


def test_a_lab_that_somebody_else_took_down_while_this_one_waited_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "zkm-lab-a1b2c3"
    directory.mkdir()
    turn = state.locked

    @contextlib.contextmanager
    def after_the_other(path: Path, *, wait: bool = True) -> Iterator[bool]:
        with turn(path, wait=wait) as mine:
            shutil.rmtree(directory)
            yield mine

    monkeypatch.setattr(state, "locked", after_the_other)
    teardown.remove(directory)
    assert not directory.exists()


def test_a_limit_of_a_disk_stands_for_the_host_and_for_the_kernels_writeback_and_ends_with_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the hierarchy, as files: the lab's test has the kernel's own."""
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    own = tmp_path / "zkm-abc" / "one"
    own.mkdir(parents=True)
    files = [
        group / f"blkio.throttle.{way}_bps_device" for group in (tmp_path, own) for way in ("read", "write")
    ]
    monkeypatch.setattr(control_groups, "mounted", lambda: (control_groups.Hierarchy(tmp_path, False),))
    with pytest.raises(LabError, match="no cgroup v1 hierarchy blkio"):
        control_groups.limit_disks("abc", "one", [tmp_path], 20)
    control_groups.unlimit_disks([tmp_path])
    for file in files:
        file.write_text("")
    control_groups.unlimit_disks([tmp_path])
    assert [file.read_text() for file in files] == [""] * 4, "only what is limited"
    control_groups.limit_disks("abc", "one", [tmp_path], 20)
    assert [file.read_text() for file in files] == [f"{device} 20000000"] * 4
    control_groups.unlimit_disks([tmp_path])
    assert [file.read_text() for file in files] == [f"{device} 0"] * 2 + [f"{device} 20000000"] * 2
