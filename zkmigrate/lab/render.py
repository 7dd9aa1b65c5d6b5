"""Compute the content of a lab host's files, at the usual paths of a packaged installation."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.lab import secured, service, texts
from zkmigrate.lab.credentials import STORE, TOKENS, Credentials
from zkmigrate.lab.security import Kind
from zkmigrate.lab.shape import LAST_ZOOKEEPER, Ensemble, KafkaCluster, release
from zkmigrate.lab.spec import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    ELECTION_PORT,
    JAVA_11_KAFKA,
    KAFKA_PORT,
    MOST_NODE_BYTES,
    OPERATOR_ADDRESS,
    QUORUM_PORT,
    HostPlan,
    LabSpec,
    Role,
    hosts_of,
    machines_of,
    members,
    shape_of,
)

OPS_USER = "ops"
OWN_USER = "zkmigrate"
"""The user that runs gateways and copiers."""
OPS_ID, ZOOKEEPER_ID, KAFKA_ID, OWN_ID = 1000, 880, 881, 882
"""The numeric ids of the lab's users; user id and group id are the same number."""

USERS = (OPS_USER, "zookeeper", "kafka", OWN_USER)

ZOO_CFG = "/etc/zookeeper/conf/zoo.cfg"
JAVA_ENV = "/etc/zookeeper/conf/java.env"
ZOOKEEPER_DATA = "/var/lib/zookeeper"
SERVER_PROPERTIES = "/etc/kafka/server.properties"
KAFKA_ENV = "/etc/kafka/kafka.env"
KAFKA_DATA = "/var/lib/kafka"
KRAFT_METADATA = f"{KAFKA_DATA}/metadata"
ZOOKEEPER_JARS, KAFKA_JARS, JAVA_11 = "/opt/zookeeper/lib", "/opt/kafka/lib", "/opt/java-11"
JETTY_JARS = "/opt/zookeeper/jetty"
POLICY_JARS = "/opt/kafka/policy"
"""The directory of our policy's jar if brokers load it; otherwise an empty directory."""
UNITS = "/etc/systemd/system"

SNAP_COUNT = 2_000
"""The number of transactions between two snapshots; ZooKeeper's default is 100,000.

A starting server replays the log since its last snapshot. An observer that restarts often takes no snapshot,
so the logs of a lab that is moved repeatedly would grow. With nine servers on two cores the replay takes
longer than sessions last.
"""
_SNAP_COUNT_MOST = 100_000
_SNAP_BYTES_EACH = 5_000
"""The number of bytes of snapshots that one transaction may cause.

With 1 GB of znodes and a snapshot every 2,000 transactions, six servers filled 79 GB in four minutes.
"""

_KEPT_TRANSACTIONS = 500
"""The transactions that a server keeps in memory for its followers (``ZKDatabase.commitLogCount``)."""


@dataclass(frozen=True)
class HostFile:
    """A file, directory (`content` None) or symbolic link (`link` given) on a host.

    owner, group: numeric ids. data: the content of a file that is not text.
    """

    path: str
    content: str | None
    mode: int = 0o644
    owner: int = 0
    group: int = 0
    link: str | None = None
    data: bytes | None = None


def zookeeper_servers(hosts: Iterable[HostPlan]) -> str:
    """Return the static `server.N` lines of the given hosts, in order."""
    return "".join(
        f"server.{host.myid}={host.address}:{QUORUM_PORT}:{ELECTION_PORT}"
        f"{':observer' if host.observer else ''}\n"
        for host in hosts
        if host.myid is not None
    )


def source_zoo_cfg(spec: LabSpec, ensemble: str = "source") -> str:
    """Return the zoo.cfg of every server of an ensemble that is running from the start."""
    options = {"reconfigEnabled": "true"} if spec.reconfig_enabled else {}
    options |= {} if spec.sync_enabled else {"syncEnabled": "false"}
    own = next(one for one in shape_of(spec).ensembles if one.name == ensemble)
    options |= {**secured.zookeeper_settings(spec, own.version), **spec.source_options}
    # With TLS the port comes from secured.
    port = "" if spec.client_port != CLIENT_PORT else f"clientPort={CLIENT_PORT}\n"
    return (
        f"""tickTime={spec.tick_time_ms}
initLimit=10
syncLimit=5
dataDir={ZOOKEEPER_DATA}
{port}maxClientCnxns=0
autopurge.purgeInterval=0
4lw.commands.whitelist={spec.four_letter_words}
admin.enableServer=false
"""
        + _key_values(options)
        + zookeeper_servers(members(hosts_of(spec), ensemble))
    )


def _key_values(options: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in options.items())


def java_env(spec: LabSpec, secured_flags: str = "") -> str:
    """Return the content of the EnvironmentFile of the ZooKeeper unit.

    secured_flags: further Java options, each after a blank.

    The heap has room for 2 kB for each filler znode, twice the znodes' data, and twice the last transactions,
    which a server keeps in memory. With less, the leader's process ended while 1 GB was written.
    """
    data = spec.tree_size * spec.tree_node_bytes
    kept = min(data, _KEPT_TRANSACTIONS * MOST_NODE_BYTES)
    heap_mb = 256 + (2_000 * spec.tree_size + 2 * (data + kept)) // 1_000_000
    flags = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xmx{heap_mb}m"
    snap_count = min(_SNAP_COUNT_MOST, max(SNAP_COUNT, data // _SNAP_BYTES_EACH))
    flags += f" -Dzookeeper.snapCount={snap_count}"
    if spec.jute_maxbuffer is not None:
        flags += f" -Djute.maxbuffer={spec.jute_maxbuffer}"
    return f'JVMFLAGS="{flags}{secured_flags}"\n'


_KAFKA_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xmx384m"

_ZOOKEEPER = (
    f"/usr/bin/java $JVMFLAGS -cp /etc/zookeeper/conf:{ZOOKEEPER_JARS}/*:{JETTY_JARS}/* "
    f"org.apache.zookeeper.server.quorum.QuorumPeerMain {ZOO_CFG}"
)


def _kafka(version: str) -> str:
    jars = f"/etc/kafka:{KAFKA_JARS}/*:{POLICY_JARS}/*"
    return f"{kafka_java(version)} $KAFKA_JVM -cp {jars} kafka.Kafka {SERVER_PROPERTIES}"


def _started_by(
    spec: LabSpec, role: Role, unit: str, account: str, environment: str, command: str
) -> HostFile:
    """Return the file that starts a host's server: a systemd unit or a script."""
    if service.has_script(spec, role):
        # The class path is quoted, so that java expands the star itself.
        text = re.sub(r"(/etc/\S+/\*)", r"'\1'", command)
        return HostFile(service.script(role), service.script_text(role, account, environment, text), 0o755)
    return HostFile(f"{UNITS}/{service.name_of(role)}.service", unit)


def _unit(description: str, account: str, environment: str, command: str, stop_s: int) -> str:
    """Return the text of a systemd unit that makes files group-readable and does not restart its server.

    stop_s: the seconds between SIGTERM and SIGKILL.
    """
    return f"""[Unit]
Description={description}
After=network.target

[Service]
Type=simple
User={account}
Group={account}
UMask=0027
EnvironmentFile=-{environment}
ExecStart={command}
SuccessExitStatus=143
Restart=no
TimeoutStopSec={stop_s}
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""


def kafka_java(version: str) -> str:
    """Return the path of the java program for this Kafka version."""
    return f"{JAVA_11}/bin/java" if version in JAVA_11_KAFKA else "/usr/bin/java"


def kafka_unit(version: str) -> str:
    """Return the text of kafka.service. It gives Kafka time for its controlled shutdown after SIGTERM."""
    return _unit("Kafka broker", "kafka", KAFKA_ENV, _kafka(version), 120)


def connect_string(addresses: Sequence[str], port: int, chroot: str) -> str:
    """Return the `zookeeper.connect` value for these servers and this chroot."""
    return ",".join(f"{address}:{port}" for address in addresses) + ("" if chroot == "/" else chroot)


def data_disks(spec: LabSpec, host: HostPlan) -> dict[str, int]:
    """Return the size in megabytes of each separate data disk of the host, by mount point."""
    if host.myid is not None:
        return {ZOOKEEPER_DATA: spec.data_disk_mb} if spec.data_disk_mb else {}
    sizes = host.broker.disks_mb if host.broker is not None else ()
    return {f"{KAFKA_DATA}/disk{number}": size for number, size in enumerate(sizes, 1)}


def log_dirs(spec: LabSpec, host: HostPlan) -> tuple[str, ...]:
    """Return the log directories of a broker or controller: one on each of its disks."""
    return tuple(data_disks(spec, host)) or (KAFKA_DATA,)


def server_properties(spec: LabSpec, host: HostPlan) -> str:
    """Return the server.properties of one broker or controller, as it is before a migration.

    The drills must show the default behaviour of a release. Therefore only two things are set: small internal
    topics and segments, because the machine is small; and no automatic creation of topics, because the checks
    must know all topics.
    """
    cluster = host.part
    assert isinstance(cluster, KafkaCluster)
    hosts = hosts_of(spec)
    if cluster.ensemble is None:
        identity, metadata = _kraft(spec, host, members(hosts, cluster.name))
    else:
        servers = [server.address for server in members(hosts, cluster.ensemble)]
        identity = f"""broker.id={host.node_id}
{_rack(host)}listeners={secured.protocol(spec)}://{host.address}:{KAFKA_PORT}
"""
        metadata = f"""zookeeper.connect={connect_string(servers, spec.client_port, cluster.chroot)}
zookeeper.session.timeout.ms={spec.session_timeout_ms}
zookeeper.connection.timeout.ms=30000
{_key_values(secured.kafka_settings(spec))}"""
    return f"""{identity}log.dirs={",".join(log_dirs(spec, host))}
{metadata}{_small(len(cluster.brokers))}offsets.topic.num.partitions=6
transaction.state.log.num.partitions=3
auto.create.topics.enable=false
log.segment.bytes=67108864
{_key_values(spec.broker_options)}"""


def _small(brokers: int) -> str:
    """Return the settings that Kafka needs to create internal topics on fewer than three brokers."""
    if brokers >= 3:
        return ""
    factors = (
        f"{topic}.replication.factor={brokers}\n" for topic in ("offsets.topic", "transaction.state.log")
    )
    return f"{''.join(factors)}transaction.state.log.min.isr=1\n"


def _rack(host: HostPlan) -> str:
    return "" if host.rack is None else f"broker.rack={host.rack}\n"


def _kraft(spec: LabSpec, host: HostPlan, cluster: Iterable[HostPlan]) -> tuple[str, str]:
    """Return the identity lines of a KRaft node, and the lines that locate the cluster's metadata.

    A broker with its own disks keeps the metadata log on another disk: a full disk then stops a log
    directory, not the node.
    """
    voters = ",".join(f"{h.node_id}@{h.address}:{CONTROLLER_PORT}" for h in cluster if h.votes)
    broker = host.broker is not None
    roles = {"broker": broker, "controller": host.votes}
    ports = {"PLAINTEXT": (KAFKA_PORT, broker), "CONTROLLER": (CONTROLLER_PORT, host.votes)}
    listeners = [f"{name}://{host.address}:{port}" for name, (port, there) in ports.items() if there]
    own_log = f"metadata.log.dir={KRAFT_METADATA}\n" if data_disks(spec, host) else ""
    return (
        f"""node.id={host.node_id}
process.roles={",".join(role for role, has in roles.items() if has)}
{_rack(host)}listeners={",".join(listeners)}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
""",
        f"controller.quorum.voters={voters}\n{own_log}",
    )


def kraft_cluster_id(lab_id: str, cluster: str) -> str:
    """Return the id of a KRaft cluster, for formatting its storage.

    The id begins with a letter, because StorageTool takes an id that begins with "-" for an option.
    """
    digest = hashlib.sha256(f"{lab_id} {cluster}".encode()).digest()[:16]
    return base64.urlsafe_b64encode(bytes([digest[0] & 0x7F]) + digest[1:]).decode().rstrip("=")


def format_command(version: str, cluster_id: str) -> list[str]:
    """Return the command that formats a KRaft node's storage, to be run by Kafka's account."""
    java = [kafka_java(version), *_KAFKA_FLAGS.split(), "-cp", f"/etc/kafka:{KAFKA_JARS}/*"]
    return [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", SERVER_PROPERTIES]


def account_lines(host: HostPlan) -> dict[str, str]:
    """Return the lines to append to /etc/passwd, /etc/group and /etc/shadow, by file.

    On source the operator may only read: `ops` is in the group that can read ZooKeeper's data, config and
    logs.
    """
    reader = OPS_USER if host.role is Role.SOURCE else ""
    return {
        "/etc/passwd": (
            f"{OPS_USER}:x:{OPS_ID}:{OPS_ID}::/home/{OPS_USER}:/bin/sh\n"
            f"zookeeper:x:{ZOOKEEPER_ID}:{ZOOKEEPER_ID}::{ZOOKEEPER_DATA}:/usr/sbin/nologin\n"
            f"kafka:x:{KAFKA_ID}:{KAFKA_ID}::{KAFKA_DATA}:/usr/sbin/nologin\n"
            f"{OWN_USER}:x:{OWN_ID}:{OWN_ID}::/:/usr/sbin/nologin\n"
        ),
        "/etc/group": (
            f"{OPS_USER}:x:{OPS_ID}:\nzookeeper:x:{ZOOKEEPER_ID}:{reader}\nkafka:x:{KAFKA_ID}:\n"
            f"{OWN_USER}:x:{OWN_ID}:\n"
        ),
        # "*" allows no password but, unlike "!", is not a locked account to sshd.
        "/etc/shadow": "".join(f"{user}:*:19000:0:99999:7:::\n" for user in USERS),
    }


def etc_hosts(spec: LabSpec) -> str:
    """Return the text of /etc/hosts, which is the same on every lab host."""
    lines = ["127.0.0.1 localhost", f"{OPERATOR_ADDRESS} operator"]
    return "\n".join(lines + [f"{host.address} {host.name}" for host in hosts_of(spec)]) + "\n"


def host_files(
    spec: LabSpec,
    host: HostPlan,
    host_key: str,
    operator_public_key: str,
    credentials: Credentials | None = None,
) -> tuple[HostFile, ...]:
    """Return every file of one machine besides the root file system, directories before their content.

    host: the host that the machine is named after. host_key: the machine's private ssh key (OpenSSH text).
    operator_public_key: the public key that may log in. credentials: needed if the spec has security.
    """
    files = [
        HostFile("/etc/hostname", host.name + "\n"),
        HostFile("/etc/hosts", etc_hosts(spec)),
        # The lab's network has no name server; with an empty file a query fails at once.
        HostFile("/etc/resolv.conf", ""),
        HostFile("/etc/ssh/ssh_host_ed25519_key", host_key, 0o600),
        HostFile("/etc/ssh/sshd_config.d/lab.conf", texts.SSHD),
        HostFile("/etc/systemd/journald.conf.d", None, 0o755),
        HostFile("/etc/systemd/journald.conf.d/lab.conf", texts.JOURNALD),
        HostFile(f"/home/{OPS_USER}", None, 0o750, OPS_ID, OPS_ID),
        HostFile(f"/home/{OPS_USER}/.ssh", None, 0o700, OPS_ID, OPS_ID),
        HostFile(f"/home/{OPS_USER}/.ssh/authorized_keys", operator_public_key, 0o600, OPS_ID, OPS_ID),
    ]
    files += [HostFile(f"{UNITS}/{unit}", None, link="/dev/null") for unit in texts.MASKED_UNITS]
    plans = machines_of(spec)[host.name]
    if not {plan.role for plan in plans} <= {Role.SOURCE, Role.GATEWAY}:
        files.append(HostFile(f"/etc/sudoers.d/{OPS_USER}", f"{OPS_USER} ALL=(ALL) NOPASSWD: ALL\n", 0o440))
    for plan in plans:
        if isinstance(plan.part, Ensemble):
            files += _zookeeper_files(spec, plan, plan.part.name, credentials)
        if isinstance(plan.part, KafkaCluster):
            files += _kafka_files(spec, plan, plan.part, credentials)
    return tuple(files)


def _owned_by(number: int) -> Callable[[str, str | None, int], HostFile]:
    """Return a function that makes files whose user id and group id are this number."""

    def file(path: str, content: str | None, mode: int) -> HostFile:
        return HostFile(path, content, mode, number, number)

    return file


def _zookeeper_files(
    spec: LabSpec, host: HostPlan, ensemble: str, credentials: Credentials | None
) -> list[HostFile]:
    """Return ZooKeeper's files.

    On source the server is configured and enabled; on dest it has no configuration.
    """
    owned = _owned_by(ZOOKEEPER_ID)
    conf = "/etc/zookeeper/conf"
    unit = _unit("ZooKeeper server", "zookeeper", JAVA_ENV, _ZOOKEEPER, 20)
    flags = "" if credentials is None else secured.zookeeper_flags(spec, credentials)
    further = {} if credentials is None else secured.zookeeper_files(spec, credentials, host.name)
    files = [
        HostFile(ZOOKEEPER_JARS, None, 0o755),
        HostFile(JETTY_JARS, None, 0o755),
        HostFile("/etc/zookeeper", None, 0o755),
        # ZooKeeper writes dynamic config files beside zoo.cfg, so its user owns the directory.
        owned(conf, None, 0o750),
        owned(f"{conf}/log4j.properties", texts.LOG4J, 0o640),
        owned(f"{conf}/logback.xml", texts.LOGBACK, 0o640),
        owned(JAVA_ENV, java_env(spec, flags), 0o640),
        *_secret_files(owned, secured.ZOOKEEPER_FOLDER, further),
        owned(ZOOKEEPER_DATA, None, 0o750),
        _started_by(spec, host.role, unit, "zookeeper", JAVA_ENV, _ZOOKEEPER),
    ]
    if host.role is Role.SOURCE:
        files += [
            owned(ZOO_CFG, source_zoo_cfg(spec, ensemble), 0o640),
            owned(f"{ZOOKEEPER_DATA}/myid", f"{host.myid}\n", 0o640),
            HostFile(
                f"{UNITS}/multi-user.target.wants/zookeeper.service", None, link=f"{UNITS}/zookeeper.service"
            ),
        ]
    return files


def _secret_files(
    owned: Callable[[str, str | None, int], HostFile], folder: str, files: Mapping[str, str]
) -> list[HostFile]:
    """Return the folder and its files. Who may read the configuration may read these, except keys."""
    modes = {path: 0o600 if path.endswith(secured.STORE) else 0o640 for path in files}
    return [owned(folder, None, 0o750)] * bool(files) + [
        owned(path, text, modes[path]) for path, text in files.items()
    ]


def _kafka_files(
    spec: LabSpec, host: HostPlan, cluster: KafkaCluster, credentials: Credentials | None
) -> list[HostFile]:
    owned, version = _owned_by(KAFKA_ID), cluster.version
    properties, further, flags = server_properties(spec, host), dict[str, str](), ""
    stores: list[HostFile] = []
    if cluster.ensemble is not None and credentials is not None:
        further, flags = secured.kafka_files(spec, credentials, host.name), secured.kafka_flags(spec)
        if Kind.KAFKA_TLS in spec.security:
            data = credentials.certificates[host.name].pkcs12(credentials.passwords[STORE])
            stores = [HostFile(secured.KAFKA_STORE, None, 0o600, KAFKA_ID, KAFKA_ID, data=data)]
            properties += f"ssl.keystore.password={credentials.passwords[STORE]}\n"
        if Kind.KAFKA_SASL in spec.security:
            properties += f"delegation.token.master.key={credentials.passwords[TOKENS]}\n"
    if release(version) > LAST_ZOOKEEPER:  # Kafka 4 logs with log4j 2
        log, content, option = "/etc/kafka/log4j2.properties", texts.LOG4J_2, "log4j2.configurationFile"
    else:
        log, content, option = "/etc/kafka/log4j.properties", texts.LOG4J, "log4j.configuration"
    return [
        HostFile(KAFKA_JARS, None, 0o755),
        HostFile(POLICY_JARS, None, 0o755),
        HostFile(JAVA_11, None, 0o755),
        HostFile("/etc/kafka", None, 0o755),
        HostFile(log, content),
        HostFile(KAFKA_ENV, f'KAFKA_JVM="{_KAFKA_FLAGS} -D{option}=file:{log}{flags}"\n'),
        *_secret_files(owned, secured.KAFKA_FOLDER, further),
        *stores,
        owned(SERVER_PROPERTIES, properties, 0o640),
        owned(KAFKA_DATA, None, 0o750),
        *(owned(disk, None, 0o750) for disk in data_disks(spec, host)),
        _started_by(spec, host.role, kafka_unit(version), "kafka", KAFKA_ENV, _kafka(version)),
    ]
