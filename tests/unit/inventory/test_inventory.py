"""``inventory.load``: what a good file becomes, and what each mistake is told as."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from ruamel.yaml import YAML

from tests.examples import examples
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.inventory import Inventory, Window, digest, load

GOOD = """\
version: 1
name: lab
operator: [10.71.0.2]
ssh:
  user: ops
  key: keys/id_ed25519
  known_hosts: known_hosts
source:
  hosts:
    - {name: source1, address: 10.71.0.11, myid: 1}
    - {name: source2, address: 10.71.0.12, myid: 2}
    - {name: source3, address: 10.71.0.13, myid: 3}
dest:
  hosts:
    - {name: dest1, address: 10.71.0.21, myid: 11}
    - {name: dest2, address: 10.71.0.22, myid: 12}
    - {name: dest3, address: 10.71.0.23, myid: 13}
  settings:
    tickTime: 2000
    4lw.commands.whitelist: "*"
    admin.enableServer: false
kafka:
  cluster_id: Q9fEx3xTRZmWq0oUGfGc9A
  chroot: /kafka
  brokers:
    - {name: broker1, address: 10.71.0.31, id: 1}
    - {name: broker2, address: 10.71.0.32, id: 2}
    - {name: broker3, address: 10.71.0.33, id: 3}
"""


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "migration.yml"
    path.write_text(text)
    return path


def _mistakes(tmp_path: Path, text: str) -> list[str]:
    """The lines of the refusal, without the directory."""
    path = _write(tmp_path, text)
    with pytest.raises(InventoryError) as caught:
        load(path)
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]


def test_load_good(tmp_path: Path) -> None:
    inventory = load(_write(tmp_path, GOOD))
    assert inventory.source_names == ("source1", "source2", "source3")
    assert [h.myid for h in inventory.dest.hosts] == [11, 12, 13]
    assert inventory.dest.majority == 2
    assert inventory.role("dest2") == "dest"
    assert inventory.address("broker3") == "10.71.0.33"
    assert inventory.source.txn_dir == "/var/lib/zookeeper"


def test_settings_are_kept_as_typed(tmp_path: Path) -> None:
    assert load(_write(tmp_path, GOOD)).dest.settings == {
        "tickTime": "2000",
        "4lw.commands.whitelist": "*",
        "admin.enableServer": "false",
    }


def test_ssh_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    text = GOOD.replace("known_hosts: known_hosts", "known_hosts: ~/.ssh/known_hosts")
    ssh = load(_write(tmp_path, text)).ssh
    assert ssh.key == str(tmp_path.resolve() / "keys/id_ed25519")
    assert ssh.known_hosts == "/home/someone/.ssh/known_hosts"


D3 = "    - {name: dest3, address: 10.71.0.23, myid: 13}\n"
D4 = "    - {name: dest4, address: 10.71.0.24, myid: 14}\n"
NO_STATUS = "  service:\n    unit: zk\n    start: /bin/x\n    stop: /bin/y\n  settings:"
LOG_INSIDE = "  data_dir: /srv/zk\n  log_dir: /srv/zk/log\n  settings:"

MISTAKES: list[tuple[str, str, int, str]] = [
    ("user: ops", "usr: ops", 5, "ssh.usr: unknown key (needed one of: user, port, key"),
    ("user: ops", "usr: ops", 5, "did you mean user?"),
    ("user: ops", "usr: ops", 4, "ssh.user: missing"),
    ("  user: ops\n", "", 4, "ssh.user: missing"),
    ("version: 1", "version: 2", 1, "version: not one of the values (seen 2, needed 1)"),
    ("chroot: /kafka", "chroot: k/", 24, "kafka.chroot: not allowed (seen 'k/', needed an absolute"),
    ("myid: 12", "myid: '12'", 16, "dest.hosts[1].myid: not a number (seen '12', needed a whole"),
    ("myid: 12", "myid: yes", 16, "dest.hosts[1].myid: not a number (seen 'yes'"),
    ("name: lab", "name: 7", 2, "name: not text (seen 7"),
    (
        "name: lab",
        f"name: {'long-' * 5}1",
        2,
        "name: too long (seen 'long-long-long-long-long-1', 26 characters",
    ),
    (
        "name: lab",
        "name: Lab",
        2,
        "name: not allowed (seen 'Lab', needed small letters, digits and hyphens, not -",
    ),
    ("name: dest2", f"name: {'d' * 64}", 16, "64 characters, needed at most 63)"),
    ("user: ops", f"user: {'o' * 33}", 5, "ssh.user: too long"),
    ("[10.71.0.2]", "10.71.0.2", 3, "operator: not a list (seen '10.71.0.2', needed a list)"),
    # YAML
    ("version: 1", "version: 1\nversion: 1", 2, "version: the key occurs twice (first on line 1"),
    ("tickTime: 2000", "tickTime: 1\n    tickTime: 2", 20, "dest.settings.tickTime: the key occurs"),
    ("myid: 2}", "myid: &x 2}", 11, "source.hosts[1].myid: anchors are not allowed"),
    ("myid: 2}", "myid: 0x2}", 11, "source.hosts[1].myid: not a plain number (seen '0x2'"),
    ("myid: 2}", "myid: !!int 2}", 11, "source.hosts[1].myid: tags are not allowed"),
    ("chroot: /kafka", "chroot: a: b", 24, "not YAML"),
    # one host in two roles
    ("10.71.0.22", "10.71.0.12", 16, "dest.hosts[1].address: address 10.71.0.12 is already a source"),
    ("10.71.0.22", "10.71.0.12", 16, "Check whether source and dest are swapped"),
    ("name: dest2", "name: source2", 16, "dest.hosts[1].name: name 'source2' is already a source host"),
    ("name: broker2", "name: broker1", 27, "name 'broker1' occurs twice among the broker hosts"),
    ("myid: 11}", "myid: 11, also: [10.71.0.12]}", 15, "dest.hosts[0].also[0]: address 10.71.0.12 is"),
    ("10.71.0.33", "10.71.0.32", 28, "address 10.71.0.32 occurs twice among the broker hosts"),
    ("10.71.0.33", "10.71.0.2", 3, "operator[0]: 10.71.0.2 is the broker host broker3"),
    # numbers
    ("myid: 12", "myid: 11", 16, "dest.hosts[1].myid: myid 11 is already used by dest1"),
    ("myid: 12", "myid: 2", 16, "dest.hosts[1].myid: myid 2 belongs to source host source2"),
    ("myid: 3}", "myid: 12}", 15, "dest.hosts[0].myid: myid 11 is too low (needed: 13 to 254"),
    ("myid: 13}", "myid: 255}", 17, "dest.hosts[2].myid: out of range (seen 255, needed at most 254)"),
    ("myid: 2}", "myid: 1}", 11, "source.hosts[1].myid: myid 1 is already used by source1"),
    ("10.71.0.32, id: 2", "10.71.0.32, id: 1", 27, "kafka.brokers[1].id: id 1 is already used by broker1"),
    (D3, "", 14, "dest.hosts: too few (seen 2, needed at least 3)"),
    (D3, D3 + D4, 14, "dest.hosts: an even number of dest hosts (seen 4, needed an odd number, 3 or 5"),
    # addresses
    ("[10.71.0.2]", "[10.71.0.22]", 3, "operator[0]: 10.71.0.22 is the dest host dest2"),
    ("[10.71.0.2]", "[jump]", 3, "operator[0]: not an address (seen 'jump'"),
    ("10.71.0.22", '"10.71.0.22:2181"', 16, "dest.hosts[1].address: not an address"),
    ("10.71.0.22", "10.71.0.256", 16, "dest.hosts[1].address: not an address"),
    ("10.71.0.22", "zk2.example", 16, "dest.hosts[1].address: only a name"),
    # paths, services, settings, lease
    ("  settings:", "  data_dir: /srv/../zk\n  settings:", 18, "dest.data_dir: not a usable path"),
    ("  settings:", "  data_dir: /srv\n  settings:", 18, "dest.data_dir: not a usable path"),
    ("  settings:", LOG_INSIDE, 19, "dest.log_dir: /srv/zk/log is inside dest.data_dir"),
    ("  settings:", "  data_dir: /var/lib/zkmigrate/x\n  settings:", 18, "overlaps /var/lib/zkmigrate"),
    ("  settings:", "  service: {unit: zk, start: /bin/x}\n  settings:", 18, "start without stop, status"),
    ("  settings:", "  service: {unit: zk, kill: /bin/x}\n  settings:", 18, "kill without start, stop"),
    ("  settings:", NO_STATUS, 20, "dest.service.start: start, stop without status (needed: start, stop and"),
    (
        "  settings:",
        NO_STATUS.replace("/bin/x", "bin/x"),
        20,
        "dest.service.start: not allowed (seen 'bin/x'",
    ),
    ("tickTime: 2000", "clientPort: 2000", 19, "dest.settings.clientPort: zkmigrate writes this line"),
    ("tickTime: 2000", "version: 1", 19, "dest.settings.version: zkmigrate writes this line itself"),
    ("tickTime: 2000", "server.4: x", 19, "dest.settings.server.4: zkmigrate writes this line itself"),
    ("name: lab", "name: lab\npolicy: {lease: {fence_ttl_ms: 3000}}", 3, "fence_ttl_ms: too short"),
    ("name: lab", "name: lab\npolicy: {lease: {renew_every_ms: 1500}}", 3, "renew_every_ms: too long"),
    (
        "name: lab",
        "name: lab\npolicy: {window: {begin: 2026-02-30T22:00Z, end: 2026-03-01T22:00Z}}",
        3,
        "policy.window.begin: not a valid time (seen '2026-02-30T22:00Z'",
    ),
    (
        "name: lab",
        "name: lab\npolicy: {window: {begin: 2026-02-01T22:00+01:00, end: 2026-02-01T21:00Z}}",
        3,
        "policy.window.end: not after the begin",
    ),
    (
        "name: lab",
        "name: lab\npolicy: {window: {begin: 2026-02-01T22:00, end: 2026-02-01T23:00Z}}",
        3,
        "policy.window.begin: not allowed (seen '2026-02-01T22:00', needed date, time and zone",
    ),
    ("name: lab", "name: lab\npolicy: {roll_wave: 0}", 3, "roll_wave: out of range (seen 0, needed at"),
]


@pytest.mark.parametrize(("old", "new", "line", "expected"), MISTAKES)
def test_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, expected: str) -> None:
    assert old in GOOD
    told = _mistakes(tmp_path, GOOD.replace(old, new, 1))
    assert any(expected in said and said.startswith(f"migration.yml:{line}: ") for said in told), told


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("version: 1", "version: x").replace("user: ops", "user: OPS")
    text = text.replace("myid: 12", "myid: 2").replace("chroot: /kafka", "chroot: kafka")
    lines = _mistakes(tmp_path, text)
    assert [line.split(":")[1] for line in lines] == ["1", "5", "16", "24"]


def test_a_host_that_is_wrong_still_counts_as_a_host(tmp_path: Path) -> None:
    [told] = _mistakes(tmp_path, GOOD.replace("myid: 12", "myid: 300"))
    assert "dest.hosts[1].myid: out of range" in told


def test_source_and_dest_swapped_whole_are_told_so(tmp_path: Path) -> None:
    swapped = GOOD
    for n in (1, 2, 3):
        swapped = swapped.replace(f"source{n}, address: 10.71.0.1{n}, myid: {n}", f"SECTION{n}")
        swapped = swapped.replace(
            f"dest{n}, address: 10.71.0.2{n}, myid: 1{n}", f"dest{n}, address: 10.71.0.1{n}, myid: {n}"
        )
        swapped = swapped.replace(f"SECTION{n}", f"source{n}, address: 10.71.0.2{n}, myid: 1{n}")
    told = _mistakes(tmp_path, swapped)
    assert len(told) == 3
    assert all(
        "All of dest's are below source's. Check whether source and dest are swapped" in line for line in told
    )
    one = _mistakes(tmp_path, GOOD.replace("myid: 3}", "myid: 12}"))
    assert any("too low" in line for line in one)
    assert not any("swapped" in line for line in one), "one myid is no swap"


def test_even_five_hosts_are_fine(tmp_path: Path) -> None:
    more = "".join(f"    - {{name: dest{n}, address: 10.71.0.2{n}, myid: 1{n}}}\n" for n in (4, 5))
    inventory = load(_write(tmp_path, GOOD.replace("  settings:", f"{more}  settings:")))
    assert inventory.dest.majority == 3


def test_a_broker_may_have_the_address_of_a_zookeeper_server(tmp_path: Path) -> None:
    text = GOOD.replace("10.71.0.31", "10.71.0.11").replace("10.71.0.33", "10.71.0.23")
    text = text.replace("10.71.0.32, id: 2", "b2, id: 2, also: [10.71.0.12]")
    inventory = load(_write(tmp_path, text))
    assert inventory.address("broker1") == inventory.address("source1")
    assert inventory.machine("broker2") == ("source2", "broker2")
    assert inventory.machine("dest3") == ("dest3", "broker3")
    assert inventory.machine("dest1") == ("dest1",)
    assert inventory.one_a_machine(("dest3", "dest1", "broker3", "broker1")) == ("dest3", "dest1", "broker1")
    again = text.replace("10.71.0.23, id", "10.71.0.11, id")
    with pytest.raises(InventoryError, match=r"address 10\.71\.0\.11 occurs twice among the broker hosts"):
        load(_write(tmp_path, again))


def test_a_name_with_its_addresses_is_fine(tmp_path: Path) -> None:
    text = GOOD.replace("address: 10.71.0.11", "address: zk1.example, also: [10.71.0.11, 'fd00::11']")
    assert load(_write(tmp_path, text)).source.hosts[0].also == ("10.71.0.11", "fd00::11")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"- a\n- b\n", "not a mapping (seen a list"),
        (b"hello\n", "not a mapping (seen a str"),
        (b"version: 1\nname: \xff\n", "migration.yml:2: not UTF-8 (seen byte 0xff"),
        (b"a: 1\n---\nb: 1\n", "a second document starts here"),
        (b"#" * 300_000, "too big"),
        (b"a: " + b"[" * 5000, "nested more than 16 levels deep"),
        (b"a: \x00\n", "not YAML"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "aliases are not allowed"),
        (b"%YAML 9.1\n---\na: 1\n", "not YAML"),
    ],
)
def test_unusable_file(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "migration.yml"
    path.write_bytes(content)
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["missing.yml", ".", "nul\0byte"])
def test_unreadable_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InventoryError):
        load(tmp_path / name)


def test_digest_is_of_the_meaning(tmp_path: Path) -> None:
    first = digest(load(_write(tmp_path, GOOD)))
    shuffled = YAML(typ="safe", pure=True).load(GOOD)
    shuffled = dict(reversed(list(shuffled.items())))
    shuffled["kafka"]["config"] = "/etc/kafka/server.properties"
    shuffled["ssh"]["key"] = "elsewhere/id"
    assert digest(load(_write(tmp_path, json.dumps(shuffled)))) == first
    assert digest(load(_write(tmp_path, GOOD.replace("tickTime: 2000", "tickTime: 2001")))) != first


def test_a_roll_may_go_on_in_another_window_and_with_another_soak(tmp_path: Path) -> None:
    asked = load(_write(tmp_path, GOOD))
    window = Window(begin="2026-11-21T22:00+01:00", end="2026-11-22T02:00+01:00")
    another = asked.policy.model_copy(update={"window": window, "roll_soak_s": 60.0, "roll_leaders": True})
    assert digest(asked.model_copy(update={"policy": another})) == digest(asked)
    wider = asked.policy.model_copy(update={"roll_wave": 2})
    assert digest(asked.model_copy(update={"policy": wider})) != digest(asked)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, below in value.items() for leaf in _leaves(below, (*path, key))]
    if isinstance(value, list):
        return [leaf for at, below in enumerate(value) for leaf in _leaves(below, (*path, at))]
    return [path]


_VALUES = YAML(typ="safe", pure=True).load(GOOD)
_LEAVES = _leaves(_VALUES)
_FULL = copy.deepcopy(_VALUES)
_FULL["kafka"]["service"] = {
    "unit": "kafka.service", "start": "/bin/a b", "stop": "/bin/c", "status": "/bin/s", "kill": "/bin/d",
}  # fmt: skip
_FULL["dest"] |= {
    "service": copy.deepcopy(_FULL["kafka"]["service"]),
    "config": "/etc/zk/zoo.cfg", "java_env": "/etc/zk/java.env", "data_dir": "/srv/zk/data",
    "log_dir": "/srv/zk/log", "user": "zk", "group": "zk",
}  # fmt: skip
_FULL["source"] |= {
    "config": "/etc/zk/zoo.cfg",
    "data_dir": "/srv/zk",
    "log_dir": "/srv/zk",
    "java_env": "/etc/j/e",
}
_FULL["ssh"]["bastion"] = "10.71.0.3"
_FULL_TEXTS = [leaf for leaf in _leaves(_FULL) if leaf != ("version",)]


def _changed(values: Any, path: tuple[Any, ...], change: Any) -> Any:
    values = copy.deepcopy(values)
    at = values
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = change
    return values


def test_the_full_file_is_good(tmp_path: Path) -> None:
    full = load(_write(tmp_path, json.dumps(_FULL)))
    commands = ("start=/bin/a b", "stop=/bin/c", "status=/bin/s", "kill=/bin/d")
    assert full.dest.commands == (*commands, "ports=2181,2888,3888")
    assert full.kafka.commands("broker1") == (*commands, "ports=9092")


def test_a_service_of_systemd_has_no_commands(tmp_path: Path) -> None:
    plain = load(_write(tmp_path, GOOD))
    assert plain.dest.commands == plain.kafka.commands("broker1") == ()


@pytest.mark.parametrize(
    "hostile", ["; id", "$(id)", "`id`", "a|b", "a&b", "a>b", "a\nb", "'", '"', "a\\b", "a\tb"]
)
@pytest.mark.parametrize("path", _FULL_TEXTS, ids=lambda path: ".".join(str(part) for part in path))
def test_shell_characters_are_refused_everywhere(tmp_path: Path, path: tuple[Any, ...], hostile: str) -> None:
    at: Any = _FULL
    for part in path:
        at = at[part]
    with pytest.raises(InventoryError):
        load(_write(tmp_path, json.dumps(_changed(_FULL, path, f"{at}{hostile}"))))


def _loads_or_refuses(path: Path) -> None:
    """Anything but an Inventory or an InventoryError that names the file fails the test."""
    told = str(path)
    try:
        assert isinstance(load(path), Inventory)
    except InventoryError as error:
        told = str(error)
    assert all(line.startswith(str(path)) for line in told.splitlines())


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FUZZ = settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_FUZZ
@given(path=st.sampled_from(_LEAVES), up=st.integers(0, 3), change=_ANYTHING)
def test_a_wrong_value_never_crashes(tmp_path: Path, path: tuple[Any, ...], up: int, change: Any) -> None:
    path = path[: max(1, len(path) - up)]
    text = json.dumps(_changed(_VALUES, path, change))
    _loads_or_refuses(_write(tmp_path, text))


@_FUZZ
@given(at=st.integers(0, len(GOOD)), length=st.integers(0, 40), junk=st.text(max_size=12))
def test_broken_text_never_crashes(tmp_path: Path, at: int, length: int, junk: str) -> None:
    path = tmp_path / "migration.yml"
    path.write_bytes((GOOD[:at] + junk + GOOD[at + length :]).encode("utf-8", "surrogatepass"))
    _loads_or_refuses(path)


def test_types_are_frozen(tmp_path: Path) -> None:
    inventory = load(_write(tmp_path, GOOD))
    with pytest.raises(ValidationError):
        inventory.name = "other"


_REFERENCE = (Path(__file__).parents[3] / "docs" / "reference" / "migration-yml.md").read_text()


def test_the_example_in_the_reference_loads(tmp_path: Path) -> None:
    example = _REFERENCE.partition("```yaml\n")[2].partition("```")[0]
    assert load(_write(tmp_path, example)).name == "orders"


def test_the_reference_names_every_key() -> None:
    schema = Inventory.model_json_schema()
    models = (schema, *schema["$defs"].values())
    names = {name for model in models for name in model["properties"]}
    hooks = (Path(__file__).parents[3] / "docs" / "reference" / "hooks.md").read_text()
    prose = "".join(f"{_REFERENCE}\n{hooks}".split("```")[::2])
    written = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`]+)`", prose))))
    assert names - written == set()
