"""``kernel-builder upload`` to a folder and over HTTP with the real client: the same comes of it.

Budget: 90 s.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor


def built(checkout):
    """Return what a checkout has to publish, without its card."""
    return {
        path.relative_to(checkout.place).as_posix(): path.read_bytes()
        for folder in ("build", "benchmarks")
        for path in (checkout.place / folder).rglob("*")
        if path.is_file()
    }


def without_card(branch):
    return {path: data for path, data in branch.items() if path != "README.md"}


def test_a_version_its_card_and_its_tag(hub, writable, checkout):
    kernel = checkout("a")
    dry = hub(kernel, "--dry-run", "--tag", "v1.0.0")
    assert dry["status"] == "planned"
    assert not (writable.root / "acme").exists()
    done = hub(kernel, "--tag", "v1.0.0")
    assert (done["status"], done["repo_id"], done["branch"]) == ("uploaded", "acme/toy", "v1")
    [branch, main] = done["plan"]["commits"]
    assert {file["path"] for file in branch["add"]} == {*built(kernel), "README.md"}
    assert [file["path"] for file in (*main["add"], *main["change"])] == ["README.md"]
    found = writable.whole()
    assert set(found) == {"main", "v1"}, "nothing else is left over"
    card = b"acme/toy v1: ['torch-cpu']\n"
    assert found["main"] == {"README.md": card}
    assert found["v1"] == {**built(kernel), "README.md": card}
    again = hub(kernel, "--tag", "v1.0.0")
    assert (again["status"], again["commit"]) == ("no_changes", done["commit"])


def test_two_machines_publish_two_variants_and_both_survive(hub, writable, checkout):
    one, two = checkout("a"), checkout("b", backends=("cuda",))
    two.write("benchmarks/benchmark.py", "# older\n")
    two.write("benchmarks/benchmark_two.py", "# two\n")
    one.write("benchmarks/benchmark_one.py", "# one\n")
    hub(one)
    done = hub(two)
    assert done["plan"]["commits"][0]["stale_variants"] == ["torch-cpu"]
    assert done["plan"]["commits"][0]["withheld"] == ["benchmarks/benchmark.py"]
    found = writable.whole()
    both = {**built(two), **built(one)}
    assert without_card(found["v1"]) == both
    assert found["v1"]["README.md"] == b"acme/toy v1: ['torch-cpu', 'torch-cuda']\n"
    assert found["main"]["README.md"] == found["v1"]["README.md"]
    assert hub(one)["status"] == "no_changes", "who comes last has nothing to add"


def test_an_older_checkout_replaces_nothing(hub, writable, checkout):
    new, old = checkout("a"), checkout("b")
    new.write("torch-ext/toy/__init__.py", "def double(x):\n    return x + x\n")
    new.write("CARD.md", "newer {{ variants }}\n")
    new.build()
    hub(new)
    before = writable.whole()
    refused = hub(old, code=1)["error"]
    assert "published with other bytes than those here: torch-cpu" in refused
    assert "raise the version" in refused
    assert "--replace" in refused
    assert writable.whole() == before
    old.configure(backends=("cuda",))
    old.build()
    added = hub(old)
    assert any("did not come from this CARD.md" in note for note in added["plan"]["notes"])
    assert writable.whole()["v1"]["README.md"] == before["v1"]["README.md"]
    assert writable.whole()["main"] == before["main"]
    old.configure()
    old.build()
    hub(old, "--replace")
    assert built(old).items() <= writable.whole()["v1"].items()
    assert "build/torch-cuda/metadata.json" in writable.whole()["v1"]
    assert writable.whole()["main"]["README.md"].startswith(b"acme/toy")


def test_what_is_not_built_here_goes_by_plan_alone(hub, writable, checkout):
    both = checkout("a", backends=("cpu", "cuda"))
    hub(both)
    both.configure()
    both.build()
    assert hub(both)["status"] == "no_changes"
    planned = hub(both, "--prune", "--dry-run")["plan"]["commits"][0]["delete"]
    assert planned
    assert all(path.startswith("build/torch-cuda/") for path in planned)
    hub(both, "--prune")
    assert without_card(writable.whole()["v1"]) == built(both)


def test_a_second_version_begins_without_the_first(hub, writable, checkout):
    kernel = checkout("a", backends=("cpu", "cuda"))
    hub(kernel)
    first = writable.whole()["v1"]
    kernel.configure(version=2)
    kernel.build()
    hub(kernel)
    found = writable.whole()
    assert found["v1"] == first
    assert found["v2"] == {**built(kernel), "README.md": b"acme/toy v2: ['torch-cpu']\n"}
    assert found["main"]["README.md"] == found["v2"]["README.md"]


def test_a_branch_of_ones_own(hub, writable, checkout):
    hub(checkout("a"), "--branch", "feature/x")
    assert set(writable.whole()) == {"main", "feature/x"}
    assert "--branch" in hub(checkout("a"), "--branch", "a b", code=2)["error"]


def test_many_machines_publish_at_once_and_nothing_is_lost(hub, writable, checkout):
    """Who meets a conflict is told so; after that the same command goes on."""
    backends = ("cpu", "cuda", "rocm", "xpu")
    kernels = [checkout(each, backends=(each,)) for each in backends]

    def publish(kernel):
        for _ in range(len(kernels)):
            try:
                return hub(kernel)["status"]
            except AssertionError as err:
                assert "somebody else has published" in str(err)  # noqa: PT017
        return "gave up"

    # Whose card met a conflict finds on the second try that another's card names its variant, too.
    with ThreadPoolExecutor(len(kernels)) as pool:
        assert set(pool.map(publish, kernels)) <= {"uploaded", "no_changes"}
    found = writable.whole()
    assert set(found) == {"main", "v1"}
    wanted = {path: data for kernel in kernels for path, data in built(kernel).items()}
    assert without_card(found["v1"]) == wanted


def test_built_variants_without_their_project(hub, writable, checkout, tmp_path):
    kernel = checkout("a")
    (tmp_path / "artifacts").mkdir()
    (kernel.place / "build").rename(tmp_path / "artifacts/build")
    kernel.place = tmp_path / "artifacts"
    assert "there is no build.toml" in hub(kernel, code=2)["error"]
    assert hub(kernel, "--repo_id", "acme/toy")["branch"] == "v1"
    assert writable.whole()["v1"].keys() >= {"build/torch-cpu/metadata.json"}


def test_the_result_goes_to_a_file_too(hub, checkout, tmp_path):
    done = hub(checkout("a"), "--output-json", str(tmp_path / "done.json"))
    assert json.loads((tmp_path / "done.json").read_text()) == done
