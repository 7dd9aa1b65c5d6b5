"""What the disks of brokers to be removed hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from zkmigrate.model.change import KAFKA
from zkmigrate.model.fact import Seen
from zkmigrate.model.look import Look, PartitionState


@dataclass(frozen=True)
class Held:
    """What the log directories of the brokers tell. replicas: in words. silent: why a broker told nothing."""

    replicas: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def held(look: Look, brokers: Collection[int], but: Collection[PartitionState] = ()) -> Held:
    """What the disks hold. but: partitions that are known to be there."""
    known = {(p.topic, p.partition) for p in but}
    told = look.log_dirs(KAFKA, tuple(brokers)) if brokers else Seen({})
    if not isinstance(told, Seen):
        return Held(silent=(str(told),))
    silent = [str(dirs) for dirs in told.value.values() if not isinstance(dirs, Seen)]
    replicas = []
    for broker, dirs in told.value.items():
        for one in dirs.value.values() if isinstance(dirs, Seen) else ():
            if not isinstance(one, Seen):
                silent.append(f"broker {broker}: {one}")
                continue
            replicas += [
                f"{r.topic}-{r.partition} on broker {broker}"
                for r in one.value.replicas
                if (r.topic, r.partition) not in known
            ]
    return Held(tuple(replicas), tuple(silent))
