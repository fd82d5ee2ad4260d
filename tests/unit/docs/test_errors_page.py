"""Every error class has its row, no row is of a class that is gone, and no message talks anybody out of a check."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_spec.errors import KernelError

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "errors.md").read_text()
PACKAGES = ("kernels", "kernel_spec", "kernel_builder", "kernel_hub")
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \|(.*)\|$", re.MULTILINE)


def sections() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the rows of each package: when, and what to do, by class."""
    found = {}
    for part in PAGE.split("\n## ")[1:]:
        package = re.match(r".*\(`(\w+)`\)", part)
        assert package is not None
        found[package[1]] = {name: (when, do) for name, when, do in ROW.findall(part)}
    return found


def error_classes(package: str) -> set[str]:
    """Return the public error classes that a package defines."""
    root = importlib.import_module(package)
    names = set()
    for info in pkgutil.walk_packages(root.__path__, f"{package}."):
        if info.name.endswith("__main__") or ".templates" in info.name:
            continue
        for value in vars(importlib.import_module(info.name)).values():
            if inspect.isclass(value) and issubclass(value, KernelError):
                own = value.__module__.split(".")[0] == package
                names |= {value.__name__} if own and not value.__name__.startswith("_") else set()
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_class_has_a_row_that_says_when_and_what_to_do(package: str) -> None:
    rows = sections()[package]
    assert set(rows) == error_classes(package)
    for name, (when, do) in rows.items():
        assert when.strip(), name
        assert do.strip() or when.startswith("never by itself"), name


# Ways to say "without the check", in messages, help and pages.
FORBIDDEN = re.compile(
    r"""verify\s*=\s*False | --no-verify | --insecure | --no-check(?!out) | --skip-check | --trusted-host
      | CERT_NONE | PYTHONHTTPSVERIFY | CURL_SSL_NO_VERIFY | GIT_SSL_NO_VERIFY
      | (?:turn|switch)(?:ing|ed)?\s+(?:it\s+|them\s+)?off\s+(?:the\s+)?(?:check|verif|trust|sign)
      | (?:disabl|skip|bypass|suppress|ignor|circumvent)\w*\s+(?:the\s+|this\s+|all\s+|its\s+)?
        (?:check|verif|certificate|digest|hash|signature|trust|security|integrity|sandbox)
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A page may show that older code says so; no message may.
ARCHS = re.compile(r"check_arch=False")
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text literals of a module: messages, help, docstrings; those in pieces as a whole."""
    tree = ast.parse(path.read_text())
    within = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            within |= {id(part) for part in node.values}
            pieces = [p.value for p in node.values if isinstance(p, ast.Constant)]
            yield node.lineno, "…".join(map(str, pieces))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in within
        ):
            yield node.lineno, node.value


def test_no_message_advises_to_turn_a_check_off() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, text in texts(path)
        if (match := FORBIDDEN.search(text) or ARCHS.search(text)) is not None
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_advises_to_turn_a_check_off(page: Path) -> None:
    assert FORBIDDEN.findall(page.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "requests.get(url, verify=False)",
        "or disable the certificate check",
        "turn off the check of signatures",
        "skip verification with --no-verify",
        "pip install --trusted-host index",
    ],
)
def test_such_advice_would_be_found(text: str) -> None:
    assert FORBIDDEN.search(text) is not None
