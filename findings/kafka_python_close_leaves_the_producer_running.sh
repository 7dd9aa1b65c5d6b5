#!/bin/sh
# Finding: kafka-python's KafkaProducer.close(timeout) raises while a record has no answer yet, and the producer goes on running.
#
# Versions: kafka-python 3.0.12, Python 3.11; seen 2026-11-29.
# Input:    a broker that is slow to answer one Produce request (it answers ApiVersions and Metadata at once), a producer with a
#           request timeout of 6 s, one record, close(timeout=1).
# Expected: as in Java, close with a timeout stops the producer at that time and fails what is left; the method has code for
#           that ("force close").
# Seen:     close raises after the timeout, before it stops anything. The sender's thread, its connections and the producer stay:
#           the producer takes the next record, also after the first one has failed. Only another close, without a record in
#           flight, stops it:
#             close(timeout=1) raised KafkaTimeoutError; then a record was accepted; threads 1 before, 2 after the failure
#             a second close stopped it; threads 1
# Who meets it: a program that lets producers go while brokers restart or hang, such as a canary or a retry with a new producer:
#           each one that was "closed" in a with block, or with its error ignored, leaves a thread and its connections.
# The script exits with 1 when kafka-python behaves otherwise.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" --quiet --disable-pip-version-check install 'kafka-python==3.0.12'
cat >"$work/close.py" <<'PYTHON'
import io
import socket
import struct
import threading
import time

from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
api, topic = ApiVersionsResponse.ApiVersion, MetadataResponse.MetadataResponseTopic
served = []


def answer(key):
    if key == 18:
        offered = ((0, 9), (3, 9), (18, 3))
        return {"error_code": 0, "api_keys": [api(api_key=k, min_version=0, max_version=v) for k, v in offered]}
    partition = topic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, leader_epoch=0,
        replica_nodes=[1], isr_nodes=[1], offline_replicas=[],
    )
    return {
        "brokers": [MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port, rack=None)],
        "cluster_id": "x", "controller_id": 1,
        "topics": [topic(error_code=0, name="t", topic_id=None, is_internal=False, partitions=[partition])],
    }


def serve(client):
    stream = client.makefile("rb")
    while size := stream.read(4):
        frame = stream.read(struct.unpack(">i", size)[0])
        key, version = struct.unpack(">hh", frame[:4])
        if key == 0:
            continue  # its answer takes longer than this script
        request = ApiVersionsRequest if key == 18 else MetadataRequest
        header = RequestHeader.decode(io.BytesIO(frame), flexible=request.flexible_version_q(version))
        response = ResponseClassRegistry._response_class_registry[key][version](throttle_time_ms=0, **answer(key))
        response.API_VERSION = version
        response.with_header(correlation_id=header.correlation_id)
        client.sendall(bytes(response.encode(header=True, framed=True)))


def accept():
    while True:
        client, _ = server.accept()
        served.append(threading.Thread(target=serve, args=(client,), daemon=True))
        served[-1].start()


broker = threading.Thread(target=accept, daemon=True)
broker.start()


def own_threads():
    return len(set(threading.enumerate()) - {broker, *served})


before = own_threads()
limits = {"request_timeout_ms": 6000, "delivery_timeout_ms": 6000}
producer = KafkaProducer(bootstrap_servers=[f"127.0.0.1:{port}"], acks="all", enable_idempotence=False, **limits)
first = producer.send("t", b"x")
try:
    producer.close(timeout=1)
    raise SystemExit("close(timeout=1) did not raise")
except KafkaError as error:
    raised = type(error).__name__
second = producer.send("t", b"y")
end = time.monotonic() + 40
while not (first.is_done and second.is_done):
    if time.monotonic() > end:
        raise SystemExit("the records have not failed within 40 s")
    time.sleep(0.2)
after = own_threads()
print(f"close(timeout=1) raised {raised}; then a record was accepted; threads {before} before, {after} after the failure")
producer.close(timeout=5)
while own_threads() > before and time.monotonic() < end:
    time.sleep(0.2)
print(f"a second close stopped it; threads {own_threads()}")
if raised != "KafkaTimeoutError" or after <= before or own_threads() != before:
    raise SystemExit(1)
PYTHON
"$work/venv/bin/python" -W ignore "$work/close.py" 2>"$work/log" || { cat "$work/log"; echo "kafka-python behaves otherwise"; exit 1; }
