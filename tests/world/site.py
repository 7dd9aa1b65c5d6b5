"""The command line over the model world, so that screens and prompts can be seen without hosts.

``python -m tests.world.site VERB …`` with an inventory like ``INVENTORY``. The world lives as long as the
process; its time runs with the clock on the wall, ``WORLD_SPEED`` times as fast but for the windows. There
leases and limits run, which the tool keeps by the clock on the wall: a world in a hurry would end them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.world.build import PROPERTIES, SOURCE_CONFIG, World
from tests.world.model.look import WorldLook
from tests.world.model.world import World as Move
from tests.world.model.world import new_world
from zkmigrate.cli.main import cli
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients.produce import Ack, Late, sample
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.runbook.engine.lock import HostLock
from zkmigrate.runbook.engine.ports import WatchPort
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.engine.watch import Watch
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.runbook.model.step import Context, Records
from zkmigrate.runbook.site.sampler import CanarySampler, Sampler

IN_WINDOW = {"fenced", "cut", "stopped", "sealed", "go", "started", "checked"}
MOST_S = 0.1
"""A process that gets no time of the machine for a while must not find its world so much older."""

INVENTORY = World().text


class WorldCanary:
    """A produce canary whose brokers acknowledge while they are registered."""

    def __init__(self, topic: str, world: Move) -> None:
        self.topic = topic
        self._world = world
        self._since: float | None = None
        self._acked: dict[str, float] = {}

    def begin(self) -> None:
        self._since = time.monotonic() if self._since is None else self._since

    def rest(self) -> None:
        self._since = None

    def close(self) -> None:
        self.rest()

    def sampled(self, now: float) -> Body | None:
        return sample(self.topic, *self.taken(), now)

    def taken(self) -> tuple[list[Ack], list[Late]]:
        if self._since is None:
            return [], []
        now = time.monotonic()
        up = {name: broker.registered for name, broker in self._world.brokers.items()}
        self._acked |= {name: now for name in up if up[name]}
        acks = [Ack(n, name, now, 0.004) for n, name in enumerate(up) if up[name]]
        since = {name: max(self._since, self._acked.get(name, 0.0)) for name in up}
        return acks, [
            Late(name, n, since[name], "it has no leader") for n, name in enumerate(up) if not up[name]
        ]


class WorldSite:
    """``operate.setting.Site`` over one model world."""

    def __init__(self, inventory: Inventory, run: str, world: Move | None = None) -> None:
        self.inventory = inventory
        self.world = world or new_world(inventory, PROPERTIES, SOURCE_CONFIG)
        self.look: Look = cast(Look, WorldLook(self.world))
        self._over = threading.Event()
        speed = float(os.environ.get("WORLD_SPEED", "1"))
        self._time = threading.Thread(target=self._pass, args=(speed,), daemon=True)
        self._time.start()

    def apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        return Outcome(*self.world.apply(change, operation, fencing))

    def lock(self, clock: Clock, playbook: Playbook, *, steal: bool) -> HostLock:
        names = playbook.witnesses(self.inventory)
        return HostLock(
            names,
            "tester",
            lambda _h, _w, _f: Outcome(0, "fencing 1"),
            1,
            steal=steal,
            before=playbook.unlocked,
        )

    def watch(self, clock: Clock, lock: HostLock) -> WatchPort:
        def renew(host: str, fence_ms: int, cut_ms: int) -> Outcome:
            return Outcome(*self.world.renew(host, fence_ms, cut_ms))

        return Watch(self.inventory.dest_names, renew, clock.now, clock.wall)

    def sample(self, samples: Samples, playbook: Playbook) -> Callable[[], None]:
        asked = [q for one in playbook.sampling for q in one.questions(self.inventory, self.look)]
        topic = self.inventory.kafka.canary_topic
        produced = (
            [CanarySampler("produce", WorldCanary(topic, self.world), playbook.noticed, samples)]
            if topic
            else []
        )
        sampling = Sampler((*asked, *(one.question for one in produced)), samples)
        sampling.begin()

        def end() -> None:
            sampling.close()
            for canary in produced:
                canary.close()

        return end

    def copies(
        self, clock: Clock, lock: HostLock, _recovered: Callable[[], bool]
    ) -> Callable[[bytes], Mapping[str, str]]:
        return lambda _content: {}

    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]:
        return playbook.foreseen(Context("plan", self.inventory, records=records), self.look)

    def close(self) -> None:
        self._over.set()
        self._time.join(60.0)

    def _pass(self, speed: float) -> None:
        last = time.monotonic()
        while not self._over.wait(0.02):
            now = time.monotonic()
            window = any(host.phase in IN_WINDOW for host in self.world.hosts.values())
            self.world.advance(min(now - last, MOST_S) * (1.0 if window else speed))
            last = now


def main(**extra: Any) -> None:
    cli(obj=WorldSite, **extra)


if __name__ == "__main__":
    main()
