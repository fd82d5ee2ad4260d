"""Names: repositories, kernels, ops, versions, tags, commits and safe paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from kernel_spec.errors import FormatError

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

KERNEL_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
SHA1 = re.compile(r"[0-9a-f]{40}", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
SHORT_COMMIT = re.compile(r"[0-9a-f]{7,39}", re.ASCII)
VERSION_BRANCH = re.compile(r"v(0|[1-9][0-9]*)", re.ASCII)
VERSION_TAG = re.compile(
    r"v(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}"
    r"(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?",
    re.ASCII,
)

_REPO_PART = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_REPO_ID_LENGTH = 96

# What is unsafe on some system: control characters, the other separator, and the colon of drive
# letters and alternate streams.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\:]")
_PART_LENGTH = 255
# Systems take 4096 bytes for a whole path, of which the folders around a repository are a part; and
# what makes and removes folders calls itself for each that is inside another.
_PATH_LENGTH = 1024
_DEEPEST = 100
# Percent-encoding makes at most three bytes of one.
_REF_LENGTH = _PART_LENGTH // 3
_UNSAFE_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


class RepoId(NamedTuple):
    """The id of a repository on a hub."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


def parse_repo_id(text: str) -> RepoId:
    """Read ``owner/name``: each part letters, digits, ``.``, ``_`` and ``-``, at most 96 in all.

    A part neither begins nor ends with ``-`` or ``.`` and holds no ``--`` or ``..``
    (the rules of huggingface_hub).

    Raises:
        FormatError: saying which rule is broken.
    """
    owner, slash, name = text.partition("/")
    fault = None
    if text.startswith(("/", "./", "../", "~")):
        fault = (
            "expected owner/name, not a path; where a path may stand, there is nothing at this one "
            "(get_local_kernel loads a kernel at a path)"
        )
    elif not slash or "/" in name:
        fault = "expected owner/name"
    elif "@" in text:
        fault = (
            "it holds '@'; which version, branch, tag or commit is said apart from it, as version= or "
            "revision=, on the command line as --version or --revision where the command has it"
        )
    elif len(text) > _REPO_ID_LENGTH:
        fault = f"expected at most {_REPO_ID_LENGTH} characters, found {len(text)}"
    else:
        fault = _repo_part_fault("owner", owner) or _repo_part_fault("name", name)
    if fault is not None:
        raise FormatError(f"{text!r} is not the id of a repository: {fault}")
    return RepoId(owner, name)


def _repo_part_fault(what: str, part: str) -> str | None:
    if not part:
        return f"the {what} is empty"
    if _REPO_PART.fullmatch(part) is None:
        return f"the {what} holds something else than letters, digits, '.', '_' and '-'"
    if part[0] in "-." or part[-1] in "-.":
        return f"the {what} begins or ends with '-' or '.'"
    if "--" in part or ".." in part:
        return f"the {what} holds '--' or '..'"
    if part.endswith(".git"):
        return f"the {what} ends in '.git'"
    return None


def repo_id_fault(text: str) -> str | None:
    """Say why a text is not the id of a repository, or None where it is."""
    try:
        parse_repo_id(text)
    except FormatError as err:
        return str(err)
    return None


def is_owner(text: str) -> bool:
    """Say whether a text can be the owner of repositories."""
    return repo_id_fault(f"{text}/x") is None


def find_lookalike(name: str, among: Iterable[str]) -> str | None:
    """Return one of other names that differs from this one in case only, or None."""
    return next(
        (each for each in among if each != name and each.casefold() == name.casefold()), None
    )


def group_lookalikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the names that differ from one another in case only, in groups; all sorted."""
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(name.casefold(), set()).add(name)
    return sorted(tuple(sorted(group)) for group in groups.values() if len(group) > 1)


def commit_fault(text: str) -> str | None:
    """Say why a text is not a full commit id, or None where it is."""
    if COMMIT.fullmatch(text) is not None:
        return None
    return f"expected 40 or 64 lower-case hex digits, found {text!r}"


def module_name(kernel_name: str) -> str:
    """Return the Python module of a kernel: its name with ``_`` for ``-``."""
    return kernel_name.replace("-", "_")


def version_of_branch(branch: str) -> int | None:
    """Return N for a branch ``vN``, else None (``v04`` and ``v1_0`` are not versions)."""
    match = VERSION_BRANCH.fullmatch(branch)
    return None if match is None else int(match[1])


def choose_branch(branches: Iterable[str], version: int | None) -> str:
    """Choose the branch of a version, or the default one.

    Without a version: the highest ``vN`` (never ``v0`` unless it is the only one), else ``main``.

    Raises:
        FormatError: no such version (the message names those there are, by number), or neither
            a version nor ``main``.
    """
    names = set(branches)
    versions = sorted(n for n in map(version_of_branch, names) if n is not None)
    if version is not None:
        if version in versions:
            return f"v{version}"
        known = ", ".join(map(str, versions)) or "none"
        raise FormatError(f"version {version} not found; available versions: {known}")
    if versions:
        return f"v{versions[-1]}"
    if "main" in names:
        return "main"
    found = ", ".join(sorted(names)) or "none"
    raise FormatError(f"expected a version branch such as v1, or main; found branches: {found}")


def choose_tag(tags: Iterable[str], version_range: str) -> str:
    """Choose the newest tag ``vX.Y.Z`` in a range such as ``>=1.0.0,<2``.

    A bare ``1.1.2`` means exactly that one; a pre-release fits only where the range names one.

    Raises:
        FormatError: the range cannot be read, or nothing fits (the message names the tags).
    """
    from packaging.version import Version

    specifiers = parse_range(version_range)
    candidates = sorted(
        (Version(tag[1:]), tag) for tag in set(tags) if VERSION_TAG.fullmatch(tag) is not None
    )
    prereleases = _names_prerelease(specifiers)
    fitting = [
        tag for number, tag in candidates if specifiers.contains(number, prereleases=prereleases)
    ]
    if fitting:
        return fitting[-1]
    known = ", ".join(tag for _, tag in candidates) or "none"
    raise FormatError(f"no tag fits {version_range!r}; available tags: {known}")


def parse_range(text: str) -> SpecifierSet:
    """Read a range such as ``>=1.0.0,<2``; a bare ``1.1.2`` means exactly that version.

    Raises:
        FormatError: it is neither.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(f"=={Version(text)}")
    except InvalidVersion:
        pass
    try:
        if text.strip():
            return SpecifierSet(text)
    except InvalidSpecifier:
        pass
    raise FormatError(f"expected a version or a range such as '>=1.0.0,<2', found {text!r}")


def _names_prerelease(specifiers: SpecifierSet) -> bool:
    from packaging.version import InvalidVersion, Version

    def is_prerelease(text: str) -> bool:
        try:
            return Version(text.removesuffix(".*")).is_prerelease
        except InvalidVersion:
            return False

    return any(is_prerelease(specifier.version) for specifier in specifiers)


def parse_safe_path(text: str) -> PurePosixPath:
    """Read a relative POSIX path that stays inside its root and is safe on every system.

    Raises:
        FormatError: empty, absolute, with ``.``, ``..``, ``.git``, a backslash, a colon, a control
            character, or a part that ends in a dot or blank or is longer than 255 bytes.
    """
    fault = path_fault(text)
    if fault is not None:
        raise FormatError(f"unsafe path {text[:200]!r}: {fault}")
    return PurePosixPath(text)


def path_fault(text: str) -> str | None:
    """Say why a path is not safe (see :func:`parse_safe_path`), or None where it is."""
    if not text:
        return "it is empty"
    if text[0] == "/":
        return "it is absolute"
    if _UNSAFE.search(text) is not None:
        return "it holds a backslash, a colon or a control character"
    if len(text) > _PATH_LENGTH or (not text.isascii() and _is_longer(text, _PATH_LENGTH)):
        return f"it is longer than {_PATH_LENGTH} bytes"
    parts = text.split("/")
    if len(parts) > _DEEPEST:
        return f"it has more than {_DEEPEST} parts"
    return next((fault for part in parts if (fault := _part_fault(part)) is not None), None)


def _part_fault(part: str) -> str | None:
    if not part:
        return "it holds an empty part"
    if part[-1] in ". ":
        return f"the part {part!r} ends in a dot or blank"
    if part.lower() == ".git":
        return "it holds .git"
    if not part.isascii() and not _is_encodable(part):
        return "it holds a surrogate, which no encoding writes"
    if len(part) > _PART_LENGTH or _is_longer(part, _PART_LENGTH):
        return f"a part is longer than {_PART_LENGTH} bytes"
    return None


def _is_longer(text: str, size: int) -> bool:
    return len(text.encode(errors="surrogatepass")) > size


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ref_fault(name: str) -> str | None:
    """Say why a text cannot name a branch or tag (git-check-ref-format), or None where it can."""
    if not _is_encodable(name):
        return "it holds a surrogate, which no encoding writes"
    if not name or name == "@" or len(name.encode()) > _REF_LENGTH:
        return f"expected 1 to {_REF_LENGTH} bytes, and not @ alone"
    if _UNSAFE_IN_REF.search(name) is not None:
        return "it holds a blank, a control character, '..', '//', '@{' or one of ~^:?*[\\"
    for part in name.split("/"):
        if not part or part[0] == "." or part[-1] == "." or part.endswith(".lock"):
            return "a part is empty, begins or ends with '.' or ends in '.lock'"
    return None
