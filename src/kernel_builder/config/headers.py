"""Reading the ``[sources.<name>]`` tables: archives of headers that components depend on."""

from __future__ import annotations

import re

from kernel_builder.config import check
from kernel_builder.config.model import HeaderSource
from kernel_builder.config.table import Objection, Table

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*", re.ASCII)
_URL = re.compile(r"https?://[^\s/?#@]+/\S+")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
# Every build has these.
_TAKEN = frozenset({"torch"})


def read_header_sources(root: Table) -> tuple[HeaderSource, ...]:
    """Read all ``[sources.<name>]`` tables, in the order of the file.

    They are this builder's own: the published one refuses a ``build.toml`` that has them.
    """
    tables = root.table("sources")
    if tables is None:
        return ()
    found = []
    for name in tables.data:
        table = tables.table(name)
        if table is None:
            continue
        objection = _check_name(name)
        if objection is not None:
            tables.add(name, objection)
        url = table.text("url", _check_url, required=True)
        sha256 = table.text("sha256", _check_sha256, required=True)
        include = table.texts("include", _check_place, required=True, unique=True) or ()
        licence = table.text("license", check.check_not_empty, required=True)
        if table.data.get("include") == []:
            message = 'found an empty list; expected the directories that hold headers, such as "."'
            table.add("include", Objection("bad-value", message))
        table.finish()
        source = HeaderSource(
            name=name,
            url=url or "",
            sha256=sha256 or "",
            include=include,
            license=licence or "",
        )
        found.append(source)
    return tuple(found)


def check_sources_used(root: Table, sources: tuple[HeaderSource, ...]) -> None:
    """Note each source that no component depends on: its hash would be in no lock and no build."""
    components = root.data.get("kernel")
    tables = components.values() if isinstance(components, dict) else ()
    listed = [table.get("depends") for table in tables if isinstance(table, dict)]
    used = [name for names in listed if isinstance(names, list) for name in names]
    for source in sources:
        if source.name not in used:
            path = ("sources", source.name)
            message = f'no component depends on it; add "{source.name}" to depends, or drop it'
            root.faults.add(path, "unused-source", message)


def _check_name(text: str) -> Objection | None:
    if text in _TAKEN:
        return Objection("bad-value", f'"{text}" comes with every build; expected another name')
    if _NAME.fullmatch(text):
        return None
    message = f'found the name "{text}"; expected small letters, digits, "_" and "-"'
    return Objection("bad-value", message)


def _check_place(text: str) -> Objection | None:
    """Check a directory of an archive; what is said of files of the project does not fit there."""
    if check.check_path(text) is None:
        return None
    message = f'found "{text}"; expected a directory of the archive, such as "name-1.0/include"'
    return Objection("bad-path", message)


def _check_url(text: str) -> Objection | None:
    if _URL.fullmatch(text):
        return None
    message = f'found "{_shown(text)}"; expected the URL of an archive, without a password'
    return Objection("bad-url", f'{message}, such as "https://host/name-1.0.tar.gz"')


def _shown(text: str) -> str:
    """Write a URL for a message: without what stands before an ``@``, which may be a password."""
    return re.sub(r"//[^/@]*@", "//...@", text)


def _check_sha256(text: str) -> Objection | None:
    if _SHA256.fullmatch(text):
        return None
    suggestion = text.lower().removeprefix("sha256:").removeprefix("sha256-")
    good = _SHA256.fullmatch(suggestion) is not None
    message = f'found "{text}"; expected a sha256 in 64 hexadecimal digits'
    return Objection("bad-hash", message, f'"{suggestion}"' if good else None)
