"""``kernels cache prune``: what goes, what stays and why, and what killed processes leave."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from filelock import FileLock

import kernels
from kernel_spec.lock import LockedKernel, format_lock
from kernels import in_use, store
from kernels.cached import CachedCommit, CachedVariant
from kernels.cli import run
from kernels.load import forget
from kernels.pruning import Wish, carry_out, make_plan, plan_variants
from kernels.store import Store

DAY = 86400.0


def variant(name, *, size=100, days=0.0, damaged=False):
    return CachedVariant(
        digest=name,
        place=Path("/cache/variants", name),
        name="" if damaged else "torch-cpu",
        kernel=name,
        repositories=(f"acme/{name}",),
        size=size,
        used=-days * DAY,
    )


def commit(name, *digests, named=True):
    return CachedCommit(
        Path("/cache/trees", name), "acme/x", name, named, frozenset(digests), frozenset()
    )


def gone(variants, wish, *, commits=(), used=()):
    plan = plan_variants(variants, commits, used, wish, now=0.0)
    return [removal.path.name for removal in plan.removals], plan


def test_without_a_wish_only_what_nobody_can_load_goes():
    assert gone([variant("a", days=999), variant("b", damaged=True)], Wish())[0] == ["b"]


def test_by_age():
    names, plan = gone([variant("a", days=31), variant("b", days=29)], Wish(unused_for=30 * DAY))
    assert names == ["a"]
    assert plan.removals[0].reason == "not used for 31 days"
    assert (plan.before, plan.after, plan.size) == (200, 100, 100)


def test_by_size_the_least_recently_used_go_first():
    variants = [variant("a", days=1), variant("b", days=3), variant("c", days=2)]
    assert gone(variants, Wish(at_most=250))[0] == ["b"]
    assert gone(variants, Wish(at_most=150))[0] == ["b", "c"]
    assert gone(variants, Wish(at_most=300))[0] == []
    assert gone(variants, Wish(at_most=0))[0] == ["a", "b", "c"]


def test_what_goes_by_age_counts_for_the_size():
    variants = [variant("a", days=40), variant("b", days=3), variant("c", days=2)]
    assert gone(variants, Wish(unused_for=30 * DAY, at_most=200))[0] == ["a"]


def test_what_is_in_use_stays_and_the_plan_says_what_is_over():
    variants = [variant("a", days=40), variant("b", days=3)]
    names, plan = gone(variants, Wish(at_most=50), used={"a"})
    assert names == ["b"]
    assert [(kept.variant.digest, kept.reason) for kept in plan.kept] == [
        ("a", "a running process uses it")
    ]
    assert (plan.after, plan.over) == (100, 50)


def test_what_no_branch_or_tag_has_goes_and_what_is_from_elsewhere_stays():
    variants = [variant("old"), variant("both"), variant("new"), variant("built")]
    commits = [commit("1", "old", "both", named=False), commit("2", "both", "new")]
    names, plan = gone(variants, Wish(unreferenced=True), commits=commits)
    assert names == ["old"]
    assert plan.removals[0].reason == "no branch or tag has it any more"


@pytest.fixture
def toys(publisher):
    """Two kernels, one of them at an old commit, too."""
    first = publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 1\n"}})
    kernels.install_kernel("acme/toy")
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 2\n"}})
    publisher.publish("acme/other")
    forget()
    kernels.install_kernel("acme/toy")
    kernels.install_kernel("acme/other")
    in_use.forget()
    return first


def prune(capsys, *words):
    code = run(["cache", "prune", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def places(cache):
    return sorted((cache / "variants").iterdir())


def make_old(cache, days=100):
    then = time.time() - days * DAY
    for path in (cache / "variants").glob("*/receipt.json"):
        os.utime(path, (then, then))


def test_nothing_is_removed_before_it_was_shown(toys, cache, capsys):
    make_old(cache)
    before = places(cache)
    code, out, _ = prune(capsys, "--unused-for", "30d")
    assert code == 0
    assert out.count("not used for 100 days") == 3
    assert "repeat it with --yes" in out
    assert places(cache) == before
    code, out, _ = prune(capsys, "--unused-for", "30d", "--yes")
    assert code == 0
    assert "3 removed" in out
    assert places(cache) == []
    assert list((cache / "tmp").iterdir()) == []


@pytest.fixture(params=["manifest", "folder"])
def unreadable(toys, cache, request, ordinary_user):
    """One of three variants, which another user owns."""
    [place] = [place for place in places(cache) if kernel_of(place) == "other"]
    path = place / in_use.MANIFEST_NAME if request.param == "manifest" else place
    mode = path.stat().st_mode
    path.chmod(0)
    yield place
    path.chmod(mode)


@pytest.mark.parametrize("wish", [(), ("--unused-for", "30d"), ("--max-size", "1GB")])
def test_a_variant_that_cannot_be_read_stays_and_is_not_called_damaged(
    unreadable, cache, capsys, wish
):
    code, out, _ = prune(capsys, *wish, "--yes")
    assert code == 0
    [line] = [line for line in out.splitlines() if line.startswith("keep")]
    assert "cannot be read: Permission denied" in line
    assert f"let this user read {unreadable}" in line
    assert "damaged" not in out
    assert unreadable in places(cache)
    assert run(["cache", "list"]) == 0
    assert "acme/other  ?" in capsys.readouterr().out


def test_what_cannot_be_read_is_not_said_to_be_fetched_again(unreadable, cache, capsys):
    assert run(["cache", "verify"]) == 1
    said = capsys.readouterr()
    assert f"{unreadable.name}: unreadable\n" in said.out
    assert "3 variants verified, 0 damaged, 1 unreadable" in said.out
    assert "let this user read it" in said.err
    assert "fetches them again" not in said.err


@pytest.mark.parametrize(
    "refused", ["trees/*/acme/toy/*.json", "refs/*/acme/toy.json", "trees/*/acme"]
)
@pytest.mark.usefixtures("ordinary_user")
def test_where_what_is_referred_to_cannot_be_told_nothing_goes(toys, cache, capsys, refused):
    """Else a variant that a branch names would go, since its listing counted as naming none."""
    path = sorted(cache.glob(refused))[0]
    mode = path.stat().st_mode
    path.chmod(0)
    before = places(cache)
    try:
        code, _, err = prune(capsys, "--unreferenced", "--yes")
        assert code == 1
        assert f"{path}: Permission denied" in err
        assert "nothing is removed" in err
        assert places(cache) == before
        assert prune(capsys, "--unused-for", "30d")[0] == 0
    finally:
        path.chmod(mode)
    assert prune(capsys, "--unreferenced", "--yes")[0] == 0


def test_a_load_counts_as_use(toys, cache, capsys):
    make_old(cache)
    [receipt] = [
        p for p in (cache / "variants").glob("*/receipt.json") if "other" in kernel_of(p.parent)
    ]
    os.utime(receipt)
    code, _, _ = prune(capsys, "--unused-for", "30d", "--yes")
    assert code == 0
    assert [kernel_of(place) for place in places(cache)] == ["other"]


def kernel_of(place):
    return json.loads((place / "torch-cpu" / "metadata.json").read_text())["name"]


def test_to_list_and_to_verify_is_no_use(toys, cache, capsys):
    make_old(cache)
    assert run(["cache", "list"]) == 0
    assert run(["cache", "verify"]) == 0
    assert prune(capsys, "--unused-for", "30d")[1].count("not used for 100 days") == 3


def test_what_goes_is_fetched_again_when_it_is_asked_for(toys, cache, capsys):
    make_old(cache)
    prune(capsys, "--unused-for", "30d", "--yes")
    forget()
    assert kernels.get_kernel("acme/toy").VALUE == 2


def test_old_commits_go_with_their_listings_and_documents(toys, cache, capsys):
    stray = cache / "metadata" / ("0" * 64)
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("{}")
    code, out, _ = prune(capsys, "--unreferenced", "--yes")
    assert code == 0
    assert "no branch or tag has it any more" in out
    assert len(places(cache)) == 2
    assert not list(cache.glob(f"trees/*/*/*/{toys}.json"))
    assert len(list(cache.glob("trees/*/*/*/*.json"))) == 2
    assert not stray.exists()
    forget()
    assert kernels.get_kernel("acme/toy").VALUE == 2


def test_what_a_listing_that_stays_refers_to_stays(web, publisher, cache, capsys, monkeypatch):
    monkeypatch.setenv("KERNELS_REF_TTL", "0")
    publisher.publish("acme/toy")
    assert kernels.has_kernel("acme/toy")
    publisher.publish(
        "acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 2\n"}}, archs=("8.0",)
    )
    assert kernels.has_kernel("acme/toy")
    assert len(list((cache / "metadata").iterdir())) == 2
    code, out, _ = prune(capsys, "--unreferenced", "--yes")
    assert code == 0
    assert "no branch or tag names the commit any more" in out
    assert len(list((cache / "metadata").iterdir())) == 1
    asked = len(web.requests)
    assert kernels.has_kernel("acme/toy")
    assert not [line for line in web.requests[asked:] if "/resolve/" in line]


def test_what_names_a_variant_goes_with_its_listing(web, publisher, cache, capsys, monkeypatch):
    """A listing without sha256 hashes needs a document that says which digest it has."""
    monkeypatch.setenv("KERNELS_REF_TTL", "0")
    for value in (1, 2):
        publisher.publish(
            "acme/toy", variants={"torch-cpu": {"a.py": "", "__init__.py": f"V={value}"}}
        )
        kernels.install_kernel("acme/toy")
    in_use.forget()
    assert len(list((cache / "index").iterdir())) == 2
    assert prune(capsys, "--unreferenced", "--yes")[0] == 0
    [left] = places(cache)
    [index] = (cache / "index").iterdir()
    assert index.read_text().strip() == left.name
    asked = len(web.requests)
    assert kernels.install_kernel("acme/toy").parent == left
    assert not [line for line in web.requests[asked:] if "resolve" in line]


def test_what_a_lock_names_stays(toys, cache, capsys, tmp_path, monkeypatch):
    [old] = [p for p in places(cache) if (p / "torch-cpu/__init__.py").read_text() == "VALUE = 1\n"]
    lock = tmp_path / "kernels.lock"
    variants = {"torch-cpu": old.name}
    locked = LockedKernel(repo_id="acme/toy", commit=toys, version=1, variants=variants)
    lock.write_bytes(format_lock((locked,)))
    code, out, _ = prune(capsys, "--unreferenced", "--keep-lock", str(tmp_path), "--yes")
    assert code == 0, out
    assert f"{lock} names it" in out
    assert old in places(cache)
    assert list(cache.glob(f"trees/*/*/*/{toys}.json"))
    monkeypatch.setenv("KERNELS_LOCK", str(lock))
    assert f"{lock} names it" in prune(capsys, "--unreferenced")[1]


def test_a_lock_keeps_by_digest_what_no_listing_here_has(toys, cache, capsys, tmp_path):
    make_old(cache)
    [old] = [p for p in places(cache) if (p / "torch-cpu/__init__.py").read_text() == "VALUE = 1\n"]
    for path in cache.glob(f"trees/*/*/*/{toys}.json"):
        path.unlink()
    variants = {"torch-cpu": old.name}
    locked = LockedKernel(repo_id="acme/toy", commit=toys, version=1, variants=variants)
    (tmp_path / "kernels.lock").write_bytes(format_lock((locked,)))
    assert prune(capsys, "--unused-for", "30d", "--keep-lock", str(tmp_path), "--yes")[0] == 0
    assert places(cache) == [old]


def test_a_lock_that_cannot_be_read_removes_nothing(toys, cache, capsys, tmp_path):
    code, _, err = prune(capsys, "--unreferenced", "--keep-lock", str(tmp_path / "no"), "--yes")
    assert code == 1
    assert "cannot be read" in err
    assert len(places(cache)) == 3


def test_a_variant_that_another_process_has_loaded_stays(toys, cache, capsys):
    code = (
        "import kernels, sys\n"
        "kernels.get_kernel('acme/toy')\n"
        "print('loaded', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "loaded\n"
    make_old(cache)
    code, out, err = prune(capsys, "--max-size", "0", "--yes")
    assert code == 1
    assert "a running process uses it" in out
    assert "more than --max-size" in err
    assert [kernel_of(place) for place in places(cache)] == ["toy"]
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    code, out, _ = prune(capsys, "--max-size", "0", "--yes")
    assert code == 0
    assert places(cache) == []


def test_what_begins_to_be_used_after_the_plan_stays(toys, cache):
    here = Store(cache.parent)
    plan = make_plan(here, Wish(at_most=0))
    kernels.get_kernel("acme/toy")
    outcomes = carry_out(here, plan)
    assert [outcome.error for outcome in outcomes if outcome.error] == [
        "a process has begun to use it"
    ]
    assert [kernel_of(place) for place in places(cache)] == ["toy"]


def test_a_forked_child_keeps_the_mark(toys, cache):
    read, write = os.pipe()
    code = (
        "import os, sys, kernels\n"
        "kernels.get_kernel('acme/toy')\n"
        "if os.fork(): os._exit(0)\n"
        f"os.read({read}, 1)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], pass_fds=[read])
    child.wait()
    assert len(make_plan(Store(cache.parent), Wish(at_most=0)).kept) == 1
    os.write(write, b"x")
    until = time.monotonic() + 20
    while make_plan(Store(cache.parent), Wish(at_most=0)).kept:
        assert time.monotonic() < until
        time.sleep(0.01)
    os.close(read)
    os.close(write)


def leave_leftovers(cache):
    old = time.time() - 2 * store.LEFTOVER_SECONDS
    [tree] = list(cache.glob("trees/*/acme/other/*.json"))
    left = [
        tree.with_name(f".{tree.name}.abcd1234"),
        next(cache.glob("refs/*/acme")) / ".toy.json.0_9zyxwv",
        places(cache)[0] / ".receipt.json.abcd1234",
    ]
    for path in left:
        path.write_text("half")
        os.utime(path, (old, old))
    half = cache / "tmp" / ("0" * 32 + "-killed") / "torch-cpu"
    half.mkdir(parents=True)
    (half / "a.py").write_text("half")
    return [*left, half.parent]


def test_what_killed_processes_left_goes_without_a_wish(toys, cache, capsys):
    left = leave_leftovers(cache)
    code, out, _ = prune(capsys)
    assert code == 0
    assert out.count("a killed process left it") == 4
    assert all(path.exists() for path in left)
    code, out, _ = prune(capsys, "--yes")
    assert code == 0
    assert not any(path.exists() for path in left)
    assert len(places(cache)) == 3


def test_what_is_being_written_or_installed_now_stays(toys, cache, capsys):
    fresh = next(cache.glob("refs/*/acme")) / ".toy.json.abcd1234"
    fresh.write_text("half")
    under_way = cache / "tmp" / ("1" * 32 + "-now")
    under_way.mkdir(parents=True)
    with FileLock(cache / "locks" / ("1" * 32 + ".lock")):
        assert "nothing to remove" in prune(capsys)[1]
        assert prune(capsys, "--yes")[0] == 0
        assert under_way.exists()
    assert fresh.exists()
    assert prune(capsys, "--yes")[0] == 0
    assert not under_way.exists()


def test_later_writes_sweep_what_a_killed_one_left(toys, cache, publisher):
    refs, tree, *_ = (p for p in leave_leftovers(cache) if p.parent.name != "tmp")
    fresh = tree.with_name(".fresh.json.abcd1234")
    fresh.write_text("half")
    publisher.publish("acme/other", variants={"torch-cpu": {"__init__.py": "VALUE = 3\n"}})
    forget()
    kernels.install_kernel("acme/other")
    assert not refs.exists()
    assert not tree.exists()
    assert fresh.exists()


def test_the_json_document_tells_all(toys, cache, capsys):
    make_old(cache)
    code, out, _ = prune(capsys, "--unused-for", "2w", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["done"] is False
    assert document["cache"] == str(cache.parent)
    assert {removal["kind"] for removal in document["removals"]} == {"variant"}
    assert {removal["error"] for removal in document["removals"]} == {None}
    assert document["bytes_before"] - document["bytes_after"] == sum(
        removal["bytes"] for removal in document["removals"]
    )
    document = json.loads(prune(capsys, "--unused-for", "2w", "--json", "--yes")[1])
    assert document["done"] is True
    assert places(cache) == []


def test_what_may_not_be_removed_is_named_and_the_rest_goes(toys, cache, capsys, monkeypatch):
    rename = Path.rename

    def refuse(self, target):
        if kernel_of(self) == "toy":
            raise PermissionError(13, "Permission denied", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    code, out, err = prune(capsys, "--max-size", "0", "--yes")
    assert code == 1
    assert err.count("not removed: Permission denied") == 2
    assert "1 removed" in out
    assert len(places(cache)) == 2
    assert list((cache / "tmp").iterdir()) == []


def as_another_user(action):
    """Do something in a forked process that is not root's; return what it gave and printed."""

    def act():
        if os.geteuid() == 0:
            os.setuid(65534)
        return action()

    return as_another_process(act)


def as_another_process(action):
    """Do something in a forked process; return what it gave and printed."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            sys.stdout = sys.stderr = io.StringIO()
            os.write(write, json.dumps([action(), sys.stderr.getvalue()]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = json.load(pipe)
    os.waitpid(child, 0)
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_read_only_cache_is_shown_and_not_touched(toys, cache, monkeypatch):
    """As another user, in a forked process: nothing is read-only for root."""
    shared = Path(tempfile.mkdtemp())
    shutil.copytree(cache.parent, shared / "cache")
    monkeypatch.setenv("KERNELS_CACHE", str(shared / "cache"))
    folders = [path for path in shared.rglob("*") if path.is_dir()]
    for folder in (shared, *folders):
        folder.chmod(0o555)
    codes, said = as_another_user(
        lambda: [run(["cache", "prune", "--max-size", "0", *more]) for more in ([], ["--yes"])]
    )
    for folder in (shared, *folders):
        folder.chmod(0o755)
    left = len(places(shared / "cache" / "store-v1"))
    shutil.rmtree(shared)
    assert codes == [0, 1], said
    assert said.count("not removed: Permission denied") == 3
    assert left == 3


def test_a_cache_that_is_not_there_is_empty(capsys):
    assert prune(capsys, "--max-size", "0", "--yes")[0] == 0


@pytest.mark.parametrize(
    "words", [("--unused-for", "1y"), ("--max-size", "-1"), ("--max-size", "many")]
)
def test_wrong_usage_is_told_before_anything_is_looked_at(toys, cache, capsys, words):
    code, _, err = prune(capsys, *words, "--yes")
    assert code == 2
    assert "expected" in err
    assert len(places(cache)) == 3


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("2GiB", 2 << 30), ("1.5 kb", 1500), ("7", 7), ("3t", 3 * 10**12)],
)
def test_sizes_are_written_as_people_do(text, size):
    from kernels.cli.cache import read_amount

    assert read_amount(None, None, text) == size


def test_a_variant_that_goes_while_it_is_looked_at_is_not_there(toys, cache, monkeypatch):
    """As if another process removed it between the look at its folder and its mark."""
    from kernels import verify

    place = places(cache)[0]
    monkeypatch.setattr(verify, "mark_used", shutil.rmtree)
    assert verify.verify_installed(place, cache / "state") is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_that_was_forked_in_the_middle_of_a_mark_can_load(toys):
    with in_use._marking.lock:
        code, _ = as_another_process(lambda: kernels.get_kernel("acme/toy").VALUE)
    assert code == 2


@pytest.mark.parametrize("command", ["list", "verify", "prune", "prune --yes"])
@pytest.mark.parametrize("name", ["", "variants", "trees", "tmp"])
def test_a_file_in_place_of_a_folder_is_no_empty_cache(cache, capsys, command, name):
    place = cache / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("")
    assert run(["cache", *command.split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{place}: it is no folder (Not a directory)" in err
    assert "move away" in err
    assert place.is_file()


def test_a_cache_that_cannot_be_read_is_told_with_its_place(cache, capsys):
    """A link to itself, since a superuser may read all that there is."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.symlink_to(cache.name)
    assert run(["cache", "list"]) == 1
    assert (
        f"{cache}: it is no folder (Too many levels of symbolic links)" in capsys.readouterr().err
    )


@pytest.mark.usefixtures("ordinary_user")
@pytest.mark.parametrize("mode", [0o000, 0o600])
def test_a_cache_of_somebody_else_is_told_with_its_place(toys, cache, capsys, mode):
    (cache / "variants").chmod(mode)
    try:
        assert run(["cache", "list"]) == 1
    finally:
        (cache / "variants").chmod(0o700)
    assert f"{cache / 'variants'}: Permission denied" in capsys.readouterr().err
