"""Java properties: every expected value is what java.util.Properties of JDK 17 read."""

from __future__ import annotations

import pytest

from zkmigrate.java_properties import PropertiesError, entries, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\rb=2\r\nc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\x0b2\x0c3\x1c4\x1d5\x1e6\x857\n", {"a": "1\x0b2\x0c3\x1c4\x1d5\x1e6\x857"}),
        (r"a=h\:1,i\=2\ \#\!\\", {"a": r"h:1,i=2 #!\ ".strip()}),
        (r"\u0061\:b=\t\n\r\f\u00e9\q", {"a:b": "\t\n\r\féq"}),
        ("a=1,\\\n \t\f2,\\\r\n3\\\\\nb=4", {"a": "1,2,3\\", "b": "4"}),
        ("a=1\\\n\nb=2\\", {"a": "1", "b": "2"}),
        ("#a\\\nb : 1\n!c=2\n  d 3 \n e", {"b": "1", "d": "3 ", "e": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("\\\n\nt\\\n#b", {"t#b": ""}),
        ("\\\n!a\n", {}),
        ("=a\n", {"": "a"}),
        (r"a=\\u12", {"a": r"\u12"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


def test_a_malformed_escape_is_refused_without_its_text() -> None:
    with pytest.raises(PropertiesError, match=r"^line 2 holds a \\u without four hexadecimal digits$"):
        parse("a=1\npassword=\\u12xy")


def test_entries_tell_their_place() -> None:
    text = "#\na=1,\\\n2\nb\n"
    assert [(e.key, e.separated, e.line, text[e.start : e.end]) for e in entries(text)] == [
        ("a", True, 2, "a=1,\\\n2"),
        ("b", False, 4, "b"),
    ]
