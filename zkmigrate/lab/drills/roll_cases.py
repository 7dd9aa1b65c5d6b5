"""Cases in the roll: brokers, controller, servers, operators and the journal fail one after the other."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from pathlib import Path

from zkmigrate.hosts import zkm_host
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline, lost_since
from zkmigrate.lab.commands import run as run_command
from zkmigrate.lab.drills.roll_before import leader_killed
from zkmigrate.lab.drills.roll_site import (
    FRESH,
    REHEARSED,
    ROLLED,
    RUN,
    VERB_S,
    RollSite,
    Wrong,
    comes,
    ended,
    interrupted,
    must,
    named,
    to_end,
    waves,
)
from zkmigrate.lab.operator import Typing
from zkmigrate.lab.wait import wait_until

STOPPED, LOCKED, KILLED = 8, 5, -signal.SIGKILL
_DROP_IN = "/run/systemd/system/kafka.service.d"
_BROKEN = (
    f"mkdir -p {_DROP_IN} && printf '[Service]\\nExecStartPre=/bin/false\\n' >{_DROP_IN}/broken.conf && "
    "systemctl daemon-reload"
)
_MENDED = f"rm -r {_DROP_IN} && systemctl daemon-reload"


def back_from_half_roll(site: RollSite) -> str:
    """kill -9 before the second broker is restarted; its file names dest already."""
    second = _order(site)[1]
    site.ends(KILLED, "run", "--until", "roll", kill=("SetService", second, 0))
    site.place = ROLLED
    site.at(REHEARSED)
    return "brokers as found"


def back_from_roll(site: RollSite) -> str:
    """The whole roll, back to hosts as they were found."""
    site.at(ROLLED)
    site.at(FRESH)
    return "every file as found"


def broker_does_not_start(site: RollSite) -> str:
    """The first broker's unit fails: stopped there, resumed when it is mended, rolled back."""
    first, others = _order(site)[0], _order(site)[1:]
    before, files = site.processes(), site.properties()
    site.lab.exec(first, ["sh", "-c", _BROKEN])
    try:
        findings = site.ends(STOPPED, "run", "--until", "roll")
    finally:
        site.lab.exec(first, ["sh", "-c", _MENDED])
    outcome = named(findings, "engine.no-progress", first)
    _untouched(site, others, before, files)
    site.ends(0, "resume", "--until", "roll")
    site.place = ROLLED
    return f"{outcome}; the others untouched; resumed"


def broker_paused(site: RollSite) -> str:
    """The first broker stops answering as it comes back: the roll waits for it; back with it still paused."""
    first, others = _order(site)[0], _order(site)[1:]
    before, files = site.processes(), site.properties()
    with site.tool("run", "--until", "roll") as typing:
        comes(typing, f"{first} is another process", lambda: _is_another(site, first, before))
        fault.pause(site.lab, first)
        comes(typing, "it waits for the broker", lambda: f"{first} is back" in _waits_for(typing))
        wait_until(f"{first} is not registered", lambda: _gone(site, first), 120)
        comes(typing, "it still waits", lambda: _waits_since(typing, time.time()))
        _untouched(site, others, before, files)
        interrupted(typing)
    site.place = ROLLED
    site.at(REHEARSED)
    return f"waited for {first}, the others untouched; rolled back with it still paused"


def controller_moves(site: RollSite) -> str:
    """The controller moves to the broker that was next: it is taken last, nobody twice."""
    first, heir, old = _order(site)
    with site.tool("run", "--until", "roll") as typing:
        comes(typing, "the first wave", lambda: bool(waves(typing)))
        must(waves(typing) == [first], f"first of all {waves(typing)}, not {first}")
        site.beside("hold")
        comes(typing, "it holds", lambda: bool(typing.of("Holding")))
        must(waves(typing) == [first], f"held after {waves(typing)}")
        _give_controller(site, heir)
        site.beside("release")
        ended(typing, 0, "the roll")
        order = waves(typing)
    site.place = ROLLED
    must(order == [first, old, heir], f"order {order}; the controller moved from {old} to {heir}")
    return f"order {', '.join(order)}: the new controller last"


def back_with_controller_moving(site: RollSite) -> str:
    """The same on the way back."""
    first, heir, old = _order(site)
    with site.tool("rollback", "--to", "roll") as typing:
        comes(typing, "the first wave", lambda: bool(waves(typing)))
        site.beside("hold")
        comes(typing, "it holds", lambda: bool(typing.of("Holding")))
        _give_controller(site, heir)
        site.beside("release")
        ended(typing, 0, "the way back")
        order = waves(typing)
    site.place = REHEARSED
    must(order == [first, old, heir], f"order {order}; the controller moved from {old} to {heir}")
    return f"order {', '.join(order)}: the new controller last"


def leader_killed_in_roll(site: RollSite) -> str:
    """Source's leader dies behind the first wave."""
    with site.tool("run", "--until", "roll") as typing:
        comes(typing, "the first wave", lambda: bool(waves(typing)))
        outcome = leader_killed(site)
        code = typing.end(VERB_S)
        order, troubles = waves(typing), typing.troubles()
    must(len(order) == len(set(order)), f"a broker twice: {order}")
    if code:
        outcome += f"; stopped with {code}: {troubles[:200]}; resumed"
        site.ends(0, "resume", "--until", "roll")
    site.place = ROLLED
    return outcome


def observer_killed(site: RollSite) -> str:
    """kill -9 of a dest host that serves a broker, in the middle of the roll: no session is lost."""
    with site.tool("run", "--until", "roll") as typing:
        comes(typing, "the first wave", lambda: bool(waves(typing)))
        site.beside("hold")
        comes(typing, "it holds", lambda: bool(typing.of("Holding")))
        before = baseline(site.lab)
        first = waves(typing)[0]
        host = _serving(site, first)
        fault.kill(site.lab, host)
        wait_until(f"{first} is served elsewhere", lambda: _served_elsewhere(site, first, host), 60)
        fault.start(site.lab, host)
        wait_until("dest observes", site.not_observing, 60)
        lost = lost_since(before, baseline(site.lab))
        must(not lost, f"lost: {lost}")
        site.beside("release")
        ended(typing, 0, "the roll")
        order = waves(typing)
    must(len(order) == len(set(order)), f"a broker twice: {order}")
    site.place = ROLLED
    return f"{host} killed under {first}: every owner, czxid and the controller epoch as before"


def second_operator(site: RollSite) -> str:
    """Somebody on another machine takes up a run that is at work: refused; with --steal the first is out."""
    with site.tool("run", "--until", "roll") as typing:
        comes(typing, "the first wave", lambda: bool(waves(typing)))
        site.beside("hold")
        comes(typing, "it holds", lambda: bool(typing.of("Holding")))
        resumed = ("resume", "--until", "roll", "--journal-lost", "forward")
        code, said = _elsewhere(site, *resumed)
        must(code == LOCKED, f"the second operator got {code}: {said}")
        code, said_here = _here(site, "resume")
        must(code == LOCKED, f"a second process here got {code}: {said_here}")
        code, stolen = _elsewhere(site, *resumed, "--steal")
        must(code == 0, f"--steal got {code}: {stolen}")
        site.beside("release")
        ended(typing, LOCKED, "the one whose lock was stolen")
        must(len(waves(typing)) == 1, f"it went on: {waves(typing)}")
    # The journal that is in force is the other operator's.
    shutil.rmtree(site.directory / "runs" / RUN)
    (site.directory / "elsewhere" / RUN).rename(site.directory / "runs" / RUN)
    site.place = ROLLED
    return f"refused ({LOCKED}); stolen by name, and the first ended with {LOCKED} and sent nothing more"


def journal_truncated(site: RollSite) -> str:
    """kill -9 in the roll, and half of the journal's last line is gone."""
    site.ends(KILLED, "run", "--until", "roll", kill=("SetService", _order(site)[1], 0))
    journal = site.operator.journal / "journal.jsonl"
    text = journal.read_bytes()
    last = text.rstrip(b"\n").rpartition(b"\n")[2]
    journal.write_bytes(text[: -len(last) // 2])
    with site.tool("resume", "--until", "roll") as typing:
        ended(typing, 0, "resume")
        order = waves(typing)
    must(len(order) == len(set(order)), f"a broker twice: {order}")
    site.place = ROLLED
    return f"{len(last) - len(last) // 2 + 1} bytes less; resumed with {', '.join(order)}"


def disk_full(site: RollSite) -> str:
    """The operator's disk fills up in the roll: nothing is sent that is not in the journal."""
    runs = site.directory / "runs"
    aside = site.directory / "runs-aside"
    earlier = _on_record(site)  # an earlier case may have gone on without the journal that has them
    runs.rename(aside)
    runs.mkdir()
    run_command(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(runs)])
    try:
        shutil.copytree(aside, runs, dirs_exist_ok=True)
        with site.tool("run", "--until", "roll") as typing:
            comes(typing, "the first wave", lambda: bool(waves(typing)))
            ballast = runs / "ballast"
            _fill(ballast)
            findings = ended(typing, STOPPED, "with the disk full")
            said = " ".join(e["message"] for e in typing.of("RunEnded"))
        must(not findings or bool(said), "it says nothing")
        ballast.unlink()
        unknown = sorted(_on_record(site) - earlier - _in_journal(site))
        must(not unknown, f"sent without an intent in the journal: {unknown}")
        with site.tool("resume", "--until", "roll") as typing:
            ended(typing, 0, "resume")
    finally:
        (runs / "ballast").unlink(missing_ok=True)
        shutil.copytree(runs, aside, dirs_exist_ok=True)
        run_command(["umount", "-l", str(runs)])
        runs.rmdir()
        aside.rename(runs)
    site.place = ROLLED
    return f"stopped ({STOPPED}): {said[:160]}; every operation of the hosts is in the journal; resumed"


# --- what they need -----------------------------------------------------------------------------------------


def _order(site: RollSite) -> tuple[str, ...]:
    """In which order the brokers are taken: by number, the controller last."""
    controller = site.controller()
    return (*(b for b in site.brokers if b != controller), controller)


def _untouched(site: RollSite, hosts: tuple[str, ...], before: dict[str, str], files: dict[str, str]) -> None:
    now, here = site.processes(), site.properties()
    touched = [h for h in hosts if now[h] != before[h] or here[h] != files[h]]
    must(not touched, f"touched as well: {touched}")


def _is_another(site: RollSite, host: str, before: dict[str, str]) -> bool:
    now = site.processes()[host]
    return now != before[host] and "MainPID=0" not in now


def _waits_for(typing: Typing) -> str:
    return " ".join(e["what"] for e in typing.of("Waits")[-1:])


def _waits_since(typing: Typing, at: float) -> bool:
    return any(e["at"] > at for e in typing.of("Waits"))


def _gone(site: RollSite, host: str) -> str | None:
    return f"{host} is registered" if host in site.registered() else None


def _give_controller(site: RollSite, heir: str) -> None:
    """Have the brokers elect until it is this one."""
    path = f"{site.lab.spec.chroot}/controller"
    with site.lab.zookeeper() as client:
        for _ in range(40):
            if site.controller() == heir:
                return
            client.delete(path)
            wait_until("a controller", lambda: None if client.exists(path) else "none", 30)
    raise Wrong(f"{heir} was not elected in 40 elections")


def _serving(site: RollSite, broker: str) -> str:
    """The dest host that serves a broker's session, by the broker's sockets."""
    peers = site.lab.exec(broker, ["ss", "-Htn", "state", "established", "dport", "=", ":2181"]).stdout
    for host in site.lab.hosts.values():
        if host.name in site.dests and f"{host.address}:" in peers.replace("[::ffff:", "").replace("]", ""):
            return host.name
    raise Wrong(f"{broker} is connected to no dest host: {peers}")


def _served_elsewhere(site: RollSite, broker: str, dead: str) -> str | None:
    try:
        host = _serving(site, broker)
    except Wrong as error:
        return str(error)
    return None if host != dead else f"still {host}"


def _elsewhere(site: RollSite, verb: str, *options: str) -> tuple[int, str]:
    """A verb on a machine of another name with runs of its own, one process to its end."""
    named_so = 'hostname second && exec "$@"'
    words = _words(site, verb, *options)
    argv = site.lab.operator_command(["unshare", "--uts", "sh", "-c", named_so, "sh", *words])
    return to_end(argv, site.directory / "elsewhere")


def _here(site: RollSite, verb: str, *options: str) -> tuple[int, str]:
    return to_end(site.lab.operator_command(_words(site, verb, *options)), site.directory / "runs")


def _words(site: RollSite, verb: str, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "zkmigrate", verb, "-i", str(site.inventory), "--run-id", RUN, "--yes", *options
    ]  # fmt: skip


def _fill(path: Path) -> None:
    """Write until not a byte is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 6, 1):
            while True:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    break


def _on_record(site: RollSite) -> set[str]:
    """The operations of this run that a host has on record, but for those of the lock."""
    found: set[str] = set()
    for host in (*site.dests, *site.brokers):
        listed = site.lab.exec(host, ["ls", f"{zkm_host.run_dir(RUN)}/ops"], check=False).stdout.split()
        found.update(name for name in listed if not name.startswith("lock."))
    return found


def _in_journal(site: RollSite) -> set[str]:
    text = (site.operator.journal / "journal.jsonl").read_text()
    return {word for line in text.splitlines() for word in operations(json.loads(line))}


def operations(body: object) -> list[str]:
    """Every text in a line of the journal."""
    if isinstance(body, dict):
        return [word for key, value in body.items() for word in (str(key), *operations(value))]
    if isinstance(body, list):
        return [word for value in body for word in operations(value)]
    return [str(body)]
