"""Write a draft as the text of migration.yml, with a comment behind each value that names its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from zkmigrate.inventory.discovery.draft import Draft, Ensemble, Found, HostLine, KafkaDraft, SshDraft

MISSING = "#?"
"""The beginning of a line that must be filled in."""

_PLAIN = re.compile(r"[A-Za-z/~][A-Za-z0-9._/~@-]*")
_WORDS = ("true", "false", "null", "~")


def text(draft: Draft, written: str) -> str:
    """Return the text of the whole file.

    written: the time of writing, for the file's head.
    """
    parts = [
        _head(draft, written),
        ["version: 1", f"name: {_scalar(draft.name)}"],
        _operator(draft.operator),
        _ssh(draft.ssh),
        _source(draft.source),
        _dest(draft.dest),
        _kafka(draft.kafka),
        [
            "# policy: leases, limits and what happens when a broker is lost in the window. The defaults",
            "# are in docs/reference/migration-yml.md.",
        ],
    ]
    return "\n\n".join("\n".join(_printable(line) for line in part) for part in parts) + "\n"


def _printable(line: str) -> str:
    """Return a line with unprintable characters replaced, because a host may have put any text into it."""
    return "".join(c if c.isprintable() else " " for c in line)


def _head(draft: Draft, written: str) -> list[str]:
    return [
        f"# Inventory of the move {draft.name}, created by `zkmigrate init` {written} from the facts "
        "of the hosts.",
        "# The comment after each value names its source. Read every line before you use it.",
        f"# A line with {MISSING} has no value yet: fill it in. A value after a plain # is the",
        "# default, which applies because no other value was found. Keys: docs/reference/migration-yml.md",
        *(f"# NOTE: {note}" for note in draft.notes),
    ]


def _operator(addresses: tuple[str, ...]) -> list[str]:
    head = [
        "# The machine zkmigrate runs on, as the hosts see it. The fence lets these addresses through, so",
        "# none may be a host's.",
    ]
    if not addresses:
        return [*head, f"{MISSING} operator: []  # this machine reaches no host"]
    shown = ", ".join(_scalar(a) for a in addresses)
    return [*head, f"operator: [{shown}]  # the addresses from which this machine reaches the hosts"]


def _ssh(ssh: SshDraft) -> list[str]:
    out = [
        "# One account for all hosts. On source it only reads (config, data, logs) and needs no sudo; on",
        "# dest and brokers it needs full sudo until zkm-host is installed.",
        "ssh:",
        f"  user: {_scalar(ssh.user)}",
    ]
    if ssh.port != 22:
        out.append(f"  port: {ssh.port}")
    out += [
        f"  key: {_scalar(ssh.key)}",
        f"  known_hosts: {_scalar(ssh.known_hosts)}  # pins every host's key",
    ]
    if ssh.bastion:
        out.append(f"  bastion: {_scalar(ssh.bastion)}")
    if ssh.config:
        out.append(f"  config: {_scalar(ssh.config)}")
    return out


def _source(source: Ensemble) -> list[str]:
    return [
        "# The ensemble that Kafka leaves, all of its servers. zkmigrate only reads there.",
        "source:",
        *_hosts(source.hosts, "myid", source.hosts_where),
        *_ports_and_paths(source),
    ]


def _dest(dest: Ensemble) -> list[str]:
    out = [
        "# The new ensemble: 3 or 5 hosts with ZooKeeper installed, stopped and without data.",
        "dest:",
        *_hosts(dest.hosts, "myid", dest.hosts_where),
        *_ports_and_paths(dest),
        *_value("user", dest.user, "zookeeper"),
        *_value("group", dest.group, "zookeeper"),
        *_service(dest.unit, "zookeeper.service"),
    ]
    if dest.settings or dest.left_out:
        mark = "" if dest.settings else "# "
        out.append(f"  {mark}settings:  # further zoo.cfg lines, {dest.settings_where}")
        out += [f"    {_key(key)}: {_setting(value)}" for key, value in dest.settings.items()]
        out += [f"    # {key}: left out: {why}" for key, why in dest.left_out.items()]
    return out


def _kafka(kafka: KafkaDraft) -> list[str]:
    return [
        "# The Kafka cluster that moves: all of its brokers.",
        "kafka:",
        *_value("cluster_id", kafka.cluster_id),
        *_value("chroot", kafka.chroot),
        *_hosts(kafka.brokers, "id", kafka.brokers_where, "brokers"),
        *_value("config", kafka.config, "/etc/kafka/server.properties"),
        *_service(kafka.unit, "kafka.service"),
        *_value("user", kafka.user, "kafka"),
        *_value("group", kafka.group, "kafka"),
    ]


def _ports_and_paths(side: Ensemble) -> Iterator[str]:
    clients = (("client", side.client), ("secure", side.secure))
    door = next((one for one in clients if one[1].value is not None), clients[0])
    ports: tuple[tuple[str, Found[int]], ...] = (door, ("quorum", side.quorum), ("election", side.election))
    if all(found.value is not None for _, found in ports):
        ports = (*(one for one in clients if one[1].value is not None), *ports[1:])
        shown = ", ".join(f"{key}: {found.value}" for key, found in ports)
        yield f"  ports: {{{shown}}}" + _where(door[1].where)
    else:
        why = "; ".join(dict.fromkeys(found.where for _, found in ports if found.value is None))
        yield f"  # ports: {{client: 2181, quorum: 2888, election: 3888}}  # the default; {why}"
    if side.admin.value is not None:
        yield f"  admin_port: {side.admin.value}" + _where(side.admin.where)
    yield from _value("config", side.config, "/etc/zookeeper/conf/zoo.cfg")
    yield from _value("data_dir", side.data_dir, "/var/lib/zookeeper")
    if side.log_dir.value is not None:
        yield from _value("log_dir", side.log_dir)
    yield from _value("java_env", side.java_env, "/etc/zookeeper/conf/java.env")


def _hosts(hosts: Iterable[HostLine], number: str, where: str, key: str = "hosts") -> Iterator[str]:
    hosts = tuple(hosts)
    if not hosts:
        example = f"{{name: NAME, address: ADDRESS, {number}: NUMBER}}"
        yield f"  {MISSING} {key}: [{example}]  # {where}"
        return
    yield f"  {key}:" + _where(where)
    for host in hosts:
        pairs = [("name", _scalar(host.name)), ("address", _scalar(host.address))]
        if host.number is not None:
            pairs.append((number, str(host.number)))
        if host.port is not None:
            pairs.append(("port", str(host.port)))
        if host.also:
            pairs.append(("also", f"[{', '.join(_scalar(a) for a in host.also)}]"))
        if host.observer:
            pairs.append(("observer", "true"))
        listed = ", ".join(f"{k}: {v}" for k, v in pairs)
        lacks = "" if host.number is not None else f"{MISSING} {number} "
        yield f"    - {{{listed}}}" + _where(lacks + host.where)


def _value(key: str, found: Found[str], default: str = "") -> Iterator[str]:
    if found.value is not None:
        yield f"  {key}: {_scalar(found.value)}" + _where(found.where)
    elif default:
        yield f"  # {key}: {default}  # the default; not found: {found.where}"
    else:
        yield f"  {MISSING} {key}:  # not found: {found.where}"


def _service(unit: Found[str], default: str) -> Iterator[str]:
    if unit.value is not None:
        yield f"  service: {{unit: {_scalar(unit.value)}}}" + _where(unit.where)
        return
    yield f"  # service: {{unit: {default}}}  # the default; no systemd unit found: {unit.where}"
    yield "  # Where systemd does not run it: docs/how-to/own-commands.md"


def _where(text: str) -> str:
    return f"  # {text}" if text else ""


def _scalar(text: str) -> str:
    """Return a text as YAML, quoted if it could be read as something else."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain or _is_address(text) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_address(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", text) is not None


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text) else _scalar(text)


def _setting(value: str) -> str:
    """Return a setting's value as YAML; settings are text, so numbers need no quotes."""
    return value if re.fullmatch(r"0|[1-9][0-9]{0,17}", value) else _scalar(value)
