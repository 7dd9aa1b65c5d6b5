"""The command ``prove tail|delta|digest|all``: prove that dest's disks hold a subtree as source's do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import DeltaFinding, DeltaResult
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.proofs import (
    WORDS,
    DigestProof,
    Proved,
    Reach,
    Side,
    TailProof,
    all_held,
    comparison_zxid,
    delta_proof,
    digest_proof,
    reach_of,
    tail_proof,
    unread_reach,
)
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.sums import BUCKETS, Sums, read_sums, znodes
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import Difference, Znode
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.progress import ProgressLines
from zkmigrate.zookeeper.disks.subtree_differences import find_differences

NOT_HELD = 10
UNPROVED = 11


@dataclass(frozen=True)
class ProofRequest:
    """The proofs to make, and how to show their results.

    zxid: where to compare the trees; None for the newest zxid that both hold. after_cut: the operator knows
    that dest was cut over. on_dest: sessions known to be clients of dest. lines: how many differences to
    show. out: a file for all differences, as JSON lines.
    """

    chroot: Chroot
    proofs: tuple[str, ...]
    zxid: int | None = None
    after_cut: bool = False
    on_dest: tuple[int, ...] = ()
    lines: int = 20
    out: Path | None = None
    max_record: int = MAX_RECORD


@dataclass
class Differences:
    """The differences between source and one dest disk. first: the first ones. count: the number of all."""

    first: list[Difference] = field(default_factory=list)
    count: int = 0


@dataclass
class ProofResult:
    """The results of the requested proofs.

    tail, delta: None if not requested. digests, differences: by the dest disk's name.
    """

    request: ProofRequest
    source: str
    tail: TailProof | None = None
    delta: DeltaResult | None = None
    digests: dict[str, DigestProof] = field(default_factory=dict)
    differences: dict[str, Differences] = field(default_factory=dict)
    seconds: float = 0.0

    def held(self) -> dict[str, Proved]:
        """Return the result of each requested proof."""
        held: dict[str, Proved] = {
            "tail": self.tail.held if self.tail else None,
            "delta": self.delta.held if self.delta else None,
            "digest": all_held(proof.held for proof in self.digests.values()),
        }
        return {name: held[name] for name in self.request.proofs}

    @property
    def code(self) -> int:
        """The exit code: 0, NOT_HELD, or UNPROVED if no proof failed and one could not be made."""
        values = self.held().values()
        return NOT_HELD if False in values else UNPROVED if None in values else 0


def prove(
    source: Side, dests: Sequence[Side], request: ProofRequest, say: Callable[[str], None]
) -> ProofResult:
    """Read the disks and make the proofs. say: receives lines of progress.

    Raises UsageError for a directory given twice, a subtree that source does not have, and an ``out`` that
    exists or cannot be written. Raises HostError and OSError for a disk that cannot be reached. Damage on a
    disk raises no error: a proof that needs the damaged data is unproved.
    """
    if len({dest.name for dest in dests}) < len(dests):
        raise UsageError("a directory of dest is given twice. Needed: each directory once")
    if request.out is not None and request.out.exists():
        raise UsageError(f"--out {request.out}: the file exists. Needed: the name of a new file")
    began = time.monotonic()
    outcome = ProofResult(request, source.name)
    progress = ProgressLines(say)
    subtrees = _SourceSubtrees(source, request, progress)
    try:
        upto = newest(source.data, source.logs, max_record=request.max_record).zxid
        reach = {dest.name: _find_reach(source, upto, dest, request) for dest in dests}
        if "tail" in request.proofs:
            outcome.tail = tail_proof(subtrees.at(upto), reach)
        if "delta" in request.proofs:
            known = not any(where.unproved for where in reach.values())
            lowest = min(where.zxid for where in reach.values()) if known else upto
            at, more = subtrees.at(min(lowest, upto)), {"max_record": request.max_record}
            outcome.delta = delta_proof(source, upto, at, dests, reach, on_dest=request.on_dest, **more)
    except ZkDataError as error:
        _leave_unproved(outcome, dests, f"{source.name}: {error}")
        return outcome
    if "digest" in request.proofs:
        with _open_new(request.out) as out:
            for dest in dests:
                zxid = comparison_zxid(reach[dest.name], upto) if request.zxid is None else request.zxid
                _digest(outcome, subtrees, dest, zxid, progress, out)
    outcome.seconds = time.monotonic() - began
    return outcome


class _SourceSubtrees:
    """Source's subtree at several zxids. Each is read from the disk once."""

    def __init__(self, source: Side, request: ProofRequest, progress: ProgressLines) -> None:
        self._source = source
        self._request = request
        self._tell = progress.of(source.name)
        self._read: dict[int, Sums] = {}

    def at(self, zxid: int) -> Sums:
        """Return the checksums of source's subtree as of a zxid.

        Raises UsageError if there is no such subtree, because a proof about nothing proves nothing.
        """
        source, request = self._source, self._request
        if zxid not in self._read:
            self._read[zxid] = read_sums(
                source.data,
                source.logs,
                chroot=request.chroot,
                upto=zxid,
                max_record=request.max_record,
                tell=self._tell,
            )
        if not self._read[zxid].znodes:
            raise no_subtree(source.name, request.chroot, zxid)
        return self._read[zxid]

    def znodes(self, outcome: Sums) -> Iterator[tuple[str, Znode]]:
        source, max_record = self._source, self._request.max_record
        return znodes(source.data, source.logs, outcome, max_record=max_record, tell=self._tell)


def no_subtree(server: str, chroot: Chroot, zxid: int) -> UsageError:
    """Return the error for a chroot without a znode."""
    return UsageError(
        f"{server} has no znode {chroot.listed} at {format_zxid(zxid)}. Needed: --chroot with the path at "
        "the end of the brokers' zookeeper.connect"
    )


def _find_reach(source: Side, upto: int, dest: Side, request: ProofRequest) -> Reach:
    try:
        return reach_of(source, upto, dest, after_cut=request.after_cut, max_record=request.max_record)
    except ZkDataError as error:
        return unread_reach(str(error))


def _leave_unproved(outcome: ProofResult, dests: Sequence[Side], why: str) -> None:
    """Mark every proof as unproved because source cannot be read. why: the reason."""
    outcome.tail = TailProof(None, 0, "", {dest.name: unread_reach(why) for dest in dests})
    outcome.delta = DeltaResult(0, None, 0, 0, (), (), why, None)
    outcome.digests = {dest.name: DigestProof(None, 0, None, None, unproved=why) for dest in dests}


def _digest(
    outcome: ProofResult,
    subtrees: _SourceSubtrees,
    dest: Side,
    zxid: int,
    progress: ProgressLines,
    out: TextIO | None,
) -> None:
    request, tell = outcome.request, progress.of(dest.name)
    try:
        source = subtrees.at(zxid)
        proof = digest_proof(source, dest, max_record=request.max_record, tell=tell)
        outcome.digests[dest.name] = proof
        if proof.dest is None or not proof.buckets:
            return
        theirs = znodes(dest.data, dest.logs, proof.dest, max_record=request.max_record, tell=tell)
        expected = (source.znodes + proof.dest.znodes) * len(proof.buckets) // BUCKETS
        some = outcome.differences[dest.name] = Differences()
        for one in find_differences(subtrees.znodes(source), theirs, proof.buckets, expected):
            some.count += 1
            if some.count <= request.lines:
                some.first.append(one)
            if out is not None:
                out.write(json.dumps({"disk": dest.name, **difference(one)}) + "\n")
    except ZkDataError as error:
        outcome.digests[dest.name] = DigestProof(None, zxid, None, None, unproved=str(error))


@contextmanager
def _open_new(path: Path | None) -> Iterator[TextIO | None]:
    """Yield the new file for all differences, if one is requested."""
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="utf-8", errors="surrogatepass")
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror or error}") from error
    with file:
        yield file


def difference(one: Difference) -> dict[str, str]:
    """Return a difference as JSON values: left is source, right is dest."""
    kinds = {"only left": "only on source", "only right": "only on dest"}
    return {"path": one.path, "kind": kinds.get(one.kind, one.kind), "source": one.left, "dest": one.right}


def difference_line(one: Difference) -> str:
    """Return a difference as a line of text."""
    body = difference(one)
    values = f": {body['source']} on source, {body['dest']} on dest" if body["source"] or body["dest"] else ""
    return f"{body['path']} {body['kind']}{values}"


def body(outcome: ProofResult) -> dict[str, Any]:
    """Return the result as JSON values."""
    held = outcome.held()
    whole: dict[str, Any] = {
        "held": all_held(held.values()),
        **outcome.request.chroot.body(),
        "source": outcome.source,
    }
    if "tail" in held and outcome.tail:
        whole["tail"] = {
            "held": held["tail"],
            "needed": format_zxid(outcome.tail.needed),
            "path": outcome.tail.path,
            "dests": {name: reach_body(where) for name, where in outcome.tail.reach.items()},
        }
    if "delta" in held and outcome.delta:
        result = outcome.delta
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
        shown = outcome.differences
        whole["digest"] = {
            "held": held["digest"],
            "differences": [
                {"disk": name, **difference(one)} for name, some in shown.items() for one in some.first
            ],
            "dests": {name: _digest_body(outcome, name, proof) for name, proof in outcome.digests.items()},
        }
    whole["seconds"] = round(outcome.seconds, 3)
    return whole


def reach_body(where: Reach) -> dict[str, Any]:
    """Return how far a dest disk agrees with source, as JSON values."""
    return {
        "newest": format_zxid(where.newest),
        "with_source": None if where.unproved else format_zxid(where.zxid),
        "compared": where.histories.compared,
        "unproved": where.unproved,
    }


def finding(one: DeltaFinding) -> dict[str, Any]:
    """Return a finding of the delta proof as JSON values."""
    return {
        "zxid": format_zxid(one.zxid),
        "time_ms": one.time_ms,
        "type": one.type,
        "path": one.path,
        "session": format_session(one.session),
        "expiry": one.expiry,
    }


def _digest_body(outcome: ProofResult, name: str, proof: DigestProof) -> dict[str, Any]:
    some = outcome.differences.get(name)
    return {
        "held": proof.held,
        "zxid": format_zxid(proof.zxid),
        "znodes": proof.dest.znodes if proof.dest else None,
        "znodes_on_source": proof.source.znodes if proof.source else None,
        "digest": proof.dest.digest if proof.dest else None,
        "differences": some.count if some else 0,
        "unproved": proof.unproved,
    }


def text(outcome: ProofResult) -> str:
    """Return the result as text for the operator: a line for each proof, and its details."""
    held = outcome.held()
    lines: list[str] = []
    if "tail" in held and outcome.tail:
        lines += _tail_lines(outcome.tail)
    if "delta" in held and outcome.delta:
        lines += _delta_lines(outcome.delta, outcome.request)
    if "digest" in held:
        for name, proof in outcome.digests.items():
            lines += _digest_lines(outcome, name, proof)
    return "\n".join(lines)


def _tail_lines(tail: TailProof) -> list[str]:
    needed = f"the largest zxid in source's subtree is {format_zxid(tail.needed)}"
    lines = [f"tail    {WORDS[tail.held]}: {needed}{f' at {tail.path}' if tail.path else ''}"]
    for name, where in tail.reach.items():
        with_source = (
            f", shared with source up to {format_zxid(where.zxid)}" if where.zxid != where.newest else ""
        )
        lines.append(f"        {name}: {where.unproved or f'at {format_zxid(where.newest)}{with_source}'}")
    return lines


def _delta_lines(result: DeltaResult, request: ProofRequest) -> list[str]:
    span = f"{result.records} transactions of source after {format_zxid(result.after)}"
    lines = [f"delta   {WORDS[result.held]}: {result.unproved or span}"]
    for word, some in (("missing on dest", result.missing), ("allowed, an expiry", result.allowed)):
        lines += [
            f"        {word}: {format_zxid(one.zxid)} {one.type} {one.path} by {format_session(one.session)}"
            for one in some[: request.lines]
        ]
        if len(some) > request.lines:
            lines.append(f"        {word}: {len(some) - request.lines} more; --json has all")
    return lines


def _digest_lines(outcome: ProofResult, name: str, proof: DigestProof) -> list[str]:
    if proof.source is None or proof.dest is None:
        return [f"digest  unproved: {name}: {proof.unproved}"]
    counted = f"{proof.source.znodes} znodes at {format_zxid(proof.zxid)}"
    if proof.held:
        return [f"digest  held: {name}: {counted}, digest {proof.dest.digest[:16]}"]
    some = outcome.differences[name]
    lines = [f"digest  NOT HELD: {name}: {some.count} of {counted} on source differ"]
    lines += [f"        {difference_line(one)}" for one in some.first]
    if some.count > len(some.first):
        all_in = (
            f"all are in {outcome.request.out}" if outcome.request.out else "pass --out FILE to write all"
        )
        lines.append(f"        and {some.count - len(some.first)} more; {all_in}")
    return lines
