"""What ``init`` makes of the answers it gets: processes, units, words, Ansible's JSON; the text it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.servers import KAFKA, ZOOKEEPER, config_of
from zkmigrate.inventory import marked_yaml
from zkmigrate.inventory.checks import OWN_SETTINGS
from zkmigrate.inventory.discovery import ansible, render
from zkmigrate.inventory.discovery.brokers import Registered, clusters
from zkmigrate.inventory.discovery.draft import Draft, Ensemble, Found, HostLine, KafkaDraft, SshDraft, agreed
from zkmigrate.inventory.discovery.ensembles import Names
from zkmigrate.inventory.discovery.host_survey import HostSurvey, parse
from zkmigrate.inventory.inventory import load
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump

SURVEY = """\
host zk1.example.com
process zk zks zookeeper.service
arg java
arg -cp
arg a b
arg org.apache.zookeeper.server.quorum.QuorumPeerMain
arg /etc/zk/zoo.cfg
unit zookeeper.service
show LoadState=loaded
show User=zk
show EnvironmentFiles=/etc/a.env (ignore_errors=yes)
show EnvironmentFiles=/etc/b.env (ignore_errors=no)
show ExecStart={ path=/x ; argv[]=/x start-foreground ; ignore_errors=no ; pid=1 }
process root root
arg sh
arg -c
arg grep org.apache.zookeeper.server kafka.Kafka
unit gone.service
show LoadState=not-found
"""


def test_a_survey_tells_server_unit_and_files_and_not_the_shell_that_looks() -> None:
    survey = parse(SURVEY)
    assert survey.name == "zk1.example.com"
    [process] = survey.processes
    assert (process.config, process.user, process.group) == ("/etc/zk/zoo.cfg", "zk", "zks")
    assert list(survey.units) == ["zookeeper.service"]
    unit = survey.unit(ZOOKEEPER)
    assert unit is not None
    assert unit.start.files == ("/etc/a.env", "/etc/b.env")
    assert config_of(ZOOKEEPER, unit.programs()) == ""
    assert survey.process(KAFKA) is None


def test_two_servers_on_one_host_are_not_one() -> None:
    body = SURVEY.partition("\n")[2]
    assert parse(SURVEY + body).process(ZOOKEEPER) is None


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="login shell"):
        parse("Welcome!\n")


@given(st.text(max_size=300))
def test_no_answer_crashes(text: str) -> None:
    try:
        parse(text)
    except ValueError:
        return


def test_dump_and_cons_tell_every_cluster_with_its_brokers() -> None:
    signed = -(1 << 63) + 5
    dump = Dump(
        None, {signed: ("/a/b/brokers/ids/3",), 2: ("/brokers/ids/1", "/x"), 7: ("/a/b/brokers/ids/x",)}
    )
    cons = (Connection("10.0.0.3", 1, 0, 0, 0, signed & (1 << 64) - 1), Connection("10.0.0.9", 2, 0, 0, 0))
    assert clusters([dump], cons) == {"/": (Registered(1, ""),), "/a/b": (Registered(3, "10.0.0.3"),)}


@pytest.mark.parametrize("text", ["source", "source=", "sauce=a", "source=a,source=b", ",", "dest=a,,"])
def test_a_map_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--map"):
        ansible.parse_map(text)


def test_groups_of_groups_are_followed_once_and_old_forms_read() -> None:
    body: dict[str, Any] = {
        "a": {"children": ["b", "c"], "hosts": ["h1"]},
        "b": ["h2"],
        "c": {"children": ["a"], "hosts": ["h1", "h3"]},
        "_meta": {"hostvars": {"h3": {"ansible_ssh_host": "10.0.0.3", "ansible_port": "2222"}}},
    }
    found = ansible.hosts(body, {"source": "a"})["source"]
    assert [h.name for h in found] == ["h1", "h2", "h3"]
    assert (found[0].address, found[2].address, found[2].port) == ("h1", "10.0.0.3", 2222)
    with pytest.raises(UsageError, match=r"no host in this group \(its groups: a, b, c\)"):
        ansible.hosts(body, {"dest": "d"})


@pytest.mark.parametrize("key", ["hosts", "children"])
def test_a_group_whose_members_are_no_list_is_named(key: str) -> None:
    with pytest.raises(UsageError, match=f"{key} of the group a is True, not a list of names"):
        ansible.hosts({"a": {key: True}}, {"source": "a"})


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["a", "hosts", "children", "_meta", "hostvars"]), inner, max_size=4
            )
        ),
    )
)
def test_no_json_of_ansible_crashes(body: Any) -> None:
    try:
        ansible.hosts(body, {"source": "a"})
    except UsageError:
        return


def test_ansible_that_is_not_there_or_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="is not on this machine's PATH"):
        ansible.run_inventory("auto")
    program = tmp_path / "ansible-inventory"
    for script, said in (
        ("echo 'ERROR! no such file' >&2; exit 1", r"exit 1\): ERROR! no"),
        ("echo x", "no JSON"),
    ):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with pytest.raises(UsageError, match=said):
            ansible.run_inventory("auto")


def test_what_hosts_do_not_agree_on_is_said_with_the_value_of_most() -> None:
    found = agreed(
        {
            "a": Found("/x", "seen"),
            "b": Found("/x", "seen"),
            "c": Found("/y", "seen"),
            "d": Found(None, "shut"),
        }
    )
    assert found == Found("/x", "seen, 2 hosts BUT c has /y; d: shut")
    nothing = agreed({"a": Found[str](None, "shut"), "b": Found[str](None, "shut")})
    assert nothing == Found(None, "shut")


def test_names_are_the_hosts_own_where_they_can_be() -> None:
    names = Names()
    own = [Seen(HostSurvey(text)) for text in ("Zk1.example.com", "zk1", "localhost", "_", "10")]
    assert [names.name_for(s, "dest", n) for n, s in enumerate(own, 1)] == [
        "zk1",
        "dest2",
        "dest3",
        "dest4",
        "dest5",
    ]
    assert names.name_for(Unknown("timeout", ""), "broker", 1, "Kafka_7.x") == "kafka-7"


@given(st.text(max_size=40))
@example("~")
@example("NULL")
def test_every_text_that_is_written_is_read_back_the_same(text: str) -> None:
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 or not c.isprintable() for c in text):
        return  # nothing of the kind comes out of a parser here
    document = marked_yaml.parse(f"key: {render._scalar(text)}\n")
    assert document.mistakes == []
    assert document.value == {"key": text}


@given(st.text(max_size=60), st.text(max_size=60))
def test_what_hosts_say_never_becomes_a_line_of_its_own(said: str, name: str) -> None:
    """A host tells its name, its settings and why it refuses; all of it may hold anything."""
    nothing, found = Found[str](None, said), Found("/x", said)
    hosts = (HostLine("a", "10.0.0.1", 1, where=said),)
    ports = (Found(1, said), Found(2, said), Found(3, said), Found(4, said))
    side = Ensemble(hosts, said, *ports, found, nothing, nothing, found, left_out={"skipACL": said})
    kafka = KafkaDraft(nothing, found, (), said, nothing, nothing, nothing, nothing)
    draft = Draft("x", (), SshDraft("ops", 22, "k", "h"), side, side, kafka, (said, name))
    document = marked_yaml.parse(render.text(draft, "now"))
    assert document.mistakes == []
    assert set(document.value) == {"version", "name", "ssh", "source", "dest", "kafka"}
    assert set(document.value["source"]) == {"hosts", "ports", "config", "java_env"}
    assert set(document.value["kafka"]) == {"chroot"}


SEEN = st.text(max_size=30)
"""Where a value was seen, as hosts and errors word it."""


def found(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Found[Any]]:
    return st.builds(Found, values, SEEN)


def paths(below: str) -> st.SearchStrategy[str]:
    """Paths as migration.yml takes them."""
    return st.from_regex(r"[A-Za-z0-9_@%+-][A-Za-z0-9._@%+-]{0,12}", fullmatch=True).map(f"{below}/".__add__)


def host_lines(kind: int, count: int, first: int) -> st.SearchStrategy[tuple[HostLine, ...]]:
    """Hosts by IPv4 or IPv6 addresses or by names, all others than those of another kind."""

    def line(n: int) -> st.SearchStrategy[HostLine]:
        v4, v6, name = f"10.{kind}.0.{n}", f"fd00::{kind}:{n}", f"Host-{kind}-{n}.Example.com"
        at = st.sampled_from([(v4, ()), (v6, ()), (v4, (v6,)), (name, (v4,)), (name, (v6, v4))])
        port = st.none() | st.integers(1, 65535) if kind == 3 else st.none()
        return st.tuples(at, port, SEEN).map(
            lambda got: HostLine(f"h-{kind}-{n}", got[0][0], first + n, got[0][1], got[1], got[2])
        )

    return st.tuples(*(line(n) for n in range(1, count + 1)))


SETTINGS = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True).filter(
        lambda key: key not in OWN_SETTINGS and not key.startswith(("server.", "group.", "weight."))
    ),
    st.sampled_from(["*", "true", "null", "0x1f", "010", "1e3", "1_0", "no", "2000-01-01", ""])
    | st.from_regex(r"[A-Za-z0-9._:/,=@+%-]([A-Za-z0-9._:/,=@+% -]{0,12}[A-Za-z0-9])?", fullmatch=True),
    max_size=6,
)


def ensembles(kind: int, first: int) -> st.SearchStrategy[Ensemble]:
    at, port = f"/srv/side{kind}", found(st.integers(1, 65535))
    maybe = found(st.none() | st.integers(1, 65535))
    account = found(st.none() | st.from_regex(r"[a-z_][a-z0-9_-]{0,8}", fullmatch=True))
    unit = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,12}\.service", fullmatch=True)
    return st.builds(
        Ensemble, host_lines(kind, 3, first), SEEN, port, maybe, port, port, found(paths(f"{at}/conf")),
        found(paths(f"{at}/data")), found(st.none() | paths(f"{at}/log")),
        found(st.none() | paths(f"{at}/env")), account, account, found(st.none() | unit), SETTINGS, SEEN,
        st.dictionaries(st.sampled_from(["skipACL", "a.b"]), SEEN, max_size=2),
        found(st.none() | st.integers(1, 65535) if kind == 1 else st.none()),
    )  # fmt: skip


DRAFTS = st.builds(
    Draft,
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,19}", fullmatch=True),
    st.sampled_from([("10.9.0.1",), ("fd00::9:1", "10.9.0.1")]),
    st.builds(
        SshDraft, st.just("ops"), st.integers(1, 65535), st.sampled_from(["keys/id", "~/.ssh/id"]),
        st.just("known_hosts"), st.sampled_from(["", "ops@[fd00::7]:2222,jump.example", "10.0.0.7"]),
        st.sampled_from(["", "~/.ssh/config"]),
    ),
    ensembles(1, 0),
    ensembles(2, 10),
    st.builds(
        KafkaDraft, found(st.from_regex(r"[A-Za-z0-9_-]{22}", fullmatch=True)),
        found(st.from_regex(r"(/[A-Za-z0-9._-]{1,8}){1,3}", fullmatch=True)), host_lines(3, 2, -1), SEEN,
        found(st.none() | paths("/etc/kafka")), found(st.none() | st.just("kafka@a.service")),
        found(st.none() | st.just("kafka_1")), found(st.none() | st.just("kafka")),
    ),
    st.lists(SEEN, max_size=2).map(tuple),
)  # fmt: skip


@settings(max_examples=examples(6))
@given(DRAFTS)
def test_what_init_writes_is_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, draft: Draft
) -> None:
    path = tmp_path_factory.mktemp("round") / "migration.yml"
    path.write_text(render.text(draft, "now"), encoding="utf-8")
    read = load(path)
    assert (read.name, read.operator) == (draft.name, draft.operator)
    ssh, kafka = read.ssh, draft.kafka
    assert (ssh.user, ssh.port, ssh.bastion or "") == (draft.ssh.user, draft.ssh.port, draft.ssh.bastion)
    for drawn, side in ((draft.source, read.source), (draft.dest, read.dest)):
        lines = [(h.name, h.address, h.number, h.also) for h in drawn.hosts]
        assert [(h.name, h.address, h.myid, h.also) for h in side.hosts] == lines
        assert side.ports.model_dump() == {
            "client": drawn.client.value, "secure": drawn.secure.value,
            "quorum": drawn.quorum.value, "election": drawn.election.value,
        }  # fmt: skip
        assert (side.config, side.data_dir, side.log_dir) == (
            drawn.config.value, drawn.data_dir.value, drawn.log_dir.value
        )  # fmt: skip
        assert drawn.java_env.value in (None, side.java_env)
    assert draft.source.admin.value in (None, read.source.admin_port)
    dest = draft.dest
    assert dict(read.dest.settings) == dict(dest.settings)
    for value, there in (
        (dest.user, read.dest.user), (dest.group, read.dest.group), (dest.unit, read.dest.service.unit),
        (kafka.config, read.kafka.config), (kafka.unit, read.kafka.service.unit),
        (kafka.user, read.kafka.user), (kafka.group, read.kafka.group),
    ):  # fmt: skip
        assert value.value in (None, there)
    assert (read.kafka.cluster_id, read.kafka.chroot) == (kafka.cluster_id.value, kafka.chroot.value)
    brokers = [(b.name, b.address, b.number, b.port or 9092, b.also) for b in kafka.brokers]
    assert [(b.name, b.address, b.id, b.port, b.also) for b in read.kafka.brokers] == brokers
