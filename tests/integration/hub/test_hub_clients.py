"""The unmodified huggingface_hub, 2.4 and 1.10, reads a served directory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["reference", "hub_1_10"])
def client(request):
    return request.getfixturevalue(request.param)


def read_tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def test_snapshots_by_branch_tag_and_commit(client, served, toys, tmp_path, toy_version_files):
    revisions = {
        "v1": toy_version_files(1),
        "v2": toy_version_files(2),
        "v1.0.0": toy_version_files(1) | {"draft.txt": b"x"},
        toys.v2: toy_version_files(2),
        toys.first[:9]: toy_version_files(1) | {"draft.txt": b"x"},
        "feature/x": {"a/b.txt": b"slash"},
        "refs/heads/v1": toy_version_files(1),
    }
    download = f"""
from huggingface_hub import snapshot_download
result = [snapshot_download("acme/toy", repo_type="kernel", revision=revision)
          for revision in {list(revisions)!r}]
"""
    folders = client.python(served, tmp_path, download)
    for folder, files in zip(folders, revisions.values(), strict=True):
        assert read_tree(folder) == files
    assert Path(folders[0]).name == toys.v1
    # All of it again, from the client's cache alone.
    before = len(served.requests())
    assert client.python(served, tmp_path, download, offline=True) == folders
    assert len(served.requests()) == before


def test_every_question_of_the_api(client, served, toys, tmp_path):
    code = """
from huggingface_hub import HfApi
api, kernel = HfApi(), {"repo_type": "kernel"}
refs = api.list_repo_refs("acme/toy", **kernel)
tree = list(api.list_repo_tree("acme/toy", revision="v1", recursive=True, **kernel))
build = list(api.list_repo_tree("acme/toy", "build", revision="v1", expand=True, **kernel))
info = api.repo_info("acme/toy", **kernel)
paths = api.get_paths_info(
    "acme/toy", ["README.md", "build", "nothing"], revision="main", expand=True, **kernel)
result = {
    "branches": {ref.name: ref.target_commit for ref in refs.branches},
    "tags": {ref.ref: ref.target_commit for ref in refs.tags},
    "files": {entry.path: [entry.size, entry.lfs and entry.lfs.sha256]
              for entry in tree if hasattr(entry, "size")},
    "folders": [entry.path for entry in tree if not hasattr(entry, "size")],
    "build": {entry.path: entry.last_commit.oid for entry in build},
    "info": [info.id, info.sha],
    "commits": [[commit.commit_id, commit.title]
                for commit in api.list_repo_commits("acme/toy", revision="v1", **kernel)],
    "paths": [entry.path for entry in paths],
    "exists": [api.file_exists("acme/toy", "README.md", **kernel),
               api.file_exists("acme/toy", "nothing", **kernel),
               api.repo_exists("acme/toy", **kernel), api.repo_exists("acme/none", **kernel),
               api.revision_exists("acme/toy", "v2", **kernel),
               api.revision_exists("acme/toy", "v9", **kernel)],
    "trusted": [api.get_organization_overview(name).trustedKernelPublisher
                for name in ("acme", "stranger")],
}
"""
    found = client.python(served, tmp_path, code)
    assert found["branches"] == {
        "main": toys.main,
        "v1": toys.v1,
        "v2": toys.v2,
        "feature/x": toys.slash,
    }
    assert found["tags"] == {"refs/tags/v1.0.0": toys.first, "refs/tags/v1.0.1": toys.v1}
    assert found["files"]["build/torch-cpu/__init__.py"][1] is None
    size, sha256 = found["files"]["build/torch-cpu/data/table.bin"]
    assert (size, len(sha256)) == (2048, 64)
    assert "build/torch-cpu/data" in found["folders"]
    assert found["build"] == {"build/torch-cpu": toys.first, "build/torch-cuda": toys.first}
    assert found["info"] == ["acme/toy", toys.main]
    assert found["commits"] == [[toys.v1, "Delete 1 file"], [toys.first, "Add 6 files"]]
    assert found["paths"] == ["README.md"]
    assert found["exists"] == [True, False, True, False, True, False]
    assert found["trusted"] == [True, False]


def test_what_is_missing_has_its_own_exception(client, served, tmp_path):
    code = """
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
api, kernel = HfApi(), {"repo_type": "kernel"}
calls = {
    "file": lambda: hf_hub_download("acme/toy", "nothing.py", revision="v1", **kernel),
    "repo": lambda: hf_hub_download("acme/none", "README.md", **kernel),
    "revision": lambda: hf_hub_download("acme/toy", "README.md", revision="v9", **kernel),
    "snapshot": lambda: snapshot_download("acme/none", **kernel),
    "folder": lambda: list(api.list_repo_tree("acme/toy", "nothing", **kernel)),
    "refs": lambda: api.list_repo_refs("acme/none", **kernel),
    "whoami": lambda: api.whoami(token="hf_x"),
    "create": lambda: api.create_repo("acme/new", token="hf_x", **kernel),
    "model": lambda: api.model_info("acme/none"),
}
result = {}
for name, call in calls.items():
    try:
        call()
        result[name] = []
    except Exception as error:
        result[name] = [[kind.__name__ for kind in type(error).__mro__], str(error)]
"""
    found = client.python(served, tmp_path, code)
    expected = {
        "file": "EntryNotFoundError",
        "repo": "RepositoryNotFoundError",
        "revision": "RevisionNotFoundError",
        "snapshot": "RepositoryNotFoundError",
        "folder": "EntryNotFoundError",
        "refs": "RepositoryNotFoundError",
        "whoami": "HfHubHTTPError",
        "create": "HfHubHTTPError",
        "model": "RepositoryNotFoundError",
    }
    for name, kind in expected.items():
        assert kind in found[name][0], (name, found[name])
    assert "This hub is read-only" in found["create"][1]
    # A missing file is remembered as missing at that commit.
    assert list(tmp_path.glob("hf/hub/kernels--acme--toy/.no_exist/*/nothing.py"))


def test_versions_do_not_poison_each_other(client, served, tmp_path):
    """The two versions have the same paths; each must keep its own bytes in one cache."""
    code = """
import pathlib
from huggingface_hub import hf_hub_download
names = ["build/torch-cpu/__init__.py", "build/torch-cpu/data/table.bin"]
result = [[pathlib.Path(hf_hub_download("acme/toy", name, revision=revision,
                                        repo_type="kernel")).resolve().name for name in names]
          for revision in ("v1", "v2", "v1")]
"""
    one, two, again = client.python(served, tmp_path, code)
    assert one == again
    assert not set(one) & set(two)
    assert [len(name) for name in one] == [40, 64]


def test_uploads_are_refused_with_the_reason(reference, served, tmp_path):
    (tmp_path / "x.txt").write_bytes(b"x")
    words = ["acme/toy", "x.txt", "--repo-type", "kernel", "--token", "hf_x"]
    done = reference.run(served, tmp_path, "hf", "upload", *words, check=False)
    assert done.returncode != 0
    assert "This hub is read-only" in done.stdout + done.stderr


def test_checksums_that_the_client_verifies(reference, served, tmp_path):
    done = reference.run(
        served, tmp_path, "hf", "download", "acme/toy", "--repo-type", "kernel", "--revision", "v1"
    )
    assert "snapshots" in done.stdout
    code = """
from huggingface_hub import HfApi
found = HfApi().verify_repo_checksums("acme/toy", repo_type="kernel", revision="v1")
result = [len(found.mismatches), len(found.missing_paths), found.checked_count]
"""
    assert reference.python(served, tmp_path, code) == [0, 0, 5]


def test_requests_of_a_snapshot(reference, served, toys, tmp_path):
    before = len(served.requests())
    code = f"""
from huggingface_hub import snapshot_download
result = snapshot_download("acme/toy", repo_type="kernel", revision={toys.v1!r})
"""
    reference.python(served, tmp_path, code)
    made = served.requests()[before:]
    assert {request.status for request in made} <= {200, 404}
    assert sum(request.method == "HEAD" for request in made) == 5
    assert sum("/tree/" in request.path for request in made) == 1
    total = sum(r.bytes for r in made if r.method == "GET" and "/resolve/" in r.path)
    folder = Path(tmp_path / "hf/hub/kernels--acme--toy/snapshots" / toys.v1)
    assert total == sum(len(data) for data in read_tree(folder).values())


def test_kernels_are_listed_page_by_page(client, served, toys, tmp_path):
    """No client lists kernels yet, so they are listed as models, which is what it knows."""
    code = """
from huggingface_hub import HfApi
from huggingface_hub.utils import paginate
api = HfApi()
url = f"{api.endpoint}/api/kernels"
result = {
    "all": [info.id for info in api.list_models()],
    "author": [[info.id, info.sha, info.author] for info in api.list_models(author="acme")],
    "search": [info.id for info in api.list_models(search="STRANGER", limit=5)],
    "pages": [entry["id"] for entry in paginate(url, params={"limit": 1}, headers={})],
    "none": [info.id for info in api.list_models(author="nobody")],
}
"""
    assert client.python(served, tmp_path, code) == {
        "all": ["acme/toy", "stranger/toy"],
        "author": [["acme/toy", toys.main, "acme"]],
        "search": ["stranger/toy"],
        "pages": ["acme/toy", "stranger/toy"],
        "none": [],
    }


def test_an_ambiguous_short_hash_is_called_that(client, served, toys, tmp_path):
    twin = toys.root / "acme/toy/trees" / f"{toys.v2[:7]}{'0' * 33}.json"
    twin.write_text("{}")
    code = f"""
from huggingface_hub import HfApi
from huggingface_hub.errors import RevisionNotFoundError
try:
    HfApi().repo_info("acme/toy", revision="{toys.v2[:7]}", repo_type="kernel")
except RevisionNotFoundError as error:
    result = str(error)
"""
    try:
        said = client.python(served, tmp_path, code)
    finally:
        twin.unlink()
    assert f"{toys.v2[:7]} is ambiguous: 2 commits of acme/toy begin so" in said
    assert toys.v2 in said
