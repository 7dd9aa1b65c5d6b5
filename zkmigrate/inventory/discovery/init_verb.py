"""Survey hosts in this order and write migration.yml, for the verb ``init``.

1. the hosts that the operator or Ansible names; unknown host keys are offered for approval
2. source's zoo.cfg, for all servers of source
3. ``dump`` and ``cons`` of source and the brokers' metadata, for chroot, brokers and cluster id
4. the hosts of dest and the brokers, for units, accounts and paths
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from zkmigrate.errors import InventoryError, UsageError
from zkmigrate.hosts.jump_host import JumpHost
from zkmigrate.hosts.transport import own_addresses
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.discovery import brokers, ensembles, pins, render
from zkmigrate.inventory.discovery.brokers import Candidate, Registered
from zkmigrate.inventory.discovery.draft import Draft, Found, SshDraft
from zkmigrate.inventory.discovery.ensembles import Names, Server
from zkmigrate.inventory.discovery.hosts import DirectHosts, HostReader
from zkmigrate.inventory.discovery.init_request import InitOptions, NamedHost, named_hosts, transport_ssh
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.json_stamp import stamped
from zkmigrate.kafka.clients import cluster_view as kafka_client
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.zookeeper.clients.admin import allowed_word
from zkmigrate.zookeeper.clients.login import Credentials
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump, parse_cons, parse_dump
from zkmigrate.zookeeper.data.zoocfg import ADMIN_PORT, CLIENT_PORT

INCOMPLETE = 3
"""Exit code for a file that must be completed by hand."""

_WORD_S = 5.0


def init(options: InitOptions, say: Callable[[str], None], ask: Callable[[str], str] | None) -> int:
    """Survey the hosts, write the file, list what is missing in it, and return the exit code."""
    if options.out.exists() and not options.force:
        raise UsageError(f"{options.out} already exists. Next: pass another file with --out, or pass --force")
    options, named = named_hosts(options)
    draft = _survey(options, named, (lambda _text: None) if options.as_json else say, ask)
    text = render.text(draft, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    _write(options, text)
    problems = _problems(options.out)
    code = INCOMPLETE if problems else 0
    doubtful = [line.strip() for line in text.splitlines() if " BUT " in line]
    if options.as_json:
        body = {"code": code, "file": str(options.out), "problems": problems, "doubtful": doubtful}
        say(json.dumps(stamped(body), ensure_ascii=False, sort_keys=True))
        return code
    say(f"{options.out} written: {_counted(draft)}")
    for line in doubtful:
        say(f"check: {line}")
    for problem in problems:
        say(f"to fix: {problem}")
    follow = "fill in the missing values, then" if problems else "read the file, then"
    say(f"{follow}: zkmigrate preflight -i {options.out}")
    return code


def _counted(draft: Draft) -> str:
    sizes = (len(draft.source.hosts), len(draft.dest.hosts), len(draft.kafka.brokers))
    return "{} source hosts, {} dest hosts, {} brokers".format(*sizes)


def _write(options: InitOptions, text: str) -> None:
    try:
        if not options.force:
            with options.out.open("x", encoding="utf-8") as file:
                file.write(text)
            return
        beside = options.out.with_name(f".{options.out.name}.new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(options.out)
    except FileExistsError:
        raise UsageError(
            f"{options.out} already exists. Next: pass another file with --out, or pass --force"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot write {options.out}: {error.strerror}. Next: pass another file with --out"
        ) from error


def _problems(path: Path) -> list[str]:
    try:
        inventories.load(path)
    except InventoryError as error:
        return str(error).splitlines()
    return []


def _survey(
    options: InitOptions,
    named: Mapping[str, list[NamedHost]],
    say: Callable[[str], None],
    ask: Callable[[str], str] | None,
) -> Draft:
    ssh = transport_ssh(options.ssh)
    known_hosts = Path(ssh.known_hosts).expanduser()
    pins.prepare(known_hosts)

    def approve(hosts: Iterable[str]) -> None:
        pins.approve(hosts, lambda: Transport(DirectHosts(ssh)), known_hosts, say, ask)

    first = [host.address for role in ("source", "dest", "brokers") for host in named[role]]
    approve(first)
    asked_at = [host.address for host in named["source"]]
    say(f"reading source's servers from {', '.join(asked_at)}")
    servers = _survey_source(ssh, asked_at, approve)
    _refuse_silence(servers)
    ports = {host.address: host.port for host in named["source"] if host.port}
    told = (_port(server, options.credentials.tls) for server in servers.values())
    client = next((port for port in told if port), CLIENT_PORT)
    say("reading the brokers from source's four-letter words, without a session or a write")
    found_clusters, word_notes = _clusters(
        {address: ports.get(address, client) for address in servers},
        ensembles.admin_ports(servers),
        options.credentials,
    )
    chroot, registered = _choose_cluster(found_clusters, options.chroot)
    endpoints = [*options.bootstrap, *(_endpoint(r.address, brokers.PORT) for r in registered if r.address)]
    endpoints += [_endpoint(host.address, brokers.PORT) for host in named["brokers"]]
    view = _kafka_view(endpoints, say)
    given = [Candidate(h.address, name=h.name, where="Ansible inventory") for h in named["brokers"]]
    candidates = brokers.candidates(registered, view, given)
    approve(one.address for one in candidates)
    say(f"reading the services of {len(named['dest'])} dest hosts and {len(candidates)} brokers")
    with Transport(DirectHosts(ssh)) as transport:
        reader = HostReader(transport, servers)
        dest = reader.each([h.address for h in named["dest"]], partial(ensembles.survey, reader))
        asked = reader.each([c.address for c in candidates], partial(brokers.survey, reader))
        own = [_endpoint(a, h.listener.port) for a, h in asked.items() if h.listener is not None]
        if not isinstance(view, Seen) and (others := [one for one in own if one not in endpoints]):
            view = _kafka_view(others, say)
            candidates = brokers.candidates(registered, view, given)
            new = [c.address for c in candidates if c.address not in asked]
            approve(new)
            asked |= reader.each(new, partial(brokers.survey, reader))
        if chroot.value is None:
            chroot = _chroot_of(asked, chroot)
        names = Names()
        aliases = {h.address: h.name for hosts in named.values() for h in hosts if h.name}
        source_part = ensembles.source_side(reader, servers, names, aliases)
        pattern = next((s.config.values for s in servers.values() if s.config), {})
        dest_part = ensembles.dest_side(reader, dest, names, aliases, source_part, pattern)
    kafka_part = brokers.draft(candidates, asked, view, chroot, names)
    every = [
        line.address for part in (source_part.hosts, dest_part.hosts, kafka_part.brokers) for line in part
    ]
    return Draft(
        options.name or _name_of(chroot),
        options.operator or own_addresses.sent_from(every),
        _as_written(ssh, options.out),
        source_part,
        dest_part,
        kafka_part,
        (*word_notes, *brokers.without_address(registered, candidates)),
    )


def _survey_source(
    ssh: Ssh, addresses: list[str], approve: Callable[[Iterable[str]], None]
) -> dict[str, Server]:
    """Return every source server by its address, including those that only server lines name."""
    servers: dict[str, Server] = {}
    for _ in range(2):
        with Transport(DirectHosts(ssh)) as transport:
            reader = HostReader(transport, addresses)
            servers |= reader.each(addresses, partial(ensembles.survey, reader))
        lines = ensembles.server_lines(servers).values()
        addresses = [line.host for line in lines if ensembles.server_at(servers, line.host) is None]
        if not addresses:
            break
        approve(addresses)
    return servers


def _refuse_silence(servers: Mapping[str, Server]) -> None:
    """Raise UsageError if none of source's hosts can be read, because everything else depends on them."""
    silent = {address: server.survey for address, server in servers.items()}
    if not silent or not all(isinstance(survey, Unknown) for survey in silent.values()):
        return
    why = "; ".join(
        f"{address}: {str(survey).replace(f'{address}: ', '')}" for address, survey in silent.items()
    )
    own = ", ".join(own_addresses.sent_from(silent)) or "no address"
    raise UsageError(
        f"cannot read any of source's hosts from this machine: {why}. Nothing was written. Next: run this "
        f"on a machine that reaches them (this one sends from {own}), or pass another --source, --ssh-user "
        "or --ssh-key"
    )


def _port(server: Server, tls: bool) -> int | None:
    """Return the server's port for clients with TLS or without, and the other one if it has no such port."""
    keys = ("secureClientPort", "clientPort") if tls else ("clientPort", "secureClientPort")
    texts = [server.config.values.get(key, "").strip() for key in keys] if server.config else []
    return next((int(text) for text in texts if text.isdecimal()), None)


def _clusters(
    at: Mapping[str, int], admin: Mapping[str, int], credentials: Credentials
) -> tuple[Mapping[str, tuple[Registered, ...]], list[str]]:
    """Return the Kafka clusters on source by chroot, and the four-letter words that failed."""
    dumps: list[Dump] = []
    connections: list[Connection] = []
    refused: dict[str, list[str]] = {}
    for address, port in at.items():
        for word in ("dump", "cons"):
            admin_port = admin.get(address, ADMIN_PORT)
            reading = allowed_word(address, port, admin_port, word, _WORD_S, credentials)
            if not isinstance(reading, Seen):
                refused.setdefault(f"{word}: {reading}", []).append(address)
                continue
            try:
                if word == "dump":
                    dumps.append(parse_dump(reading.value))
                else:
                    connections += parse_cons(reading.value)
            except ZkDataError as error:
                refused.setdefault(str(error), []).append(address)
    return brokers.clusters(dumps, connections), [
        f"{', '.join(hosts)}: {why}" for why, hosts in refused.items()
    ]


def _choose_cluster(
    found: Mapping[str, tuple[Registered, ...]], chroot: str
) -> tuple[Found[str], tuple[Registered, ...]]:
    """Return the chroot and the brokers of the cluster to move. Raises UsageError if it is not clear."""
    known = "; ".join(f"{c} (brokers {', '.join(str(b.id) for b in bs)})" for c, bs in found.items())
    if chroot:
        if found and chroot not in found:
            raise UsageError(f"--chroot {chroot}: no broker is registered there; source has {known}")
        return Found(chroot, "as given, seen in dump" if found else "as given"), found.get(chroot, ())
    if len(found) > 1:
        raise UsageError(f"source has several Kafka clusters: {known}. Next: name one with --chroot")
    for only, registered in found.items():
        return Found(only, "the only /brokers/ids in source's dump"), registered
    return Found(None, "source's dump has no /brokers/ids"), ()


def _chroot_of(asked: Mapping[str, brokers.BrokerHost], before: Found[str]) -> Found[str]:
    found = {host.chroot for host in asked.values() if host.chroot}
    if len(found) == 1:
        return Found(found.pop(), "zookeeper.connect of the brokers")
    return Found(None, f"{before.where}; zookeeper.connect of the brokers names {sorted(found) or 'none'}")


def _kafka_view(endpoints: Iterable[str], say: Callable[[str], None]) -> Reading[KafkaView]:
    unique = list(dict.fromkeys(endpoints))
    if not unique:
        return Unknown("failed", "no broker's address is known")
    say(f"reading metadata from Kafka at {', '.join(unique[:3])}")
    return kafka_client.view(unique, lambda: Absent("not asked"))


def _as_written(ssh: Ssh, out: Path) -> SshDraft:
    """Return the ssh section with short paths.

    A path below the file's directory or the home directory is relative to it.
    """

    def short(path: str) -> str:
        whole = Path(path).expanduser().absolute()
        for folder, mark in ((out.absolute().parent, ""), (Path.home(), "~/")):
            if whole.is_relative_to(folder):
                return f"{mark}{whole.relative_to(folder)}"
        return str(whole)

    config = short(ssh.config) if ssh.config else ""
    return SshDraft(ssh.user, ssh.port, short(ssh.key), short(ssh.known_hosts), ssh.bastion or "", config)


def _endpoint(host: str, port: int) -> str:
    return str(JumpHost(host, port=port))


def _name_of(chroot: Found[str]) -> str:
    last = (chroot.value or "").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9-]+", "-", last).strip("-")[:20].strip("-") or "move"
