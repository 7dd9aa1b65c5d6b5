"""Find the application of each request of a client, and apply the gate of that application.

A request is served in the function that receives its bytes whenever possible. Only a request that has to wait
for its gate or its broker gets a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any

from zkmigrate.topics.gateway.rules import producers
from zkmigrate.topics.gateway.rules.apis import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    MEMBERS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    name_of,
)
from zkmigrate.topics.gateway.rules.hold import Act, App, Gate, decide, parks
from zkmigrate.topics.gateway.rules.layout import SLICE, FrameError
from zkmigrate.topics.gateway.rules.messages import MECHANISMS, Head, other_mechanism, principal, too_new
from zkmigrate.topics.gateway.rules.seen import LONGEST, fit
from zkmigrate.topics.gateway.serving.link import PREFIX, WHOLE
from zkmigrate.topics.gateway.serving.sending import LOGIN, Ended, Request, Sending

SMALL = 1 << 16
"""The largest request, in bytes, that is read whole while the broker has answered nothing except logins.

A PRODUCE may be larger, because some clients send it first.
"""
PARKED_S = 60.0
EARLY_S = 0.5
"""The seconds after which a FETCH is answered without records if the client may not fetch yet."""
MOST_PRINCIPAL = 256
"""The most characters of a principal that are kept. The configuration allows at most 255."""
MOST_EARLY = 8
"""The most requests before a login that are counted once the login is accepted."""
_NUMBERED = frozenset({PRODUCE, INIT_PRODUCER_ID})
"""Requests that contain a producer id, or whose answers do."""
_LED = frozenset({PRODUCE, FETCH})
"""Requests that only the leader of a partition can answer."""


class Requests(Sending):
    """The part of a connection that decides how each request is served."""

    def failed(self, error: Ended | FrameError) -> None:
        """Serve no more requests of the connection, and close it after all pending answers."""
        if isinstance(error, FrameError):
            self.refused(error)
        self.finish()

    def refused(self, error: FrameError) -> None:
        """Log the reason why the connection is closed, and count it."""
        app = self._app or self.gateway.plan.app(self.port.listener, "", "")
        known = error.what == "api" and self._accepted(app)
        self.gateway.refused(app, str(error) if known else error.what)
        at = {"listener": self.port.listener, "cluster": self.port.cluster, "node": self.port.node}
        self.gateway.log("Refused", peer=self.peer, app=app, **at, why=str(error))

    def begin(self, frame: bytes, size: int) -> None:
        """Serve a request, of which all bytes or only the first bytes have arrived.

        size: the bytes of the whole request. Raises Ended and FrameError.
        """
        head = self.messages.head(frame, PREFIX)
        api = head.api
        self._times.over("frame")
        if not self.known and head.key not in LOGIN and not self._accepted(self._app_of(head)):
            raise FrameError("login", f"the client sent {name_of(head.key)} before it had logged in")
        one = Request(head, api, "", frame, size, self._flips(head))
        self._request = one
        if len(frame) == size or (api is not None and self._streamed(api, one.flips)):
            self.look(one)
            return
        most = WHOLE if self.known or head.key == PRODUCE else SMALL
        if size > most:
            raise FrameError(
                "size", f"the client sent {name_of(head.key)} of {size} bytes; needed: at most {most}"
            )
        one.frame = bytearray(frame)
        one.app = self._find_app(head)
        self._serve(one)  # a gate that is closed is seen before the rest is read

    def _flips(self, head: Head) -> int:
        """Return how many times the application of a request has switched.

        Returns 0 for requests that do not depend on this number.
        """
        if head.key not in _NUMBERED:
            return 0
        return self.gateway.app(self._app_of(head)).flips

    def _app_of(self, head: Head) -> str:
        """Return the name of the application that a request belongs to."""
        return self.gateway.plan.app(self.port.listener, head.client, self._principal)

    def _accepted(self, app: str) -> bool:
        """Return True if the client has logged in, or if the application's brokers demand no login."""
        return self.known or self.learns.logged_in or self.gateway.accepts(app)

    def accepted_in(self, name: str) -> bool:
        return self._app == name and self._accepted(name)

    def accepted(self) -> None:
        if self.learns.logged_in:
            return
        self.learns.logged_in = True
        early, self._early = self._early, []
        for app, client, told in early:
            self._count_in(app, client, told)
        if early and self._app not in {app for app, _, told in early if told}:
            # The client reported its software before its principal was known.
            self.gateway.seen[self._app].request(self._software, self.share)
        if self._principal:
            self.gateway.seen[self._app].principals.add(self._principal, self.share)
        self.gateway.connected(self._app, self)

    def _count_in(self, app: str, client: str, told: Mapping[str, Any]) -> None:
        self.gateway.seen[app].clients.add(client, self.share)
        self.gateway.seen[app].request(told, self.share)

    def _streamed(self, api: Api, flips: int) -> bool:
        """Return True if a request is passed on while it arrives, and not only once it is complete.

        flips: how many times the application has switched, or 0 if the request does not depend on it.
        """
        denied = bool(self._reading and api.denied)
        return api.streamed and not denied and not (flips > 0 and api.key == PRODUCE)

    def look(self, one: Request) -> None:
        """Read the fields of a request, and then serve the request."""
        if one.api is None:
            one.app = self._find_app(one.head)
            one.fields = {}
            self._serve(one)
            return
        if not one.api.streamed:
            self.gateway.turns.spend(self.share, min(one.size, SLICE))
        self._walk(self._read(one), one)

    def _read(self, one: Request) -> Generator[None, None, None]:
        head, flips = one.head, one.flips
        one.frame, fields = yield from self.messages.read_request(head, one.frame)
        one.app = self._see(head, fields)
        if head.key == PRODUCE and fields.get("Acks") != 0:
            one.wrote = self.learns.part_to_remember(head, one.frame, one.size, self.waiting)
        if flips and head.key == PRODUCE:
            rename = partial(producers.id_for_broker, flips=flips)
            one.frame = one.frame if isinstance(one.frame, bytearray) else bytearray(one.frame)
            yield from producers.produced(head.version, one.frame, head.body, rename)
        one.fields = fields

    def _walk(self, steps: Generator[None, None, None], one: Request) -> None:
        """Read the next slice of a request, and continue in a later turn. After the last slice, serve it."""
        for _ in steps:
            self._walking = True
            self.gateway.turns.later(self.share, partial(self._walk_on, steps, one))
            return
        self._serve(one)

    def _walk_on(self, steps: Generator[None, None, None], one: Request) -> None:
        if self._request is not one:
            return
        self._walking = False
        self.gateway.turns.spend(self.share, SLICE)
        try:
            self._walk(steps, one)
        except (Ended, FrameError) as error:
            self.failed(error)
        else:
            self.go_on()

    def _find_app(self, head: Head) -> str:
        """Return the name of a request's application, and add the connection to that application."""
        app = self._app_of(head)
        self.client = fit(head.client), self.peer
        if app != self._app:
            self._app = app
            self.gateway.connected(app, self)
            if self._accepted(app):
                # The client reported its software before its principal was known.
                self.gateway.seen[app].request(self._software, self.share)
        if head.key in MEMBERS:
            self.gateway.member(app, self.client)
        return app

    def _see(self, head: Head, fields: Mapping[str, Any]) -> str:
        """Return the name of a request's application, and record the facts about the client in the fields."""
        if head.key == SASL_HANDSHAKE:
            self._mechanism = (fields["Mechanism"] or "")[:LONGEST]
        if head.key == SASL_AUTHENTICATE and not self._principal:
            self._principal = principal(self._mechanism, fields["AuthBytes"]) or ""
            self._principal = self._principal[:MOST_PRINCIPAL]
        app = self._find_app(head)
        if head.key == API_VERSIONS:
            fields = self._software = {name: told and fit(told) for name, told in fields.items()}
        if self._accepted(app):
            self._count_in(app, head.client, fields)
        elif len(self._early) < MOST_EARLY:
            told = fields if head.key == API_VERSIONS else {}
            self._early.append((app, fit(head.client), told))
        return app

    # -- at its application's gate

    def _serve(self, one: Request) -> None:
        """Send, answer or refuse a request now, or start a task that does so when this is possible."""
        if one.head.key not in LOGIN:
            self._times.over("login")  # it may wait for long now
        app = self._served(one)
        if app is not None:
            self._times.over("frame")
            if self._link is None:
                self.gateway.turns.connected(self.share)
            self._task = asyncio.get_running_loop().create_task(self._wait(one, app))

    def _served(self, one: Request) -> App | None:
        """Send, answer or refuse a request if this is possible now.

        Returns the application's state if the request has to wait for the gate or the broker, else None.
        Nothing else runs between the check of the gate and the action. Raises Ended and FrameError.
        """
        head, fields = one.head, one.fields
        if self._reading and one.api and fields is not None:
            error = self._reading.error(one.api, fields)
            if error:
                self._deny(one, error, fields)
                return None
        now = self.gateway.app(one.app)
        synced = head.key != FETCH or self.gateway.may_fetch(one.app, self.client)
        verdict = decide(now.gate, head, synced=synced)
        if verdict.act is Act.REFUSE:
            raise FrameError("api", verdict.why)
        if head.key in _LED and self._left_port(now):
            raise Ended
        own = verdict.act is Act.ANSWER
        if head.key == SASL_HANDSHAKE and fields is not None and self._mechanism not in MECHANISMS:
            own = True
        elif verdict.act is Act.PARK:
            return now
        if fields is None:
            return None  # the rest of it is read first
        if verdict.act is Act.EMPTY:
            one.early = True
            return now
        if own:
            told = too_new(head) if head.key == API_VERSIONS else other_mechanism(head)
            self._answer(one, told)
            return None
        if self._over or (self._since is not None and not self._still_there()):
            raise Ended
        if self._link is None or self._link.cluster != now.route:
            return now
        if one.flips != self._flips(head):
            raise Ended  # its application switched while the frame came
        rewritten = verdict.act is Act.REWRITE or (one.flips > 0 and head.key == INIT_PRODUCER_ID)
        self._send(one, rewritten, answered=fields.get("Acks") != 0)
        if head.key in _LED and not (self._reading or now.flips or now.gate is not Gate.OPEN):
            self._remember(one, now, fields)
        return None

    async def _wait(self, one: Request, app: App | None) -> None:
        """Wait for the gate and the broker until a request can be served, and serve the request.

        app: the application's state that made the request wait.
        """
        failed: Ended | FrameError | None = None
        try:
            while app is not None:
                if one.early:
                    await self.gateway.change(one.app, app, EARLY_S)
                    self.gateway.turns.spend(self.share, one.size)
                    self._answer(one, self.messages.not_led(one.head, one.frame))
                    if not self.known:
                        self._times.begin("login")
                    break
                if one.api is not None and parks(app.gate, one.api):
                    self._since = self.gateway.now() if self._since is None else self._since
                    self.learns.waited = True
                    with self.gateway.parked(one.app, self, name_of(one.head.key), self._since):
                        await self.gateway.change(one.app, app, PARKED_S)
                else:
                    await self._reach(app.route)
                app = self._served(one)
        except (Ended, FrameError) as error:
            failed = error
        self._task = None
        if failed is None:
            self.go_on()
        else:
            self.failed(failed)

    def _left_port(self, app: App) -> bool:
        """Return True if the application has left the cluster of this port.

        No broker of the application's current cluster leads the partitions that clients ask for here, so such
        requests must not wait. If a PRODUCE waited, the next PRODUCE could overtake it on the way to the
        leader. The leader would then receive the later batch as the first batch of its producer. A Java
        consumer would go on sending FETCH to this port for as long as the leader has the same node id.
        """
        return app.flips > 0 and app.route != self.port.cluster

    def _deny(self, one: Request, error: int, fields: Mapping[str, Any]) -> None:
        """Answer a request with Kafka's error, because this listener is read-only."""
        why = f"{name_of(one.head.key)}: listener {self.port.listener} is read-only"
        if fields.get("Acks") == 0:
            raise FrameError("api", f"{why}, and a request with acks=0 has no response")
        self.gateway.turns.spend(self.share, one.size)
        self.gateway.refused(one.app, why)
        self._answer(one, self.messages.denied(one.head, one.frame, error, why))
