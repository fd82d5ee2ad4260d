"""A store in memory and a client that sends exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from kernel_hub.app import create_app
from kernel_hub.auth import add_token
from kernel_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from kernel_hub.settings import HubSettings
from kernel_spec.blob import blob_id
from kernel_spec.directory import DirectoryHub, Listing, file_path, read_listing, read_refs
from kernel_spec.names import RepoId
from kernel_spec.wire import Ref, Refs, TreeFile

EPOCH = datetime(2026, 1, 31, 12, tzinfo=UTC)


class MemoryStore:
    """The second implementation of ``Store``: everything in dictionaries."""

    def __init__(self):
        self.branches = {}
        self.tags = {}
        self.commits = {}
        self.listings_read = 0

    def commit(self, repo, branch, files, *, tags=(), parent="branch"):
        """Commit ``{path: bytes}`` to a branch and return the commit's id."""
        branches = self.branches.setdefault(repo, {})
        parent = branches.get(branch) if parent == "branch" else parent
        listing = Listing(
            parent,
            tuple(
                TreeFile(
                    path=path,
                    size=len(data),
                    oid=blob_id(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                    executable=path.endswith(".sh"),
                )
                for path, data in sorted(files.items())
            ),
        )
        commit = hashlib.sha1(repr(listing).encode()).hexdigest()
        time = EPOCH + timedelta(hours=len(self.commits))
        self.commits[repo, commit] = (listing, dict(files), time)
        branches[branch] = commit
        self.tags.setdefault(repo, {}).update(dict.fromkeys(tags, commit))
        return commit

    def has_owner(self, owner):
        return any(repo.owner == owner for repo in self.branches)

    def list_repositories(self, owner):
        return sorted(repo for repo in self.branches if owner in (None, repo.owner))

    def read_refs(self, repo):
        if repo not in self.branches:
            raise RepositoryNotFoundError(f"no {repo}")
        return Refs(
            tuple(Ref(*item) for item in sorted(self.branches[repo].items())),
            tuple(Ref(*item) for item in sorted(self.tags[repo].items())),
        )

    def find_proposal(self, repo, ref):
        return None

    def find_commits(self, repo, prefix):
        return [c for r, c in self.commits if r == repo and c.startswith(prefix)]

    def _get(self, repo, commit):
        if (repo, commit) not in self.commits:
            raise RevisionNotFoundError(repo, commit)
        return self.commits[repo, commit]

    def read_listing(self, repo, commit):
        self.listings_read += 1
        return self._get(repo, commit)[0]

    def commit_time(self, repo, commit):
        return self._get(repo, commit)[2]

    def get_content(self, repo, commit, file):
        return self._get(repo, commit)[1][file.path]


@dataclass
class Answer:
    status: int = 0
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    pathsend: str | None = None

    def json(self):
        return json.loads(self.body)


def call(
    app,
    method,
    target,
    *,
    headers=None,
    body=b"",
    chunks=None,
    pathsend=False,
    leaves=False,
    stalls=False,
):
    """Send one request to an ASGI application; ``target`` is the raw path and query.

    A client that ``leaves`` does so before the end of its body; one that ``stalls`` sends no more.
    """
    raw = target if isinstance(target, bytes) else target.encode("latin-1")
    raw_path, _, query = raw.partition(b"?")
    answer = Answer()
    parts = list(chunks) if chunks is not None else [body]

    async def receive():
        if not parts and stalls:
            await asyncio.sleep(60)
        if not parts:
            return {"type": "http.disconnect"}
        more = bool(parts[1:]) or leaves or stalls
        return {"type": "http.request", "body": parts.pop(0), "more_body": more}

    async def send(message):
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        elif message["type"] == "http.response.pathsend":
            answer.pathsend = message["path"]
            answer.body += Path(message["path"]).read_bytes()
        else:
            answer.body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw_path.decode("latin-1"),
        "raw_path": raw_path,
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", b"hub.test:8600")]
        + [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8600),
        "extensions": {"http.response.pathsend": {}} if pathsend else {},
    }
    asyncio.run(app(scope, receive, send))
    return answer


DESK_REPO = RepoId("acme", "toy")
DESK_API = "/api/kernels/acme/toy"
DESK_OBJECTS = "/kernels/acme/toy.git/info/lfs/objects"


class Desk:
    """A hub on disk that the holder of a token writes to."""

    def __init__(self, tmp_path, call_app):
        self.root = tmp_path / "root"
        self.root.mkdir()
        self.tokens = tmp_path / "tokens.toml"
        self.secret = add_token(self.tokens, name="ci", owners=["acme"])
        self.hub = DirectoryHub(self.root)
        self.call_app = call_app
        self.restart()

    def restart(self, **settings):
        self.app = create_app(HubSettings(root=self.root, tokens=self.tokens, **settings))

    def ask(self, method, target, body=b"", *, secret="own", **rest):
        secret = self.secret if secret == "own" else secret
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call_app(self.app, method, target, headers=headers, body=body, **rest)

    def create(self, **more):
        table = {"type": "kernel", "organization": "acme", "name": "toy", **more}
        return self.ask("POST", "/api/repos/create", table)

    def commit(self, *lines, branch="main", parent=None, header=True, query="", **rest):
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if header:
            value = {"summary": "m", "description": ""} | (
                {"parentCommit": parent} if parent else {}
            )
            body = json.dumps({"key": "header", "value": value}).encode() + b"\n" + body
        return self.ask("POST", f"{DESK_API}/commit/{branch}{query}", body, **rest)

    def head(self, branch="main"):
        return {ref.name: ref.commit for ref in read_refs(self.hub, DESK_REPO).branches}[branch]

    def files(self, branch="main"):
        commit = self.head(branch)
        return {
            file.path: file_path(self.hub, DESK_REPO, commit, file.path).read_bytes()
            for file in read_listing(self.hub, DESK_REPO, commit).files
        }

    def batch(self, *objects, **more):
        table = {"operation": "upload", "objects": list(objects), "hash_algo": "sha256", **more}
        return self.ask("POST", f"{DESK_OBJECTS}/batch", table)

    def href(self, data):
        answer = self.batch({"oid": hashlib.sha256(data).hexdigest(), "size": len(data)})
        return urlsplit(answer.json()["objects"][0]["actions"]["upload"]["href"])

    def put(self, data, **rest):
        href = self.href(data)
        return self.ask("PUT", f"{href.path}?{href.query}", data, secret=None, **rest)

    def waiting(self):
        return sorted(path.name for path in (self.root / "acme/toy/.uploads").glob("*"))


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path, call)


V1 = {
    "build/torch-cpu/__init__.py": b"VERSION = 1\n",
    "build/torch-cpu/metadata.json": b'{"version": 1}',
    "build/torch210-cu128-x86_64-linux/toy.abi3.so": b"\x7fELF one",
    "build/torch210-cu128-x86_64-linux/__init__.py": b"VERSION = 1\n",
    "run.sh": b"echo\n",
}
V2 = {path: data.replace(b"1", b"2").replace(b"one", b"two!") for path, data in V1.items()}
CARD = {"README.md": "# Toy Käse\n".encode()}


@pytest.fixture
def toy():
    """A hub with one repository: main, v1, v2 with the same paths, a branch with a slash."""
    store, repo = MemoryStore(), RepoId("acme", "toy")
    main = store.commit(repo, "main", CARD)
    v1 = store.commit(repo, "v1", V1, tags=["v1.0.0"])
    v2 = store.commit(repo, "v2", V2)
    slash = store.commit(repo, "feature/x", CARD | {"build/a": b"a"})
    app = create_app(HubSettings(root=Path("unused"), trusted_owners=frozenset({"acme"})), store)

    def ask(method, target, **rest):
        return call(app, method, target, **rest)

    return SimpleNamespace(
        store=store, repo=repo, app=app, ask=ask, main=main, v1=v1, v2=v2, slash=slash
    )


@pytest.fixture
def v1_files():
    return V1


@pytest.fixture
def call_app():
    return call


@pytest.fixture
def memory_store():
    return MemoryStore
