"""Judge the disks that ``test_cuts`` copied: find the promised writes that they lack."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.drills.acknowledged import Missing, Promised, missing_in, promised
from tests.drills.cut_figures import CutOver, figures_of
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.spec import LabSpec
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.logdir import log_files
from zkmigrate.zookeeper.data.reader import Directory, FileDirectory
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.tree import load_tree

KINDS = ("producer", "consumer", "metadata", "tenant", "raw")


def loaded_from(disk: Directory) -> list[str]:
    """Return the files from which a server would load its state now.

    These are the two newest snapshots (the newest may be half written) and the logs from the older one on.
    """
    snapshots = snapshot_files(disk)[:2]
    logs = log_files(disk)
    after = snapshots[-1].zxid if len(snapshots) == 2 else 0
    first = max((log.zxid for log in logs if log.zxid <= after + 1), default=0)
    return [*(file.name for file in snapshots), *(log.name for log in logs if log.zxid >= first)]


def judge_disk(disk: Path, promise: Promised, chroot: str) -> Missing:
    """Return the promises that the copied disk of one host does not keep."""
    return missing_in(load_tree(FileDirectory(disk), chroot=Chroot(chroot)), promise, chroot)


def judged(directory: Path, end: Mapping[str, Any]) -> dict[str, Any]:
    """Judge what a drill saved in its directory, and return the figures of ``result.json``.

    end: the result of the cut-over to OPEN. The copied disks are removed if nothing is missing on any.
    """
    saved = sorted((directory / "disks").glob("cut-*/cut.json"), key=lambda path: int(path.parent.name[4:]))
    cuts = [CutOver(**json.loads(path.read_text())) for path in saved]
    recordings = {kind: load_recording(directory / "history", kind) for kind in KINDS}
    raw, metadata = recordings["raw"].of("ack"), recordings["metadata"].of("op")
    found: dict[int, tuple[Promised, dict[str, Missing]]] = {}
    with ProcessPoolExecutor(2) as pool:
        for cut in cuts:
            acked, changed = (
                [e for e in events if e["mono_ns"] <= cut.promised_ns] for events in (raw, metadata)
            )
            promise = promised(acked, changed, cut.baseline)
            root = directory / "disks" / f"cut-{cut.number}"
            disks = sorted(path for path in root.glob("*/*") if path.is_dir())
            n = len(disks)
            answers = pool.map(judge_disk, disks, [promise] * n, [LabSpec.chroot] * n)
            names = [str(path.relative_to(root)) for path in disks]
            found[cut.number] = (promise, dict(zip(names, answers, strict=True)))
    result = figures_of(cuts, found, recordings, end)
    if result["missing"] == 0:
        for cut in cuts:
            for moment in ("check", "back"):
                shutil.rmtree(directory / "disks" / f"cut-{cut.number}" / moment, ignore_errors=True)
    return result
