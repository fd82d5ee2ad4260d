"""The code blocks of the pages, for tests that run them as they are printed.

A block either belongs to a test, which takes it by ``get_listing(page, start)``, or has a comment above it that
says why it cannot run: ``<!-- not run: it needs a GPU -->``. ``tests/unit/docs/test_listings.py`` holds the pages
to that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = (
    "*.md",
    "docs/*.md",
    "docs/guide/*.md",
    "kernels-community/*/CARD.md",
    "examples/**/*.md",
)
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+?) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One code block of a page."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None
    """Why no test runs it."""

    @property
    def place(self) -> str:
        """Where it stands, and its first line."""
        return f"{self.page}:{self.line}: {self.text.partition(chr(10))[0]}"


def list_pages() -> tuple[str, ...]:
    """Return the pages that people write, by their paths in the repository."""
    found = {path for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found))


def read_listings(page: str) -> tuple[Listing, ...]:
    """Return every code block of a page, in its order."""
    return parse_listings(page, (ROOT / page).read_text(encoding="utf-8"))


def parse_listings(page: str, text: str) -> tuple[Listing, ...]:
    """Return every code block of a page's text, in its order."""
    return tuple(
        Listing(
            page=page,
            line=text[: match.start("language")].count("\n") + 1,
            language=match["language"],
            text=match["text"],
            reason=match["reason"],
        )
        for match in _BLOCK.finditer(text)
    )


def find_listings(page: str, start: str) -> tuple[Listing, ...]:
    """Return the code blocks of a page that begin with ``start``."""
    return tuple(each for each in read_listings(page) if each.text.startswith(start))


def get_listing(page: str, start: str) -> str:
    """Return the text of the code block of a page that begins with ``start``.

    Raises:
        LookupError: no block of the page begins so, or several do.
    """
    found = find_listings(page, start)
    if len(found) != 1:
        blocks = "\n".join(each.place for each in read_listings(page))
        raise LookupError(f"{len(found)} blocks begin with {start!r}; there are\n{blocks}")
    return found[0].text


def parse_session(text: str) -> tuple[tuple[str, str], ...]:
    """Return the commands of a ``console`` block, after ``$``, each with what is printed below it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return tuple((command, printed) for command, _, printed in (p.partition("\n") for p in parts))


def find_unsaid(printed: str, said: str) -> list[str]:
    """Return the lines of a page that a command did not say, in the page's order; ``…`` stands for any text."""
    lines = iter(said.splitlines())
    missing = []
    for line in printed.splitlines():
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.split("…")))
        rest = list(lines)
        place = next((n for n, each in enumerate(rest) if pattern.fullmatch(each.strip())), None)
        missing += [] if place is not None else [line]
        lines = iter(rest if place is None else rest[place + 1 :])
    return missing
