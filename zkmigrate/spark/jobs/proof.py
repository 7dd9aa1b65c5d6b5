"""proof: that each dest server's disk holds what source's holds of a subtree; the three proofs of the verb
prove (docs/reference/prove.md), made in Spark.

Each dest server is proved by itself. What they share is what an expiry needs to be allowed: that it is in no
dest server's log, and that none of them has closed the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.model.report import Table
from zkmigrate.spark.disk import Disk
from zkmigrate.spark.ensembles import Sides
from zkmigrate.spark.input import Input, only
from zkmigrate.spark.jobs.tenants import subtree
from zkmigrate.spark.log_delta import delta_findings, owners_of
from zkmigrate.spark.operation_kinds import CLOSES
from zkmigrate.spark.plain_rows import plain
from zkmigrate.spark.section import Section
from zkmigrate.spark.subtree_at import continuity
from zkmigrate.spark.subtree_differences import compare_subtrees, first
from zkmigrate.spark.verb import reason
from zkmigrate.zookeeper.data.delta import DeltaFinding, due, judged, short
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.proofs import PROOFS, WORDS, Held, Reach, all_held, cut_over, highest, tail_held
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.prove import difference, finding, reach_body

_UNPROVED = "unproved"


@dataclass(frozen=True)
class _Proof:
    """One proof of one dest server. body: for --json, without `held`. frame: all of what is missing, or
    differs."""

    held: Held
    body: Mapping[str, Any]
    frame: DataFrame | None = None


def run(input: Input) -> Section:
    """The job. Not more than `request.top` findings of each proof are figures; the tables have all."""
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
    """Of source's subtree: the largest zxid and a path that has it; frame: by subtree."""

    zxid: int
    path: str
    frame: DataFrame


def _largest(sides: Sides) -> _Largest:
    """Raises ZkDataError, UsageError where there is no such subtree."""
    nodes = sides.tree(sides.upto).nodes
    newest = F.greatest("czxid", "mzxid", "pzxid")
    row = only(nodes.orderBy(newest.desc(), "path").select(newest.alias("zxid"), "path"))
    found = nodes.groupBy(subtree(F.col("path"), sides.request.depth_below).alias("subtree")).agg(
        F.count("*").alias("znodes"), *(F.max(name).alias(name) for name in ("czxid", "mzxid", "pzxid"))
    )
    return _Largest(row.zxid, row.path, found.orderBy(F.desc(newest), "subtree"))


class _Proofs:
    """Makes them. What is the same for several dest servers is read once."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._deltas: dict[int, _Proof] = {}

    def of(self, dest: Disk, reach: Mapping[str, Reach], largest: _Largest) -> dict[str, _Proof]:
        """All three, by name. Raises ZkDataError where source cannot be read."""
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
        reached = due(upto)
        if where.unproved or (reached is not None and where.zxid >= reached):
            return _Proof(None if where.unproved else True, body)
        if where.zxid not in self._deltas:
            self._deltas[where.zxid] = self._judged(where, reach, body)
        return self._deltas[where.zxid]

    def _judged(self, where: Reach, reach: Mapping[str, Reach], body: dict[str, Any]) -> _Proof:
        sides, after, top = self._sides, where.zxid, self._sides.request.top
        try:
            walked = continuity(sides.spark, sides.source, after, None)
            unproved = str(walked.broken or "") or short(walked.last, after, due(sides.upto))
            log = sides.source.log(sides.spark, after, zxids=(after + 1, (1 << 63) - 1))
            frame = None
            missing, allowed = [], []
            counted = {False: 0, True: 0}
            if log is not None:
                owners = self._living(owners_of(sides.tree(min(after, sides.upto)).nodes), reach)
                on_dest = sides.request.on_dest
                frame = delta_findings(log, sides.request.chroot, owners, on_dest, highest(reach)).persist()
                counted |= {row.allowed: row["count"] for row in frame.groupBy("allowed").count().collect()}
                missing, allowed = (
                    [_finding(row) for row in frame.filter(kind).orderBy("number").limit(top).collect()]
                    for kind in ("NOT allowed", "allowed")
                )
        except PySparkException as error:
            return _Proof(None, body | {_UNPROVED: reason(error)})
        except ZkDataError as error:
            return _Proof(None, body | {_UNPROVED: str(error)})
        more = {
            "records": walked.records, "missing": missing, "missing_count": counted[False],
            "allowed": allowed, "allowed_count": counted[True], _UNPROVED: unproved,
        }  # fmt: skip
        return _Proof(judged(counted[False], unproved), body | more, frame)

    def _living(self, owners: DataFrame, reach: Mapping[str, Reach]) -> DataFrame:
        """With whether the session lives on dest, as `zookeeper.data.proofs.delta_proof` says: every dest
        server was cut over, and none has closed it since."""
        if not cut_over(reach):
            return owners.withColumn("living", F.lit(False))
        closed = [
            log.filter((F.col("type") == CLOSES) & (F.col("zxid") > reach[dest.server].zxid))
            for dest in self._sides.dests
            if (log := dest.log(self._sides.spark, reach[dest.server].zxid)) is not None
        ]
        ended = [each.select("session") for each in closed]
        if not ended:
            return owners.withColumn("living", F.lit(True))
        known = reduce(DataFrame.union, ended).distinct().withColumn("closed", F.lit(True))
        return owners.join(known, "session", "left").select(
            "session", "path", F.col("closed").isNull().alias("living")
        )

    def _digest(self, dest: Disk, where: Reach) -> _Proof:
        sides = self._sides
        zxid = sides.compared_at(where)
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
        except PySparkException as error:
            return _Proof(None, body | {_UNPROVED: reason(error)})
        except ZkDataError as error:
            return _Proof(None, body | {_UNPROVED: str(error)})
        return _Proof(not found.count, body | more, found.frame)


def _finding(row: Row) -> dict[str, Any]:
    return finding(DeltaFinding(row.zxid, row.time_ms, row.type, row.path, row.session, row.expiry))


def _section(
    input: Input, source: str, made: Mapping[str, Mapping[str, _Proof]], largest: _Largest | None
) -> Section:
    held = all_held(proof.held for of in made.values() for proof in of.values())
    subtrees = [] if largest is None else largest.frame.limit(input.request.top).collect()
    figures = {
        "chroot": input.request.chroot,
        "source": source,
        "subtrees": [plain(row) for row in subtrees],
        "dests": {
            name: {
                "held": all_held(proof.held for proof in of.values()),
                **{kind: {"held": proof.held, **proof.body} for kind, proof in of.items()},
            }
            for name, of in made.items()
        },
    }
    frames = {
        f"{kind}-{name}": proof.frame
        for name, of in made.items()
        for kind, proof in of.items()
        if proof.frame is not None
    }
    if largest is not None:
        frames["largest"] = largest.frame
    head = ("subtree", "znodes", "czxid", "mzxid", "pzxid")
    zxids = tuple(
        (row.subtree, str(row.znodes), *(format_zxid(row[name]) for name in head[2:])) for row in subtrees
    )
    tables = (
        _proofs(made),
        *_missing(made),
        *_differences(made),
        Table("largest", "Largest zxids on source", head, zxids, wide=(0,)),
    )
    return Section("Proof", _answer(input.request.chroot, made), figures, tables, (), frames, held, True)


def _answer(chroot: str, made: Mapping[str, Mapping[str, _Proof]]) -> str:
    parts = [f"{name}: {', '.join(f'{kind} {WORDS[proof.held]}' for kind, proof in of.items())}"
             for name, of in made.items()]  # fmt: skip
    return f"What source holds of {chroot}, on dest. {'; '.join(parts)}."


def _proofs(made: Mapping[str, Mapping[str, _Proof]]) -> Table:
    rows = [
        (name, kind, WORDS[proof.held], _told(kind, proof))
        for name, of in made.items()
        for kind, proof in of.items()
    ]
    return Table("proofs", "Proofs", ("dest", "proof", "", "seen"), tuple(rows), wide=(3,))


def _told(kind: str, proof: _Proof) -> str:
    body = proof.body
    if body[_UNPROVED]:
        return str(body[_UNPROVED])
    if kind == "tail":
        return (
            f"at {body['newest']}, with source up to {body['with_source']}; source's newest mark is "
            f"{body['needed']} at {body['path']}"
        )
    if kind == "delta":
        return (
            f"{body['records']} transactions of source after {body['after']}, {body['missing_count']} missing"
        )
    return (
        f"{body['znodes_on_source']} znodes on source and {body['znodes']} here at {body['zxid']}, "
        f"{body['differences_count']} differ"
    )


def _missing(made: Mapping[str, Mapping[str, _Proof]]) -> list[Table]:
    head = ("dest", "zxid", "type", "path", "session", "")
    rows = [
        (name, one["zxid"], one["type"], one["path"], one["session"], word)
        for name, of in made.items()
        for list_, word in (("missing", ""), ("allowed", "allowed, an expiry"))
        for one in of["delta"].body.get(list_, ())
    ]
    return [Table("missing", "Missing on dest", head, tuple(rows), wide=(3,))] if rows else []


def _differences(made: Mapping[str, Mapping[str, _Proof]]) -> list[Table]:
    head = ("dest", "path", "first that differs", "source", "dest's")
    rows = [
        (name, one["path"], one["kind"], one["source"], one["dest"])
        for name, of in made.items()
        for one in of["digest"].body.get("differences", ())
    ]
    return [Table("differences", "Differences", head, tuple(rows), wide=(1,))] if rows else []
