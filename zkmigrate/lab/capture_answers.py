"""Record answers and files of real servers as test data: four-letter words, configs, listings, data files.

A recording is `manifest.json` (versions, spec, time, and the origin of each file), and one directory per
host. Files are recorded unchanged, except that ZooKeeper's data files are compressed (a new transaction log
is 64 MB of zeros on disk).
"""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from zkmigrate.lab import render, service
from zkmigrate.lab.access import LabHost
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import HostPlan, Role
from zkmigrate.lab.wait import Progress, silent

WORDS = ("ruok", "srvr", "stat", "mntr", "conf", "cons", "dump", "envi", "isro", "wchs", "wchc", "wchp")
"""The four-letter words that do not change the server."""
_SERVERS = (Role.SOURCE, Role.DEST, *service.KAFKA)
"""The roles whose servers are recorded."""


@dataclass(frozen=True)
class Capture:
    """One recorded file: its name below the host's directory, and the command that prints its content."""

    file: str
    command: tuple[str, ...]


def captures(role: Role) -> tuple[Capture, ...]:
    """Return the files to record on a host of this role, each with the command that prints its content."""
    common = (
        Capture("ss.txt", ("ss", "-tanp")),
        Capture("iptables-save.txt", ("iptables-save",)),
        Capture("ip6tables-save.txt", ("ip6tables-save",)),
        Capture("ipset-save.txt", ("ipset", "save")),
        Capture("java-version.txt", ("java", "-version")),
        Capture("df.txt", ("df", "-k")),
    )
    if role not in _SERVERS:
        return common
    unit, config, data = (
        ("kafka.service", "/etc/kafka", render.KAFKA_DATA)
        if role in service.KAFKA
        else ("zookeeper.service", "/etc/zookeeper/conf", render.ZOOKEEPER_DATA)
    )
    return (
        *common,
        Capture("unit.txt", ("systemctl", "show", unit)),
        Capture("unit-cat.txt", ("systemctl", "cat", unit)),
        Capture("config-ls.txt", ("ls", "-la", "--time-style=full-iso", config)),
        Capture("data-ls.txt", ("ls", "-laR", "--time-style=full-iso", data)),
    )


def copied(role: Role) -> tuple[str, ...]:
    """Return glob patterns, relative to the host's root, of the configuration files to copy."""
    if role in service.KAFKA:
        meta = ("meta.properties", "disk*/meta.properties")
        return ("etc/kafka/server.properties", *(f"var/lib/kafka/{name}" for name in meta))
    if role not in _SERVERS:
        return ()
    return ("etc/zookeeper/conf/*", "var/lib/zookeeper/myid", "var/lib/zookeeper/version-2/*Epoch")


def compressed(role: Role) -> tuple[str, ...]:
    """Return glob patterns, relative to the host's root, of the data files to copy compressed."""
    if role in (Role.SOURCE, Role.DEST):
        return ("var/lib/zookeeper/version-2/log.*", "var/lib/zookeeper/version-2/snapshot.*")
    return ()


def version(plan: HostPlan) -> str | None:
    """Return the product and version of a host's server; None for a host without ensemble or cluster."""
    if plan.part is None:
        return None
    return f"{service.name_of(plan.role)} {plan.part.version}"


def record(lab: Lab, directory: Path, progress: Progress = silent, *, journals: bool = False) -> None:
    """Record every running host of a lab into a directory, which must be new or empty.

    journals: also record each host's whole journal, as evidence for a person. Raises LabError if the
    directory is not empty.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise LabError(f"{directory} is not empty. Needed: a new or empty directory")
    manifest: dict[str, object] = {
        "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
        "backend": lab.record.backend,
        "spec": lab.spec.to_json(),
    }
    hosts: dict[str, object] = {}
    for host in lab.hosts.values():
        if not host.pid:
            progress(f"{host.name} is off and was not recorded")
            continue
        found = _record_host(lab, host, directory / host.name, journals)
        hosts[host.name] = {
            "role": host.role.value,
            "address": host.address,
            "version": version(lab.plans[host.name]),
            "files": found,
        }
        progress(f"{host.name}: {len(found)} files")
    (directory / "manifest.json").write_text(json.dumps({**manifest, "hosts": hosts}, indent=1) + "\n")


def _record_host(lab: Lab, host: LabHost, directory: Path, journals: bool) -> dict[str, object]:
    """Record one host and return the origin of each file, by name."""
    directory.mkdir()
    found: dict[str, object] = {}
    wanted = list(captures(host.role))
    if journals:
        journal = ("journalctl", "--no-pager", "--output=short-iso-precise", "--boot=all")
        wanted.append(Capture("journal.txt", journal))
    for capture in wanted:
        done = lab.exec(host.name, capture.command, check=False)
        (directory / capture.file).write_text(done.stdout + done.stderr)
        found[capture.file] = {**asdict(capture), "exit": done.returncode}
    if host.role in (Role.SOURCE, Role.DEST):
        found |= _record_words(lab, host, directory)
    return found | record_files(host, directory)


def _record_words(lab: Lab, host: LabHost, directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for word in WORDS:
        with lab.operator():
            answer = lab.word(host.address, word)
        if answer is not None:
            (directory / f"word-{word}.txt").write_text(answer)
            found[f"word-{word}.txt"] = {"word": word}
    return found


def record_files(host: LabHost, directory: Path) -> dict[str, object]:
    """Copy a host's configuration and data files to `directory`. Return each file's origin, by name."""
    found: dict[str, object] = {}
    kinds = ((copied(host.role), _copy), (compressed(host.role), _compress))
    for pattern, keep in [(pattern, keep) for patterns, keep in kinds for pattern in patterns]:
        for path in sorted(host.root.glob(pattern)):
            inside = path.relative_to(host.root)
            target = directory / "files" / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            kept = keep(path, target)
            found[str(kept.relative_to(directory))] = {"path": f"/{inside}", "size": path.stat().st_size}
    return found


def _copy(path: Path, target: Path) -> Path:
    shutil.copyfile(path, target)
    return target


def _compress(path: Path, target: Path) -> Path:
    target = target.with_name(target.name + ".gz")
    # A fixed time in the header makes the output depend on the input alone.
    with path.open("rb") as source, gzip.GzipFile(target, "wb", mtime=0) as out:
        shutil.copyfileobj(source, out)
    return target
