"""What a single text of ``build.toml`` must look like: names, paths, versions, architectures, URLs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from pathlib import PurePosixPath, PureWindowsPath

from kernel_builder.config.table import Check, Objection, Table, find_close
from kernel_spec.backend import BackendKind
from kernel_spec.errors import FormatError
from kernel_spec.git_url import normalize_git_url
from kernel_spec.names import KERNEL_NAME, parse_repo_id

# Backends whose kernels are compiled; those of the others are Python alone.
COMPILED = frozenset(
    {BackendKind.CPU, BackendKind.CUDA, BackendKind.METAL, BackendKind.ROCM, BackendKind.XPU}
)

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*", re.ASCII)
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9][af]?(\+PTX)?", re.ASCII)
_GFX = re.compile(r"gfx[0-9a-f]{3,4}(:[a-z]+[+-])*|gfx[0-9]{1,2}(-[0-9])?-generic", re.ASCII)
_EXTENSION = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BRANCH = re.compile(r"(?!.*(\.\.|//|@\{|\.lock(/|$)))[A-Za-z0-9_][A-Za-z0-9_./-]*(?<![./])")

_IMPORTED = frozenset({"torch", "triton"})


def check_name(text: str) -> Objection | None:
    """Check the name of a kernel: ``[a-z][-a-z0-9]*[a-z0-9]``, and none that kernels import."""
    if text in _IMPORTED:
        message = (
            f'found "{text}"; a kernel may import itself by its name, and then "import {text}" '
            "would not find the package of that name; expected another name"
        )
        return Objection("bad-name", message, f"my-{text}")
    if KERNEL_NAME.fullmatch(text):
        return None
    message = (
        f'found "{text}"; expected small letters, digits and "-", at least two, '
        "beginning with a letter and not ending with a dash"
    )
    return Objection("bad-name", message, suggest_name(text))


def suggest_name(text: str) -> str | None:
    """Return the allowed kernel name that is nearest to a text, or None."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = re.sub(r"^[^a-z]+", "", name)
    return name if KERNEL_NAME.fullmatch(name) and name != text else None


def check_component_name(text: str) -> Objection | None:
    """Check the name of a ``[kernel.<name>]`` table."""
    if _COMPONENT.fullmatch(text):
        return None
    message = f'found the name "{text}"; expected letters, digits, "_", "-" and "."'
    return Objection("bad-value", message)


def check_backend(text: str) -> Objection | None:
    """Check the name of a backend."""
    known = [kind.value for kind in BackendKind]
    if text in known:
        return None
    message = f'no backend "{text}"; expected one of {", ".join(known)}'
    return Objection("unknown-backend", message, find_close(text, known))


def check_compiled_backend(text: str) -> Objection | None:
    """Check the backend of a component."""
    objection = check_backend(text)
    if objection is not None or BackendKind(text) in COMPILED:
        return objection
    message = (
        f'"{text}" has no compiled components; expected one of {", ".join(sorted(COMPILED))}. '
        "Its kernels are Python: drop the table and write them in torch-ext"
    )
    return Objection("bad-value", message)


def check_path(text: str) -> Objection | None:
    """Check the path of a file or directory: relative, inside the project, no glob."""
    if not text or any(ord(character) < 32 for character in text):
        return Objection("bad-path", f"found {text!r}; expected a path in the project")
    if any(character in text for character in "*?[]"):
        return Objection("bad-path", f'"{text}" is a glob; list each file')
    if text.startswith(("/", "~")) or PureWindowsPath(text).drive or "\\" in text:
        return Objection("bad-path", f'"{text}" is no relative path with "/" between its parts')
    depth = 0
    for part in PurePosixPath(text).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return Objection(
                "bad-path", f'"{text}" leads out of the project; copy the file into it'
            )
    return None


def normalize_path(text: str) -> str:
    """Write a path without what changes nothing: ``./a``, ``a//b`` and ``b/../a`` are ``a``, ``a/b``, ``a``."""
    return posixpath.normpath(text)


def read_paths(
    table: Table, key: str, *, required: bool = False, unique: bool = False
) -> tuple[str, ...]:
    """Read a list of paths, in their plainest spelling; with `unique`, no file stands in it twice."""
    texts = table.texts(key, check_path, required=required, unique=unique) or ()
    spelt: dict[str, str] = {}
    for text in texts:
        first = spelt.setdefault(normalize_path(text), text)
        if unique and first != text:
            message = f'"{text}" is the same file as "{first}"; keep one'
            table.add(key, Objection("duplicate", message), table.data[key].index(text))
    return tuple(spelt) if unique else tuple(map(normalize_path, texts))


def check_version(text: str) -> Objection | None:
    """Check a version: digits and dots."""
    if _VERSION.fullmatch(text):
        return None
    digits = re.search(r"[0-9]+(\.[0-9]+)*", text)
    message = f'found "{text}"; expected digits and dots, such as "2.10"'
    return Objection("bad-version", message, f'"{digits[0]}"' if digits else None)


def check_stable_abi(text: str) -> Objection | None:
    """Check the version of a stable ABI: at least major and minor."""
    objection = check_version(text)
    if objection is None and "." not in text:
        message = f'found "{text}"; the stable ABI needs major and minor, such as "2.10"'
        return Objection("bad-version", message)
    return objection


def check_capability(text: str) -> Objection | None:
    """Check a CUDA capability such as ``8.0``, ``9.0a``, ``10.0f`` or ``12.0+PTX``."""
    if _CAPABILITY.fullmatch(text):
        return None
    suggestion = None
    if match := re.fullmatch(r"(?:sm_?)?(\d{1,2})\.?(\d)([af]?)(\+ptx)?", text.lower()):
        suggestion = f'"{match[1]}.{match[2]}{match[3]}{(match[4] or "").upper()}"'
    message = f'"{text}" is no CUDA capability; expected one such as "8.0", "9.0a" or "12.0+PTX"'
    return Objection("bad-arch", message, suggestion)


def check_gfx(text: str) -> Objection | None:
    """Check a ROCm architecture such as ``gfx942``."""
    if _GFX.fullmatch(text):
        return None
    return Objection("bad-arch", f'"{text}" is no ROCm architecture; expected one such as "gfx942"')


def check_git_url(text: str) -> Objection | None:
    """Check a git URL, by the rule of a ``metadata.json``, which it will stand in."""
    if normalize_git_url(text) is not None:
        return None
    message = f'found "{text}"; expected a git URL such as "https://host/owner/name"'
    return Objection("bad-url", message)


def check_repo_id(text: str) -> Objection | None:
    """Check the id of a repository on a hub."""
    try:
        parse_repo_id(text)
    except FormatError as error:
        return Objection("bad-repo-id", str(error))
    return None


def check_branch(text: str) -> Objection | None:
    """Check the name of a branch."""
    if _BRANCH.fullmatch(text):
        return None
    return Objection("bad-value", f'found "{text}"; expected the name of a branch')


def check_not_empty(text: str) -> Objection | None:
    """Check that a text says something."""
    return None if text.strip() else Objection("bad-value", "found an empty text")


def check_extension(text: str) -> Objection | None:
    """Check the extension of a file: no dot before it."""
    if _EXTENSION.fullmatch(text):
        return None
    bare = text.lstrip("*.")
    suggestion = f'"{bare}"' if _EXTENSION.fullmatch(bare) else None
    return Objection(
        "bad-value", f'"{text}" is no extension; expected one such as "pyi"', suggestion
    )


def known_check(kind: str, what: str, known: Collection[str]) -> Check:
    """Return a check that a text is one of those that are known."""

    def check(text: str) -> Objection | None:
        if text in known:
            return None
        message = f'no {what} "{text}"'
        message += f"; expected one of {', '.join(sorted(known))}" if known else " is known here"
        return Objection(kind, message, find_close(text, known))

    return check
