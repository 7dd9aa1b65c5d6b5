"""Find the versions that servers report: ZooKeeper's by ``srvr``, Kafka's from each broker's log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.service import log_command
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.zookeeper.data.four_letter_words import WordError, parse_srvr

# Kafka 2.3 to 3.9: "… INFO [main] AppInfoParser: Kafka version: 2.8.2".
_KAFKA = re.compile(r"\bKafka version: (\S+)")


def zookeeper_version(lab: Lab, role: Role) -> str:
    """Return the version of every server of this role, comma-separated if they differ.

    Raises LabError if a server does not answer.
    """
    with lab.operator():
        answers = {host.name: lab.word(host.address, "srvr") for host in lab.role(role)}
    versions = []
    for name, answer in answers.items():
        try:
            versions.append(parse_srvr(answer or "").version.number)
        except WordError as error:
            raise LabError(f"{name} does not report its version: {error}") from error
    return _joined(versions)


def broker_logs(lab: Lab, hosts: Iterable[str]) -> dict[str, str]:
    """Return the whole server log of each of these brokers, by host."""
    command = log_command(lab.spec, Role.BROKER)
    return {host: lab.exec(host, command, check=False).stdout for host in hosts}


def kafka_version(logs: Mapping[str, str]) -> str:
    """Return the version that each broker logged at its last start, comma-separated if they differ.

    logs: the server log of each broker. Raises LabError for a log without a version.
    """
    versions = []
    for broker, log in logs.items():
        found = _KAFKA.findall(log)
        if not found:
            raise LabError(f"the log of {broker} does not contain its version")
        versions.append(found[-1])
    return _joined(versions)


def wanted_versions(spec: LabSpec) -> dict[str, str]:
    """Return the versions in the spec, by their names in the demo's result."""
    return {
        "zookeeper_source": spec.source_version,
        "zookeeper_dest": spec.dest_version,
        "kafka": spec.kafka_version,
    }


def _joined(versions: Iterable[str]) -> str:
    return ", ".join(sorted(set(versions)))
