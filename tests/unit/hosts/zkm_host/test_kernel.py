"""The rules that ``plan`` shows are those that zkm-host says on the host, said without a look at one."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.zkm_net import Dest, net
from tests.world.model.look import WorldLook
from tests.world.operator import quiet_world
from zkmigrate.errors import HostError
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.zkm_host import kernel
from zkmigrate.runbook.engine import plan

PRINT = ("--print",)
CUTS = pytest.mark.parametrize("cut", ["zookeeper", "all"])
PORTS = "2181,2888,3888"
VERBS: tuple[tuple[Any, ...], ...] = (("arm",), ("fence", 4500), ("cut", 2000))


@pytest.fixture
def dest(tmp_path: Path) -> Iterator[Dest]:
    with net() as made:
        yield Dest(tmp_path, made)


def spec(dest: Dest, cut: str) -> str:
    return base64.b64decode(dest.spec(cut=cut, cut_ports=PORTS)).decode()


def printed(dest: Dest, verb: str, *arguments: str) -> list[str]:
    """What ``--print`` says, without blank lines."""
    answer = dest.call(verb, "p", *arguments, options=PRINT)
    assert answer.rc == 0, answer
    return [line for line in answer.lines() if line]


def value(dest: Dest, key: str) -> str:
    """A value that the program itself put into the armed host's spec."""
    lines = (dest.directory / "spec").read_text().splitlines()
    return next(line.partition("=")[2] for line in reversed(lines) if line.startswith(f"{key}="))


@CUTS
def test_arm_lines_are_what_arm_prints(dest: Dest, cut: str) -> None:
    said = printed(dest, "arm", dest.spec(cut=cut, cut_ports=PORTS))
    ports = next(line for line in said if "--dports" in line).split("--dports ")[1].split()[0]
    made = kernel.lines(f"{spec(dest, cut)}ssh_ports={ports}\n", "arm")
    assert said[: len(made)] == [line.replace("TAG", "00000000") for line in made]
    assert not any(line.startswith(("-", "add", "create")) for line in said[len(made) :])


@CUTS
def test_fence_and_cut_lines_are_what_they_print(dest: Dest, cut: str) -> None:
    dest.armed(cut=cut, cut_ports=PORTS)
    tag = hashlib.sha256(dest.run_id.encode()).hexdigest()[:8]
    own = " or ".join(f"dst [{a}]" if ":" in a else f"dst {a}" for a in value(dest, "own").split(","))
    given = f"{spec(dest, cut)}ssh_ports={value(dest, 'ssh_ports')}\n"

    def lines(verb: str, ttl_ms: int) -> list[str]:
        said = kernel.lines(given, verb, ttl_ms)
        return [line.replace("TAG", tag).replace("dst OWN", own) for line in said]

    fence = lines("fence", 4500)
    said = printed(dest, "fence", "4500")
    assert [line for line in said if line in fence] == fence
    assert len([line for line in fence if line.startswith("ss -K")]) == 2
    assert not [line for line in said if line.startswith(("add", "ss")) and line not in fence]
    dest.do("fence", "60000")
    made = lines("cut", 2000)
    said = printed(dest, "cut", "2000")
    assert [line for line in said if line in made] == made
    assert not [line for line in said if line.startswith(("add", "ss")) and line not in made]


GIVEN = """\
unit=zookeeper.service
user=zookeeper:zookeeper
client_ports=2181
quorum_port=2888
election_port=3888
operator=10.0.0.9,2001:db8:1::/64
peers=10.0.0.11,2001:db8::11
source=10.0.0.1,2001:db8::1
data_dir=/var/lib/zookeeper
log_dir=/var/lib/zookeeper
config_path=/etc/zookeeper/zoo.cfg
members=10.0.0.11:2181
cut=zookeeper
cut_ports=2181,2888,3888
"""


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_it_is_said_with_no_tool_and_no_look_at_this_machine(tmp_path: Path, words: tuple[Any, ...]) -> None:
    """A copy that finds no program on its path, and nothing of this machine's kernel, says the same."""
    text = zkm_host.program().decode()
    path = next(line for line in text.splitlines() if line.startswith("LC_ALL=C PATH="))
    blind = text.replace(path, f"LC_ALL=C PATH={tmp_path}/none").replace("/proc/", f"{tmp_path}/none/")
    program, empty = tmp_path / "program", tmp_path / "empty"
    program.write_text(blind)
    empty.mkdir()
    done = subprocess.run(
        ["/bin/sh", str(program), "--print", *map(str, words)],
        input=GIVEN,
        capture_output=True,
        text=True,
        cwd=empty,
        env={"ZKM_STATE": str(empty / "state")},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = kernel.lines(GIVEN, *words)
    assert [line for line in done.stdout.splitlines() if line in said] == list(said)
    assert len(said) == {"arm": 54, "fence": 8, "cut": 5}[words[0]]
    assert not [line for line in said if not line or "phase" in line or "killed" in line]
    assert [*empty.iterdir()] == []


def test_both_families_are_said_wherever_it_is_said() -> None:
    said = "\n".join(kernel.lines(GIVEN, "arm"))
    assert "\niptables-restore -w 5 --noflush <<END\n" in said
    assert "\nip6tables-restore -w 5 --noflush <<END\n" in said


def test_without_print_a_run_is_needed(tmp_path: Path) -> None:
    argv = ["/bin/sh", str(Path(zkm_host.__file__).parent / "zkm-host"), "fence", "4500"]
    done = subprocess.run(argv, input=GIVEN, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "zkm-host: fence needs --run RUN\n")


def test_a_spec_that_zkm_host_refuses_is_an_error_with_its_words() -> None:
    many = ",".join(map(str, (2181, 2888, 3888, *range(7001, 7014))))
    with pytest.raises(HostError, match="cut=zookeeper takes at most 15 ports, seen 16"):
        kernel.lines(GIVEN.replace("cut_ports=2181,2888,3888", f"cut_ports={many}"), "arm")


def test_a_machine_without_a_shell_plans_the_rest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_args: object, **_more: object) -> None:
        raise FileNotFoundError("/bin/sh")

    monkeypatch.setattr(subprocess, "run", gone)
    kernel.lines.cache_clear()
    world = quiet_world()
    made = plan.make(PLAYBOOK, world.inventory, WorldLook(world), ())
    assert {*made.unknown} == {
        f"{s}.{step}" for s in ("rehearse", "cutover") for step in ("arm", "fence", "cut")
    }
    assert made.unknown["cutover.cut"] == "cannot run zkm-host --print cut 2000: /bin/sh"
