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


def anchors(page):
    """Return what a link into a page can name: its headings, as a forge writes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found, seen = set(), {}
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_a_page_names_a_heading_of_it(page):
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text())
    missing = [
        f"{place}#{anchor}"
        for place, anchor in links
        if anchor not in anchors(page.parent / place if place else page)
    ]
    assert missing == []


def test_the_list_of_pages_names_each_of_them():
    listed = set(LINK.findall((ROOT / "docs/README.md").read_text()))
    pages = [path for path in (ROOT / "docs").glob("**/*.md") if path.parent.name != "decisions"]
    missing = {str(path.relative_to(ROOT / "docs")) for path in pages} - listed - {"README.md"}
    assert missing == set()


def test_decisions_have_numbers_of_their_own():
    numbers = [path.name[:4] for path in (ROOT / "docs/decisions").glob("*.md")]
    assert all(number.isdigit() for number in numbers)
    assert sorted(numbers) == sorted(set(numbers))


def test_pages_use_the_words_of_the_glossary():
    """One word for one thing: what the glossary rules out stands in no page that a person writes."""
    avoided = re.compile(r"\b(?:the ABI|build variants? directory|kernel repo|repo id)\b")
    wrong = {
        str(page.relative_to(ROOT)): avoided.findall(page.read_text())
        for page in PAGES
        if page.name != "glossary.md" and "reference" not in page.parts
    }
    assert {name: words for name, words in wrong.items() if words} == {}
