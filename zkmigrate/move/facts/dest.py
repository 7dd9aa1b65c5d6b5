"""Read what ZooKeeper would find on a dest host: data, epochs, myid and leftover dynamic configs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from zkmigrate.inventory.inventory import Dest
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look

VERSION_2 = "version-2"
_EPOCH_FILES = re.compile(r"(accepted|current)Epoch(\.tmp)?")


@dataclass(frozen=True)
class DataState:
    """The data of a dest host; all fields are empty on a host that never ran ZooKeeper.

    data: the file names in ``version-2`` of the data and log directories, without the epoch files. epochs:
    the names of the epoch files. myid: the stripped content of the file ``myid``, None if it does not exist.
    leftovers: paths of files beside zoo.cfg that ZooKeeper itself writes: dynamic configs, and the ``.bak``
    of a config with reconfigEnabled.
    """

    data: tuple[str, ...] = ()
    epochs: tuple[str, ...] = ()
    myid: str | None = None
    leftovers: tuple[str, ...] = ()


def written_by_zookeeper(config: str, name: str) -> bool:
    """Return whether ZooKeeper itself writes files with this name beside its config file."""
    return name.startswith(f"{config}.dynamic") or name == f"{config}.bak"


def data_state(look: Look, dest: Dest, host: str) -> Reading[DataState]:
    """Read the data, log and config directories of one dest host; Unknown if any of them cannot be read."""
    config = PurePosixPath(dest.config)
    data_dirs = dict.fromkeys(f"{directory}/{VERSION_2}" for directory in (dest.data_dir, dest.txn_dir))
    config_dirs = dict.fromkeys((str(config.parent), dest.data_dir))
    listed: dict[str, list[str]] = {}
    for directory in (*data_dirs, *config_dirs):
        listing = look.listing(host, directory)
        if isinstance(listing, Unknown):
            return listing
        listed[directory] = [entry.name for entry in listing.value] if isinstance(listing, Seen) else []
    myid = look.file(host, f"{dest.data_dir}/myid")
    if isinstance(myid, Unknown):
        return myid
    names = sorted(name for directory in data_dirs for name in listed[directory])
    leftovers = sorted(
        f"{directory}/{name}"
        for directory in config_dirs
        for name in listed[directory]
        if written_by_zookeeper(config.name, name)
    )
    return Seen(
        DataState(
            data=tuple(name for name in names if not _EPOCH_FILES.fullmatch(name)),
            epochs=tuple(name for name in names if _EPOCH_FILES.fullmatch(name)),
            myid=None if isinstance(myid, Absent) else myid.value.decode("utf-8", "replace").strip(),
            leftovers=tuple(leftovers),
        )
    )
