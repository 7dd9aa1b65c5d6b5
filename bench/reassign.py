"""The journal of a long reassignment, and the run's own time for a look: ``python -m bench.reassign``.

The playbook moves so many partitions of 200 brokers, a replica each, and takes them back, in the model world:
it answers at once, and what it takes to answer is not counted. Nothing is synced to a disk. Times are CPU
time. A look is the context, observe and check of the step that moves; the last one looks at every partition.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.spread import out_option, save, shown, spread
from tests.unit.engine_world import back, forward
from tests.unit.reassign_world import ID, Desk, Held, Machine, ReassignWorld
from zkmigrate.engine import journal
from zkmigrate.engine.history import Next
from zkmigrate.engine.journal import NAME
from zkmigrate.engine.run import Walk
from zkmigrate.inventory.inventory import Broker, Kafka
from zkmigrate.model.fact import Reading
from zkmigrate.model.step import Context, Verdict, Way
from zkmigrate.placement.cluster import Name
from zkmigrate.reassign.section import Reassign, ReassignInventory

SIZES = (1_000, 10_000)
BROKERS, PER_TOPIC, REPLICAS, SIZE = 200, 24, 3, 1_000_000_000
IN_FLIGHT, PER_BROKER = 200, 5
RATE = 500_000_000
STEP = "move.replicas"


@dataclass
class TimedWorld(ReassignWorld):
    """The cluster; ``spent`` are the seconds that its own answers took."""

    spent: float = 0.0

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.spent += time.process_time() - began

    def reassignments(self) -> Any:
        with self._timed():
            return super().reassignments()

    def partitions(self, *asked: Any) -> Any:
        with self._timed():
            return super().partitions(*asked)

    def log_dirs(self, *asked: Any) -> Any:
        with self._timed():
            return super().log_dirs(*asked)

    def settings(self, *asked: Any) -> Any:
        with self._timed():
            return super().settings(*asked)

    def broker_settings(self, *asked: Any) -> Reading[Any]:
        with self._timed():
            return super().broker_settings(*asked)


@dataclass
class Looks:
    """Milliseconds of each look of the step that moves, by way."""

    world: TimedWorld
    took: dict[Way, list[float]] = field(default_factory=lambda: {way: [] for way in Way})

    def watch(self, act: Callable[[Walk], Any]) -> Callable[[Walk], Any]:
        """``act`` on a walk whose looks are timed."""

        def watched(walk: Walk) -> Any:
            context_of, look = walk._context, walk._look
            began = spent = 0.0

            def timed_context(at: Next) -> Context:
                nonlocal began, spent
                began, spent = time.process_time(), self.world.spent
                return context_of(at)

            def timed_look(at: Next, context: Context) -> tuple[Verdict, object]:
                found = look(at, context)
                if at.id == STEP:
                    own = time.process_time() - began - (self.world.spent - spent)
                    self.took[at.way].append(own * 1000)
                return found

            walk._context, walk._look = timed_context, timed_look  # type: ignore[method-assign]
            return act(walk)

        return watched


def fleet(partitions: int, in_flight: int) -> tuple[TimedWorld, ReassignInventory]:
    """The cluster, and a plan that gives the last replica of each partition to another broker."""
    held: dict[Name, Held] = {}
    sets: dict[Name, tuple[int, ...]] = {}
    for n in range(partitions):
        name = f"some.service.with-a-long-name.events-{n // PER_TOPIC}", n % PER_TOPIC
        first, step = n % BROKERS, 1 + n // BROKERS % 40
        ids = [1001 + (first + step * k) % BROKERS for k in range(REPLICAS + 1)]
        held[name] = Held(tuple(ids[:-1]), tuple(ids[:-1]), ids[0], SIZE)
        sets[name] = (*ids[: REPLICAS - 1], ids[-1])
    brokers = tuple(range(1001, 1001 + BROKERS))
    topics: dict[str, dict[str, str]] = {topic: {} for topic, _ in held}
    known = tuple(
        Broker(name=f"broker{n}", address=f"10.0.{n // 250}.{n % 250 + 1}", id=id)
        for n, id in enumerate(brokers)
    )
    made = ReassignInventory(
        version=1,
        name="fleet",
        kafka=Kafka(cluster_id=ID, brokers=known),
        reassign=Reassign(
            plan="plan.json", throttle_bytes_s=RATE, in_flight=in_flight, per_broker=PER_BROKER
        ),
    )
    machines = {id: Machine() for id in brokers}
    return TimedWorld(ID, topics, held=held, brokers=brokers, hosts=machines), made.with_sets(sets, {})


def measured(partitions: int, in_flight: int) -> dict[str, Any]:
    """Bytes of the journal after the way forward and after the way back, by kind of its lines, and the
    looks."""
    world, inventory = fleet(partitions, in_flight)
    looks = Looks(world)
    with tempfile.TemporaryDirectory() as folder:
        made = Desk(Path(folder) / "r", world, inventory)
        made.before_change = lambda _change: made.seen.clear()
        sizes, seconds = [], []
        for act in (forward, back):
            began, spent = time.process_time(), world.spent
            ended = made.process(looks.watch(act))
            seconds.append(time.process_time() - began - (world.spent - spent))
            if ended.code:
                raise click.ClickException(f"{ended.message}: {ended.findings}")
            sizes.append((made.run_dir / NAME).stat().st_size)
        by_kind: Counter[str] = Counter()
        for line in (made.run_dir / NAME).read_bytes().splitlines():
            by_kind[line.partition(b'"kind":"')[2].partition(b'"')[0].decode()] += len(line) + 1
        began = time.process_time()
        journal.read(made.run_dir)
        read_s = time.process_time() - began
    return {
        "bytes": {"forward": sizes[0], "there and back": sizes[1], **dict(by_kind.most_common())},
        "look_ms": {way.value: took for way, took in looks.took.items()},
        "run_s": seconds,
        "read_s": read_s,
    }


@click.command(help=__doc__)
@click.option("--moves", type=click.IntRange(1), multiple=True, default=SIZES, show_default=True)
@click.option("--in-flight", type=click.IntRange(1, 1000), default=IN_FLIGHT, show_default=True)
@out_option
def main(moves: tuple[int, ...], in_flight: int, out: Path | None) -> None:
    figures: dict[str, Any] = {}
    for many in moves:
        found = measured(many, in_flight)
        told = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in found["bytes"].items())
        click.echo(f"{many} moves: MB of journal: {told}")
        for way, took in found["look_ms"].items():
            click.echo(shown(f"  a look {way}", took, "ms"))
            click.echo(f"  the last one: {took[-1]:.1f} ms")
        run = ", ".join(f"{s:.1f} s" for s in found["run_s"])
        click.echo(f"  CPU time there, back: {run}; the journal read again: {found['read_s']:.2f} s")
        looks = {way: {**spread(took), "last": took[-1]} for way, took in found["look_ms"].items()}
        figures[str(many)] = {**found, "look_ms": looks}
    save(out, figures)


if __name__ == "__main__":
    main()
