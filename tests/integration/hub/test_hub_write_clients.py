"""The unmodified huggingface_hub, 2.4 and 1.10, writes to a served directory.

1.10 cannot commit to repositories of kernels at all, so it takes them for models. Budget: 60 s.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PREPARE = """
from concurrent.futures import ThreadPoolExecutor
from huggingface_hub import (
    CommitOperationAdd as Add, CommitOperationCopy as Copy, CommitOperationDelete as Delete, HfApi,
    snapshot_download)
api, kind, repo = HfApi(), {"repo_type": KIND}, "acme/toy"
def fault(call):
    try:
        call()
    except Exception as error:
        return [[each.__name__ for each in type(error).__mro__],
                getattr(getattr(error, "response", None), "status_code", None), str(error)]
def commit(*operations, **more):
    return api.create_commit(repo, list(operations), commit_message="m", **kind, **more).oid
"""


@pytest.fixture(params=["reference", "hub_1_10"])
def write(request, writable):
    """Run a script with either client against the writable hub; what it calls ``result`` comes back."""
    client = request.getfixturevalue(request.param)
    kind = '"kernel"' if request.param == "reference" else "None"

    def run(code, environ=None):
        script = PREPARE.replace("KIND", kind) + code
        return client.python(
            writable.hub, writable.home, script, environ=environ or writable.environ
        )

    return run


@pytest.fixture
def folder(writable):
    files = {
        "README.md": b"# Toy\n",
        "build/torch-cpu/__init__.py": b"VERSION = 1\n",
        "build/torch-cpu/empty.py": b"",
        "build/torch-cpu/small.so": b"\x7fELF" + b"1" * 3_000_000,
        "build/torch-cpu/big.so": b"\x7fELF" + b"2" * 12_000_000,
        "odd \u00fc#%?&+ (1).txt": b"odd",
    }
    for path, data in files.items():
        place = writable.home / "source" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return files


def test_a_folder_its_tag_and_the_same_again(write, writable, folder):
    code = """
url = api.create_repo(repo, **kind)
api.create_repo(repo, exist_ok=True, **kind)
api.create_branch(repo, branch="v1", **kind)
api.create_branch(repo, branch="v1", exist_ok=True, **kind)
first = api.upload_folder(repo_id=repo, folder_path="source", revision="v1", **kind).oid
again = api.upload_folder(repo_id=repo, folder_path="source", revision="v1", **kind).oid
api.create_tag(repo, tag="v1.0.0", revision="v1", **kind)
result = [str(url), first, again,
          {ref.name: ref.target_commit for ref in api.list_repo_refs(repo, **kind).tags},
          fault(lambda: api.create_repo(repo, **kind)),
          fault(lambda: api.create_branch(repo, branch="v1", **kind)),
          fault(lambda: api.create_tag(repo, tag="v1.0.0", revision="v1", **kind)),
          snapshot_download(repo, revision="v1.0.0", **kind)]
"""
    url, first, again, tags, *faults, place = write(code)
    assert url.startswith(writable.hub.url)
    assert first == again == tags["v1.0.0"]
    assert [status for _, status, _ in faults] == [409] * 3
    assert writable.whole() == {"main": {}, "v1": folder}
    for path, data in folder.items():
        assert (writable.home / place / path).read_bytes() == data
    assert writable.waiting() == []


def test_add_copy_and_delete_in_one_commit(write, writable):
    code = """
api.create_repo(repo, **kind)
big = b"b" * 11_000_000
first = commit(Add("a.txt", b"a"), Add("build/x/b.py", b"b"), Add("big.bin", big))
second = commit(Add("new.txt", b"n"), Delete("build/", is_folder=True), Copy("a.txt", "copy.txt"),
                Copy("big.bin", "copy.bin"), Delete("a.txt"), parent_commit=first)
third = commit(Delete("big.bin"))
api.create_branch(repo, branch="feature/x", revision=second, **kind)
commit(Add("only.txt", b"here"), revision="feature/x")
api.create_branch(repo, branch="gone", **kind)
api.delete_branch(repo, branch="gone", **kind)
api.create_tag(repo, tag="gone", **kind)
api.delete_tag(repo, tag="gone", **kind)
result = [ref.name for ref in api.list_repo_refs(repo, **kind).tags]
"""
    assert write(code) == []
    big = b"b" * 11_000_000
    after = {"new.txt": b"n", "copy.txt": b"a", "copy.bin": big}
    assert writable.whole() == {
        "main": after,
        "feature/x": {**after, "big.bin": big, "only.txt": b"here"},
    }


def test_what_goes_wrong_has_its_status_and_its_reason(write, writable):
    code = """
api.create_repo(repo, **kind)
first = commit(Add("a.txt", b"a"))
second = commit(Add("a.txt", b"b"), parent_commit=first)
other = HfApi(token="khub_unknown")
result = {
    "stale": fault(lambda: commit(Add("a.txt", b"c"), parent_commit=first)),
    "delete": fault(lambda: commit(Delete("none.txt"))),
    "branch": fault(lambda: commit(Add("x", b"x"), revision="none")),
    "owner": fault(lambda: api.create_repo("other/toy", **kind)),
    "token": fault(lambda: other.create_repo("acme/new", **kind)),
    "private": fault(lambda: api.create_repo("acme/new", private=True, **kind)),
    "repo": fault(lambda: api.create_commit("acme/none", [Add("x", b"x")], commit_message="m", **kind)),
    "case": fault(lambda: commit(Add("A.TXT", b"x"))),
    "main": fault(lambda: api.delete_branch(repo, branch="main", **kind)),
}
"""
    found = write(code)
    assert {name: status for name, (_, status, _) in found.items()} == {
        "stale": 412,
        "delete": 404,
        "branch": 404,
        "owner": 403,
        "token": 401,
        "private": 400,
        "repo": 404,
        "case": 400,
        "main": 400,
    }
    kinds = {name: kinds for name, (kinds, _, _) in found.items()}
    assert "EntryNotFoundError" in kinds["delete"]
    assert "RevisionNotFoundError" in kinds["branch"]
    assert "RepositoryNotFoundError" in kinds["repo"]
    assert "somebody else has published" in found["stale"][2]
    assert "differentiate file and folder paths" in found["delete"][2], "the client explains"
    assert "differ in case only" in found["case"][2]
    assert writable.whole() == {"main": {"a.txt": b"b"}}
    assert writable.token not in writable.hub.log.read_text()


def test_a_pull_request_is_made_looked_at_and_taken_over(write, writable):
    """What is said about pull requests the client only asks of models, and the hub answers for kernels."""
    code = """
api.create_repo(repo, **kind)
first = commit(Add("README.md", b"# one"), Add("build/x/a.py", b"a"))
api.create_branch(repo, branch="v1", **kind)
guest = HfApi(token="GUEST")
def ask(*operations, **more):
    return guest.create_commit(
        repo, list(operations), commit_message="Add b", create_pr=True, **kind, **more)
big = b"b" * 11_000_000
asked = ask(Add("b.bin", big), Add("b.py", b"b"), revision="v1", parent_commit=first)
forbidden = fault(lambda: guest.create_commit(
    repo, [Add("c.py", b"c")], commit_message="c", **kind))
cannot = fault(lambda: guest.merge_pull_request(repo, asked.pr_num))
prs = api.list_repo_refs(repo, include_pull_requests=True, **kind).pull_requests
read = [entry.path for entry in api.list_repo_tree(repo, revision=asked.pr_revision, **kind)]
told = api.get_discussion_details(repo, asked.pr_num)
before = {ref.name: ref.target_commit for ref in api.list_repo_refs(repo, **kind).branches}
api.merge_pull_request(repo, asked.pr_num, comment="thanks")
after = {ref.name: ref.target_commit for ref in api.list_repo_refs(repo, **kind).branches}
folder = guest.upload_folder(repo_id=repo, folder_path="source", create_pr=True, **kind)
closed = api.change_discussion_status(repo, folder.pr_num, "closed").new_status
result = {
    "asked": [asked.pr_num, asked.pr_revision, asked.pr_url],
    "prs": [[ref.ref, ref.target_commit == asked.oid] for ref in prs],
    "read": read,
    "told": [told.status, told.author, told.title, told.target_branch, told.git_reference],
    "moved": [before == {"main": first, "v1": first}, after == {"main": first, "v1": asked.oid}],
    "refused": [forbidden[1], cannot[1]],
    "folder": [folder.pr_num, closed],
    "listed": [[each.num, each.status] for each in api.get_repo_discussions(repo)],
}
"""
    words = [sys.executable, "-m", "kernel_hub", "add-token", str(writable.tokens), "guest"]
    words += ["--owner", "acme", "--propose", "--days", "2"]
    guest = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    source = writable.home / "source"
    source.mkdir()
    (source / "c.py").write_text("c")
    found = write(code.replace("GUEST", guest))
    [number, revision, url] = found["asked"]
    assert (number, revision) == (1, "refs/pr/1")
    assert url == f"{writable.hub.url}/kernels/acme/toy/discussions/1"
    assert found["prs"] == [["refs/pr/1", True]]
    assert set(found["read"]) == {"README.md", "b.bin", "b.py", "build"}
    assert found["told"] == ["open", "guest", "Add b", "v1", "refs/pr/1"]
    assert found["moved"] == [True, True]
    assert found["refused"] == [403, 403]
    assert found["folder"] == [2, "closed"]
    assert found["listed"] == [[2, "closed"], [1, "merged"]]
    whole = writable.whole()
    assert whole["v1"] == whole["main"] | {"b.bin": b"b" * 11_000_000, "b.py": b"b"}
    assert writable.waiting() == []


def test_of_many_commits_on_one_parent_one_wins(write, writable):
    code = """
api.create_repo(repo, **kind)
first = commit(Add("a.txt", b"a"))
with ThreadPoolExecutor(8) as pool:
    same = list(pool.map(lambda n: fault(lambda: commit(
        Add(f"f{n}.txt", b"x"), parent_commit=first)), range(8)))
    free = list(pool.map(lambda n: fault(lambda: commit(Add(f"g{n}.txt", b"x"))), range(8)))
result = [[each and each[1] for each in same], free]
"""
    same, free = write(code)
    assert sorted(same, key=str) == [412] * 7 + [None]
    assert free == [None] * 8
    names = writable.whole()["main"].keys()
    assert {f"g{n}.txt" for n in range(8)} <= names
    assert sum(name.startswith("f") for name in names) == 1


def test_with_xet_installed_kernels_up_to_10_mib_need_no_switch(reference, writable, folder):
    """hf-xet comes with the client and is used by default; this hub has no Xet."""
    words = ["hf", "upload", "acme/toy", "source", "--repo-type", "kernel"]
    environ = {"HF_TOKEN": writable.token}
    refused = reference.run(writable.hub, writable.home, *words, environ=environ, check=False)
    assert refused.returncode != 0
    assert "HF_HUB_DISABLE_XET=1" in refused.stderr, "it is said what to do for larger ones"
    assert writable.whole() == {"main": {}}
    words += ["--exclude", "*/big.so"]
    reference.run(writable.hub, writable.home, *words, environ=environ)
    del folder["build/torch-cpu/big.so"]
    assert writable.whole() == {"main": folder}


def test_the_command_hf_upload(reference, writable, folder):
    words = ["upload", "acme/toy", "source", "--repo-type", "kernel"]
    reference.run(writable.hub, writable.home, "hf", *words, environ=writable.environ)
    assert writable.whole() == {"main": folder}
    done = reference.run(
        writable.hub, writable.home, "hf", "auth", "whoami", environ=writable.environ
    )
    assert "ci" in done.stdout
    assert "acme" in done.stdout


def test_the_older_command_kernels_upload(old_kernels, writable):
    variant = writable.home / "toy/build/torch-cpu"
    (variant / "toy").mkdir(parents=True)
    for place in (variant / "__init__.py", variant / "toy/__init__.py"):
        place.write_text("def double(x):\n    return x * 2\n")
    words = ["kernels", "upload", "toy", "--repo-id", "acme/toy", "--branch", "v1"]
    for text in ("{}", '{"python-depends": []}'):
        (variant / "metadata.json").write_text(text)
        old_kernels.run(writable.hub, writable.home, *words, environ=writable.environ)
    assert writable.whole()["v1"]["build/torch-cpu/metadata.json"] == text.encode()
    code = (
        "from kernels import get_kernel; result = get_kernel('acme/toy', revision='v1').double(21)"
    )
    assert old_kernels.python(writable.hub, writable.home, code) == 42
