"""``prove tail|delta|digest|all``: that dest's disks hold what source's holds of a subtree."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.data.delta import DeltaFinding, DeltaResult
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.proofs import (
    WORDS,
    DigestProof,
    Held,
    Reach,
    Side,
    TailProof,
    all_held,
    compared_at,
    delta_proof,
    digest_proof,
    reach_of,
    tail_proof,
    unread,
)
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.sums import BUCKETS, Sums, read_sums, znodes
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import Difference
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.subtree_differences import differing

NOT_HELD = 10
UNPROVED = 11
_TELL_S = 3.0


@dataclass(frozen=True)
class Asked:
    """What is to be proved. zxid: where the trees are compared; None: the newest that both hold. on_dest:
    sessions known to be clients of dest. lines: how many differences are shown; out: takes all of them, as
    JSON lines."""

    chroot: str
    proofs: tuple[str, ...]
    zxid: int | None = None
    after_cut: bool = False
    on_dest: tuple[int, ...] = ()
    lines: int = 20
    out: Path | None = None
    max_record: int = MAX_RECORD


@dataclass
class Differences:
    """Those of one dest: the first of them, and how many in all."""

    first: list[Difference] = field(default_factory=list)
    count: int = 0


@dataclass
class Proven:
    """What came of it. tail and delta None: not asked for. digests: by dest's name."""

    asked: Asked
    source: str
    tail: TailProof | None = None
    delta: DeltaResult | None = None
    digests: dict[str, DigestProof] = field(default_factory=dict)
    differences: dict[str, Differences] = field(default_factory=dict)
    seconds: float = 0.0

    def held(self) -> dict[str, Held]:
        """By proof, of those that were asked for."""
        held: dict[str, Held] = {
            "tail": self.tail.held if self.tail else None,
            "delta": self.delta.held if self.delta else None,
            "digest": all_held(proof.held for proof in self.digests.values()),
        }
        return {name: held[name] for name in self.asked.proofs}

    @property
    def code(self) -> int:
        """0, NOT_HELD, or UNPROVED where no proof failed and one could not be made."""
        values = self.held().values()
        return NOT_HELD if False in values else UNPROVED if None in values else 0


class Telling:
    """Progress of long reads, a line every few seconds. say: takes a line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = self._told = time.monotonic()

    def of(self, name: str = "") -> Callable[[str, int, int | None], None]:
        """What the readers tell while they read this server's disk; without a name, the only one."""

        def tell(what: str, done: int, total: int | None) -> None:
            now = time.monotonic()
            if now - self._told < _TELL_S:
                return
            self._told = now
            of = "" if total is None else f" of {total}"
            whose = f"{name}: " if name else ""
            self._say(f"{whose}{done}{of} {what} read, {now - self._began:.0f} s")

        return tell


def prove(source: Side, dests: Sequence[Side], asked: Asked, say: Callable[[str], None]) -> Proven:
    """Read the disks and make the proofs. say: takes lines of progress.

    Raises UsageError for names that are given twice, a subtree that source does not have, and an ``out`` that
    cannot be written or is there; HostError and OSError where a disk cannot be reached. What a disk holds is
    never an error: it leaves a proof unmade.
    """
    if len({dest.name for dest in dests}) < len(dests):
        raise UsageError("a directory of dest is given twice; each has to be given once")
    if asked.out is not None and asked.out.exists():
        raise UsageError(f"--out {asked.out}: the file is there already. Needed: the name of a new one")
    began = time.monotonic()
    found = Proven(asked, source.name)
    tell = Telling(say)
    read = _Reading(source, asked, tell)
    try:
        upto = newest(source.data, source.logs, max_record=asked.max_record).zxid
        reach = {dest.name: _reach(source, upto, dest, asked) for dest in dests}
        if "tail" in asked.proofs:
            found.tail = tail_proof(read.at(upto), reach)
        if "delta" in asked.proofs:
            lowest = min(min(where.zxid, upto) for where in reach.values())
            blank = any(where.unproved for where in reach.values())
            at = read.at(upto) if blank else read.at(lowest)
            found.delta = delta_proof(
                source, upto, at, dests, reach, on_dest=asked.on_dest, max_record=asked.max_record
            )
    except ZkDataError as error:
        _unread(found, dests, f"{source.name}: {error}")
        return found
    if "digest" in asked.proofs:
        with _opened(asked.out) as out:
            for dest in dests:
                where = reach[dest.name]
                _digest(found, read, dest, asked.zxid or compared_at(where, upto), tell, out)
    found.seconds = time.monotonic() - began
    return found


class _Reading:
    """Source's subtree at some zxids, each read once."""

    def __init__(self, source: Side, asked: Asked, tell: Telling) -> None:
        self._source = source
        self._asked = asked
        self._tell = tell
        self._read: dict[int, Sums] = {}

    def at(self, zxid: int) -> Sums:
        """Raises UsageError where there is no such subtree: nothing is proved of nothing."""
        source = self._source
        if zxid not in self._read:
            self._read[zxid] = read_sums(
                source.data,
                source.logs,
                chroot=self._asked.chroot,
                upto=zxid,
                max_record=self._asked.max_record,
                tell=self._tell.of(source.name),
            )
        if not self._read[zxid].znodes:
            raise no_subtree(source.name, self._asked.chroot, zxid)
        return self._read[zxid]

    def znodes(self, found: Sums) -> Iterator[Any]:
        source = self._source
        return znodes(
            source.data,
            source.logs,
            found,
            max_record=self._asked.max_record,
            tell=self._tell.of(source.name),
        )


def no_subtree(server: str, chroot: str, zxid: int) -> UsageError:
    """Nothing is proved of nothing."""
    return UsageError(
        f"{server} holds no znode {chroot} at {format_zxid(zxid)}. Needed: --chroot as zookeeper.connect of "
        "the brokers ends"
    )


def _reach(source: Side, upto: int, dest: Side, asked: Asked) -> Reach:
    try:
        return reach_of(source, upto, dest, after_cut=asked.after_cut, max_record=asked.max_record)
    except ZkDataError as error:
        return unread(str(error))


def _unread(found: Proven, dests: Sequence[Side], why: str) -> None:
    """Source cannot be read: nothing is proved."""
    found.tail = TailProof(None, 0, "", {dest.name: unread(why) for dest in dests})
    found.delta = DeltaResult(0, None, 0, 0, (), (), why, None)
    found.digests = {dest.name: DigestProof(None, 0, None, None, unproved=why) for dest in dests}


def _digest(found: Proven, read: _Reading, dest: Side, zxid: int, tell: Telling, out: TextIO | None) -> None:
    asked = found.asked
    try:
        source = read.at(zxid)
        proof = digest_proof(source, dest, max_record=asked.max_record, tell=tell.of(dest.name))
        found.digests[dest.name] = proof
        if proof.dest is None or not proof.buckets:
            return
        theirs = znodes(
            dest.data, dest.logs, proof.dest, max_record=asked.max_record, tell=tell.of(dest.name)
        )
        expected = (source.znodes + proof.dest.znodes) * len(proof.buckets) // BUCKETS
        every = differing(read.znodes(source), theirs, proof.buckets, expected)
        some = found.differences[dest.name] = Differences()
        some.first = list(islice(every, asked.lines))
        some.count = len(some.first)
        for one in some.first:
            _write(out, dest.name, one)
        for one in every:
            some.count += 1
            _write(out, dest.name, one)
    except ZkDataError as error:
        found.digests[dest.name] = DigestProof(None, zxid, None, None, unproved=str(error))


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    """The file that takes every difference, if one is asked for."""
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="utf-8", errors="surrogatepass")
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror or error}") from error
    with file:
        yield file


def _write(out: TextIO | None, dest: str, one: Difference) -> None:
    if out is not None:
        out.write(json.dumps({"disk": dest, **difference(one)}) + "\n")


def difference(one: Difference) -> dict[str, str]:
    """As JSON values: left is source, right is dest."""
    kinds = {"only left": "only on source", "only right": "only on dest"}
    return {"path": one.path, "kind": kinds.get(one.kind, one.kind), "source": one.left, "dest": one.right}


def told(one: Difference) -> str:
    """One difference in words."""
    body = difference(one)
    values = f": {body['source']} on source, {body['dest']} on dest" if body["source"] or body["dest"] else ""
    return f"{body['path']} {body['kind']}{values}"


def body(found: Proven) -> dict[str, Any]:
    """What was proved, as JSON values."""
    held = found.held()
    whole: dict[str, Any] = {
        "held": all_held(held.values()),
        "chroot": found.asked.chroot,
        "source": found.source,
    }
    if "tail" in held and found.tail:
        whole["tail"] = {
            "held": held["tail"],
            "needed": format_zxid(found.tail.needed),
            "path": found.tail.path,
            "dests": {name: reach_body(where) for name, where in found.tail.reach.items()},
        }
    if "delta" in held and found.delta:
        result = found.delta
        whole["delta"] = {
            "held": held["delta"],
            "after": format_zxid(result.after),
            "upto": None if result.upto is None else format_zxid(result.upto),
            "records": result.records,
            "missing": [finding(one) for one in result.missing],
            "allowed": [finding(one) for one in result.allowed],
            "unproved": result.unproved,
        }
    if "digest" in held:
        shown = found.differences
        whole["digest"] = {
            "held": held["digest"],
            "differences": [
                {"disk": name, **difference(one)} for name, some in shown.items() for one in some.first
            ],
            "dests": {name: _digest_body(found, name, proof) for name, proof in found.digests.items()},
        }
    whole["seconds"] = round(found.seconds, 3)
    return whole


def reach_body(where: Reach) -> dict[str, Any]:
    """As JSON values."""
    return {
        "newest": format_zxid(where.newest),
        "with_source": None if where.unproved else format_zxid(where.zxid),
        "compared": where.histories.compared,
        "unproved": where.unproved,
    }


def finding(one: DeltaFinding) -> dict[str, Any]:
    """As JSON values."""
    return {
        "zxid": format_zxid(one.zxid),
        "time_ms": one.time_ms,
        "type": one.type,
        "path": one.path,
        "session": format_session(one.session),
        "expiry": one.expiry,
    }


def _digest_body(found: Proven, name: str, proof: DigestProof) -> dict[str, Any]:
    some = found.differences.get(name)
    return {
        "held": proof.held,
        "zxid": format_zxid(proof.zxid),
        "znodes": proof.dest.znodes if proof.dest else None,
        "znodes_on_source": proof.source.znodes if proof.source else None,
        "digest": proof.dest.digest if proof.dest else None,
        "differences": some.count if some else 0,
        "unproved": proof.unproved,
    }


def text(found: Proven) -> str:
    """For a reader: a line for each proof, and what stands behind it."""
    held = found.held()
    lines: list[str] = []
    if "tail" in held and found.tail:
        lines += _tail_lines(found.tail)
    if "delta" in held and found.delta:
        lines += _delta_lines(found.delta, found.asked)
    if "digest" in held:
        for name, proof in found.digests.items():
            lines += _digest_lines(found, name, proof)
    return "\n".join(lines)


def _tail_lines(tail: TailProof) -> list[str]:
    needed = f"source's newest mark is {format_zxid(tail.needed)}"
    lines = [f"tail    {WORDS[tail.held]}: {needed}{f' at {tail.path}' if tail.path else ''}"]
    for name, where in tail.reach.items():
        with_source = f", with source up to {format_zxid(where.zxid)}" if where.zxid != where.newest else ""
        said = where.unproved or f"at {format_zxid(where.newest)}{with_source}"
        lines.append(f"        {name}: {said}")
    return lines


def _delta_lines(result: DeltaResult, asked: Asked) -> list[str]:
    span = f"{result.records} transactions of source after {format_zxid(result.after)}"
    lines = [f"delta   {WORDS[result.held]}: {result.unproved or span}"]
    for word, some in (("missing on dest", result.missing), ("allowed, an expiry", result.allowed)):
        lines += [
            f"        {word}: {format_zxid(one.zxid)} {one.type} {one.path} by {format_session(one.session)}"
            for one in some[: asked.lines]
        ]
        if len(some) > asked.lines:
            lines.append(f"        {word}: {len(some) - asked.lines} more; --json has all")
    return lines


def _digest_lines(found: Proven, name: str, proof: DigestProof) -> list[str]:
    if proof.source is None or proof.dest is None:
        return [f"digest  unproved: {name}: {proof.unproved}"]
    counted = f"{proof.source.znodes} znodes at {format_zxid(proof.zxid)}"
    if proof.held:
        return [f"digest  held: {name}: {counted}, digest {proof.dest.digest[:16]}"]
    some = found.differences[name]
    lines = [f"digest  NOT HELD: {name}: {some.count} of {counted} on source differ"]
    lines += [f"        {told(one)}" for one in some.first]
    if some.count > len(some.first):
        all_in = f"all are in {found.asked.out}" if found.asked.out else "--out FILE takes all"
        lines.append(f"        and {some.count - len(some.first)} more; {all_in}")
    return lines
