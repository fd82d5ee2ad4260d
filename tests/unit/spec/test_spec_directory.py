import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec import directory, listing, publishing, staging
from kernel_spec.directory import DirectoryHub, Listing
from kernel_spec.errors import ConflictError, FormatError, IntegrityError
from kernel_spec.listing import hash_file
from kernel_spec.names import RepoId, find_lookalike, group_lookalikes
from kernel_spec.refs import RefKind, create_ref, delete_ref
from kernel_spec.wire import Ref, Refs, TreeFile

REPO = RepoId("acme", "relu")


@pytest.fixture
def hub(tmp_path):
    return DirectoryHub(tmp_path / "hub")


@pytest.fixture
def write(tmp_path):
    """Write source files and return them as ``publish`` takes them."""

    def write_files(**texts):
        files = {}
        for number, (path, text) in enumerate(texts.items()):
            place = tmp_path / "sources" / f"{len(texts)}-{number}"
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
            files[path] = place
        return files

    return lambda texts: write_files(**texts)


def publish(hub, files, *, branch="v1", parent=None, tags=()):
    return publishing.publish(hub, REPO, files, branch=branch, parent=parent, tags=tags)


def content(hub, commit):
    """Read every file of a commit, checked against its listing."""
    texts = {}
    for file in directory.read_listing(hub, REPO, commit).files:
        data = directory.file_path(hub, REPO, commit, file.path).read_bytes()
        assert len(data) == file.size
        assert hashlib.sha256(data).hexdigest() == file.sha256
        assert hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == file.oid
        texts[file.path] = data.decode()
    return texts


def every_path(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


FILES = {"README.md": "card\n", "build/torch-cpu/__init__.py": "x = 1\n"}


def test_a_published_commit_holds_its_files_and_moves_the_branch(hub, write):
    commit = publish(hub, write(FILES), tags=["v1.0.0"])
    assert content(hub, commit) == FILES
    assert directory.read_refs(hub, REPO) == Refs((Ref("v1", commit),), (Ref("v1.0.0", commit),))
    assert directory.read_listing(hub, REPO, commit).parent is None
    assert directory.has_repository(hub, REPO)
    assert directory.repositories(hub) == (REPO,)


def test_nothing_but_the_format_lies_in_the_repository(hub, write):
    commit = publish(hub, write({"a/b.py": "1"}), branch="feature/x")
    assert every_path(hub.root / "acme/relu") == [
        ".lock",
        "refs",
        "refs/heads",
        "refs/heads/feature%2Fx",
        "refs/tags",
        "snapshots",
        f"snapshots/{commit}",
        f"snapshots/{commit}/a",
        f"snapshots/{commit}/a/b.py",
        "trees",
        f"trees/{commit}.json",
    ]
    ref = hub.root / "acme/relu/refs/heads/feature%2Fx"
    assert ref.read_text() == f"{commit}\n"
    assert directory.read_refs(hub, REPO).branches == (Ref("feature/x", commit),)


def test_a_file_whose_mode_alone_changed_is_published_anew(hub, write):
    files = write({"run.sh": "#!/bin/sh\n", "a.py": ""})
    commit = None
    for mode in (0o644, 0o755, 0o644):
        files["run.sh"].chmod(mode)
        commit = publish(hub, files, parent=commit)
        place = directory.file_path(hub, REPO, commit, "run.sh")
        (listed,) = (
            f for f in directory.read_listing(hub, REPO, commit).files if f.path == "run.sh"
        )
        assert listed.executable is (mode == 0o755)
        assert bool(place.stat().st_mode & 0o100) is listed.executable


def test_modes_are_normalised_and_files_are_not_writable(hub, write):
    files = write({"run.sh": "#!/bin/sh\n", "a.py": ""})
    files["run.sh"].chmod(0o700)
    files["a.py"].chmod(0o666)
    commit = publish(hub, files)
    place = directory.file_path(hub, REPO, commit, "run.sh")
    assert place.stat().st_mode & 0o777 == 0o555
    assert place.parent.stat().st_mode & 0o777 == 0o755
    assert (place.parent / "a.py").stat().st_mode & 0o777 == 0o444
    executable = {f.path: f.executable for f in directory.read_listing(hub, REPO, commit).files}
    assert executable == {"run.sh": True, "a.py": False}


def test_unchanged_files_are_linked_and_changed_ones_are_not(hub, write):
    first = publish(hub, write(FILES))
    second = publish(hub, write(FILES | {"README.md": "other\n"}), parent=first)
    assert directory.read_listing(hub, REPO, second).parent == first
    kept, changed = (
        [directory.file_path(hub, REPO, commit, path).stat().st_ino for commit in (first, second)]
        for path in ("build/torch-cpu/__init__.py", "README.md")
    )
    assert kept[0] == kept[1]
    assert changed[0] != changed[1]
    assert content(hub, first) == FILES


def test_a_file_of_the_parent_that_was_changed_is_not_linked(hub, write):
    first = publish(hub, write(FILES))
    bad = directory.file_path(hub, REPO, first, "README.md")
    bad.chmod(0o644)
    bad.write_text("CARD\n")
    second = publish(hub, write(FILES | {"new.py": ""}), parent=first)
    assert content(hub, second) == FILES | {"new.py": ""}


def test_equal_files_make_no_commit(hub, write):
    first = publish(hub, write(FILES))
    assert publish(hub, write(FILES), parent=first, tags=["v1.0.0"]) == first
    assert directory.read_refs(hub, REPO).tags == (Ref("v1.0.0", first),)


def test_the_same_files_and_parent_make_the_same_commit_anywhere(hub, write, tmp_path):
    other = DirectoryHub(tmp_path / "other")
    assert publish(hub, write(FILES)) == publish(other, write(dict(reversed(FILES.items()))))


def test_a_moved_branch_is_a_conflict_and_changes_nothing(hub, write):
    first = publish(hub, write(FILES))
    second = publish(hub, write({"a": "2"}), parent=first)
    before = every_path(hub.root)
    for parent, expected in ((first, f"at {first}"), (None, "not to exist")):
        said = f"branch v1 is at {second}, expected {expected};"
        with pytest.raises(ConflictError, match=said):
            publish(hub, write({"a": "3"}), parent=parent)
    with pytest.raises(ConflictError, match="branch v2 does not exist"):
        publish(hub, write({"a": "3"}), branch="v2", parent=first)
    assert every_path(hub.root) == before


def test_a_folder_named_build_makes_no_published_repository_an_unversioned_one(hub, write):
    first = publish(hub, write(FILES))
    (directory.repository_path(hub, REPO) / "build").mkdir()
    assert content(hub, publish(hub, write({"a": "2"}), parent=first)) == {"a": "2"}


def test_a_tag_elsewhere_is_a_conflict_and_changes_nothing(hub, write):
    first = publish(hub, write(FILES), tags=["v1.0.0"])
    before = every_path(hub.root)
    with pytest.raises(ConflictError, match=f"tag v1.0.0 stands on {first}"):
        publish(hub, write({"a": "2"}), parent=first, tags=["v1.0.0"])
    assert every_path(hub.root) == before


@pytest.mark.parametrize(
    "path",
    ["../x", "/x", "a/../x", "a//b", ".git/config", "a\\b", "c:x", "a.", "a\nb", "", "CON /x"],
)
def test_paths_that_are_not_safe_are_refused(hub, write, path):
    with pytest.raises(FormatError, match="unsafe path"):
        publish(hub, write({path: ""}))
    assert not hub.root.exists()
    with pytest.raises(FormatError):
        directory.file_path(hub, REPO, "0" * 40, path)


def test_paths_that_clash_are_all_named(hub, write):
    with pytest.raises(FormatError) as err:
        publish(hub, write({"A.py": "", "a.py": "", "b": "", "b/c": ""}))
    assert "'A.py' and 'a.py' differ in case only" in str(err.value)
    assert "'b' is a file and the folder of 'b/c'" in str(err.value)


@pytest.mark.parametrize(
    "name", ["", "..", "a..b", ".x", "a/", "a//b", "a b", "a.lock", "x~1", "@"]
)
def test_names_of_refs_follow_git(hub, write, name):
    with pytest.raises(FormatError, match="cannot name a ref"):
        publish(hub, write(FILES), branch=name)
    with pytest.raises(FormatError, match="cannot name a ref"):
        publish(hub, write(FILES), tags=[name])


@pytest.mark.parametrize("name", ["main", "v1", "feature/x", "grün", "100%", "a+b", "X"])
def test_any_name_of_a_branch_is_read_back(hub, write, name):
    commit = publish(hub, write(FILES), branch=name, tags=[name])
    assert directory.read_refs(hub, REPO) == Refs((Ref(name, commit),), (Ref(name, commit),))


def test_a_source_that_is_no_file_leaves_nothing(hub, tmp_path):
    with pytest.raises(FormatError, match="expected a file"):
        publish(hub, {"a": tmp_path})
    with pytest.raises(FileNotFoundError):
        publish(hub, {"a": tmp_path / "missing"})
    assert not directory.has_repository(hub, REPO)
    assert every_path(hub.root / "acme/relu") == [".lock"]


def test_what_is_not_there_is_said(hub, write):
    with pytest.raises(FileNotFoundError, match="acme"):
        directory.read_refs(hub, REPO)
    with pytest.raises(FileNotFoundError):
        directory.refs_stamp(hub, REPO)
    with pytest.raises(FileNotFoundError, match="no repository"):
        directory.read_listing(hub, REPO, "0" * 40)
    assert not directory.has_repository(hub, REPO)
    assert directory.repositories(hub) == ()
    publish(hub, write(FILES))
    for commit in ("0" * 40, "../../x", "v1"):
        with pytest.raises(FileNotFoundError, match="no commit"):
            directory.read_listing(hub, REPO, commit)
    with pytest.raises(FormatError, match="commit"):
        directory.file_path(hub, REPO, "../..", "a")


def test_changed_listings_and_refs_are_found(hub, write):
    commit = publish(hub, write(FILES))
    listing = hub.root / f"acme/relu/trees/{commit}.json"
    listing.write_bytes(listing.read_bytes().replace(b"README", b"README2"))
    with pytest.raises(IntegrityError, match="its bytes were changed"):
        directory.read_listing(hub, REPO, commit)
    (hub.root / "acme/relu/refs/heads/v1").write_text("rubbish\n")
    with pytest.raises(FormatError, match="expected a commit id, found 'rubbish'"):
        directory.read_refs(hub, REPO)


def test_the_stamp_changes_with_every_ref_written(hub, write):
    parent, stamps = None, []
    for number in range(20):
        parent = publish(hub, write({"a": str(number)}), parent=parent)
        stamps.append(directory.refs_stamp(hub, REPO))
        assert directory.refs_stamp(hub, REPO) == stamps[-1]
    assert len(set(stamps)) == 20


def finishes(write_it, steps_left):
    """Run a function in another process that dies after so many steps; say whether it got to the end."""
    child = os.fork()
    if child == 0:

        def count(function):
            def counted(*args, **kwargs):
                nonlocal steps_left
                steps_left -= 1
                if steps_left < 0:
                    os._exit(9)
                return function(*args, **kwargs)

            return counted

        for name in ("link", "fsync", "rename", "replace", "mkdir", "unlink", "utime", "chmod"):
            setattr(os, name, count(getattr(os, name)))
        write_it()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


kills_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked publisher")


@kills_forks
def test_a_publisher_killed_at_any_step_leaves_the_old_state(hub, write, monkeypatch):
    first = publish(hub, write(FILES))
    new = write({"README.md": "new\n", "build/torch-cpu/__init__.py": "x = 1\n"})
    step = 0
    while not finishes(lambda: publish(hub, new, parent=first, tags=["v1.0.0"]), step):
        refs = directory.read_refs(hub, REPO)
        for ref in (*refs.branches, *refs.tags):
            assert content(hub, ref.commit)
        if refs.branches[0].commit != first:
            break
        step += 1
    assert step > 10
    (branch,) = directory.read_refs(hub, REPO).branches
    assert publish(hub, new, parent=branch.commit, tags=["v1.0.0"]) == branch.commit
    assert content(hub, branch.commit)["README.md"] == "new\n"
    assert not (hub.root / "acme/relu/.staging").exists()


def commits(hub):
    """Return the commits that snapshots, listings and refs are of."""
    folder = hub.root / "acme/relu"
    refs = {path.read_text().strip() for path in folder.glob("refs/*/*")}
    snapshots = {path.name for path in folder.glob("snapshots/*")}
    return snapshots, {path.stem for path in folder.glob("trees/*.json")}, refs


@kills_forks
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_killed_publisher_had_begun_goes_with_the_next(
    tmp_path, write, is_first, monkeypatch
):
    """Also where the next one is killed, too; a commit that a ref names stays."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a step all the same
    old, new, other = write(FILES), write({"README.md": "new\n"}), write({"a.py": ""})
    ends = set()
    for step in range(is_first, 100, 2):
        hub = DirectoryHub(tmp_path / str(step))
        known = set() if is_first else {publish(hub, old, branch="old")}
        done = finishes(lambda: publish(hub, new, tags=["v1.0.0"]), step)  # noqa: B023
        snapshots, _, named = commits(hub)
        ends.add((bool(snapshots - known), bool(named - known)))
        known |= named
        finishes(lambda: publish(hub, other, branch="other"), step % 9)  # noqa: B023
        known.add(publish(hub, other, branch="other"))
        assert commits(hub) == (known, known, known)
        if done:
            break
    # Before there was anything, between the commit and its refs, and after that.
    assert ends == {(False, False), (True, False), (True, True)}


def test_a_failed_publisher_leaves_no_commit(hub, write, monkeypatch):
    first = publish(hub, write(FILES))
    with monkeypatch.context() as patched:
        patched.setattr(staging, "write_ref", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish(hub, write({"a.py": ""}), parent=first)
    assert commits(hub) == ({first}, {first}, {first})


def test_a_commit_that_lost_its_branch_is_not_taken_for_unfinished(hub, write, monkeypatch):
    old = publish(hub, write({"a.py": ""}), branch="old")
    first = publish(hub, write(FILES))
    delete_ref(hub, REPO, RefKind.BRANCH, "old")
    with monkeypatch.context() as patched:
        patched.setattr(staging, "write_ref", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish(hub, write({"a.py": ""}), branch="old")
    assert commits(hub)[:2] == ({old, first}, {old, first})
    assert content(hub, old) == {"a.py": ""}


@kills_forks
def test_nobody_can_name_a_commit_that_is_about_to_go(hub, write):
    publish(hub, write(FILES))
    new, step = write({"a.py": ""}), 0
    while len(commits(hub)[1]) < 2:
        assert not finishes(lambda: publish(hub, new, branch="v2"), step)
        step += 1
    [begun] = commits(hub)[1] - commits(hub)[2]
    with pytest.raises(FileNotFoundError, match="no commit"):
        create_ref(hub, REPO, RefKind.TAG, "v2.0.0", begun)
    assert [ref.name for ref in directory.read_refs(hub, REPO).tags] == []


def test_a_first_publisher_that_fails_leaves_no_repository(hub, write, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(staging, "write_ref", fail)
        with pytest.raises(OSError, match="disk full"):
            publish(hub, write(FILES))
    assert not directory.has_repository(hub, REPO)
    commit = publish(hub, write(FILES))
    assert content(hub, commit) == FILES


def test_a_half_written_snapshot_is_replaced(hub, write, tmp_path):
    commit = publish(DirectoryHub(tmp_path / "elsewhere"), write(FILES))
    half = hub.root / "acme/relu/snapshots" / commit
    half.mkdir(parents=True)
    (half / "README.md").write_text("ca")
    assert publish(hub, write(FILES)) == commit
    assert content(hub, commit) == FILES


def test_of_publishers_at_once_one_wins_and_the_others_are_told(hub, write):
    outcomes = []
    start = threading.Barrier(4)

    def run(files):
        start.wait()
        try:
            outcomes.append(publish(hub, files))
        except ConflictError as err:
            outcomes.append(err)

    all_files = [write({"a" * (n + 1): str(n)}) for n in range(4)]
    for n, files in enumerate(all_files):
        files.update({f"{n}.py": next(iter(files.values()))})
    threads = [threading.Thread(target=run, args=(files,)) for files in all_files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert len(winners) == 1
    assert directory.read_refs(hub, REPO).branches == (Ref("v1", winners[0]),)
    assert len(list((hub.root / "acme/relu/snapshots").iterdir())) == 1


class TestUnversioned:
    @pytest.fixture
    def folder(self, hub):
        folder = hub.root / "acme/relu"
        (folder / "build/torch-cpu/__pycache__").mkdir(parents=True)
        (folder / "build/torch-cpu/__init__.py").write_text("x = 1\n")
        (folder / "build/torch-cpu/__pycache__/__init__.pyc").write_text("")
        (folder / "README.md").write_text("card\n")
        (folder / "build.toml").write_text("")
        (folder / "csrc").mkdir()
        (folder / "csrc/a.cpp").write_text("")
        return folder

    def test_is_read_as_one_commit_on_main(self, hub, folder):
        (main,) = directory.read_refs(hub, REPO).branches
        assert main.name == "main"
        assert content(hub, main.commit) == FILES
        assert directory.repositories(hub) == (REPO,)

    def test_has_the_commit_of_equal_published_files(self, hub, folder, write, tmp_path):
        (main,) = directory.read_refs(hub, REPO).branches
        assert publish(DirectoryHub(tmp_path / "other"), write(FILES)) == main.commit

    def test_a_change_makes_another_commit_and_the_old_one_is_gone(self, hub, folder):
        (before,) = directory.read_refs(hub, REPO).branches
        (folder / "build/torch-cpu/__init__.py").write_text("x = 10\n")
        (after,) = directory.read_refs(hub, REPO).branches
        assert after != before
        with pytest.raises(FileNotFoundError):
            directory.read_listing(hub, REPO, before.commit)

    def test_the_stamp_changes_with_the_variants(self, hub, folder):
        before = directory.refs_stamp(hub, REPO)
        assert directory.refs_stamp(hub, REPO) == before
        (folder / "build/torch-cuda").mkdir()
        assert directory.refs_stamp(hub, REPO) != before

    def test_links_may_stay_inside_but_not_lead_out(self, hub, folder, tmp_path):
        link = folder / "build/torch-cpu/link.py"
        link.symlink_to("__init__.py")
        (main,) = directory.read_refs(hub, REPO).branches
        assert content(hub, main.commit)["build/torch-cpu/link.py"] == "x = 1\n"
        link.unlink()
        (tmp_path / "secret").write_text("")
        link.symlink_to(tmp_path / "secret")
        with pytest.raises(IntegrityError, match="leads out of the repository"):
            directory.read_refs(hub, REPO)

    def test_is_not_published_into(self, hub, folder, write):
        with pytest.raises(ConflictError, match="unversioned"):
            publish(hub, write(FILES))


hexes = st.text("0123456789abcdef", min_size=40, max_size=40)
tree_files = st.builds(
    TreeFile,
    path=st.from_regex(r"[a-zA-Zé]{1,4}(/[a-z ]{0,3}[a-z]){0,2}", fullmatch=True),
    size=st.integers(0, 2**50),
    oid=hexes,
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    executable=st.booleans(),
)
file_lists = st.lists(tree_files, unique_by=lambda file: file.path, max_size=5)


@given(st.none() | hexes, file_lists, st.randoms())
def test_a_listing_has_one_form_and_reads_back_equal(parent, files, shuffler):
    listing = Listing(parent, tuple(sorted(files, key=lambda file: file.path)))
    data = directory.format_listing(listing)
    assert directory.parse_listing(data) == listing
    shuffler.shuffle(files)
    assert directory.format_listing(Listing(parent, tuple(files))) == data
    assert data.endswith(b"}\n")
    assert len(directory.commit_id(data)) == 40


GOOD = b'{"files":[],"format":1,"parent":null}\n'


def test_the_form_of_a_listing_is_fixed():
    assert directory.format_listing(Listing(None, ())) == GOOD
    file = TreeFile(path="a", size=1, oid="0" * 40, sha256="1" * 64)
    assert directory.format_listing(Listing("2" * 40, (file,))) == (
        b'{"files":[{"executable":false,"oid":"'
        + b"0" * 40
        + b'","path":"a","sha256":"'
        + b"1" * 64
        + b'","size":1}],"format":1,"parent":"'
        + b"2" * 40
        + b'"}\n'
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "expected an object"),
        (b'{"files":[]}', "format: is required"),
        (b'{"files":[],"format":2}', "upgrade"),
        (b'{"format":1}', "files: is required"),
        (b'{"files":[3],"format":1}', r"files\[0\]: expected an object"),
        (b'{"files":[],"format":1,"parent":"v1"}', "40 hex digits"),
        (b'{"files":[{"path":"../x"}],"format":1}', "absolute|dot"),
    ],
)
def test_other_documents_are_not_listings(data, message):
    with pytest.raises(FormatError, match=message):
        directory.parse_listing(data)


@pytest.mark.parametrize("key", ["path", "size", "oid", "sha256", "executable"])
def test_a_listing_says_everything_of_each_file(key):
    file = TreeFile(path="a", size=1, oid="0" * 40, sha256="1" * 64)
    document = json.loads(directory.format_listing(Listing(None, (file,))))
    del document["files"][0][key]
    with pytest.raises(FormatError, match=rf"files\[0\]\.{key}: is required"):
        directory.parse_listing(json.dumps(document).encode())


def test_a_file_that_grows_while_it_is_read_is_refused(write, monkeypatch):
    path = write({"a": "1" * 10})["a"]
    read_block = listing._read_block

    def grow(source, where):
        if path.stat().st_size == 10:
            path.write_bytes(b"2" * 12)
        return read_block(source, where)

    monkeypatch.setattr(listing, "_read_block", grow)
    with pytest.raises(IntegrityError, match="changed while it was read, from 10 to 12 bytes"):
        listing.hash_file(path)
    assert listing.hash_file(path)[0] == 12


def test_a_listing_out_of_order_or_with_a_path_twice_is_refused():
    files = [TreeFile(path=path, size=0, oid="0" * 40, sha256="0" * 64) for path in "ab"]
    data = directory.format_listing(Listing(None, tuple(files)))
    swapped = data.replace(b'"a"', b'"?"').replace(b'"b"', b'"a"').replace(b'"?"', b'"b"')
    for bad in (swapped, data.replace(b'"b"', b'"a"')):
        with pytest.raises(FormatError, match="not in order, or not unique"):
            directory.parse_listing(bad)


def test_reading_refs_costs_few_files(hub, write, monkeypatch):
    publish(hub, write(FILES))
    opened = []
    monkeypatch.setattr(
        directory, "read_plain", lambda path: (opened.append(path), path.read_bytes())[1]
    )
    directory.read_refs(hub, REPO)
    assert [path.name for path in opened] == ["v1"]


def test_publishing_again_repairs_a_damaged_commit(hub, write):
    commit = publish(hub, write(FILES))
    path = sorted(FILES)[0]
    place = directory.file_path(hub, REPO, commit, path)
    before = place.read_bytes()
    place.unlink()
    assert publish(hub, write(FILES), parent=commit) == commit
    assert place.read_bytes() == before


def test_what_a_network_file_system_left_among_the_refs_is_no_ref(hub, write):
    publish(hub, write(FILES))
    heads = directory.repository_path(hub, REPO) / "refs" / "heads"
    (heads / ".nfs0001").write_text("left over")
    assert [ref.name for ref in directory.read_refs(hub, REPO).branches] == ["v1"]


def test_a_branch_deleted_while_the_refs_are_read_is_no_branch(hub, write, monkeypatch):
    commit = publish(hub, write(FILES))
    publish(hub, write(FILES), branch="uploading-v1-0a1b")
    read_plain = directory.read_plain

    def delete_then_read(place):
        place.parent.joinpath("uploading-v1-0a1b").unlink(missing_ok=True)
        return read_plain(place)

    monkeypatch.setattr(directory, "read_plain", delete_then_read)
    assert directory.read_refs(hub, REPO) == Refs((Ref("v1", commit),), ())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_a_copy_to_a_full_disk_is_told_with_the_place(tmp_path):
    (tmp_path / "source").write_bytes(b"x" * (2 << 20))
    with pytest.raises(OSError, match="No space left on device") as caught:
        hash_file(tmp_path / "source", copy_to=Path("/dev/full"))
    assert caught.value.filename == "/dev/full"


@pytest.mark.parametrize("names", [("acme/relu", "ACME/relu"), ("acme/relu", "acme/ReLU")])
def test_names_that_differ_in_case_alone_never_both_come_to_be(hub, write, names):
    """Whoever publishes, and however many at once: the first has the name."""
    files, results = write({"a.py": "a"}), []
    start = threading.Barrier(8)

    def run(name):
        start.wait()
        repo = RepoId(*name.split("/"))
        try:
            publishing.publish(
                hub, repo, files, branch=threading.current_thread().name, parent=None
            )
        except FormatError as err:
            results.append(str(err))

    threads = [threading.Thread(target=run, args=(names[n % 2],), name=f"b{n}") for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [made] = directory.repositories(hub)
    assert str(made) in names
    assert len(directory.read_refs(hub, made).branches) == 4
    assert len(results) == 4
    assert all("in case only: choose another name" in result for result in results)


def test_twins_of_earlier_days_are_published_to_as_before(hub, write):
    files = write({"a.py": "a"})
    for owner in ("acme", "ACME"):
        (hub.root / owner).mkdir(parents=True)
    for repo in (RepoId("acme", "relu"), RepoId("ACME", "relu"), RepoId("ACME", "new")):
        publishing.publish(hub, repo, files, branch="v1", parent=None)
    assert len(directory.repositories(hub)) == 3
    assert find_lookalike("acme", ["acme", "ACME", "x"]) == "ACME"
    assert group_lookalikes(["acme", "x", "ACME", "X", "y"]) == [("ACME", "acme"), ("X", "x")]


@pytest.mark.usefixtures("ordinary_user")
def test_a_hub_whose_owners_may_not_be_listed_is_published_to(hub, write):
    (hub.root / REPO.owner).mkdir(parents=True)
    hub.root.chmod(0o311)
    try:
        publish(hub, write({"a.py": "a"}))
        assert [ref.name for ref in directory.read_refs(hub, REPO).branches] == ["v1"]
    finally:
        hub.root.chmod(0o755)


@pytest.mark.usefixtures("ordinary_user")
def test_a_lock_that_another_user_made_is_held_all_the_same(hub, write):
    """In a folder that several write to, each lock is of whoever came first."""
    files = write({"a.py": "a"})
    publish(hub, files)
    for place in (hub.root, hub.root / "acme", hub.root / "acme/relu"):
        (place / ".lock").chmod(0o444)
    for name in ("bob/relu", "acme/silu", "acme/relu"):
        repo = RepoId(*name.split("/"))
        publishing.publish(hub, repo, files, branch="v2", parent=None)
    assert len(directory.repositories(hub)) == 3
