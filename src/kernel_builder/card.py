"""The card of a kernel: ``CARD.md`` of the project, filled in, is ``README.md`` on the hub."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Build
from kernel_builder.config.read import read_build
from kernel_builder.errors import ProjectError, UploadError
from kernel_spec.names import RepoId, parse_repo_id

FILE_NAME = "CARD.md"

_FRONT_MATTER = re.compile(r"\ufeff?---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
_LICENCE = re.compile(r"""^license:[ \t]*["']?([^"'\r\n#]*[^"'\s#])""", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """What a kernel offers to Python.

    Attributes:
        functions: the names in the module's ``__all__``, without ``layers``.
        layers: the classes of ``layers.py``, where ``__all__`` names ``layers``.
    """

    functions: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


def read_interface(project: Path, build: Build) -> Interface:
    """Read what a kernel offers from the text of its module; nothing is imported."""
    module = project / build.extension / build.general.module
    names = _public_names(module / "__init__.py")
    layers: tuple[str, ...] = ()
    if "layers" in names:
        layers = _classes(module / "layers.py") or _classes(module / "layers" / "__init__.py")
    return Interface(functions=tuple(name for name in names if name != "layers"), layers=layers)


def render_card(
    project: Path, build: Build, repo: RepoId, *, variants: Iterable[str] = ()
) -> str | None:
    """Fill in the card of a project; None where it has no ``CARD.md``.

    The template is jinja2 and knows: ``repo_id``, ``name``, ``version``, ``license``,
    ``functions``, ``layers``, ``variants``, ``backends``, ``has_benchmark``, ``upstream``,
    ``source``.

    Raises:
        UploadError: the template cannot be filled in, with its line; or it states another licence
            than ``build.toml``.
    """
    place = project / FILE_NAME
    if not place.is_file():
        return None
    text = _fill_in(place, project, build, repo, variants)
    _refuse_other_licence(place, text, build)
    return text


def fill_card(project: Path, *, repo_id: str | None = None) -> str:
    """Fill in the card of a project for the variants in its ``build/``.

    Args:
        project: its directory.
        repo_id: where it will be published; None: what ``build.toml`` says.

    Raises:
        ConfigError: with every fault of ``build.toml``.
        FormatError: ``repo_id`` is none.
        ProjectError: there is no card, or nothing says where it will be published.
        UploadError: as :func:`render_card`.
    """
    build = read_build(project)
    repo = build.general.repo_id if repo_id is None else parse_repo_id(repo_id)
    if repo is None:
        raise ProjectError(
            f"{project}: nothing says where it will be published; write repo-id under "
            "[general.hub] of build.toml, or give --repo-id OWNER/NAME"
        )
    built = (path.parent.name for path in (project / "build").glob("*/metadata.json"))
    text = render_card(project, build, repo, variants=built)
    if text is None:
        raise ProjectError(f"{project}: no {FILE_NAME} here; kernel-builder init writes one")
    return text


def _refuse_other_licence(place: Path, text: str, build: Build) -> None:
    """Refuse a card whose front matter states another licence than ``build.toml``."""
    head = _FRONT_MATTER.match(text)
    stated = _LICENCE.search(head[1]) if head else None
    meant = build.general.license
    # "other" is the hub's word for a licence that it has no name for.
    if stated is None or meant is None or stated[1].lower() in (meant.lower(), "other"):
        return
    raise UploadError(
        f'{place}: its front matter says "license: {stated[1]}", build.toml says "{meant}"; '
        "expected the same: write license: {{ license }}, or correct one of them"
    )


def _fill_in(
    place: Path, project: Path, build: Build, repo: RepoId, variants: Iterable[str]
) -> str:
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    interface = read_interface(project, build)
    general = build.general
    environment = SandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    try:
        text: str = environment.from_string(place.read_text("utf-8")).render(
            repo_id=str(repo),
            name=general.name,
            version=general.version,
            # Front matter of hubs has licences in small letters.
            license=(general.license or "unknown").lower(),
            functions=list(interface.functions),
            layers=list(interface.layers),
            variants=sorted(variants),
            backends=[kind.value for kind in general.backends],
            has_benchmark=any((project / "benchmarks").glob("benchmark*.py")),
            upstream=general.upstream,
            source=general.source,
        )
    except jinja2.TemplateSyntaxError as err:
        raise UploadError(f"{place}:{err.lineno}: {err.message}") from err
    except (jinja2.TemplateError, UnicodeDecodeError) as err:
        raise UploadError(f"{place}: cannot be filled in: {err}") from err
    return text


def _tree(place: Path) -> ast.Module | None:
    try:
        return ast.parse(place.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _public_names(place: Path) -> tuple[str, ...]:
    """Return the text literals of a top-level ``__all__ = [...]``."""
    tree = _tree(place)
    for node in reversed(tree.body if tree else []):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=value)
            ) if isinstance(value, ast.List | ast.Tuple):
                return tuple(
                    each.value
                    for each in value.elts
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )
    return ()


def _classes(place: Path) -> tuple[str, ...]:
    """Return the public classes that a file defines, in its order."""
    tree = _tree(place)
    return tuple(
        node.name
        for node in (tree.body if tree else [])
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
