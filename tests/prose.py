"""Plain English by rule: the sentences of documents and messages, and what is too long or cryptic in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 30

PHRASES = {
    "say what is there": r"\bthat there (is|are) not\b|\bwhat there is not\b|\bthat there is none\b",
    "say to whom or what it belongs": r"\bwhose an? \w+",
    "say what failed": r"\bnot so:",
    "skip": r"\bpass(es|ed|ing)? over\b",
    "result": r"\bwhat (it|that|this) comes to\b",
    "fix": r"\bput (it|them|this|that|these|those|what \w+) right\b|\bto be put right\b|\bputs? right what\b",
    "is not a": r"(?<!there )\b(is|are) no (\w+ ){0,2}(name|id|file|path|directory|number|address)\b",
    "tolerate": r"\blets? [^.;:]{1,40}\bbear\b",
    "name the subject": r"^\W*what of (a|an|the)\b",
    "next": r"\bpossible now:",
    "run later": r"\bto come later\b",
    "optional": r"\bthat may be: ",
    "is an error": r", is said\b",
    "continue": r"\bto let a run go on\b|\blet a run go on\b",
}
"""What to say → the phrase to avoid, and its like."""

_SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|No|Nos|Fig|resp)\.(?=\s)")
_END = re.compile(r"(?<=[.!?])[)\]\"'*_`]*\s+(?=[\"'(\[*_`]*[A-Z0-9`])")
_LINK = re.compile(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_PROGRAM = re.compile(r"[{}<>\\]|\(\?|;\n|\$[\w(]|^\s*\w+ ?=", re.MULTILINE)
_CODE = "`code`"


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown or plain text, without blocks of code and comments.

    A link is its words, a span of code is one word. A heading, an item of a list and a cell of a table are
    texts of their own.
    """
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^[ >]*(```+|~~~+).*?^[ >]*\1[ \t]*$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    for block in _blocks(text):
        plain = re.sub(r"(`+)(.+?)\1", _CODE, _LINK.sub(r"\1", " ".join(block.split())))
        plain = _SHORT.sub(lambda found: found[0].replace(".", ""), plain)
        yield from (found for one in _END.split(plain) if (found := one.strip()))


def _blocks(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in (*text.splitlines(), ""):
        inner = line.strip().lstrip(">").strip()
        cells = inner.startswith("|")
        if lines and (not inner or cells or inner.startswith("#") or _ITEM.match(line)):
            yield "\n".join(lines)
            lines = []
        if cells:
            yield from (cell for cell in re.split(r"(?<!\\)\|", inner) if not re.fullmatch(r"[\s:-]*", cell))
        elif inner.startswith("#"):
            yield inner.lstrip("#")
        elif inner:
            lines.append(_ITEM.sub("", line, count=1) if _ITEM.match(line) else inner)


def words(sentence: str) -> int:
    """How many words a sentence has: what holds a letter or a digit."""
    return sum(any(one.isalnum() for one in word) for word in sentence.split())


def too_long(text: str) -> list[str]:
    """The sentences of more than MOST_WORDS words."""
    return [sentence for sentence in sentences(text) if words(sentence) > MOST_WORDS]


def phrases(text: str) -> list[str]:
    """The phrases to avoid, each with what to say."""
    return [
        f"{found[0]!r}: {better}"
        for sentence in sentences(text)
        for better, pattern in PHRASES.items()
        for found in re.finditer(pattern, sentence, re.IGNORECASE)
    ]


def messages(source: str) -> Iterator[str]:
    """What a module may say to a person: its texts of three words and more, and the help of its verbs.

    X stands for what is filled in. Other docstrings, patterns, programs and blocks
    that click does not wrap are no messages.
    """
    tree = ast.parse(source)
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            silent.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in node.values}
        if isinstance(node, ast.FunctionDef) and any(
            re.search(r"\.(command|group)\b", ast.unparse(one)) for one in node.decorator_list
        ):
            yield re.sub(r"^\x08\n(?:.*\S.*\n?)+", "", ast.get_docstring(node) or "", flags=re.MULTILINE)
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        else:
            continue
        if len(text.split()) > 2 and not re.search(
            r"[{}<>\\]|\(\?|;\n|\$[\w(]|^\s*\w+ ?=", text, re.MULTILINE
        ):
            yield text


def texts() -> dict[str, list[str]]:
    """File → what of it is read by people: the documents, and the messages of the tool and its playbooks."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    code = [path for name in ("zkmigrate", "playbooks") for path in (ROOT / name).rglob("*.py")]
    told = {path: [path.read_text()] for path in pages}
    told |= {path: list(messages(path.read_text())) for path in code}
    return {path.relative_to(ROOT).as_posix(): said for path, said in sorted(told.items())}


def found() -> dict[str, list[str]]:
    """File → what is to be mended in it."""
    return {
        path: wrong
        for path, said in texts().items()
        if (wrong := [one for text in said for one in (*too_long(text), *phrases(text))])
    }
