"""The steps of the window by hand: one function per step, forward and back."""

from __future__ import annotations

from zkmigrate.model.step import Way
from zkmigrate.runbook.sheet import Block, Sheet, waves


def arm(s: Sheet) -> tuple[Block, ...]:
    rules = "in4=top out4=top 'in6=(top|noipv6)' 'out6=(top|noipv6)'"
    wants = f"phase=armed {rules} fence_entries=0 cut_entries=0 'image=(begun|complete)' unit_state=active"
    check = (f'until_like 10 "$DEST" {wants}',)
    return (*waves(s, s.changes, Way.FORWARD), Block(s.dest, check, "`OK` with all these words"))


def survey(s: Sheet) -> tuple[Block, ...]:
    text = ("survey rehearsal" if s.rehearsal else "survey",)
    expect = "session and path of every ephemeral under the chroot, then `OK survey`"
    if not s.rehearsal:
        expect += ". **Write down** T and the seconds that it says you have: ______ s"
    moves = (
        "it names the session or the setting; with too few seconds do not begin: raise the session timeout"
    )
    return (Block(s.dest, text, expect, moves),)


def fence(s: Sheet) -> tuple[Block, ...]:
    rules = "in4=top 'in6=(top|noipv6)' 'fence_entries=[2-9]'"
    check = f'until_like 2 "$DEST" phase=fenced {rules} client_sockets=0'
    look = Block(s.dest, (check,), "`OK` with all these words; the clock runs", "walk back")
    return (*waves(s, s.changes, Way.FORWARD), look)


def drain(s: Sheet) -> tuple[Block, ...]:
    text = (
        "until_drained 3 &&",
        'keep "RECORDS=$(records)" && [ "$RECORDS" ] &&',
        'keep "Z=$(source_zxid)" && [ "$Z" ] &&',
        'until_zxid 3 "$Z" $DEST && echo "Z is $Z; source\'s log: $RECORDS"',
    )
    return (
        Block(
            s.dest, text, "`OK nothing outstanding`, then `OK … at least` Z", "try later, and now walk back"
        ),
    )


def cut(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    first = (
        'in_time 5 && keep "CUT_MS=$(left_ms)" && [ "$CUT_MS" ] && keep STARTED=no &&',
        "{",
        *sent.text,
        "}",
    )
    closed = (f"never '^probe .* (open|timeout|unreachable)$' {' '.join(s.dest)} && until_dropped 5",)
    return (
        Block(s.dest, first, f"{sent.expect}; before it a line `probe … refused` for every port of source"),
        Block(s.dest, closed, "`OK` with how many learners source's leader counts now", "walk back at once"),
    )


def stop(s: Sheet) -> tuple[Block, ...]:
    stamps = (
        *(f"zkm {host} stamp >{host}.stamp" for host in s.dest),
        " && ".join(f"grep -q '^stamp=.' {host}.stamp" for host in s.dest) + ' && echo "OK stamps"',
    )
    return (
        *waves(s, s.changes, Way.FORWARD),
        Block(s.dest, stamps, "`OK stamps`: what each disk holds now, for SEAL to compare with"),
    )


def prove(s: Sheet) -> tuple[Block, ...]:
    expect = "`OK source has written nothing …`"
    moves = "somebody writes under the chroot on source, or source has had an election: walk back at once"
    return (Block(s.dest, ("in_time 2 && same_source",), expect, moves),)


def seal(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    moves = "**all** hosts walk back, those that are sealed too; walk back"
    return (Block(s.dest, sent.text, sent.expect, moves),)


def go(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    moves = "a host without GO stays shut, which is safe; the others finish alone. Send its line again; only "
    moves += "while **every** host answers you can walk back"
    return (Block(s.dest, sent.text, sent.expect, moves),)


def serve(s: Sheet) -> tuple[Block, ...]:
    moves = "read `finisher=` of the host that stays in `go`; while **every** host answers you can walk back"
    return (
        Block(
            s.dest, ("until_like 60 \"$DEST\" 'phase=(started|checked|open)'",), "`OK` within seconds", moves
        ),
    )


def check(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    look = Block(
        s.dest,
        ("reformed",),
        "mode and zxid of every host, then `OK … leads …` with the ephemerals of before",
        "behind the closed door nothing is lost yet: walk back",
    )
    return (look, sent)


def open_door(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.changes, Way.FORWARD)
    moves = "open the others all the same; a host that did not open is mended afterwards, **never** restored"
    return (Block(s.dest, sent.text, sent.expect, moves),)


def stop_back(s: Sheet) -> tuple[Block, ...]:
    (sent,) = waves(s, s.back, Way.BACK)
    return (
        Block(s.dest, (*sent.text[:-1], f"{sent.text[-1]} && keep STARTED=yes"), sent.expect, way=Way.BACK),
    )


def cut_back(s: Sheet) -> tuple[Block, ...]:
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


def fence_back(s: Sheet) -> tuple[Block, ...]:
    check = ('until_like 2 "$DEST" phase=armed fence_entries=0',)
    return (
        *waves(s, s.back, Way.BACK),
        Block(s.dest, check, "`OK`: clients reach dest again", way=Way.BACK),
    )


def go_back(s: Sheet) -> tuple[Block, ...]:
    return (_none_open(s), *waves(s, s.back, Way.BACK))


def seal_back(s: Sheet) -> tuple[Block, ...]:
    return (_none_open(s), *waves(s, s.back, Way.BACK))


def _none_open(s: Sheet) -> Block:
    """Whoever walks back while a host is open, or about to open, makes two ensembles."""
    moves = (
        "**do not go on with this way back.** Open anywhere: forward only. Not answering: bring it back first"
    )
    return Block(s.dest, ("none_open",), "`OK none is open`, from every host", moves, Way.BACK)
