"""JAAS files as Java's login configuration reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.keyed_digest import keyed_digest
from zkmigrate.zookeeper.data.jaas import JaasError, Module, Section, parse, sections

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
WORDS = st.from_regex(r"[A-Za-z_$*][A-Za-z0-9_$*.-]{0,12}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
BLANKS = st.sampled_from([" ", "\n", "\t", " // canary } ;\n", "/* canary\n{ */", " / canary\r\n", "\r"])
MODULES = st.builds(
    Module, WORDS, st.sampled_from(["required", "optional"]), st.dictionaries(WORDS, TEXTS, max_size=3)
)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(WORDS, st.lists(MODULES, max_size=3).map(tuple), max_size=3), BLANKS, st.booleans())
def test_what_is_written_is_read(
    given_sections: dict[str, tuple[Module, ...]], blank: str, upper: bool
) -> None:
    words: list[str] = []
    for name, modules in given_sections.items():
        words += [quoted(name), "{"]
        for module in modules:
            words += [module.name, module.flag.upper() if upper else module.flag]
            for key, value in module.options.items():
                words += [key, "=", quoted(value)]
            words.append(";")
        words += ["}", ";"]
    assert parse(blank.join(words)) == given_sections


@given(st.text(st.sampled_from(list('ab{};="\\/* \n$1')), max_size=40))
def test_any_text_is_read_or_refused_without_a_word_of_it(text: str) -> None:
    told = ""
    try:
        parse(f"{text}canary")
    except JaasError as error:
        told = str(error)
    assert "canary" not in told


@pytest.mark.parametrize(("text", "why"), [
    ("A {", "line 1: the file ends too early; needed: the class of a login module"),
    ("A {\nm required\nuser=1;\n};", "line 3: a number or character has no double quotes around it"),
    ('A {\nm required\nuser="x;\n};', "line 3: a double quote is not closed on its line"),
    ("A { m needed; };", "line 1: the word after a login module is not a control flag, such as required"),
    ("A { m required };", "line 1: something else is there; needed: the key of an option, or a semicolon"),
    ("A { m required; }\nB { };", "line 2: something else is there; needed: ';'"),
    ("A { };\nA { };", "line 2: a section of this name is already there"),
    ("/* A", "line 1: a comment is not closed"),
])  # fmt: skip
def test_what_java_refuses_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(JaasError) as error:
        parse(text)
    assert str(error.value) == f"jaas.conf: {why}"


def test_escapes_are_javas() -> None:
    [module] = parse(r'A { m required x="a\"b\\c\td\101\e" y=plain-word; };')["A"]
    assert module.options == {"x": 'a"b\\c\tdAe', "y": "plain-word"}


def test_a_section_holds_digests_and_no_secret() -> None:
    found = sections(
        f'Server {{ {DIGEST} required user_kafka="canary" user_super="other"; }};\n'
        f'Client {{ {DIGEST} required username="kafka" password="canary" debug="${{x}}"; }};\n'
    )
    digest = keyed_digest("canary")
    assert found["Server"] == Section((DIGEST,), {"kafka": digest, "super": keyed_digest("other")})
    assert found["Client"] == Section((DIGEST,), {}, "kafka", digest, ("debug",))
    assert "canary" not in repr(found)
    assert digest != keyed_digest("Canary")
