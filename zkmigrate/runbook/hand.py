"""Each step by hand: its blocks of commands there and back, what they must say, and what is weaker by hand.

The changes are those of the plan and of the step's own undo. What is decided from facts in a run is looked at
here with four-letter words, ``zkm-host`` and the functions of ``hand.sh``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkmigrate import hostside
from zkmigrate.dependents.kafka import connect_sed, connect_string
from zkmigrate.engine.plan import PlannedStep, without_secrets
from zkmigrate.facts.clients import addresses
from zkmigrate.inventory import Broker, Inventory
from zkmigrate.model.change import Arm, Change, Changes, PutFile, SetService
from zkmigrate.model.step import Way
from zkmigrate.runbook.commands import Place, in_words, line, said

STOPPED = "stop here; nothing goes on by itself. Read what the host said, then mend it or walk back"
HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Block:
    """One fenced block: what is pasted at once.

    hosts: whom it is about. expect: what it must say, in words. otherwise: what to do if it says something
    else.
    """

    hosts: tuple[str, ...]
    text: tuple[str, ...]
    expect: str = ""
    otherwise: str = STOPPED
    way: Way = Way.FORWARD


@dataclass(frozen=True)
class Sheet:
    """What the page of one step is made from. back: the changes that undo it, per host."""

    inventory: Inventory
    run: str
    stage: str
    rehearsal: bool
    step: PlannedStep
    back: Mapping[str, Changes] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.stage}.{self.step.id}"

    @property
    def dest(self) -> tuple[str, ...]:
        return self.inventory.dest_names

    @property
    def changes(self) -> dict[str, Changes]:
        """The changes going forward, per host."""
        return {host: tuple(c.change for c in planned) for host, planned in self.step.targets.items()}

    def place(self, way: Way, alone: str = "") -> Place:
        return Place(self.run, self.id, way, alone)


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


def waves(s: Sheet, changes: Mapping[str, Changes], way: Way) -> tuple[Block, ...]:
    """The n-th change of every host at once, one block each."""
    blocks = []
    for number in range(max((len(each) for each in changes.values()), default=0)):
        wave = {host: each[number] for host, each in changes.items() if number < len(each)}
        blocks.append(_wave(s, wave, number, way))
    return tuple(blocks)


def _wave(s: Sheet, wave: Mapping[str, Change], number: int, way: Way) -> Block:
    place = s.place(way)
    text: list[str] = (
        [f'next; keep "{place.leg}=$LEG"' if way is Way.FORWARD else "next"] if number == 0 else []
    )
    hosts, made = tuple(wave), dict[tuple[str, ...], str]()
    for host, change in wave.items():
        files, file, digest = local_file(change, s.id if not made else f"{s.id}.{host}")
        if (same := made.setdefault(tuple(files[1:]), file)) != file:
            files, file, digest = [], same, digest.replace(file, same)
        text += files
        text.append(f"{line(place, change, place.operation(host, number + 1), file, digest)} &")
    first = next(iter(wave.values()))
    pattern = said(first, way)
    text.append(f"{_waits(pattern)} {shlex.quote(pattern)} {' '.join(hosts)}")
    return Block(
        hosts, tuple(text), f"{in_words(pattern)} from each host, then `OK {' '.join(hosts)}`", way=way
    )


def _waits(pattern: str) -> str:
    return "went" if "refused" in pattern else "say"


def local_file(change: Change, name: str) -> tuple[list[str], str, str]:
    """The lines that make the local file a change takes its content from, its name, and words for its digest
    where the page does not hold every value."""
    if isinstance(change, Arm):
        return _heredoc(f"{name}.spec", change.spec), f"{name}.spec", ""
    if not isinstance(change, PutFile):
        return [], "", ""
    file = f"{name}.{change.path.rpartition('/')[2]}"
    shown = without_secrets(change.content)
    if shown.encode() == change.content:
        return _heredoc(file, shown), file, ""
    keys = [text.partition("=")[0] for text in shown.splitlines() if text.endswith(f"={HIDDEN}")]
    return [*_heredoc(file, shown), *(f"fill {file} {key}" for key in keys)], file, f'"$(digest {file})"'


def _heredoc(file: str, content: str) -> list[str]:
    return [f"cat >{file} <<'END-OF-FILE'", *content.splitlines(), "END-OF-FILE"]


# --- one function per step that is more than its changes -------------------------------------------------


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
        *_heredoc("sudoers", hostside.sudoers(s.inventory.ssh.user)),
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
    blocks = _one_by_one(s, host, changes, Way.FORWARD)
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


def _one_by_one(s: Sheet, host: str, changes: Changes, way: Way) -> tuple[Block, ...]:
    """Every change of one host in one block each."""
    place, blocks = s.place(way, host), []
    for number, change in enumerate(changes, 1):
        text = []
        if number == 1:
            text.append(f'next; keep "{place.leg}=$LEG"' if way is Way.FORWARD else "next")
        files, file, digest = local_file(change, f"{s.id}.{host}")
        text += [*files, line(place, change, place.operation(host, number), file, digest)]
        text.append(f"{_waits(said(change, way))} {shlex.quote(said(change, way))} {host}")
        blocks.append(
            Block((host,), tuple(text), f"{in_words(said(change, way))}, then `OK {host}`", way=way)
        )
    return tuple(blocks)


def _join_back(s: Sheet) -> tuple[Block, ...]:
    hosts = list(reversed(list(s.back)))
    return tuple(block for host in hosts for block in _one_by_one(s, host, s.back[host], Way.BACK))


def _roll(s: Sheet) -> tuple[Block, ...]:
    return tuple(block for host, changes in s.changes.items() for block in _roll_one(s, host, changes))


def _roll_one(s: Sheet, host: str, changes: Changes) -> tuple[Block, ...]:
    """The broker's file is edited from what the host holds, so that no value of it stands on the page."""
    broker = s.inventory.broker(host)
    place, path = s.place(Way.FORWARD, host), s.inventory.kafka.config
    put, restart = changes
    assert isinstance(put, PutFile)
    assert isinstance(restart, SetService)
    before = (
        f"until_in_sync 600 {host} {_bootstrap(broker)}",
        f"zkm {host} read {path} 0 1048576 | base64 -d >{host}.old",
        f"sed -E {shlex.quote(connect_sed(connect_string(s.inventory)))} {host}.old >{host}.new",
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
    for host in reversed(list(s.back)):
        broker = s.inventory.broker(host)
        wait = Block((host,), _moved(broker, "source"), _MOVED, "do not touch another broker", Way.BACK)
        blocks += [*_one_by_one(s, host, s.back[host], Way.BACK), wait]
    return tuple(blocks)


def _arm(s: Sheet) -> tuple[Block, ...]:
    rules = "in4=top out4=top 'in6=(top|noipv6)' 'out6=(top|noipv6)'"
    wants = f"phase=armed {rules} fence_entries=0 cut_entries=0 'image=(begun|complete)' unit_state=active"
    check = (f'until_like 10 "$DEST" {wants}',)
    return (*waves(s, s.changes, Way.FORWARD), Block(s.dest, check, "`OK` with all these words"))


def _survey(s: Sheet) -> tuple[Block, ...]:
    text = ("survey rehearsal" if s.rehearsal else "survey",)
    expect = "session and path of every ephemeral under the chroot, then `OK survey`"
    if not s.rehearsal:
        expect += ". **Write down** T and the seconds that it says you have: ______ s"
    moves = (
        "it names the session or the setting; with too few seconds do not begin: raise the session timeout"
    )
    return (Block(s.dest, text, expect, moves),)


def _fence(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    begin = Block(s.dest, ('keep "FENCED_AT=$(date +%s)"', *sent.text), sent.expect, STOPPED)
    rules = "in4=top 'in6=(top|noipv6)' 'fence_entries=[2-9]'"
    check = f'until_like 2 "$DEST" phase=fenced {rules} client_sockets=0'
    return (
        begin,
        Block(
            s.dest, (check,), "`OK` with all these words; the clock runs", "walk back: `back` of this step"
        ),
    )


def _drain(s: Sheet) -> tuple[Block, ...]:
    text = (
        "until_drained 3 &&",
        'keep "RECORDS=$(records)" && [ "$RECORDS" ] &&',
        'keep "Z=$(source_zxid)" && [ "$Z" ] &&',
        'until_zxid 3 "$Z" $DEST && echo "Z is $Z; source\'s log: $RECORDS"',
    )
    return (
        Block(s.dest, text, "`OK nothing outstanding`, then `OK … at least` Z", "walk back and try later"),
    )


def _cut(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    first = ('in_time 5 && keep "CUT_MS=$(left_ms)" && keep STARTED=no &&', "{", *sent.text, "}")
    closed = (f"never '^probe .* (open|timeout|unreachable)$' {' '.join(s.dest)} && until_dropped 5",)
    return (
        Block(s.dest, first, f"{sent.expect}; before it a line `probe … refused` for every port of source"),
        Block(s.dest, closed, "`OK` with how many learners source's leader counts now", "walk back at once"),
    )


def _stop(s: Sheet) -> tuple[Block, ...]:
    stamps = (
        *(f"zkm {host} stamp >{host}.stamp" for host in s.dest),
        " && ".join(f"grep -q '^stamp=.' {host}.stamp" for host in s.dest) + ' && echo "OK stamps"',
    )
    return (
        *waves(s, s.changes, Way.FORWARD),
        Block(s.dest, stamps, "`OK stamps`: what each disk holds now, for SEAL to compare with"),
    )


def _prove(s: Sheet) -> tuple[Block, ...]:
    expect = "`OK source has written nothing …`"
    moves = "walk back at once: somebody writes under the chroot on source, or source has had an election"
    return (Block(s.dest, ("in_time 2 && same_source",), expect, moves),)


def _seal(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    moves = "walk back on **all** hosts, the sealed ones too: `back` of this step, then of those before it"
    return (Block(s.dest, sent.text, sent.expect, moves),)


def _serve(s: Sheet) -> tuple[Block, ...]:
    moves = "a host that stays in `go`: read its `finisher=` line; walk back while **every** host answers"
    return (
        Block(
            s.dest, ("until_like 60 \"$DEST\" 'phase=(started|checked|open)'",), "`OK` within seconds", moves
        ),
    )


def _check(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    look = Block(
        s.dest,
        ("reformed",),
        "mode and zxid of every host, then `OK … leads …` with the ephemerals of before",
        "walk back now, from `go`: behind the closed door nothing is lost yet",
    )
    return (look, sent)


def _open(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    moves = "open the others all the same; a host that did not open is mended afterwards, **never** restored"
    return (Block(s.dest, sent.text, sent.expect, moves),)


def _verify(s: Sheet) -> tuple[Block, ...]:
    first = s.inventory.kafka.brokers[0]
    text = (
        "sleep $((T_MS * 2 / 1000)) && still_owned &&",
        f"until_in_sync 120 {first.name} {_bootstrap(first)}",
    )
    moves = "brokers that are missing: look at their logs; there is no way back, mend forward"
    return (Block(s.dest, text, "after twice T: `OK … every owner of before is there`, `OK in sync`", moves),)


def _stop_back(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.back, Way.BACK)
    return (
        Block(s.dest, (*sent.text[:-1], f"{sent.text[-1]} && keep STARTED=yes"), sent.expect, way=Way.BACK),
    )


def _cut_back(s: Sheet) -> tuple[Block, ...]:
    """Uncut; restart an observer that was cut off for long, but not one that was started a moment ago."""
    uncut, restart = waves(s, s.back, Way.BACK)
    again = ('if [ "$STARTED" != yes ]; then', *restart.text, "fi")
    wait = ("until_mode 60 observer $DEST",)
    return (
        uncut,
        Block(s.dest, again, "ZooKeeper is restarted: quicker than its election back-off", way=Way.BACK),
        Block(
            s.dest,
            wait,
            "`OK … observer`",
            "look at ZooKeeper's log there; reopen only hosts that observe",
            Way.BACK,
        ),
    )


def _fence_back(s: Sheet) -> tuple[Block, ...]:
    check = ('until_like 2 "$DEST" phase=armed fence_entries=0',)
    return (
        *waves(s, s.back, Way.BACK),
        Block(s.dest, check, "`OK`: clients reach dest again", way=Way.BACK),
    )


def _go_back(s: Sheet) -> tuple[Block, ...]:
    return (_none_open(s), *waves(s, s.back, Way.BACK))


def _seal_back(s: Sheet) -> tuple[Block, ...]:
    return (_none_open(s), *waves(s, s.back, Way.BACK))


def _none_open(s: Sheet) -> Block:
    """Whoever walks back while a host is open, or about to open, makes two ensembles."""
    moves = (
        "**do not go on with this way back.** Open anywhere: forward only. Not answering: bring it back first"
    )
    return Block(s.dest, ("none_open",), "`OK none is open`, from every host", moves, Way.BACK)


_FORWARD: dict[str, Callable[[Sheet], tuple[Block, ...]]] = {
    "preflight": _preflight,
    "install": _install,
    "join": _join,
    "roll": _roll,
    "arm": _arm,
    "survey": _survey,
    "fence": _fence,
    "drain": _drain,
    "cut": _cut,
    "stop": _stop,
    "prove": _prove,
    "seal": _seal,
    "serve": _serve,
    "check": _check,
    "open": _open,
    "verify": _verify,
}

_BACK: dict[str, Callable[[Sheet], tuple[Block, ...]]] = {
    "join": _join_back,
    "roll": _roll_back,
    "go": _go_back,
    "seal": _seal_back,
    "stop": _stop_back,
    "cut": _cut_back,
    "fence": _fence_back,
}

ALONE = ("join", "roll")
"""Steps that change one host after the other, each with a leg of its own."""
