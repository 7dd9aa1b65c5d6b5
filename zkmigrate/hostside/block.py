"""What arm, fence and cut put into a host's kernel, line by line as ``zkm-host --print`` prints it.

For ``plan``, which must show rules on hosts where nothing is installed yet. ``tests/unit/test_block.py``
compares these lines with the program's own, so that the two cannot drift apart.

spec: the text that ``arm`` takes. tag: what names chains and sets, the first 8 hex digits of the SHA-256 of
the run's id. ssh_ports and own: sshd's ports and the host's own addresses, comma-separated, which the program
reads on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

_HALVES = {"4": ("0.0.0.0/1", "128.0.0.0/1"), "6": ("::/1", "8000::/1")}
_RESTORE = {"4": "iptables-restore", "6": "ip6tables-restore"}


def arm_lines(spec: str, tag: str, ssh_ports: str = "22", *, ipv6: bool = True) -> tuple[str, ...]:
    """The sets, empty, and the chains above every other rule."""
    values = _values(spec)
    sets = f"ZKM-{tag}"
    made = [
        f"create -exist {sets}-{name}{v} {kind} family {family}{limit}"
        for name, kind, limit in (
            ("fence", "hash:net", " timeout 0"),
            ("cut", "hash:ip", " timeout 0"),
            ("pass", "hash:net", ""),
        )
        for v, family in (("4", "inet"), ("6", "inet6"))
    ]
    made += [f"add -exist {sets}-pass{_version(a)} {a}" for a in _split(values["operator"], values["peers"])]
    chains = [
        line
        for v in ("4", "6")
        if v == "4" or ipv6
        for line in _fed(f"{_RESTORE[v]} -w 5 --noflush", _chains(values, tag, ssh_ports, v))
    ]
    return (*_fed("ipset restore", made), *chains)


def fence_lines(spec: str, ttl_ms: int, tag: str, own: str) -> tuple[str, ...]:
    """The set that refuses clients, filled, and the sockets that are ended."""
    values = _values(spec)
    entries = [(v, net) for v in ("4", "6") for net in _HALVES[v]]
    peers = ["127.0.0.0/8", "[::1]"]
    peers += [_bracketed(a) for a in _split(values["operator"], values["peers"], own)]
    kept = " or ".join(f"dst {peer}" for peer in peers)
    killed = f"ss -K 'sport = :{values['client_port']} and not ( {kept} )'"
    return (*_filled("fence", entries, ttl_ms, tag), killed)


def cut_lines(spec: str, ttl_ms: int, tag: str, ssh_ports: str = "22") -> tuple[str, ...]:
    """The set that blocks source, filled, and the sockets that are ended."""
    source = _split(_values(spec)["source"])
    entries = [(v, a) for v in ("4", "6") for a in source if _version(a) == v]
    peers = " or ".join(f"dst {_bracketed(a)}" for a in source)
    ssh = "".join(f" and not sport = :{port}" for port in _split(ssh_ports))
    on = " or ".join(f"sport = :{port} or dport = :{port}" for port in _refused(_values(spec)))
    return (
        *_filled("cut", entries, ttl_ms, tag),
        f"ss -K '( {peers} ){ssh}{f' and ( {on} )' if on else ''}'",
    )


def _refused(values: dict[str, str]) -> list[str]:
    """The ports that the cut refuses; empty for all of TCP."""
    return _split(values["cut_ports"]) if values.get("cut") == "zookeeper" else []


def _chains(values: dict[str, str], tag: str, ssh_ports: str, v: str) -> list[str]:
    come, go, sets = f"ZKM-{tag}-IN", f"ZKM-{tag}-OUT", f"ZKM-{tag}"
    port = values["client_port"]
    ports = _refused(values)
    on = f" -m multiport --ports {','.join(ports)}" if ports else ""
    rst, reject = "-p tcp -m tcp --tcp-flags RST RST -j RETURN", "-j REJECT --reject-with tcp-reset"
    return [
        "*filter",
        f":{come} - [0:0]",
        f":{go} - [0:0]",
        f"-A {come} {rst}",
        f"-A {come} -p tcp -m multiport --dports {ssh_ports} -j RETURN",
        f"-A {come} -p tcp{on} -m set --match-set {sets}-cut{v} src {reject}",
        f"-A {come} -i lo -j RETURN",
        f"-A {come} -m set --match-set {sets}-pass{v} src -j RETURN",
        f"-A {come} -p tcp -m tcp --dport {port} -m set --match-set {sets}-fence{v} src {reject}",
        f"-A {go} {rst}",
        f"-A {go} -p tcp -m multiport --sports {ssh_ports} -j RETURN",
        f"-A {go} -p tcp{on} -m set --match-set {sets}-cut{v} dst {reject}",
        f"-I INPUT 1 -j {come}",
        f"-I OUTPUT 1 -j {go}",
        "COMMIT",
    ]


def _filled(name: str, entries: Sequence[tuple[str, str]], ttl_ms: int, tag: str) -> tuple[str, ...]:
    seconds = (ttl_ms + 999) // 1000
    added = [f"add -exist ZKM-{tag}-{name}{v} {a} timeout {seconds}" for v, a in entries]
    return _fed("ipset restore", added)


def _fed(command: str, lines: list[str]) -> tuple[str, ...]:
    return (f"{command} <<END", *lines, "END")


def _values(spec: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in spec.splitlines() if line)


def _split(*lists: str) -> list[str]:
    return [item for text in lists for item in text.split(",") if item]


def _version(address: str) -> str:
    return "6" if ":" in address else "4"


def _bracketed(address: str) -> str:
    if ":" not in address:
        return address
    host, slash, length = address.partition("/")
    return f"[{host}]{slash}{length}"
