"""The README and the pages of `docs`: their blocks of code, links and anchors, and a page as a script.

Blocks of `bash` and `python` are run. An `output` block is what the block before it prints: these lines, in this order,
possibly with others between them; `...` is any text. Other blocks (`text`, ...) are not run.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ("bash", "python")
_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w-]*)[^\n`]*\n(?P<text>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the number of its first line in the page."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """A Markdown file, named by its path in the repository."""

    name: str
    text: str

    @property
    def blocks(self) -> list[Block]:
        """All fenced blocks, in order."""
        return [
            Block(found["language"], found["text"], self.text.count("\n", 0, found.start()) + 1)
            for found in _FENCE.finditer(self.text)
        ]

    @property
    def prose(self) -> str:
        """The text without blocks."""
        return _FENCE.sub("", self.text)

    @property
    def is_run(self) -> bool:
        """Whether the page has blocks to run."""
        return any(block.language in RUN for block in self.blocks)


def page(name: str) -> Page:
    """A page by its path in the repository."""
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def pages() -> list[Page]:
    """The README, the quickstart, then all other pages by name."""
    names = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    first = ["README.md", "docs/quickstart.md"]
    return [page(name) for name in [*first, *(name for name in names if name not in first)]]


def script(page: Page, *, replaced: Mapping[str, str], left_out: Iterable[str], python: str = sys.executable) -> str:
    """A page as one bash script. It prints the number (from 0) and the line of each block before running it.

    ``replaced`` are texts and their replacements; lines that are ``left_out`` are not run.
    """
    lines = ["set -eu -o pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, block in enumerate(page.blocks):
        if block.language not in RUN:
            continue
        text = "\n".join(line for line in block.text.splitlines() if line.partition(" #")[0].strip() not in left_out)
        for old, new in replaced.items():
            text = text.replace(old, new)
        is_python = block.language == "python"
        lines += ["echo", f"echo {shlex.quote(marker(page, number))}"]  # on a separate line after any output
        lines.append(f"{shlex.quote(python)} - <<'PYTHON_BLOCK'\n{text}\nPYTHON_BLOCK" if is_python else text)
    return "\n".join(lines)


def marker(page: Page, number: int) -> str:
    """The line that the script of a page prints before a block."""
    return f"== {page.name}, block {number}, line {page.blocks[number].line}"


def printed(page: Page, output: str) -> dict[int, str]:
    """What each block of a page printed, by its number."""
    parts = re.split(rf"^== {re.escape(page.name)}, block (\d+), line \d+$", output, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def unlike(page: Page, output: str) -> list[str]:
    """The `output` lines of the page that its blocks did not print."""
    found, wrong = printed(page, output), []
    before = 0
    for number, block in enumerate(page.blocks):
        if block.language != "output":
            before = number
            continue
        lines = [line.rpartition("\r")[2].rstrip() for line in found.get(before, "").splitlines()]
        place = 0
        for line in block.text.splitlines():
            pattern = re.compile(r".*".join(map(re.escape, line.rstrip().split("..."))))
            place = next((at + 1 for at in range(place, len(lines)) if pattern.fullmatch(lines[at])), -1)
            if place < 0:
                wrong.append(f"{page.name}, line {block.line}: wanted a line like {line!r}. Found: {lines}")
                break
    return wrong


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub and MyST make it."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda found: found[1] or "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Page) -> set[str]:
    """The anchors of a page's headings."""
    return {slug(found[1]) for found in re.finditer(r"^#+ +(.+)$", page.prose, re.MULTILINE)}


def links(page: Page) -> list[str]:
    """The targets of a page's links in this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.prose) + re.findall(r'(?:src|href)="([^"]+)"', page.prose)
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]
