"""Assemble all that a run needs: transport, channels, look, apply, lock and watch for one inventory and run.

The command line imports it only when a verb needs hosts: paramiko and the clients are slow to import.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import TypeVar

from zkmigrate import credentials, json_text
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.transport.channels import Channels, relay
from zkmigrate.hosts.transport.program import Program
from zkmigrate.hosts.transport.ssh import Purpose, Transport
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import renewal_process
from zkmigrate.runbook.engine.apply import Alter, ChannelApply
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.runbook.engine.copies import Copies
from zkmigrate.runbook.engine.lock import HostLock
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.engine.watch import Watch
from zkmigrate.runbook.model import change
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Pulse, Request
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.runbook.model.step import Context, Records
from zkmigrate.runbook.model.window import Probe
from zkmigrate.runbook.site.observe import Observe
from zkmigrate.runbook.site.sampler import CanarySampler, ClusterSampler, Sampler

T = TypeVar("T")
_LOCK_CALL_S = 10.0


class SampledObserve(Observe):
    """A look that passes every answer to ``note``, and returns the canary's results from ``heard``."""

    note: ClusterSampler | None = None
    heard: Callable[[], Mapping[str, Sequence[Pulse]]] = dict

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        return self.heard()

    def ask(self, request: Request[T]) -> T:
        answer = super().ask(request)
        if self.note is not None:
            self.note(request, answer)
        return answer


class Site:
    """All connections of one process to the hosts and clusters of one inventory.

    clusters: the value of ``Playbook.clusters``, for a process that changes clusters. Raises SecretError if
    a secret or certificate of the inventory cannot be read.
    """

    def __init__(self, inventory: Inventory, run: str, clusters: Mapping[str, str] | None = None) -> None:
        credentials.check(inventory)
        self.inventory = inventory
        self._run = run
        self._transport = Transport(inventory)
        program = Program(self._transport, run, zkm_host.program(), zkm_host.sudoers)
        self._steps = Channels(self._transport, run, "steps")
        self._watching = Channels(self._transport, run, "watch")
        # Statuses are slow; a renewal must not wait for one.
        self._probing = Channels(self._transport, run, "looks")
        orders, statuses = self._to_programs("steps"), self._to_programs("looks")
        self._relays = (*orders.values(), *statuses.values())
        self.look = SampledObserve(inventory, self._transport, program, self._steps, orders)
        self._watch_look = Observe(inventory, self._transport, program, self._probing, statuses)
        self._sample_look = Observe(inventory, self._transport, program, self._probing, statuses)
        self._clusters: dict[str, Alter] = {
            name: resolve_name(plug)(inventory, self.look) for name, plug in (clusters or {}).items()
        }
        self.apply = ChannelApply(self._steps, program, self._clusters, orders, inventory.machine)
        self._samples: Samples | None = None

    def lock(self, clock: Clock, playbook: Playbook, *, steal: bool) -> HostLock:
        """Return the lock on the playbook's witnesses, not yet taken."""
        owner = f"{getpass.getuser()}@{socket.gethostname()}"
        names, nonce = playbook.witnesses(self.inventory), int(clock.wall() * 1000)
        many, ordered = playbook.many_witnesses, playbook.ordered(self.inventory)

        def least() -> int:
            statuses = self.look.each(ordered, lambda host: self.look.program(ordered[host], host, "status"))
            return max((_fencing(one.value) for one in statuses.values() if isinstance(one, Seen)), default=0)

        before = playbook.unlocked
        return HostLock(names, owner, self._ask, nonce, steal=steal, before=before, many=many, least=least)

    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]:
        """Return the plan's lines about the whole run.

        records: the records of the run, which may contain the times of a rehearsal.
        """
        return playbook.foreseen(Context("plan", self.inventory, records=records), self.look)

    def watch(self, clock: Clock, lock: HostLock) -> Watch:
        """Return the watch, with channels and a second process of its own."""
        hosts, renew = lock.hosts, partial(self._renew, lock)
        other = renewal_process.RenewalProcess(hosts, self.inventory, self._run, lambda: lock.number)
        return Watch(hosts, renew, clock.now, clock.wall, self._probes, other)

    def sample(self, samples: Samples, playbook: Playbook) -> Callable[[], None]:
        """Start the playbook's samples. Return a function that stops them."""
        self._samples = samples
        sampled = playbook.sampling
        self.look.note = next((ClusterSampler(*one.heard, samples) for one in sampled if one.heard), None)
        sent = {
            kind: canary
            for kind, plug in (one.canary for one in sampled if one.canary is not None)
            if (canary := resolve_name(plug)(self.inventory)) is not None
        }
        canaries = [CanarySampler(kind, canary, playbook.noticed, samples) for kind, canary in sent.items()]
        self.look.heard = next((canary.pulses for canary in sent.values()), dict)
        questions = [q for one in sampled for q in one.questions(self.inventory, self._sample_look)]
        sampler = Sampler((*questions, *(one.question for one in canaries)), samples)
        sampler.begin()

        def end() -> None:
            sampler.close()
            for one in canaries:
                one.close()

        return end

    def copies(self, clock: Clock, lock: HostLock, recovered: Callable[[], bool]) -> Copies:
        """Return the copies of the journal on the witnesses that gave the lock.

        recovered: whether the journal was recovered without some of its lines; see :class:`Copies`.
        """

        def ask(host: str, words: tuple[str, ...], fencing: int) -> Outcome:
            return self._steps.ask(host, *words, fencing=fencing, deadline_s=change.ANSWER_S)

        return Copies(ask, lambda: lock.held, lambda: lock.number, clock.now, recovered)

    def close(self) -> None:
        """Close all connections."""
        for alter in self._clusters.values():
            alter.close()
        looks = (self.look, self._watch_look, self._sample_look)
        for part in (*looks, self._steps, self._watching, self._probing):
            part.close()
        for channels in self._relays:
            channels.close()
        self._transport.close()

    def _to_programs(self, purpose: Purpose) -> dict[str, Channels]:
        """Open channels to the programs that the inventory names, and return them by the channel's name."""
        return {
            name: Channels(self._transport, self._run, purpose, relay(program))
            for name, program in self.inventory.programs.items()
        }

    def _ask(self, host: str, words: tuple[str, ...], fencing: int) -> Outcome:
        return self._watching.ask(host, *words, fencing=fencing, deadline_s=_LOCK_CALL_S)

    def _renew(self, lock: HostLock, host: str, fence_ms: int, cut_ms: int) -> Outcome:
        words = ("renew", str(fence_ms), str(cut_ms))
        limit_s = renewal_process.limit_s(cut_ms)
        return self._watching.ask(host, *words, fencing=lock.number, deadline_s=limit_s)

    def _probes(self, stage: Stage) -> tuple[Probe, ...]:
        if stage.window is None:
            return ()
        return stage.window.probes(self.inventory, self._watch_look, self._note)

    def _note(self, kind: str, body: Body) -> None:
        if self._samples is not None:
            self._samples.note(kind, body)


def _fencing(status: str) -> int:
    """Return the fencing number in the status of a host that takes orders; 0 if the status has none."""
    with suppress(ValueError, TypeError, KeyError):
        number = json_text.loads(status)["fencing"]
        return number if type(number) is int else 0
    return 0
