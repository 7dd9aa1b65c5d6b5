"""The users and passwords in JAAS files: compared between all hosts, in both roles, and never shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.preflight_world import PreflightWorld, run_preflight
from tests.unit.secured_world import (
    JAAS,
    JAVA_ENV,
    PASSWORDS,
    ZOO_CFG,
    jaas,
    section,
    secured,
    secured_context,
)
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.preflight.evidence import gather
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held

Break = Callable[[PreflightWorld], None]
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
IDS = ("source.security", "dest.security", "source.jaas", "dest.jaas")


def found(
    world: PreflightWorld, gate: str = "preflight", settings: dict[str, str | None] | None = None
) -> dict[tuple[str, str], Finding]:
    return {(f.id, f.target): f for f in run_preflight(secured_context(**(settings or {})), world, gate)}


def at(*hosts: str, text: str) -> Break:
    return lambda w: w.files.update({(host, JAAS): Seen(text.encode()) for host in hosts})


ALL = ("dest1", "dest2", "dest3")
OTHER = {**PASSWORDS, "kafka": "canary-other"}
CLIENTS = {user: OTHER[user] for user in ("kafka", "super")}


def test_a_secured_ensemble_in_order_has_nothing_to_say_against_it() -> None:
    for gate in ("preflight", "roll", "cutover"):
        told = found(secured(), gate)
        assert {key: f.seen for key, f in told.items() if key[0] in IDS and f.held is not Held.YES} == {}
    told = found(secured())
    assert (
        told["dest.jaas", "dest1"].seen
        == "sections Server, QuorumServer, QuorumLearner; users of clients: kafka, super"
    )
    assert told["dest.security", "dest1"].seen == (
        "SASL between servers, TLS between servers, SASL of clients, TLS of clients"
    )


@pytest.mark.parametrize(("target", "broken", "seen"), [
    ("dest2", at("dest2", text=jaas(user_other="canary")),
     "section QuorumServer lacks the user 'zk', with whom source1 logs in"),
    ("dest2", at("dest2", text=jaas(user_zk="canary-wrong")),
     "section QuorumServer has another password for 'zk' than dest1"),
    ("dest1", at("dest2", text=jaas(learner="canary-wrong")),
     "section QuorumServer has another password for 'zk' than dest2"),
    ("dest2", at("dest2", text=jaas(learner="canary-wrong")),
     "section QuorumServer of source1 has another password for 'zk' than dest2"),
    # what a join cannot show: all dest hosts can log in to source, and not to each other
    ("dest1", at(*ALL, text=jaas(user_other="canary")),
     "section QuorumServer lacks the user 'zk', with whom dest2 logs in"),
    ("dest3", at("dest3", text=jaas({"super": PASSWORDS["super"]})),
     "section Server lacks the user 'kafka' of source1"),
    ("dest3", at("dest3", text=jaas(CLIENTS)),
     "section Server has another password for 'kafka' than source1"),
    ("dest1", at("dest1", text=section("Server", user_kafka=PASSWORDS["kafka"])),
     "no section QuorumServer, QuorumLearner"),
    ("dest1", lambda w: w.files.update({("dest1", JAVA_ENV): Seen(b'JVMFLAGS="-Xmx256m"\n')}),
     "its JVM flags name no JAAS file"),
    ("dest1", at("dest1", text=jaas().replace('username="zk"', "")),
     "section QuorumLearner has no username or no password"),
])  # fmt: skip
@pytest.mark.parametrize("gate", ["preflight", "roll", "cutover"])
def test_what_differs_is_named_and_blocks(target: str, broken: Break, seen: str, gate: str) -> None:
    world = secured()
    broken(world)
    told = found(world, gate)["dest.jaas", target]
    assert (told.held, told.blocks) == (Held.NO, True)
    assert seen in told.seen


@pytest.mark.parametrize(("text", "seen"), [
    (jaas().replace("};", "}", 1), "line 6: something else is there; needed: ';'"),
    (jaas().replace("canary-kafka", "${canary}"), "user_kafka in section Server"),
])  # fmt: skip
def test_a_file_that_cannot_be_judged_is_unknown(text: str, seen: str) -> None:
    world = secured()
    for host in ("source1", "source2", "source3", "dest1", "dest2", "dest3"):
        at(host, text=text)(world)
    told = found(world)["dest.jaas", "dest1"]
    assert (told.held, told.blocks) == (Held.UNKNOWN, True)
    assert seen in told.seen
    assert "canary" not in told.seen.replace("${canary}", "")


def test_where_source_cannot_be_read_that_blocks_and_dest_is_compared_with_itself() -> None:
    world = secured()
    for n in (1, 2, 3):
        world.files[f"source{n}", JAAS] = Unknown("denied", "permission denied")
    told = found(world)
    source = told["source.jaas", "source1"]
    assert (source.held, source.blocks) == (Held.NO, True)
    assert source.seen == "unknown (denied): permission denied"
    assert source.moves[0] == "let the ssh account read it"
    assert "accept source.jaas for this host" in source.moves[1]
    assert told["dest.jaas", "dest1"].held is Held.YES
    assert "not compared with source1, source2, source3" in told["dest.jaas", "dest1"].seen
    at("dest2", text=jaas(CLIENTS))(world)
    assert "another password for 'kafka' than dest2" in found(world)["dest.jaas", "dest1"].seen


def test_the_sections_have_the_names_that_the_settings_give_them() -> None:
    world, other = secured(), jaas().replace("QuorumLearner", "Own").replace("Server {", "Clients {", 1)
    at(*ALL, text=other)(world)
    names: dict[str, str | None] = {"sasl.serverconfig": "Clients", "quorum.auth.learner.loginContext": "Own"}
    assert found(world, settings=names)["dest.jaas", "dest1"].held is Held.YES
    assert found(world)["dest.jaas", "dest1"].seen == "no section Server, QuorumLearner"


@pytest.mark.parametrize(("id", "target", "broken", "seen"), [
    ("dest.security", "dest1", at("dest1", text=jaas().replace(MODULE, KERBEROS, 1)),
     "section Server: Kerberos has never been tried"),
    ("source.security", "source2", at("source2", text=jaas().replace(MODULE, "com.example.Login", 1)),
     "section Server: login module com.example.Login: never tried"),
])  # fmt: skip
def test_other_login_modules_are_refused_by_name(id: str, target: str, broken: Break, seen: str) -> None:
    world = secured()
    broken(world)
    told = found(world)[id, target]
    assert (told.held, told.blocks, told.seen) == (Held.NO, True, seen)


def test_a_secret_in_migration_yml_is_refused() -> None:
    told = found(secured(), settings={"ssl.keyStore.password": "canary-store"})["dest.security", "dest1"]
    assert (told.held, told.blocks) == (Held.NO, True)
    assert "dest.settings.ssl.keyStore.password" in told.seen


def test_a_source_host_that_is_silent_is_unknown() -> None:
    world = secured()
    world.files["source1", JAAS] = Unknown("timeout", "no answer in 3 s")
    assert found(world)["source.jaas", "source1"].held is Held.UNKNOWN


def test_a_secret_that_dest_settings_lack_is_named_without_its_value() -> None:
    world = secured()
    world.files["dest1", ZOO_CFG] = Seen(b"ssl.keyStore.password=canary-store\n")
    told = found(world)["dest.present-config", "dest1"]
    assert (told.held, told.seen) == (Held.NO, "ssl.keyStore.password")


@pytest.mark.parametrize("gate", ["preflight", "roll", "cutover"])
def test_the_evidence_holds_no_secret_of_a_host(gate: str) -> None:
    assert "canary" not in repr(gather(secured_context(), KAFKA, secured(), gate))


def test_a_drop_in_of_the_unit_may_name_the_file() -> None:
    world = secured()
    facts = world.programs["dest1", "facts"]
    assert isinstance(facts, Seen)
    world.files["dest1", JAVA_ENV] = Seen(b'JVMFLAGS="-Xmx256m"\n')
    given = f'unit.Environment=A=b "SERVER_JVMFLAGS=-Djava.security.auth.login.config={JAAS} -Dc=d"\n'
    world.programs["dest1", "facts"] = Seen(facts.value + given)
    assert found(world)["dest.jaas", "dest1"].held is Held.YES
