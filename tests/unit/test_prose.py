"""Documents and messages are plain English, as far as a rule can tell."""

from __future__ import annotations

import pytest

from tests import prose

BEFORE_AND_AFTER = [
    ("Pass over a stage that may be: rehearse.", "Skip an optional stage: rehearse."),
    ("What of a call of the command line decides.", "The parts of a call that choose the format."),
    ("Whose a run is its journal says", "The journal says which inventory a run belongs to."),
    ("let a hook bear that", "A hook must tolerate that."),
    ("what it comes to and the command that is next", "The result, and the next command."),
    ("'x' is no playbook name", "'x' is not a playbook name"),
    ("possible now: put it right, then run again", "Next: fix it, then run again"),
    ("not so: no partition has changed", "Failed: 86 partitions changed their leader"),
    ("1 findings to come later", "1 check runs later"),
    ("a TO that there is not for example, is said", "An unknown step name is an error."),
    ("Let a run go on that holds", "Continue a held run."),
    ("~/.ssh/config is no file", "~/.ssh/config is not a file"),
    ("The way back passes over it.", "The way back skips it."),
]


def test_documents_and_messages_are_plain() -> None:
    assert prose.found() == {}, f"at most {prose.MOST_WORDS} words a sentence, and plain words"


@pytest.mark.parametrize(("before", "after"), BEFORE_AND_AFTER)
def test_a_phrase_to_avoid_is_found(before: str, after: str) -> None:
    assert prose.phrases(before) != []
    assert prose.phrases(after) == []


def test_sentences_of_markdown() -> None:
    text = r"""# A title. Twice

One, e.g. this one. Kafka 2.8.2 has `a. B` and [a link. Here](https://example.org/A. B)
and goes on: it ends? `code` begins one (in brackets.) *Emphasis* another.

- an item
  that goes on
- **Bold.** And more.
1. first

```
Not. A. Sentence.
```

| head | other head |
|---|---|
| a cell. Two sentences. | `x \| y` |

<!-- Nothing. Here. -->
> quoted
"""
    assert list(prose.sentences(text)) == [
        "A title.",
        "Twice",
        "One, eg this one.",
        "Kafka 2.8.2 has `code` and a link.",
        "Here and goes on: it ends?",
        "`code` begins one (in brackets.",
        "*Emphasis* another.",
        "an item that goes on",
        "**Bold.",
        "And more.",
        "first",
        "head",
        "other head",
        "a cell.",
        "Two sentences.",
        "`code`",
        "quoted",
    ]


def test_words_are_counted_and_code_is_one() -> None:
    assert prose.words("one - two, three's / 4 *five*") == 5
    assert prose.too_long("word " * 30 + ".") == []
    assert len(prose.too_long("word " * 31 + ".")) == 1
    assert prose.too_long("`" + "word " * 40 + "`") == []
    assert len(prose.too_long("| a | " + "word " * 31 + "|")) == 1
    assert len(prose.too_long("- " + "word " * 20 + "\n  " + "word " * 20)) == 1


def test_messages_of_a_module() -> None:
    code = '''
"""The module. Not a message at all."""
PATTERN = r"one two three (?:four)"
SCRIPT = "set -e; cat $file; and so on"
def f(name):
    """Not a message at all."""
    raise Error(f"{name} is not " "a name that we know")
@cli.command("run")
@option("--x", help="A help with words.")
def run():
    """Begin a run, and say so.

    \b
    No message. At all.
    """
    return "two words"
'''
    assert sorted(prose.messages(code)) == [
        "A help with words.",
        "Begin a run, and say so.\n\n",
        "X is not a name that we know",
    ]
