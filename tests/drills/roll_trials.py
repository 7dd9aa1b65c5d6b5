"""The trials of ``roll_faults``: refusals, the way back from each step, disturbances of the roll."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tests.drills.roll_site import (
    FRESH,
    JOINED,
    REHEARSED,
    ROLLED,
    RUN,
    VERB_S,
    RollSite,
    Unexpected,
    expect_exit,
    interrupt,
    require,
    require_finding,
    run_program,
    wait_during,
    wave_targets,
)
from tests.lab.sessions import lost_since
from zkmigrate.hosts import zkm_host
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.commands import run as run_command
from zkmigrate.lab.operator import ToolProcess
from zkmigrate.lab.spec import ELECTION_PORT, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.engine import hold_file

PREFLIGHT, LOCKED, TURNED_BACK, STOPPED, KILLED = 3, 5, 7, 8, -signal.SIGKILL
Act: TypeAlias = Callable[[RollSite], str]


@dataclass(frozen=True)
class Trial:
    """A case of the roll.

    state: the required state of the run. act: returns the outcome, and raises if it is not as expected.
    """

    name: str
    state: str
    what: str
    expected: str
    act: Act


TRIALS: list[Trial] = []
"""The trials in the order in which one lab plays them: each begins where the one before left the run."""


def trial(state: str, what: str, expected: str) -> Callable[[Act], Act]:
    """Return a decorator that adds a function to the trials, under its own name."""

    def add(act: Act) -> Act:
        TRIALS.append(Trial(act.__name__.replace("_", "-"), state, what, expected, act))
        return act

    return add


_REFUSED = "the preflight stops and names it; nothing begun"
_AS_FOUND = "every file, rule and mode as found"
_GOES_ON = "no session lost; the run goes on, or stops and is resumed"

# --- before the roll ----------------------------------------------------------------------------------------

_DATA = "/var/lib/zookeeper"
_FOREIGN_EPOCHS = (
    f"install -d -o zookeeper -g zookeeper {_DATA}/version-2 && cd {_DATA}/version-2 && "
    "echo 9 >currentEpoch && echo 9 >acceptedEpoch && chown zookeeper:zookeeper *Epoch"
)
_DEAD_PORT = f"INPUT -p tcp --dport {ELECTION_PORT} --syn -j REJECT --reject-with tcp-reset"


def _refused_with(site: RollSite, host: str, script: str, undo: str, finding: str) -> str:
    """Require that the preflight stops with this finding on a host that a script has changed."""
    site.lab.exec(host, ["sh", "-c", script])
    try:
        return require_finding(site.run_verb(PREFLIGHT, "run", "--until", "join"), finding, host)
    finally:
        site.lab.exec(host, ["sh", "-c", undo])


@trial(FRESH, "epochs of another ensemble on a dest host", _REFUSED)
def dest_foreign_data(site: RollSite) -> str:
    return _refused_with(site, "dest2", _FOREIGN_EPOCHS, f"rm -r {_DATA}/version-2", "dest.empty")


@trial(FRESH, "election port of one source server dead", _REFUSED)
def source_election_port(site: RollSite) -> str:
    return _refused_with(
        site, "source2", f"iptables -I {_DEAD_PORT}", f"iptables -D {_DEAD_PORT}", "source.ports"
    )


@trial(FRESH, "a source server's myid file on a dest host", _REFUSED)
def dest_foreign_myid(site: RollSite) -> str:
    return _refused_with(site, "dest1", f"echo 1 >{_DATA}/myid", f"rm {_DATA}/myid", "dest.myid")


@trial(FRESH, "a dest host with a source host's myid in the inventory", "refused (2) by name")
def inventory_same_myid(site: RollSite) -> str:
    with site.edited("myid: 11", "myid: 1"), site.tool("run", "--until", "join") as tool:
        expect_exit(tool, 2, "run")
        message = _last_message(tool)
    require("myid" in message, f"the refusal does not name myid: {message}")
    return message.replace("\n", " ")[-160:]


@trial(FRESH, "two letters of the chroot swapped", f"{_REFUSED}, and no such chroot made")
def chroot_typo(site: RollSite) -> str:
    with site.edited("chroot: /kafka", "chroot: /kakfa"):
        findings = site.run_verb(PREFLIGHT, "run", "--until", "join")
    outcome = require_finding(findings, "kafka.config", "broker1")
    with site.lab.zookeeper() as client:
        require(client.exists("/kakfa") is None, "/kakfa has been made")
    return outcome


@trial(FRESH, "rollback behind install", _AS_FOUND)
def back_from_install(site: RollSite) -> str:
    site.run_verb(0, "run", "--until", "install")
    site.state = JOINED
    site.bring_to(FRESH)
    return "every file as found"


def _back_after_kill(
    site: RollSite, until: str, kill: tuple[str, str, int], reached: str, back_to: str
) -> None:
    """Kill the tool at a change of the stage ``until``, which leaves ``reached``, and roll back."""
    site.run_verb(KILLED, "run", "--until", until, kill=kill)
    site.state = reached
    site.bring_to(back_to)


@trial(FRESH, "kill -9 half way through the join, rollback", _AS_FOUND)
def back_from_half_join(site: RollSite) -> str:
    """Roll back after a kill when one dest host observes, one has files, and one has none."""
    _back_after_kill(site, "join", ("SetService", "dest2", 0), JOINED, FRESH)
    return "every file as found"


@trial(FRESH, "rollback behind the join", _AS_FOUND)
def back_from_join(site: RollSite) -> str:
    site.bring_to(JOINED)
    site.bring_to(FRESH)
    return "every file as found"


@trial(FRESH, "source's leader killed in the join", _GOES_ON)
def leader_killed_in_join(site: RollSite) -> str:
    with site.tool("run", "--until", "join") as tool:
        wait_during(tool, "the second dest host is joined", lambda: len(wave_targets(tool, "join")) > 1)
        outcome = _kill_source_leader(site) + _resumed_if_stopped(site, tool, "join")
    site.state = JOINED
    return outcome


def _back_in_rehearsal(site: RollSite, kind: str) -> str:
    _back_after_kill(site, "rehearse", (kind, "dest2", 1), REHEARSED, JOINED)
    return "dest observes; brokers and source as found"


TRIALS += [
    Trial(
        f"back-in-rehearsal-{kind.lower()}",
        JOINED,
        f"kill -9 in the rehearsal before the second host's {kind.upper()}, rollback to before it",
        "dest observes, brokers as found",
        partial(_back_in_rehearsal, kind=kind),
    )
    for kind in ("Fence", "Cut", "Seal", "Go")
]


@trial(JOINED, "kill -9 between two SEALs of the rehearsal, rollback", _AS_FOUND)
def killed_in_rehearsal(site: RollSite) -> str:
    _back_after_kill(site, "rehearse", ("Seal", "dest3", 2), REHEARSED, FRESH)
    return "every file as found"


@trial(JOINED, "source's leader killed in the rehearsal, dest cut off", _GOES_ON)
def leader_killed_in_rehearsal(site: RollSite) -> str:
    with site.tool("run", "--until", "rehearse") as tool:
        wait_during(
            tool, "dest is cut", lambda: any(e["step"] == "drain" for e in tool.events_of("StepEnded"))
        )
        outcome = _kill_source_leader(site)
        code = tool.wait_for_end(VERB_S)
        troubles = tool.troubles()
    require(code in (0, TURNED_BACK), f"ended with {code}: {troubles}")
    if code:
        outcome += f"; turned back: {troubles[:160]}; rehearsed again"
        site.run_verb(0, "run", "--until", "rehearse")
    site.state = REHEARSED
    return outcome


# --- in the roll --------------------------------------------------------------------------------------------

_DROP_IN = "/run/systemd/system/kafka.service.d"
_BREAK_UNIT = (
    f"mkdir -p {_DROP_IN} && printf '[Service]\\nExecStartPre=/bin/false\\n' >{_DROP_IN}/broken.conf && "
    "systemctl daemon-reload"
)
_REPAIR_UNIT = f"rm -r {_DROP_IN} && systemctl daemon-reload"


@trial(REHEARSED, "kill -9 before the second broker's restart, rollback", "brokers as found")
def back_from_half_roll(site: RollSite) -> str:
    """Roll back after a kill when the second broker's file names dest already."""
    _back_after_kill(site, "roll", ("SetService", _roll_order(site)[1], 0), ROLLED, REHEARSED)
    return "brokers as found"


@trial(
    REHEARSED,
    "the first broker's unit fails in the roll",
    "stops there, the others untouched; resume goes on",
)
def broker_does_not_start(site: RollSite) -> str:
    first, *others = _roll_order(site)
    before = site.processes(), site.properties()
    site.lab.exec(first, ["sh", "-c", _BREAK_UNIT])
    try:
        findings = site.run_verb(STOPPED, "run", "--until", "roll")
    finally:
        site.lab.exec(first, ["sh", "-c", _REPAIR_UNIT])
    outcome = require_finding(findings, "engine.no-progress", first)
    _require_untouched(site, others, *before)
    site.run_verb(0, "resume", "--until", "roll")
    site.state = ROLLED
    return f"{outcome}; the others untouched; resumed"


@trial(
    ROLLED, "the controller moves in the middle of the way back", "the new controller last, no broker twice"
)
def back_controller_moves(site: RollSite) -> str:
    outcome = _controller_moves(site, "rollback", "--to", "roll")
    site.state = REHEARSED
    return outcome


@trial(
    REHEARSED,
    "the first broker is paused as it comes back; rollback as it is",
    "waits, the others untouched; brokers as found",
)
def broker_paused(site: RollSite) -> str:
    first, *others = _roll_order(site)
    before, files = site.processes(), site.properties()

    def restarted() -> bool:
        now = site.processes()[first]
        return now != before[first] and "MainPID=0" not in now

    def waits_for_it() -> bool:
        return any(f"{first} is back" in e["what"] for e in tool.events_of("Waits")[-1:])

    def registered() -> str | None:
        return f"{first} is registered" if first in site.registered() else None

    with site.tool("run", "--until", "roll") as tool:
        wait_during(tool, f"{first} is another process", restarted)
        fault.pause(site.lab, first)
        wait_during(tool, "it waits for the broker", waits_for_it)
        wait_until(f"{first} is not registered", registered, 120)
        now = time.time()
        wait_during(tool, "it still waits", lambda: any(e["at"] > now for e in tool.events_of("Waits")))
        _require_untouched(site, others, before, files)
        interrupt(tool)
    site.state = ROLLED
    site.bring_to(REHEARSED)
    return f"waited for {first}, the others untouched; rolled back with it still paused"


@trial(
    REHEARSED, "the controller moves in the middle of the roll", "the new controller last, no broker twice"
)
def controller_moves(site: RollSite) -> str:
    outcome = _controller_moves(site, "run", "--until", "roll")
    site.state = ROLLED
    return outcome


@trial(REHEARSED, "source's leader killed in the roll", _GOES_ON)
def leader_killed_in_roll(site: RollSite) -> str:
    with site.tool("run", "--until", "roll") as tool:
        wait_during(tool, "the first wave", lambda: bool(wave_targets(tool)))
        outcome = _kill_source_leader(site) + _resumed_if_stopped(site, tool, "roll")
        _waves_without_repetition(tool)
    site.state = ROLLED
    return outcome


@trial(REHEARSED, "kill -9 of a dest host under a broker in the roll", "no session lost; the roll goes on")
def observer_killed(site: RollSite) -> str:
    with _held_after_first_wave(site) as (tool, first):
        before = baseline(site.lab)
        host = _serving(site, first)
        fault.kill(site.lab, host)

        def not_elsewhere() -> str | None:
            try:
                serving = _serving(site, first)
            except Unexpected as error:
                return str(error)
            return f"still {host}" if serving == host else None

        wait_until(f"{first} is served elsewhere", not_elsewhere, 60)
        fault.start(site.lab, host)
        wait_until("dest observes", site.not_observing, 60)
        lost = lost_since(before, baseline(site.lab))
        require(not lost, f"lost: {lost}")
        site.run_beside("release")
        expect_exit(tool, 0, "the roll")
        _waves_without_repetition(tool)
    site.state = ROLLED
    return f"{host} killed under {first}: every owner, czxid and the controller epoch as before"


@trial(
    REHEARSED,
    "a second operator during the roll, then with --steal",
    "refused (5); after --steal the first is refused and sends nothing",
)
def second_operator(site: RollSite) -> str:
    """The second operator is once on a machine of another name with its own runs, once a process here."""
    runs, elsewhere = site.directory / "runs", site.directory / "elsewhere"
    words = [sys.executable, "-m", "zkmigrate", "resume", "-i", str(site.inventory), "--run-id", RUN, "--yes"]
    other_name = ["unshare", "--uts", "sh", "-c", 'hostname second && exec "$@"', "sh"]
    lost = [*other_name, *words, "--until", "roll", "--journal-lost", "forward"]
    with _held_after_first_wave(site) as (tool, _first):
        for argv, directory in ((lost, elsewhere), (words, runs)):
            code, output = run_program(site.lab.operator_command(argv), directory)
            require(code == LOCKED, f"the second operator got {code}: {output}")
        code, output = run_program(site.lab.operator_command([*lost, "--steal"]), elsewhere)
        require(code == 0, f"--steal got {code}: {output}")
        site.run_beside("release")
        expect_exit(tool, LOCKED, "the one whose lock was stolen")
        require(len(wave_targets(tool)) == 1, f"it went on: {wave_targets(tool)}")
    # The other operator's journal is now the valid one.
    shutil.rmtree(runs / RUN)
    (elsewhere / RUN).rename(runs / RUN)
    site.state = ROLLED
    return f"refused ({LOCKED}); stolen by name, and the first ended with {LOCKED} and sent nothing more"


@trial(
    REHEARSED, "kill -9 in the roll, half of the journal's last line gone", "resume goes on, no broker twice"
)
def journal_truncated(site: RollSite) -> str:
    site.run_verb(KILLED, "run", "--until", "roll", kill=("SetService", _roll_order(site)[1], 0))
    journal = site.operator.journal / "journal.jsonl"
    text = journal.read_bytes()
    last = text.rstrip(b"\n").rpartition(b"\n")[2]
    journal.write_bytes(text[: -len(last) // 2])
    with site.tool("resume", "--until", "roll") as tool:
        expect_exit(tool, 0, "resume")
        order = _waves_without_repetition(tool)
    site.state = ROLLED
    return f"{len(last) - len(last) // 2 + 1} bytes less; resumed with {', '.join(order)}"


@trial(
    REHEARSED,
    "the operator's disk full in the roll",
    "stops (8); nothing sent without its intent; resume goes on",
)
def disk_full(site: RollSite) -> str:
    runs, aside = site.directory / "runs", site.directory / "runs-aside"
    ballast = runs / "ballast"
    # An earlier trial may have continued without the journal that has its operations.
    earlier = _operations_on_hosts(site)
    runs.rename(aside)
    runs.mkdir()
    run_command(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(runs)])
    try:
        shutil.copytree(aside, runs, dirs_exist_ok=True)
        with site.tool("run", "--until", "roll") as tool:
            wait_during(tool, "the first wave", lambda: bool(wave_targets(tool)))
            with ballast.open("wb", buffering=0) as file:
                for size in (1 << 16, 1 << 12, 1 << 6, 1):
                    try:
                        while True:
                            file.write(b"\0" * size)
                    except OSError:
                        continue
            findings = expect_exit(tool, STOPPED, "with the disk full")
            message = _last_message(tool)
        require(not findings or bool(message), "it says nothing")
        ballast.unlink()
        text = (site.operator.journal / "journal.jsonl").read_text()
        in_journal = {word for line in text.splitlines() for word in all_texts(json.loads(line))}
        unknown = sorted(_operations_on_hosts(site) - earlier - in_journal)
        require(not unknown, f"sent without an intent in the journal: {unknown}")
        site.run_verb(0, "resume", "--until", "roll")
    finally:
        ballast.unlink(missing_ok=True)
        shutil.copytree(runs, aside, dirs_exist_ok=True)
        run_command(["umount", "-l", str(runs)])
        runs.rmdir()
        aside.rename(runs)
    site.state = ROLLED
    return f"stopped ({STOPPED}): {message[:160]}; every operation of the hosts is in the journal; resumed"


@trial(REHEARSED, "rollback behind the roll", _AS_FOUND)
def back_from_roll(site: RollSite) -> str:
    site.bring_to(ROLLED)
    site.bring_to(FRESH)
    return "every file as found"


# --- what they share ----------------------------------------------------------------------------------------


def _last_message(tool: ToolProcess) -> str:
    return " ".join(e["message"] for e in tool.events_of("RunEnded"))


def _kill_source_leader(site: RollSite) -> str:
    """Kill source's leader, wait for the next one, restart the old one, wait until all servers serve."""
    leader = site.source_leader()
    fault.kill(site.lab, leader)

    def no_leader() -> str | None:
        modes = site.modes(Role.SOURCE)
        return None if "leader" in modes.values() else str(modes)

    wait_until("another leader of source", no_leader, 60)
    fault.start(site.lab, leader)
    site.accept_source()
    return f"{leader} killed, {site.source_leader()} leads"


def _resumed_if_stopped(site: RollSite, tool: ToolProcess, until: str) -> str:
    """Wait for the tool's end and resume the run if it has stopped. Return what to add to the outcome."""
    code = tool.wait_for_end(VERB_S)
    if not code:
        return ""
    troubles = tool.troubles()
    site.run_verb(0, "resume", "--until", until)
    return f"; stopped with {code}: {troubles[:200]}; resumed"


def _waves_without_repetition(tool: ToolProcess) -> list[str]:
    order = wave_targets(tool)
    require(len(order) == len(set(order)), f"a broker twice: {order}")
    return order


@contextmanager
def _held_after_first_wave(site: RollSite, *verb: str) -> Iterator[tuple[ToolProcess, str]]:
    """Hold the roll, or this verb, after its first broker; yield the tool and that broker.

    No hold is left at the end, because the next trial would wait there. On a busy machine ``hold`` comes too
    late. So the roll holds by a number, which does not count on a way back.
    """
    forward = verb[:1] != ("rollback",)
    if forward:
        site.run_beside("hold", "--at", "1")
    with site.tool(*(verb or ("run", "--until", "roll"))) as tool:
        wait_during(tool, "the first wave", lambda: bool(wave_targets(tool)))
        try:
            if not forward:
                site.run_beside("hold")
            wait_during(tool, "it holds", lambda: bool(tool.events_of("Holding")))
            yield tool, wave_targets(tool)[0]
        finally:
            (site.operator.journal / hold_file.NAME).unlink(missing_ok=True)


def _controller_moves(site: RollSite, *verb: str) -> str:
    """Make the next broker the controller after the first wave: it must come last, and no broker twice."""
    first, heir, old = _roll_order(site)
    path = f"{site.lab.spec.chroot}/controller"
    with _held_after_first_wave(site, *verb) as (tool, _first):
        require(wave_targets(tool) == [first], f"held after {wave_targets(tool)}, not {first}")
        with site.lab.zookeeper() as client:
            for _ in range(40):
                if site.controller() == heir:
                    break
                client.delete(path)
                wait_until("a controller", lambda: None if client.exists(path) else "none", 30)
            else:
                raise Unexpected(f"{heir} was not elected in 40 elections")
        site.run_beside("release")
        expect_exit(tool, 0, " ".join(verb))
        order = wave_targets(tool)
    require(order == [first, old, heir], f"order {order}; the controller moved from {old} to {heir}")
    return f"order {', '.join(order)}: the new controller last"


def _roll_order(site: RollSite) -> tuple[str, ...]:
    """Return the brokers in the order of the roll: by number, the controller last."""
    controller = site.controller()
    return (*(broker for broker in site.brokers if broker != controller), controller)


def _require_untouched(
    site: RollSite, hosts: list[str], before: dict[str, str], files: dict[str, str]
) -> None:
    now, here = site.processes(), site.properties()
    touched = [h for h in hosts if now[h] != before[h] or here[h] != files[h]]
    require(not touched, f"touched as well: {touched}")


def _serving(site: RollSite, broker: str) -> str:
    """Return the dest host that serves a broker's session, according to the broker's sockets."""
    peers = site.lab.exec(broker, ["ss", "-Htn", "state", "established", "dport", "=", ":2181"]).stdout
    for host in site.lab.role(Role.DEST):
        if f"{host.address}:" in peers.replace("[::ffff:", "").replace("]", ""):
            return host.name
    raise Unexpected(f"{broker} is connected to no dest host: {peers}")


def _operations_on_hosts(site: RollSite) -> set[str]:
    """Return the operations of this run that hosts have recorded, except those of the lock."""
    found: set[str] = set()
    for host in (*site.dests, *site.brokers):
        listed = site.lab.exec(host, ["ls", f"{zkm_host.run_dir(RUN)}/ops"], check=False).stdout.split()
        found.update(name for name in listed if not name.startswith("lock."))
    return found


def all_texts(body: object) -> list[str]:
    """Return every key and value in a line of the journal, as text."""
    if isinstance(body, dict):
        return [word for key, value in body.items() for word in (str(key), *all_texts(value))]
    if isinstance(body, list):
        return [word for value in body for word in all_texts(value)]
    return [str(body)]
