"""zkm-host and the inventory's own commands: who runs, since when, and never two of them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.namespaces import kill_all
from tests.unit.zkm_net import Answer, Dest, Net, encode, eventually, net
from zkmigrate.hosts.facts.status import parse_status
from zkmigrate.hosts.zkm_host import program as text_of_zkm_host


@pytest.fixture(scope="module")
def made() -> Iterator[Net]:
    with net() as built:
        yield built


@pytest.fixture
def dest(made: Net, tmp_path: Path) -> Iterator[Dest]:
    host = Dest(tmp_path, made)
    yield host
    subprocess.run(made.inside("dest", "sh", "-c", f"{host.kill}; ipset -q destroy"), check=False)
    kill_all(f"{made.prefix}-dest")


def unit(dest: Dest, **changed: str) -> dict[str, str]:
    """What ``status`` says of the service when the call itself brings the commands, as for a broker."""
    answer = dest.call("status", *dest.service("", **changed)[1:2], *dest.service("", **changed)[3:])
    assert answer.rc == 0, answer
    return {key: value for key, value in answer.values().items() if key.startswith("unit_")}


def server_pid(dest: Dest) -> str:
    return (dest.folder / "pid").read_text().strip()


def started_us(pid: str) -> int:
    """When the kernel says that a process was started, µs of uptime."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
    return ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")


def kill_shells(child: subprocess.Popen[bytes]) -> None:
    """Kill every shell of a call, as a crash would, but not the command that it has begun."""
    victims = [str(child.pid)]
    for pid in victims:
        with suppress(FileNotFoundError, ProcessLookupError):  # a part of it that has ended meanwhile
            for kin in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):
                    if b"zkm-host" in Path(f"/proc/{kin}/cmdline").read_bytes():
                        victims.append(kin)
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    child.wait()


def call(dest: Dest, action: str, operation: str = "", **changed: str) -> Answer:
    verb, *words = dest.service(action, **changed)
    return dest.call(verb, operation or dest.operation(), *words)


def test_status_tells_the_process_that_listens_and_when_it_was_started(dest: Dest) -> None:
    assert unit(dest) == {"unit_state": "inactive", "unit_pid": "0", "unit_since": "-"}
    dest.serve()
    seen = unit(dest)
    assert (seen["unit_state"], seen["unit_pid"]) == ("active", server_pid(dest))
    assert 0 <= int(seen["unit_since"]) - started_us(server_pid(dest)) < 10_000


def test_before_it_listens_it_is_as_old_as_its_start(dest: Dest) -> None:
    """Else a broker that takes long to listen would be taken for one that has not been restarted yet."""
    mute = f"setsid sleep 100 & echo $! >{dest.folder}/pid"
    assert call(dest, "start", start=encode(mute)).rc == 0
    seen = unit(dest)
    assert (seen["unit_state"], seen["unit_pid"]) == ("active", "0")
    assert 0 <= started_us(server_pid(dest)) + 10_000 - int(seen["unit_since"]) < 5_000_000
    (dest.directory / "started").write_text("zookeeper another-boot 5\n")
    assert unit(dest)["unit_since"] == "-"


SHUTS_ITS_PORT_FIRST = """
import signal, socket, time
listener = socket.create_server(("", 2181))
signal.signal(signal.SIGTERM, lambda *_: listener.close())
while listener.fileno() >= 0:
    time.sleep(0.01)
time.sleep(1)
"""


def test_a_restart_ends_the_old_process_before_it_starts_the_new_one(dest: Dest) -> None:
    """A broker shuts its port long before its process has ended, which still holds its lock files."""
    server = shlex.join([sys.executable, "-c", SHUTS_ITS_PORT_FIRST])
    first = f"setsid {server} & echo $! >{dest.folder}/pid"
    # a status command that forgets the process as soon as it was told to stop
    stop = f"{dest.stop}; rm {dest.folder}/pid"
    status = f"test -e {dest.folder}/pid && {dest.status_command}"
    assert call(dest, "start", start=encode(first), status=encode(status)).rc == 0
    eventually("it listens", lambda: unit(dest)["unit_pid"] == server_pid(dest))
    old = server_pid(dest)
    start = f"! grep -q '^State:.[^Z]' /proc/{old}/status && {{ {dest.start}; }}"
    answer = call(dest, "restart", stop=encode(stop), start=encode(start), status=encode(status))
    assert answer.rc == 0, answer
    assert server_pid(dest) != old
    eventually("the new one listens", lambda: unit(dest)["unit_pid"] == server_pid(dest))


def test_a_start_that_was_killed_and_comes_again_starts_no_second_server(dest: Dest) -> None:
    slow = f"echo x >>{dest.folder}/starts; sleep 1; {dest.start}"
    verb, *words = dest.service("start", start=encode(slow))
    first = subprocess.Popen(
        dest.argv(verb, "once", *words), env=dest.environment(), stdout=subprocess.DEVNULL
    )
    eventually("the command runs", (dest.folder / "starts").exists)
    kill_shells(first)
    assert not (dest.folder / "pid").exists()
    assert dest.call(verb, "once", *words).rc == 0
    assert (dest.folder / "starts").read_text() == "x\n"
    assert unit(dest)["unit_state"] == "active"


def test_a_stop_waits_for_a_start_under_way(dest: Dest) -> None:
    """Else it would find nothing to stop, and the server would come up a moment later."""
    slow = f"touch {dest.folder}/begun; sleep 1; {dest.start}"
    verb, *words = dest.service("start", start=encode(slow))
    starting = subprocess.Popen(
        dest.argv(verb, "slow-start", *words), env=dest.environment(), stdout=subprocess.DEVNULL
    )
    eventually("the command runs", (dest.folder / "begun").exists)
    kill_shells(starting)
    assert call(dest, "kill").rc == 0
    assert unit(dest)["unit_state"] == "inactive"
    eventually("nobody listens", lambda: dest.net.reaches("dest", "127.0.0.1") != "open")
    assert (dest.folder / "pid").exists()


def test_a_server_that_runs_is_not_started_and_one_that_is_dead_not_stopped(dest: Dest) -> None:
    dest.serve()
    never = encode(f"touch {dest.folder}/called; false")
    assert call(dest, "start", start=never).rc == 0
    assert call(dest, "kill").rc == 0
    assert call(dest, "stop", stop=never).rc == 0
    assert call(dest, "kill", kill=never).rc == 0
    assert not (dest.folder / "called").exists()


def test_without_a_kill_command_stop_has_to_do_and_only_death_counts(dest: Dest) -> None:
    dest.serve()
    lazy = call(dest, "kill", kill="", stop=encode("echo cannot; exit 3"))
    assert lazy.rc == 5
    assert "cannot" in lazy.text
    assert "is active" in lazy.text
    assert call(dest, "kill", kill="", stop=encode(f"{dest.stop}; exit 1")).rc == 0
    assert unit(dest)["unit_state"] == "inactive"


def test_a_start_that_returns_without_a_server_has_failed(dest: Dest) -> None:
    answer = call(dest, "start", start=encode("echo no java here"))
    assert answer.rc == 5
    assert "its status command says inactive" in answer.text


def test_a_start_waits_until_its_server_shows(dest: Dest) -> None:
    late = f"(sleep 0.5; {dest.start}) >/dev/null 2>&1 &"
    assert call(dest, "start", start=encode(late)).rc == 0
    assert unit(dest)["unit_state"] == "active"


def test_nothing_is_started_beside_somebody_who_listens(dest: Dest) -> None:
    dest.serve()
    answer = call(dest, "start", status=encode("exit 3"))
    assert answer.rc == 5
    assert "yet something listens on its ports" in answer.text
    assert unit(dest, status=encode("exit 3"))["unit_pid"] == server_pid(dest)


@pytest.mark.parametrize("status", ["/no/such/program", "exit 4", "kill -9 $$"])
def test_a_status_command_that_cannot_tell_means_neither_dead_nor_alive(dest: Dest, status: str) -> None:
    dest.cut_off(status=encode(status))
    assert unit(dest, status=encode(status))["unit_state"] == "unknown"
    assert "cannot tell whether it runs" in dest.refused("stopped")
    assert "cannot tell whether it runs" in call(dest, "start", status=encode(status)).text


@pytest.mark.parametrize(
    ("missing", "told"),
    [("start", "together"), ("stop", "together"), ("status", "together"), ("ports", "needs its ports")],
)
def test_half_of_the_commands_is_refused(dest: Dest, missing: str, told: str) -> None:
    answer = call(dest, "start", **{missing: ""})
    assert answer.rc == 2
    assert told in answer.text
    dest.stage()
    assert told in dest.refused("arm", dest.spec(**{missing: ""}), rc=2)


@pytest.mark.parametrize("word", ["shell=aWQ=", "start=", "start", "ports=0", "ports=21,x", "ports=70000"])
def test_a_word_that_is_no_command_is_refused(dest: Dest, word: str) -> None:
    words = [w for w in dest.service("start")[1:] if w.split("=")[0] != word.split("=")[0]]
    answer = dest.call("service", dest.operation(), *words, word)
    assert answer.rc == 2, answer
    assert not (dest.folder / "pid").exists()


def test_the_commands_of_a_call_are_not_those_of_the_spec(dest: Dest) -> None:
    """A broker's commands come with the call; what was armed for ZooKeeper is used for nothing else."""
    dest.armed()
    other = dest.call("status", "kafka")
    assert other.values()["unit_state"] == "unknown"
    assert dest.status()["unit_state"] == "active"


def test_what_only_systemd_can_do_is_refused(dest: Dest) -> None:
    assert "is systemd's" in call(dest, "enable").text
    if not Path("/run/systemd/system").exists():
        dest.stage()
        bare = dict.fromkeys(("start", "stop", "status", "kill", "ports"), "")
        assert "systemd does not run here" in dest.refused("arm", dest.spec(**bare), rc=4)


def says(dest: Dest) -> list[str]:
    """What ``recovery`` says of the server, started with the directory of its log on its command line."""
    words = dest.service("")
    answer = dest.call("recovery", words[1], *words[3:])
    assert answer.rc == 0, answer
    return answer.lines()


def test_recovery_counts_what_the_newest_start_of_a_broker_says_in_its_own_log(dest: Dest) -> None:
    """The forms of Kafka 2.8.2 and 3.9.1, and of the directories that are loaded side by side."""
    assert says(dest) == ["logs=0 of=0 segments=0"], "nothing runs"
    before = "INFO Completed load of Log(dir=/d/t-1) with 1 segments in 2ms (90/90 loaded in /d)\n"
    start = "INFO Loading logs from log dirs ArraySeq(/d, /e) (kafka.log.LogManager)\n"
    log = dest.folder / "server.log"
    call(
        dest, "start", start=encode(dest.start.replace(" & echo", f" -Dkafka.logs.dir={dest.folder} & echo"))
    )
    eventually("it serves", lambda: dest.net.reaches("dest", "127.0.0.1") == "open")
    assert says(dest) == ["logs=0 of=0 segments=0"], "no file"
    log.write_text(before + start)
    assert says(dest) == ["logs=0 of=0 segments=0"]
    with log.open("a") as file:
        file.write(
            "INFO [LogLoader partition=t-2, dir=/d] Recovering unflushed segment 0. 0/1 recovered for t-2.\n"
        )
        file.write("INFO Completed load of Log(dir=/d/t-2) with 1 segments in 222ms (1/27 loaded in /d)\n")
        file.write("INFO Completed load of UnifiedLog(dir=/e/t-3) with 1 segments, local-log-start-offset 0 ")
        file.write("and log-end-offset 0 in 2ms (3/4 completed in /e) (kafka.log.LogManager)\n")
        file.write("INFO Completed load of Log(dir=/d/t-4) with 1 segments in 3ms (2/27 loaded in /d)\n")
    assert says(dest) == ["logs=5 of=31 segments=1"]


def test_recovery_counts_for_a_broker_below_a_shell_that_started_it(tmp_path: Path) -> None:
    """The unit's main process stayed the shell, and a broker that recovered its logs seemed to stand."""
    jvm = "import sys; print('runs', flush=True); sys.stdin.read()"
    script = f"{sys.executable} -c {shlex.quote(jvm)} -Dkafka.logs.dir={tmp_path}; exit 0"
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", script], stdin=pipe, stdout=pipe, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdin is not None
        assert shell.stdout.readline() == "runs\n"
        (tmp_path / "server.log").write_text("INFO Completed load of Log(dir=/d/t-1) (2/9 loaded in /d)\n")
        said = with_systemd(tmp_path, f"ActiveState=activating\\nMainPID={shell.pid}\\n", "recovery", "kafka")
        shell.stdin.close()
    assert said.splitlines() == ["logs=2 of=9 segments=0"]


@pytest.mark.parametrize("kind", ["text", "fifo", "link"])
def test_recovery_tells_nothing_but_counts_whatever_stands_in_the_place_of_the_log(
    dest: Dest, kind: str
) -> None:
    log, secret = dest.folder / "server.log", dest.folder / "secret"
    secret.write_text("root:secret (1/2 loaded in secret)\n")
    if kind == "fifo":
        os.mkfifo(log)
    elif kind == "link":
        log.symlink_to(secret)
    else:
        log.write_bytes(
            b"\x1b]52;c;eA==\x07 $(id) (1/2 loaded in $(id >&2)\x1b[2J)\n(/ loaded in x)\n\xff\0\n"
        )
    call(
        dest, "start", start=encode(dest.start.replace(" & echo", f" -Dkafka.logs.dir={dest.folder} & echo"))
    )
    eventually("it serves", lambda: dest.net.reaches("dest", "127.0.0.1") == "open")
    assert says(dest) == [f"logs={0 if kind == 'fifo' else 1} of={0 if kind == 'fifo' else 2} segments=0"]


def test_a_reload_reads_the_config_again_and_starts_what_is_down(tmp_path: Path) -> None:
    """Where systemd runs; the inventory's own commands know none."""
    program = tmp_path / "zkm-host"
    program.write_text(text_of_zkm_host().decode().replace("/run/systemd/system", str(tmp_path)))
    argv = [
        "sh",
        str(program),
        "--print",
        "--run",
        "r1",
        "--as",
        "1",
        "service",
        "x",
        "keeper.service",
        "reload",
    ]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 0
    assert "systemctl reload-or-restart -- keeper.service" in said.stdout.splitlines()
    own = subprocess.run(
        [*argv, *(f"{key}={encode('/bin/true')}" for key in ("start", "stop", "status")), "ports=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert own.returncode == 2
    assert "reload is systemd's: keeper.service has commands of its own" in own.stderr


def with_systemd(folder: Path, shown: str, *words: str) -> str:
    """What a verb says where systemd shows this of a unit."""
    program, systemctl = folder / "zkm-host", folder / "systemctl"
    text = text_of_zkm_host().decode().replace("/run/systemd/system", str(folder))
    program.write_text(text.replace(" PATH=", f" PATH={folder}:", 1))
    systemctl.write_text(f"#!/bin/sh\ncase \"$*\" in *UnitFileState*) printf '{shown}' ;; esac\n")
    systemctl.chmod(0o755)
    argv = ["sh", str(program), "--run", "r1", *words]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.parametrize("told", ["enabled", "disabled", "static", ""])
def test_status_tells_whether_a_unit_starts_at_boot(tmp_path: Path, told: str) -> None:
    """As the steps read it."""
    shown = f"ActiveState=inactive\\nMainPID=0\\nTimeoutStopUSec=90s\\nUnitFileState={told}\\n"
    status = parse_status(with_systemd(tmp_path, shown, "status", "copier.service"))
    assert (status.unit_state, status.unit_file) == ("inactive", told)
