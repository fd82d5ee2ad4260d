"""Tiny kernels made on the fly, a directory hub to publish them to, and an empty environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import httpx2
import pytest

import kernels.load
from kernel_spec import directory, publishing
from kernel_spec.backend import BackendKind
from kernel_spec.digest import digest_tree
from kernel_spec.directory import DirectoryHub
from kernel_spec.metadata import FILE_NAME, KernelDependency, Metadata, format_metadata
from kernel_spec.names import RepoId, module_name
from kernel_spec.provenance import Provenance
from kernel_spec.wire import (
    Organization,
    TreeFile,
    format_organization,
    format_refs,
    format_tree_file,
)
from kernels.settings import VARIABLES

INIT = "VALUE = 1\n\n\ndef double(x):\n    return 2 * x\n"


def write_variant(
    place: Path,
    files: Mapping[str, str | bytes] | None = None,
    *,
    name: str = "toy",
    op_id: str | None = None,
    backend: BackendKind = BackendKind.CPU,
    archs: tuple[str, ...] = (),
    minver: tuple[int, int, int] | None = None,
    needs: tuple[KernelDependency, ...] = (),
    packages: tuple[str, ...] = (),
    provenance: Provenance | None = None,
    digest: bool = True,
    algorithm: str = "sha256",
    upstream: str | None = None,
    source: str | None = None,
) -> Path:
    """Write a variant directory with a digest in its metadata."""
    for path, content in (files or {"__init__.py": INIT}).items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    metadata = Metadata(
        name=name,
        id=op_id or f"_{module_name(name)}_{backend}_0123456789ab",
        version=1,
        license="Apache-2.0",
        backend=backend,
        archs=archs,
        minver=minver,
        kernel_depends=needs,
        python_depends=packages,
        provenance=provenance,
        digest=digest_tree(place, algorithm) if digest else None,
        upstream=upstream,
        source=source,
    )
    (place / FILE_NAME).write_bytes(format_metadata(metadata))
    return place


@dataclass
class Publisher:
    """A directory hub and a place for the projects that are published to it."""

    hub: DirectoryHub
    projects: Path

    @property
    def url(self) -> str:
        return f"file://{self.hub.root}"

    def publish(
        self,
        repo: str = "acme/toy",
        *,
        branch: str = "v1",
        variants: Mapping[str, Mapping[str, str | bytes]] | None = None,
        tags: tuple[str, ...] = (),
        extra: Mapping[str, str] | None = None,
        **metadata: object,
    ) -> str:
        """Publish variants to a branch, and ``extra`` files beside build; return the commit."""
        owner, name = repo.split("/")
        project = self.projects / f"{name}-{len(list(self.projects.iterdir()))}"
        for variant, files in (
            {"torch-cpu": {"__init__.py": INIT}} if variants is None else variants
        ).items():
            write_variant(project / "build" / variant, files, **{"name": name, **metadata})  # type: ignore[arg-type]
        for path, text in (extra or {}).items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        paths = [path for path in project.rglob("*") if path.is_file()]
        files = {path.relative_to(project).as_posix(): path for path in paths}
        refs = (
            {
                ref.name: ref.commit
                for ref in directory.read_refs(self.hub, RepoId(owner, name)).branches
            }
            if directory.has_repository(self.hub, RepoId(owner, name))
            else {}
        )
        return publishing.publish(
            self.hub, RepoId(owner, name), files, branch=branch, parent=refs.get(branch), tags=tags
        )


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test its own cache, home and empty settings."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELS_HUB", f"file://{tmp_path / 'nowhere'}")
    kernels.load.forget()
    yield tmp_path
    kernels.load.forget()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store-v1"


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publisher:
    """Return a directory hub that the settings name."""
    root = tmp_path / "hub"
    projects = tmp_path / "projects"
    root.mkdir()
    projects.mkdir()
    monkeypatch.setenv("KERNELS_HUB", f"file://{root}")
    return Publisher(DirectoryHub(root), projects)


@pytest.fixture
def make_variant() -> Callable[..., Path]:
    return write_variant


def fill_snapshot(cache: Path, variant: Path, commit: str) -> Path:
    """Lay out a variant as huggingface_hub does; large files go by sha256, others by git blob id."""
    repo = cache / "kernels--acme--toy"
    place = repo / "snapshots" / commit / "build" / "torch-cpu"
    place.mkdir(parents=True)
    (repo / "blobs").mkdir(exist_ok=True)
    for path in variant.iterdir():
        data = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        name = hashlib.sha256(data).hexdigest() if path.suffix == ".bin" else blob
        (repo / "blobs" / name).write_bytes(data)
        (place / path.name).symlink_to(f"../../../../blobs/{name}")
    return repo


@pytest.fixture
def make_snapshot() -> Callable[[Path, Path, str], Path]:
    return fill_snapshot


class FakeWebHub:
    """A hub behind ``huggingface_hub``'s own session: the real client, answers from memory.

    ``requests`` lists the method and path of every request; ``fault`` may answer in its place.
    """

    URL = "http://hub.test"

    def __init__(self, hub: DirectoryHub) -> None:
        self.hub = hub
        self.requests: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.trusted: set[str] = set()
        self.fault: Callable[[str], tuple[int, dict[str, str], bytes] | Exception | None] = (
            lambda path: None
        )

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.raw_path.decode()
        self.requests.append(f"{request.method} {path}")
        self.headers.append(dict(request.headers))
        match self.fault(path):
            case Exception() as err:
                raise err
            case (status, headers, body):
                return httpx2.Response(status, headers=headers, content=body)
        status, headers, body = self._answer(unquote(path.partition("?")[0]))
        return httpx2.Response(status, headers=headers, content=body)

    def _answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        match path.strip("/").split("/"):
            case ["api", "organizations", owner, "overview"]:
                if not (self.hub.root / owner).is_dir():
                    return 404, {}, b"{}"
                organization = Organization(owner, owner, owner in self.trusted)
                return _json(format_organization(organization))
            case ["api", "kernels", owner, name, "refs"]:
                repo = RepoId(owner, name)
                if not directory.has_repository(self.hub, repo):
                    return 404, {"x-error-code": "RepoNotFound"}, b"{}"
                return _json(format_refs(directory.read_refs(self.hub, repo)))
            case ["api", "kernels", owner, name, "tree", commit, *below]:
                try:
                    listing = directory.read_listing(self.hub, RepoId(owner, name), commit)
                except FileNotFoundError:
                    return 404, {"x-error-code": "RevisionNotFound"}, b"{}"
                prefix = "/".join([*below, ""])
                files = [
                    self._on_git(file) for file in listing.files if file.path.startswith(prefix)
                ]
                return _json([format_tree_file(file) for file in files])
            case ["kernels", owner, name, "resolve", commit, *rest]:
                path = "/".join(rest)
                return (
                    200,
                    {},
                    directory.file_path(self.hub, RepoId(owner, name), commit, path).read_bytes(),
                )
        return 404, {"x-error-code": "EntryNotFound"}, b"{}"

    @staticmethod
    def _on_git(file: TreeFile) -> TreeFile:
        """Forget the sha256 of text files, as a hub does that keeps them in git."""
        return file._replace(sha256=None) if file.path.endswith((".py", ".json")) else file


def _json(answer: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"content-type": "application/json"}, json.dumps(answer).encode()


@pytest.fixture
def web(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> FakeWebHub:
    """Put the directory hub of ``publisher`` behind http; its owner acme is trusted."""
    hub = FakeWebHub(publisher.hub)
    hub.trusted.add("acme")
    client = httpx2.Client(transport=httpx2.MockTransport(hub))
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: client)
    monkeypatch.setattr("kernels.hub_http.time.sleep", lambda seconds: None)
    monkeypatch.setenv("KERNELS_HUB", hub.URL)
    return hub
