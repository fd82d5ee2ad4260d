"""What the pages promise is there: links, commands, make targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "kernels-community/*/CARD.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for page in PAGES
        for target in re.findall(r"`make ([a-z-]+)", page.read_text())
        + re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named
    assert named <= targets


def test_every_place_that_contributing_names_exists():
    table = (ROOT / "CONTRIBUTING.md").read_text()
    places = set(re.findall(r"`((?:src|tests|docs|tools)/[^`<>]*)`", table))
    assert places
    for place in places:
        # `src/x/{a,b}.py` and `src/kernels/source*` are patterns for the reader.
        options = re.search(r"\{(.*?)\}", place)
        names = options[1].split(",") if options else [""]
        for name in names:
            pattern = place.replace(options[0], name) if options else place
            assert list(ROOT.glob(pattern.rstrip("/"))), f"{pattern} is not there"
