"""Make a site of the documents: mkdocs calls these functions while it builds (mkdocs.yml).

The pages stay as a forge shows them. Here they get their navigation and the files outside docs/ that they
link to. Lists are indented as Python-Markdown wants it. A page that fetches from elsewhere fails the build.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from posixpath import normpath, relpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {
    "README.md": "project.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security-policy.md",
}  # fmt: skip
"""Documents outside docs/, and where they stand in the site."""
FINDINGS = "reference/findings.md"
"""The page that is made from the code while the site is built."""

BEFORE, NIGHT, AFTER, LOOK_UP, WHY, CODE = "Before", "The night", "After", "Reference", "Why", "Code"
FOLDERS = {"tutorial": BEFORE, "how-to": BEFORE, "reference": LOOK_UP, "explanation": WHY, "adr": WHY}
READERS = {
    NIGHT: ("how-to/move.md", "how-to/going-back.md", "how-to/host-died.md", "how-to/by-hand.md"),
    AFTER: ("reference/report.md", "reference/replay.md"),
    LOOK_UP: ("glossary.md",),
    WHY: ("track-record.md",),
    CODE: (
        "contributing.md", "tour.md", "how-to/add-a-dependent.md", "how-to/lab.md", "how-to/drills.md",
        "how-to/mutants.md",
    ),
}  # fmt: skip
"""Pages that belong to another reader than the rest of their folder."""

_FENCE = re.compile(r"^( *)(```+)")
_LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")


def reader(page: str) -> str:
    """The part of the navigation that a page stands in; a new page's by its folder."""
    named = next((part for part, pages in READERS.items() if page in pages), None)
    return named or FOLDERS.get(page.partition("/")[0], BEFORE)


def navigation(pages: list[str]) -> list[Any]:
    """Every page but the first one, by reader; the decisions by themselves."""
    parts: dict[str, list[Any]] = defaultdict(list)
    listed = [page for pages_of in READERS.values() for page in pages_of]
    first = {page: at for at, page in enumerate(listed)}
    for page in sorted(pages, key=lambda page: (first.get(page, len(first)), page)):
        if page != "README.md":
            parts["Decisions" if page.startswith("adr/") else reader(page)].append(page)
    parts[BEFORE] = sorted(parts[BEFORE], key=lambda page: (not page.startswith("tutorial/"), page))
    parts[WHY].append({"Decisions": parts.pop("Decisions", [])})
    return ["README.md", *({part: parts[part]} for part in (BEFORE, NIGHT, AFTER, LOOK_UP, WHY, CODE))]


def anchor(title: str, _separator: str) -> str:
    """The anchor of a heading, as a forge makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def place(path: str) -> str:
    """Where a file of the repository stands in the site; empty for a folder. ValueError for neither."""
    if not (ROOT / path).exists() and path != f"docs/{FINDINGS}":
        raise ValueError(f"a page links to {path}, which is not in the repository")
    if path == f"docs/{FINDINGS}" or (path.startswith("docs/") and (ROOT / path).is_file()):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return ""
    return PROJECT.get(path) or f"code/{path}.txt"


def moved(markdown: str, path: str) -> str:
    """A page with its links as the site has them. path: the page's, in the repository."""
    here = place(path)

    def link(found: re.Match[str]) -> str:
        to, anchor = found[1], found[2] or ""
        if not to or re.match(r"[a-z]+:", to):
            return found[0]
        there = place(normpath(f"{Path(path).parent.as_posix()}/{to}"))
        return f"]({relpath(there, Path(here).parent.as_posix())}{anchor})" if there else "]()"

    lines, fenced = [], False
    for line in markdown.splitlines():
        fenced ^= bool(_FENCE.match(line))
        linked = line if fenced else _LINK.sub(link, line)
        lines.append(linked if fenced else re.sub(r"\[([^][]*)\]\(\)", r"\1", linked))
    return "\n".join(lines) + "\n"


def indented(markdown: str) -> str:
    """What belongs to an item of a list, by four columns; a fenced block in one as an indented block."""
    lines: list[str] = []
    within: str | None = None  # what stands before the fence of the block that is open
    for line in markdown.splitlines():
        fence = _FENCE.match(line)
        before, within = within, (within if not fence else fence[1] if within is None else None)
        indent = before or within or ""
        if fence and indent:
            lines.append("")
        elif indent:
            lines.append(f"        {line.removeprefix(indent)}" if line.strip() else "")
        else:
            lines.append(line if within is not None else re.sub(r"^ {1,3}(?=\S)", "    ", line))
    return "\n".join(lines) + "\n"


def fetched(page: str) -> list[str]:
    """What a browser would fetch from elsewhere when it opens a page of HTML or a style sheet."""
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page)
    told = [
        found for tag in tags for found in re.findall(r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""", tag)
    ]
    return told + re.findall(r"""url\(["']?((?:https?:)?//[^"')]+)""", page)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as the links have them, and the navigation."""
    config.mdx_configs["toc"] = {"slugify": anchor}
    pages = [path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")]
    config.nav = navigation([*pages, FINDINGS, *PROJECT.values()])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of all findings, and the documents and code outside docs/ that pages link to."""
    from mkdocs.structure.files import File

    from zkmigrate.cli import findings

    files.append(File.generated(config, FINDINGS, content=findings.page()))
    wanted: set[str] = set()
    for page in [ROOT / name for name in PROJECT] + list(Path(config.docs_dir).rglob("*.md")):
        path = page.relative_to(ROOT).as_posix()
        if path in PROJECT:
            files.append(File.generated(config, PROJECT[path], content=page.read_text()))
        for to, _ in _LINK.findall(page.read_text()):
            target = normpath(f"{Path(path).parent.as_posix()}/{to}")
            if to and not re.match(r"[a-z]+:", to) and (ROOT / target).is_file():
                wanted.add(target)
    for target in sorted(wanted):
        if place(target).startswith("code/"):
            files.append(File.generated(config, place(target), content=(ROOT / target).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """A page as the site has it."""
    documents = {there: path for path, there in PROJECT.items()}
    return indented(moved(markdown, documents.get(page.file.src_uri, f"docs/{page.file.src_uri}")))


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that is not whole by itself."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css") and (told := fetched(path.read_text())):
            raise ValueError(f"{path.relative_to(config.site_dir)} fetches {', '.join(told)}")
