"""Each step by hand: its blocks of commands there and back, what they must say, what to do if not.

The changes are those of the plan and of the step's own undo. What a run decides from facts is looked at here
with four-letter words, ``zkm-host`` and the functions of ``hand.sh``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from zkmigrate import hostside
from zkmigrate.dependents.kafka import connect_sed, connect_string
from zkmigrate.dependents.kafka_plug import LEADERS
from zkmigrate.engine.plan import command
from zkmigrate.facts.clients import addresses
from zkmigrate.inventory import Broker
from zkmigrate.model.change import Change, Changes, PutFile, SetService
from zkmigrate.model.step import Way
from zkmigrate.runbook import window
from zkmigrate.runbook.commands import in_words, line, said
from zkmigrate.runbook.sheet import Block, Sheet, heredoc, one_by_one, waves


def forward(s: Sheet) -> tuple[Block, ...]:
    """The blocks that do a step; none where there is nothing to do."""
    make = _FORWARD.get(s.step.id)
    if make is not None:
        return make(s)
    return waves(s, s.changes, Way.FORWARD)


def back(s: Sheet) -> tuple[Block, ...]:
    """The blocks that undo it."""
    make = _BACK.get(s.step.id)
    return make(s) if make is not None else waves(s, s.back, Way.BACK)


def _preflight(s: Sheet) -> tuple[Block, ...]:
    hosts = (*s.dest, *s.inventory.broker_names)
    text = (*(f"at {host} true &" for host in hosts), f"say '' {' '.join(hosts)} && source_leader")
    expect = "`OK` with every host, then the name and address of source's one leader"
    return (
        Block(hosts, text, expect, "no host may be silent and source must have a leader: mend that first"),
    )


def _install(s: Sheet) -> tuple[Block, ...]:
    hosts = tuple(s.changes)
    if not hosts:
        return ()
    program, rules = hostside.INSTALLED_PATH, hostside.SUDOERS_PATH
    names = " ".join(hosts)
    copy = (
        *(f"give zkm-host {host} 'umask 077; cat >zkm-host.new' &" for host in hosts),
        f"say '' {names}",
    )
    sudoers = (
        *heredoc("sudoers", hostside.sudoers(s.inventory.ssh.user)),
        *(
            f"give sudoers {host} 'umask 077; cat >zkm-sudoers.new && sudo -n visudo -cqf zkm-sudoers.new' &"
            for host in hosts
        ),
        f"say '' {names}",
    )
    place = (
        *(
            f"at {host} 'sudo -n install -o root -g root -m 0755 zkm-host.new {program} && "
            f"sudo -n install -o root -g root -m 0440 zkm-sudoers.new {rules} && "
            f"rm zkm-host.new zkm-sudoers.new && sha256sum {program}' &"
            for host in hosts
        ),
        f'say "^$(digest zkm-host) " {names}',
    )
    return (
        Block(hosts, copy, f"`OK {names}`"),
        Block(hosts, sudoers, f"`OK {names}`; visudo has read the file"),
        Block(hosts, place, f"the digest of the program, then `OK {names}`"),
    )


def _join(s: Sheet) -> tuple[Block, ...]:
    return tuple(block for host, changes in s.changes.items() for block in _join_one(s, host, changes))


def _join_one(s: Sheet, host: str, changes: Changes) -> tuple[Block, ...]:
    blocks = one_by_one(s, host, changes, Way.FORWARD)
    wait = (
        "leader=$(source_leader); LEADER_AT=${leader#*=}; wanted=$(source_zxid)",
        f'until_mode 300 observer {host} && until_zxid 300 "$wanted" {host}',
    )
    expect = (
        f"`OK {host}: observer`, `OK {host}: at least 0x…`. Look at source's latency before the next host"
    )
    return (
        *blocks,
        Block((host,), wait, expect, f"look at ZooKeeper's log on {host}; its way back is below"),
    )


def _join_back(s: Sheet) -> tuple[Block, ...]:
    hosts = list(reversed(list(s.back)))
    return tuple(block for host in hosts for block in one_by_one(s, host, s.back[host], Way.BACK))


def _roll(s: Sheet) -> tuple[Block, ...]:
    brokers = {host: changes for host, changes in s.changes.items() if host != LEADERS}
    blocks = [block for host, changes in brokers.items() for block in _roll_one(s, host, changes)]
    return (*blocks, *(_elect(change, Way.FORWARD) for change in s.changes.get(LEADERS, ())))


def _elect(change: Change, way: Way) -> Block:
    """By Kafka's own program, wherever it is installed."""
    expect = "no error; `Election not needed` means that the preferred replica leads already"
    return Block((change.where,), (command(change),), expect, "go on: whoever leads is in sync", way)


def _roll_one(s: Sheet, host: str, changes: Changes) -> tuple[Block, ...]:
    """The broker's file is edited from what the host holds, so that no value of it stands on the page."""
    broker = s.inventory.broker(host)
    place, path = s.place(Way.FORWARD, host), s.inventory.kafka.config
    put, restart = changes
    assert isinstance(put, PutFile)
    assert isinstance(restart, SetService)
    before = (
        f"until_in_sync 600 {host} {_bootstrap(broker)} &&",
        f"zkm {host} read {path} 0 1048576 | base64 -d >{host}.old &&",
        f"sed -E {shlex.quote(connect_sed(connect_string(s.inventory)))} {host}.old >{host}.new &&",
        f"one_line {host}",
    )
    write = (
        f'next; keep "{place.leg}=$LEG"',
        line(place, put, place.operation(host, 1), f"{host}.new", f'"$(digest {host}.new)"'),
        f"say {shlex.quote(said(put))} {host}",
    )
    again = (
        line(place, restart, place.operation(host, 2)),
        f"say {shlex.quote(said(restart))} {host}",
    )
    return (
        Block((host,), before, "`OK in sync`, then the old and the new `zookeeper.connect`, no other line"),
        Block((host,), write, f"`wrote {path}`, then `OK {host}`"),
        Block(
            (host,),
            again,
            f"{in_words(said(restart))}, then `OK {host}`",
            "start it again by hand: a broker must not stay down",
        ),
        Block((host,), _moved(broker, "dest"), _MOVED, "do not touch another broker until this one is back"),
    )


_MOVED = "`OK broker … lives on …`, then `OK in sync`; this takes a minute or more"


def _moved(broker: Broker, there: str) -> tuple[str, ...]:
    at = " ".join(sorted(addresses(broker))) or broker.address
    return (
        f"until_moved 600 {broker.id} {there} {at} && until_in_sync 600 {broker.name} {_bootstrap(broker)}",
    )


def _bootstrap(broker: Broker) -> str:
    return f"[{broker.address}]:{broker.port}" if ":" in broker.address else f"{broker.address}:{broker.port}"


def _roll_back(s: Sheet) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for host in reversed([host for host in s.back if host != LEADERS]):
        broker = s.inventory.broker(host)
        wait = Block((host,), _moved(broker, "source"), _MOVED, "do not touch another broker", Way.BACK)
        blocks += [*one_by_one(s, host, s.back[host], Way.BACK), wait]
    return (*blocks, *(_elect(change, Way.BACK) for change in s.back.get(LEADERS, ())))


def _verify(s: Sheet) -> tuple[Block, ...]:
    first = s.inventory.kafka.brokers[0]
    text = (
        "sleep $((${T_MS:-40000} * 2 / 1000)) && still_owned &&",
        f"until_in_sync 120 {first.name} {_bootstrap(first)}",
    )
    moves = "brokers that are missing: look at their logs; there is no way back, mend forward"
    return (Block(s.dest, text, "after twice T: `OK … every owner of before is there`, `OK in sync`", moves),)


_FORWARD: dict[str, Callable[[Sheet], tuple[Block, ...]]] = {
    "preflight": _preflight,
    "install": _install,
    "join": _join,
    "roll": _roll,
    "arm": window.arm,
    "survey": window.survey,
    "fence": window.fence,
    "drain": window.drain,
    "cut": window.cut,
    "stop": window.stop,
    "prove": window.prove,
    "seal": window.seal,
    "go": window.go,
    "serve": window.serve,
    "check": window.check,
    "open": window.open_door,
    "verify": _verify,
}

_BACK: dict[str, Callable[[Sheet], tuple[Block, ...]]] = {
    "join": _join_back,
    "roll": _roll_back,
    "go": window.go_back,
    "seal": window.seal_back,
    "stop": window.stop_back,
    "cut": window.cut_back,
    "fence": window.fence_back,
}

ALONE = ("join", "roll")
"""Steps that change one host after the other, each with a leg of its own."""
