"""The real world, put together: transport, channels, look, apply, lock, watch for one inventory and run.

Only the command line imports this, and only when a verb needs hosts: it pulls in paramiko and the clients.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from functools import partial

from zkmigrate import deadline
from zkmigrate.engine import beside
from zkmigrate.engine.apply import Outcome
from zkmigrate.engine.channel import ChannelApply
from zkmigrate.engine.clock import Clock
from zkmigrate.engine.copies import Copies
from zkmigrate.engine.lock import HostLock
from zkmigrate.engine.samples import Samples
from zkmigrate.engine.watch import Watch
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.status import HostStatus, host_status
from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.program import Program
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.clients.canary import BrokerCanary
from zkmigrate.kafka.clients.produce import ProduceCanary
from zkmigrate.model import change
from zkmigrate.model.change import ClusterChange
from zkmigrate.model.fact import Reading
from zkmigrate.model.look import KafkaView
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.step import Context, Records
from zkmigrate.model.window import Probe
from zkmigrate.moves.clients import replay
from zkmigrate.moves.facts.replay_disks import reader
from zkmigrate.moves.rules.lease import in_force
from zkmigrate.site import probes, sampler
from zkmigrate.site.observe import Observe
from zkmigrate.site.sampler import KafkaNotes, Produced, Sampler
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.facts.ensemble import source_view

_CALL_S = 10.0
_CANARY_S = 1.0
_PROBE_S = 3.0
"""Seconds for each question of the watch's probes: one silent host must not hide the others."""


class NotingObserve(Observe):
    """A look that tells ``note`` what it saw of the Kafka cluster."""

    note: KafkaNotes | None = None

    def kafka(self) -> Reading[KafkaView]:
        reading = super().kafka()
        if self.note is not None:
            self.note(reading)
        return reading


class Site:
    """Everything of one process that reaches hosts. ``close`` ends all connections."""

    def __init__(self, inventory: Inventory, run: str) -> None:
        self.inventory = inventory
        self._run = run
        self._transport = Transport(inventory)
        program = Program(self._transport, run, zkm_host.program(), zkm_host.sudoers)
        self._steps = Channels(self._transport, run, "steps")
        self._watching = Channels(self._transport, run, "watch")
        # A status takes many times as long as a renewal, which must not wait for it.
        self._probing = Channels(self._transport, run, "looks")
        self.look = NotingObserve(inventory, self._transport, program, self._steps)
        self._watch_look = Observe(inventory, self._transport, program, self._probing)
        at = [broker.endpoint for broker in inventory.brokers]
        self._alter = kafka.Alter(at)
        clusters: dict[str, Callable[[ClusterChange], tuple[int, str]]] = (
            {change.KAFKA: self._alter} if at else {}
        )
        if inventory.has("source", "dest", "kafka"):
            doors = [Server(h.address, inventory.source.ports.client) for h in inventory.source.hosts]
            clusters[change.SOURCE] = partial(replay.alter, doors, reader(inventory, self.look))
        self.apply = ChannelApply(self._steps, program, clusters)
        brokers = {b.name: (b.address, b.port) for b in inventory.brokers}
        self._canary, self._sampled = BrokerCanary(brokers), BrokerCanary(brokers)
        self._samples: Samples | None = None

    def lock(self, clock: Clock, playbook: Playbook, *, steal: bool) -> HostLock:
        """The lock on the playbook's witnesses; not taken yet."""
        owner = f"{getpass.getuser()}@{socket.gethostname()}"
        names, nonce = playbook.witnesses(self.inventory), int(clock.wall() * 1000)
        many = playbook.many_witnesses
        return HostLock(names, owner, self._ask, nonce, steal=steal, before=playbook.unlocked, many=many)

    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]:
        """What ``plan`` says of the whole run. records: of one that may have been rehearsed."""
        return playbook.foreseen(Context("plan", self.inventory, records=records), self.look)

    def watch(self, clock: Clock, lock: HostLock) -> Watch:
        """The watch, over channels of its own, and its second process."""
        hosts, renew = lock.hosts, partial(self._renew, lock)
        other = beside.Process(hosts, self.inventory, self._run, lambda: lock.number)
        probed = partial(self._probes, hosts)
        return Watch(hosts, in_force, renew, clock.now, clock.wall, probed, other)

    def sample(self, samples: Samples, noticed: tuple[str, ...]) -> Callable[[], None]:
        """Note from now on what is seen, for the report; the answer ends that. noticed: stages in which the
        produce canary sends."""
        self._samples = samples
        self.look.note = KafkaNotes(samples)
        brokers, servers = self.inventory.brokers, tuple(self.inventory.doors)
        questions = (
            *((sampler.brokers(len(brokers), self._round_trips, samples),) if brokers else ()),
            *((sampler.ensembles(servers, self._watch_look, samples),) if servers else ()),
        )
        produced = self._produced(samples, noticed)
        sampling = Sampler((*questions, *(p.question() for p in produced)))
        sampling.begin()

        def end() -> None:
            sampling.close()
            for canary in produced:
                canary.close()

        return end

    def copies(self, clock: Clock, lock: HostLock) -> Copies:
        """Puts the journal on the witnesses that gave the lock."""

        def ask(host: str, words: tuple[str, ...], fencing: int) -> Outcome:
            answer = self._steps.ask(host, *words, fencing=fencing, deadline_s=change.ANSWER_S)
            return Outcome(answer.rc, answer.output)

        return Copies(ask, lambda: lock.held, lambda: lock.number, clock.now)

    def close(self) -> None:
        """End everything."""
        canaries = (self._canary, self._sampled)
        for part in (
            self.look,
            self._watch_look,
            self._alter,
            *canaries,
            self._steps,
            self._watching,
            self._probing,
            self._transport,
        ):
            part.close()

    def _ask(self, host: str, words: tuple[str, ...], fencing: int) -> Outcome:
        answer = self._watching.ask(host, *words, fencing=fencing, deadline_s=_CALL_S)
        return Outcome(answer.rc, answer.output)

    def _renew(self, lock: HostLock, host: str, fence_ms: int, cut_ms: int) -> Outcome:
        words = ("renew", str(fence_ms), str(cut_ms))
        limit_s = beside.limit_s(cut_ms)
        answer = self._watching.ask(host, *words, fencing=lock.number, deadline_s=limit_s)
        return Outcome(answer.rc, answer.output)

    def _probes(self, hosts: tuple[str, ...], stage: Stage) -> tuple[Probe, ...]:
        look = self._watch_look
        if stage.watched is not None:
            return stage.watched.probes(self.inventory, look)
        return (
            probes.block(hosts, partial(self._statuses, hosts)),
            probes.brokers(
                lambda: {name: pulse.wrong for name, pulse in self._canary.ask_all(_CANARY_S).items()}
            ),
            probes.source(lambda: source_view(self.inventory, look)),
        )

    def _statuses(self, hosts: tuple[str, ...]) -> dict[str, Reading[HostStatus]]:
        look = self._watch_look
        with deadline.within(_PROBE_S):
            asked = look.each(hosts, lambda host: host_status(look, host))
        if self._samples is not None:
            sampler.note_phases(self._samples, asked)
        return asked

    def _round_trips(self) -> dict[str, float | str]:
        pulses = self._sampled.ask_all(_CANARY_S)
        return {name: pulse.why or pulse.took_s for name, pulse in pulses.items()}

    def _produced(self, samples: Samples, noticed: tuple[str, ...]) -> tuple[Produced, ...]:
        """The produce canary, where the inventory asks for it."""
        topic = self.inventory.kafka.canary_topic if self.inventory.has("kafka") else None
        if topic is None:
            return ()
        brokers = {b.name: (b.id, b.address, b.port) for b in self.inventory.brokers}
        return (Produced(ProduceCanary(topic, brokers), noticed, samples),)
