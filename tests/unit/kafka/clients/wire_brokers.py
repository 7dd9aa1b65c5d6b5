"""Brokers on loopback that speak Kafka's wire format, for clients with real connections."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeQuorumRequest
from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from tests.unit.loopback import listening

Answer = Callable[[int, Any], Mapping[str, Any] | None]
"""The fields of a broker's answer to a request, decoded; None: it never answers."""

RELEASE = {0: 9, 1: 11, 2: 9, 3: 9, 10: 3, 18: 3, 29: 2, 32: 4, 35: 4, 45: 0, 46: 0}
"""The newest version of each API that they offer, by its key."""


class WireBrokers:
    """at: ``host:port`` by id. hung: ids that accept connections and never answer. fenced: ids that metadata
    does not name. opened: connections so far. open: connections now. asked: broker and API key of each
    request."""

    def __init__(self, answers: Mapping[type[Any], Answer]) -> None:
        self.at: dict[int, str] = {}
        self.hung: set[int] = set()
        self.fenced: set[int] = set()
        self.opened = self.open = 0
        self.asked: list[tuple[int, int]] = []
        self._answers: dict[int, tuple[Any, Answer]] = {}
        self._ended = threading.Event()
        for request, answer in {MetadataRequest: self.metadata, **answers}.items():
            self.answer(request, answer)

    def answer(self, request: Any, answer: Answer) -> None:
        """Answer requests of this class so from now on."""
        self._answers[request.API_KEY] = (request, answer)

    @contextmanager
    def running(self, ids: Sequence[int]) -> Iterator[WireBrokers]:
        """With a server for each of these ids."""
        with ExitStack() as stack:
            for id in ids:
                port = stack.enter_context(listening(partial(self._serve, id), beside=True))
                self.at[id] = f"127.0.0.1:{port}"
            stack.callback(self._ended.set)
            yield self

    def _serve(self, id: int, client: socket.socket) -> None:
        self.opened += 1
        self.open += 1
        try:
            self._serve_open(id, client)
        finally:
            self.open -= 1

    def _serve_open(self, id: int, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = client.makefile("rb")
        while size := stream.read(4):
            frame = stream.read(struct.unpack(">i", size)[0])
            if id in self.hung:
                self._ended.wait(60)
                return
            answer = self._answered(id, frame)
            if answer is not None:
                client.sendall(answer)

    def _answered(self, id: int, frame: bytes) -> bytes | None:
        key, version = struct.unpack(">hh", frame[:4])
        self.asked.append((id, key))
        body = io.BytesIO(frame)
        request, answer = self._answers.get(key, (None, None))
        if key == ApiVersionsRequest.API_KEY:
            header = RequestHeader.decode(body, flexible=ApiVersionsRequest.flexible_version_q(version))
            offered = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=most)
                for key, most in RELEASE.items()
            ]
            fields: Mapping[str, Any] | None = {"error_code": 0, "api_keys": offered}
        else:
            assert request is not None, key
            assert answer is not None
            header = RequestHeader.decode(body, flexible=request.flexible_version_q(version))
            fields = answer(id, request.decode(body.read(), version=version))
        if fields is None:
            return None
        if key != DescribeQuorumRequest.API_KEY:  # the one answer without it
            fields = {"throttle_time_ms": 0, **fields}
        response = ResponseClassRegistry._response_class_registry[key][version](**fields)
        response.API_VERSION = version
        response.with_header(correlation_id=header.correlation_id)
        return bytes(response.encode(header=True, framed=True))

    def metadata(self, _id: int, _request: Any) -> Mapping[str, Any]:
        """The answer to a Metadata request without topics."""
        brokers = [
            MetadataResponse.MetadataResponseBroker(
                node_id=id, host=at.rpartition(":")[0], port=int(at.rpartition(":")[2]), rack=None
            )
            for id, at in self.at.items()
            if id not in self.fenced
        ]
        return {"brokers": brokers, "cluster_id": "I" * 22, "controller_id": min(self.at), "topics": []}


Dir = DescribeLogDirsResponse.DescribeLogDirsResult


def one_dir(_id: int, _request: Any) -> Mapping[str, Any]:
    """The answer of a broker with an empty log directory."""
    return {"results": [Dir(error_code=0, log_dir="/d", topics=[], total_bytes=2, usable_bytes=1)]}


@contextmanager
def brokers(ids: Sequence[int], answers: Mapping[type[Any], Answer] | None = None) -> Iterator[WireBrokers]:
    """Brokers with these ids. answers: to which requests; every broker has one empty log directory."""
    made = WireBrokers({DescribeLogDirsRequest: one_dir, **(answers or {})})
    with made.running(ids):
        yield made
