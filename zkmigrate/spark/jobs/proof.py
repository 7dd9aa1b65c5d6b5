"""Prove that each dest server's disk holds source's subtree, for the job ``proof``.

The job makes the three proofs of the command prove (docs/reference/prove.md) in Spark. Each dest server is
proved alone, with one exception: an expiry is allowed only if no dest server has it in its log or has closed
the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.runbook.model.report import Table
from zkmigrate.spark.disk import Disk
from zkmigrate.spark.ensembles import Sides
from zkmigrate.spark.input import Input, only
from zkmigrate.spark.jobs.tenants import subtree
from zkmigrate.spark.log_continuity import continuity
from zkmigrate.spark.log_delta import delta_findings, owners_of
from zkmigrate.spark.operation_kinds import CLOSES
from zkmigrate.spark.plain_rows import plain, table
from zkmigrate.spark.section import Section
from zkmigrate.spark.subtree_differences import compare_subtrees, first
from zkmigrate.spark.verb import reason
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import DeltaFinding, delta_held, missing_end, required_zxid
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.proofs import (
    PROOFS,
    WORDS,
    Proved,
    Reach,
    all_held,
    has_cut_over,
    highest,
    tail_held,
)
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.prove import difference, finding, reach_body

_UNPROVED = "unproved"


@dataclass(frozen=True)
class _Proof:
    """One proof of one dest server.

    body: the values for --json, without `held`. frame: a table of everything that is missing or differs.
    """

    held: Proved
    body: Mapping[str, Any]
    frame: DataFrame | None = None


def run(input: Input) -> Section:
    """Run the job.

    The figures have at most `request.top` findings of each proof; the Parquet tables have all of them.
    """
    sides = Sides(input)
    proofs = _Proofs(sides)
    source, largest = "", None
    try:
        source = sides.source.server
        reach = {dest.server: sides.reach(dest) for dest in sides.dests}
        largest = _largest(sides)
        made = {dest.server: proofs.of(dest, reach, largest) for dest in sides.dests}
    except ZkDataError as error:
        why = _Proof(None, {_UNPROVED: str(error)})
        made = {dest.server: dict.fromkeys(PROOFS, why) for dest in sides.dests}
    return _section(input, source, made, largest)


@dataclass(frozen=True)
class _Largest:
    """The largest zxid in source's subtree.

    path: the first path with this zxid. frame: the largest zxids by subtree.
    """

    zxid: int
    path: str
    frame: DataFrame


def _largest(sides: Sides) -> _Largest:
    """Find the largest zxid in source's subtree. Raises ZkDataError, or UsageError without a subtree."""
    nodes = sides.tree(sides.upto).nodes
    newest = F.greatest("czxid", "mzxid", "pzxid")
    row = only(nodes.orderBy(newest.desc(), "path").select(newest.alias("zxid"), "path"))
    found = nodes.groupBy(subtree(F.col("path"), sides.request.depth_below).alias("subtree")).agg(
        F.count("*").alias("znodes"), *(F.max(name).alias(name) for name in ("czxid", "mzxid", "pzxid"))
    )
    return _Largest(row.zxid, row.path, found.orderBy(F.desc(newest), "subtree"))


class _Proofs:
    """The proofs of several dest servers. Data that they share is read only once."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._deltas: dict[int, _Proof] = {}

    def of(self, dest: Disk, reach: Mapping[str, Reach], largest: _Largest) -> dict[str, _Proof]:
        """Return the three proofs of a dest server, by name. Raises ZkDataError if source cannot be read."""
        where = reach[dest.server]
        return {
            "tail": self._tail(where, largest),
            "delta": self._delta(where, reach),
            "digest": self._digest(dest, where),
        }

    def _tail(self, where: Reach, largest: _Largest) -> _Proof:
        body = {"needed": format_zxid(largest.zxid), "path": largest.path, **reach_body(where)}
        return _Proof(tail_held(where, largest.zxid), body)

    def _delta(self, where: Reach, reach: Mapping[str, Reach]) -> _Proof:
        upto = self._sides.upto
        body: dict[str, Any] = {
            "after": format_zxid(where.zxid), "upto": format_zxid(upto), "records": 0, "missing": [],
            "missing_count": 0, "allowed": [], "allowed_count": 0, _UNPROVED: where.unproved,
        }  # fmt: skip
        reached = required_zxid(upto)
        if where.unproved or (reached is not None and where.zxid >= reached):
            return _Proof(None if where.unproved else True, body)
        if where.zxid not in self._deltas:
            self._deltas[where.zxid] = self._judged(where, reach, body)
        return self._deltas[where.zxid]

    def _judged(self, where: Reach, reach: Mapping[str, Reach], body: dict[str, Any]) -> _Proof:
        sides, after, top = self._sides, where.zxid, self._sides.request.top
        frame, missing, allowed, counted = None, [], [], {False: 0, True: 0}
        try:
            walked = continuity(sides.spark, sides.source, after, None)
            unproved = str(walked.broken or "") or missing_end(walked.last, after, required_zxid(sides.upto))
            log = sides.source.log(sides.spark, after, zxids=(after + 1, (1 << 63) - 1))
            if log is not None:
                owners = self._living(owners_of(sides.tree(min(after, sides.upto)).nodes), reach)
                on_dest = sides.request.on_dest
                frame = delta_findings(log, sides.request.chroot, owners, on_dest, highest(reach)).persist()
                counted |= {row.allowed: row["count"] for row in frame.groupBy("allowed").count().collect()}
                missing, allowed = (
                    [_finding(row) for row in frame.filter(kind).orderBy("number").limit(top).collect()]
                    for kind in ("NOT allowed", "allowed")
                )
        except (PySparkException, ZkDataError) as error:
            return _Proof(None, body | {_UNPROVED: reason(error)})
        more = {
            "records": walked.records, "missing": missing, "missing_count": counted[False],
            "allowed": allowed, "allowed_count": counted[True], _UNPROVED: unproved,
        }  # fmt: skip
        return _Proof(delta_held(counted[False], unproved), body | more, frame)

    def _living(self, owners: DataFrame, reach: Mapping[str, Reach]) -> DataFrame:
        """Add a column `living` that says whether a session lives on dest (see `delta_proof`).

        A session lives on dest if every dest server was cut over, and none has closed the session since.
        """
        if not has_cut_over(reach):
            return owners.withColumn("living", F.lit(False))
        closed = [
            log.filter((F.col("type") == CLOSES) & (F.col("zxid") > reach[dest.server].zxid)).select(
                "session"
            )
            for dest in self._sides.dests
            if (log := dest.log(self._sides.spark, reach[dest.server].zxid)) is not None
        ]
        if not closed:
            return owners.withColumn("living", F.lit(True))
        known = reduce(DataFrame.union, closed).distinct().withColumn("closed", F.lit(True))
        return owners.join(known, "session", "left").select(
            "session", "path", F.col("closed").isNull().alias("living")
        )

    def _digest(self, dest: Disk, where: Reach) -> _Proof:
        sides = self._sides
        zxid = sides.comparison_zxid(where)
        body: dict[str, Any] = {
            "zxid": format_zxid(zxid), "znodes": None, "znodes_on_source": None, "differences": [],
            "differences_count": 0, _UNPROVED: "",
        }  # fmt: skip
        try:
            source, other = sides.tree(zxid), sides.tree_of(dest, zxid)
            found = compare_subtrees(source, other)
            some = first(found.frame, sides.request.top) if found.count else []
            more = {
                "znodes": found.znodes[1],
                "znodes_on_source": found.znodes[0],
                "differences": [difference(one) for one in some],
                "differences_count": found.count,
            }
        except (PySparkException, ZkDataError) as error:
            return _Proof(None, body | {_UNPROVED: reason(error)})
        return _Proof(not found.count, body | more, found.frame)


def _finding(row: Row) -> dict[str, Any]:
    return finding(DeltaFinding(row.zxid, row.time_ms, row.type, row.path, row.session, row.expiry))


def _section(
    input: Input, source: str, made: Mapping[str, Mapping[str, _Proof]], largest: _Largest | None
) -> Section:
    every = [(name, kind, proof) for name, proofs in made.items() for kind, proof in proofs.items()]
    held = all_held(proof.held for _, _, proof in every)
    subtrees = [] if largest is None else largest.frame.limit(input.request.top).collect()
    figures = {
        **input.request.chroot.body(),
        "source": source,
        "subtrees": [plain(row) for row in subtrees],
        "dests": {
            name: {
                "held": all_held(proof.held for proof in proofs.values()),
                **{kind: {"held": proof.held, **proof.body} for kind, proof in proofs.items()},
            }
            for name, proofs in made.items()
        },
    }
    frames = {f"{kind}-{name}": proof.frame for name, kind, proof in every if proof.frame is not None}
    if largest is not None:
        frames["largest"] = largest.frame
    missing = [
        one | {"dest": name, "": word}
        for name, proofs in made.items()
        for key, word in (("missing", ""), ("allowed", "allowed, an expiry"))
        for one in proofs["delta"].body.get(key, ())
    ]
    differences = [
        {"at": name, **one}
        for name, proofs in made.items()
        for one in proofs["digest"].body.get("differences", ())
    ]
    tables = (
        Table("proofs", "Proofs", ("dest", "proof", "", "seen"),
              tuple((name, kind, WORDS[proof.held], _seen(kind, proof)) for name, kind, proof in every),
              wide=(3,)),
        table("missing", "Missing on dest", missing,
              [(name, name) for name in ("dest", "zxid", "type", "path", "session", "")], wide=(3,)),
        table("differences", "Differences", differences,
              [("dest", "at"), ("path", "path"), ("first difference", "kind"), ("source", "source"),
               ("dest's", "dest")], wide=(1,)),
        table("largest", "Largest zxids on source", subtrees,
              [(name, name) for name in ("subtree", "znodes", "czxid", "mzxid", "pzxid")], wide=(0,)),
    )  # fmt: skip
    shown = tuple(one for one in tables if one.rows or one.id in ("proofs", "largest"))
    return Section("Proof", _answer(input.request.chroot, made), figures, shown, (), frames, held, True)


def _answer(chroot: Chroot, made: Mapping[str, Mapping[str, _Proof]]) -> str:
    parts = [
        f"{name}: {', '.join(f'{kind} {WORDS[proof.held]}' for kind, proof in proofs.items())}"
        for name, proofs in made.items()
    ]
    return f"Proofs that dest has everything that source has under {chroot}. {'; '.join(parts)}."


def _seen(kind: str, proof: _Proof) -> str:
    body = proof.body
    if body[_UNPROVED]:
        return str(body[_UNPROVED])
    if kind == "tail":
        return (
            f"at {body['newest']}, shared with source up to {body['with_source']}. The largest zxid in "
            f"source's subtree is {body['needed']} at {body['path']}"
        )
    if kind == "delta":
        return (
            f"{body['records']} transactions of source after {body['after']}, {body['missing_count']} missing"
        )
    return (
        f"{body['znodes_on_source']} znodes on source and {body['znodes']} here at {body['zxid']}, "
        f"{body['differences_count']} differ"
    )
