"""What a user of ``get_kernel`` and its siblings sees with a directory hub."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import traceback
from pathlib import Path

import pytest

import kernels
from kernel_spec import publishing
from kernel_spec.backend import BackendKind
from kernel_spec.errors import MetadataError, UsageError
from kernel_spec.names import RepoId
from kernels.errors import (
    CacheError,
    ClientTooOldError,
    HubUnreachableError,
    NotCachedError,
    NoVariantError,
    RepoNotFoundError,
    RevisionNotFoundError,
    SettingsError,
    VersionNotFoundError,
)
from kernels.load import forget, load_with_trace

OTHER = {"torch-cpu": {"__init__.py": "VALUE = 2\n"}}


def test_one_line_loads_a_published_kernel(publisher):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    assert toy.double(21) == 42
    assert "double" in dir(toy)


def test_a_repeat_gives_the_same_module_and_reads_no_file(publisher, monkeypatch):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    monkeypatch.setattr(Path, "open", None)
    monkeypatch.setattr(Path, "read_bytes", None)
    assert kernels.get_kernel("acme/toy") is toy


def test_neither_version_nor_revision_takes_the_highest_version_and_says_so_once(publisher, caplog):
    publisher.publish("acme/toy", branch="v2")
    publisher.publish("acme/toy", branch="v10", variants=OTHER)
    with caplog.at_level(logging.INFO, "kernels"):
        assert kernels.get_kernel("acme/toy").VALUE == 2
        kernels.get_kernel("acme/toy")
        kernels.get_kernel("acme/toy", refresh=True)
    said = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert len(said) == 1
    assert "acme/toy: taking branch v10" in said[0]


def test_version_branch_tag_commit_and_short_commit_name_the_same_content(publisher):
    commit = publisher.publish("acme/toy", branch="v1", tags=("v1.0.0",))
    publisher.publish("acme/toy", branch="v2", variants=OTHER)
    one = kernels.get_kernel("acme/toy", version=1)
    assert one.VALUE == 1
    for revision in ("v1", "v1.0.0", commit, commit[:7], "refs/heads/v1"):
        assert kernels.get_kernel("acme/toy", revision=revision) is one
    assert kernels.get_kernel("acme/toy", "v1") is one
    assert kernels.get_kernel("acme/toy", version=2).VALUE == 2


def test_a_new_commit_is_seen_by_the_next_call(publisher):
    publisher.publish("acme/toy")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    publisher.publish("acme/toy", variants=OTHER)
    assert kernels.get_kernel("acme/toy").VALUE == 2


def test_unknown_repository_suggests_near_names(publisher):
    publisher.publish("acme/toy")
    with pytest.raises(RepoNotFoundError, match="Did you mean acme/toy") as error:
        kernels.get_kernel("acme/tpy")
    assert isinstance(error.value, LookupError)
    assert error.value.exit_code == 1


def test_unknown_version_names_those_there_are(publisher):
    for branch in ("v1", "v9", "v10"):
        publisher.publish("acme/toy", branch=branch)
    with pytest.raises(VersionNotFoundError, match="1, 9, 10") as error:
        kernels.get_kernel("acme/toy", version=3)
    assert isinstance(error.value, ValueError)
    assert error.value.versions == (1, 9, 10)


def test_unknown_revision_names_branches_and_tags(publisher):
    publisher.publish("acme/toy", tags=("v1.0.0",))
    for revision in ("feature", "abcdef1", "f" * 40):
        with pytest.raises(RevisionNotFoundError) as error:
            kernels.get_kernel("acme/toy", revision=revision)
    with pytest.raises(RevisionNotFoundError, match=r"Branches: v1; tags: v1\.0\.0"):
        kernels.get_kernel("acme/toy", revision="feature")
    assert isinstance(error.value, LookupError)


def test_no_fitting_variant_lists_each_reason_and_another_version_that_fits(publisher):
    publisher.publish("acme/toy", branch="v1")
    publisher.publish(
        "acme/toy",
        branch="v2",
        variants={"torch-cuda": {}, "torch201-cxx11-cpu-riscv-linux": {}, "hello": {"a.py": ""}},
    )
    with pytest.raises(NoVariantError) as error:
        kernels.get_kernel("acme/toy", version=2)
    message = str(error.value)
    assert "torch-cuda: " in message
    assert "riscv" in message
    assert "hello: " in message
    assert "version 1 has a variant that fits (torch-cpu)" in message
    assert isinstance(error.value, FileNotFoundError)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"version": 1, "revision": "v1"}, "not both"),
        ({"version": "one"}, "expected a version or a range"),
        ({"version": True}, "expected a number"),
        ({"version": -1}, "expected a number"),
        ({"backend": "gpu"}, "expected one of .*cuda"),
    ],
)
def test_wrong_arguments_are_usage_errors(publisher, arguments, words):
    publisher.publish("acme/toy")
    with pytest.raises(UsageError, match=words) as error:
        kernels.get_kernel("acme/toy", **arguments)
    assert error.value.exit_code == 2


def test_the_url_of_a_folder_may_name_this_host_and_no_other(publisher, monkeypatch):
    publisher.publish()
    monkeypatch.setenv("KERNELS_HUB", f"file://localhost{publisher.hub.root}")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    monkeypatch.setenv("KERNELS_HUB", f"file://elsewhere{publisher.hub.root}")
    with pytest.raises(SettingsError, match="elsewhere"):
        kernels.get_kernel("acme/toy")


def test_a_repository_id_is_owner_and_name():
    with pytest.raises(UsageError, match="owner/name"):
        kernels.get_kernel("toy")


def test_metadata_from_the_future_says_which_client_it_needs(publisher):
    publisher.publish("acme/toy", minver=(99, 1, 0))
    with pytest.raises(ClientTooOldError, match=r"99\.1\.0 or later; this is 0\.18") as error:
        kernels.get_kernel("acme/toy")
    assert isinstance(error.value, RuntimeError)
    assert not kernels.has_kernel("acme/toy")


def test_a_variant_from_the_future_gives_way_to_the_next_one(publisher, make_variant, tmp_path):
    build = tmp_path / "project" / "build"
    make_variant(build / "torch-cpu", minver=(99, 1, 0))
    make_variant(build / "torch-universal", {"__init__.py": "VALUE = 3\n"})
    assert kernels.get_local_kernel(tmp_path / "project").VALUE == 3


def future(variant, **changes):
    """Make a variant's metadata one of a later time."""
    document = json.loads((variant / "metadata.json").read_text())
    (variant / "metadata.json").write_text(json.dumps({**document, **changes}))


def publish_project(publisher, project):
    paths = {
        path.relative_to(project).as_posix(): path for path in project.rglob("*") if path.is_file()
    }
    publishing.publish(publisher.hub, RepoId("acme", "toy"), paths, branch="v1", parent=None)


def test_metadata_of_a_form_that_does_not_exist_yet_names_the_client_too(
    publisher, make_variant, tmp_path
):
    variant = make_variant(tmp_path / "p" / "build" / "torch-cpu")
    future(variant, backend=["cpu", "cuda"], **{"kernels-minver": "9.0.0"})
    publish_project(publisher, tmp_path / "p")
    for load in (
        lambda: kernels.get_kernel("acme/toy"),
        lambda: kernels.get_local_kernel(tmp_path / "p"),
    ):
        with pytest.raises(ClientTooOldError, match=r"9\.0\.0 or later"):
            load()


def test_a_backend_that_does_not_exist_yet_is_passed_over_with_a_warning(
    publisher, make_variant, tmp_path, warnings_of
):
    future(make_variant(tmp_path / "p" / "build" / "torch-cpu"), backend={"type": "quantum"})
    publish_project(publisher, tmp_path / "p")
    for load in (
        lambda: kernels.get_kernel("acme/toy"),
        lambda: kernels.get_local_kernel(tmp_path / "p"),
    ):
        with pytest.raises(
            NoVariantError, match="torch-cpu: is for a backend that this client does not know"
        ):
            load()
    assert all("quantum" in line for line in warnings_of())
    make_variant(tmp_path / "p" / "build" / "torch-universal", {"__init__.py": "VALUE = 6\n"})
    assert kernels.get_local_kernel(tmp_path / "p").VALUE == 6


def test_broken_metadata_is_not_passed_over(publisher, make_variant, tmp_path, cache):
    future(make_variant(tmp_path / "p" / "build" / "torch-cpu"), version="one")
    publish_project(publisher, tmp_path / "p")
    with pytest.raises(MetadataError, match="version"):
        kernels.get_kernel("acme/toy")
    assert not (cache / "variants").exists()


def test_a_variant_without_metadata_is_passed_over(publisher, make_variant, tmp_path):
    variant = make_variant(tmp_path / "p" / "build" / "torch-cpu")
    (variant / "metadata.json").unlink()
    publish_project(publisher, tmp_path / "p")
    with pytest.raises(NoVariantError, match=r"torch-cpu: has no metadata\.json"):
        kernels.get_kernel("acme/toy")


def test_an_unwritable_cache_names_the_path_and_the_variable(publisher, tmp_path, monkeypatch):
    publisher.publish("acme/toy")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=r"file/cache.*Set KERNELS_CACHE") as error:
        kernels.get_kernel("acme/toy")
    assert isinstance(error.value, OSError)
    assert "During handling" not in "".join(traceback.format_exception(error.value))


def test_offline_after_an_online_load_gives_the_same_kernel(publisher, monkeypatch):
    publisher.publish("acme/toy")
    first = kernels.get_kernel("acme/toy", version=1)
    shutil.rmtree(publisher.hub.root)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    forget()
    assert kernels.get_kernel("acme/toy", version=1) is first
    assert kernels.get_kernel("acme/toy") is first


def test_offline_and_never_loaded_says_what_to_do(publisher, monkeypatch):
    shutil.rmtree(publisher.hub.root, ignore_errors=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for arguments in ({}, {"version": 1}, {"revision": "a" * 40}):
        with pytest.raises(NotCachedError, match="HF_HUB_OFFLINE"):
            kernels.get_kernel("acme/toy", **arguments)
    assert not kernels.has_kernel("acme/toy")


def test_offline_with_the_listing_but_without_the_variant(publisher, monkeypatch):
    publisher.publish(
        "acme/toy", variants={"torch-cpu": {"a.py": ""}, "torch-universal": {"a.py": ""}}
    )
    assert kernels.has_kernel("acme/toy")
    shutil.rmtree(publisher.hub.root)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotCachedError, match="fits, but is not in the cache"):
        kernels.get_kernel("acme/toy")


def test_offline_a_folder_that_is_there_is_still_a_hub(publisher, monkeypatch):
    publisher.publish("acme/toy")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert kernels.get_kernel("acme/toy", version=1) is kernels.get_kernel("acme/toy")


def test_a_directory_hub_that_vanished_is_replaced_by_its_record(publisher, warnings_of):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    shutil.rmtree(publisher.hub.root)
    assert kernels.get_kernel("acme/toy") is toy
    assert kernels.get_kernel("acme/toy") is toy
    assert len(warnings_of()) == 1
    assert "seconds ago" in warnings_of()[0]
    with pytest.raises(HubUnreachableError, match="not a directory"):
        kernels.get_kernel("acme/toy", refresh=True)


def test_hubs_are_asked_in_order_and_a_bound_owner_only_at_its_own(
    publisher, tmp_path, monkeypatch
):
    publisher.publish("acme/toy")
    (tmp_path / "empty").mkdir()
    empty = f"file://{tmp_path / 'empty'}"
    monkeypatch.setenv("KERNELS_HUB", f"{empty} {publisher.url}")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    monkeypatch.setenv("KERNELS_HUB", f"acme={empty} {publisher.url}")
    with pytest.raises(RepoNotFoundError):
        kernels.get_kernel("acme/toy")


def test_an_unreachable_hub_is_not_passed_over(publisher, tmp_path, monkeypatch):
    publisher.publish("acme/toy")
    monkeypatch.setenv("KERNELS_HUB", f"file://{tmp_path / 'unmounted'} {publisher.url}")
    with pytest.raises(HubUnreachableError, match="unmounted"):
        kernels.get_kernel("acme/toy")


def test_wrong_settings_name_the_variable(publisher, monkeypatch):
    monkeypatch.setenv("KERNELS_HUB", "file://server/share")
    with pytest.raises(SettingsError, match="KERNELS_HUB"):
        kernels.get_kernel("acme/toy")


def test_has_kernel_answers_and_runs_nothing(publisher):
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "raise SystemExit\n"}})
    assert kernels.has_kernel("acme/toy")
    assert kernels.has_kernel("acme/toy", version=1)
    assert not kernels.has_kernel("acme/toy", version=2)
    assert not kernels.has_kernel("acme/toy", revision="nope")
    assert not kernels.has_kernel("acme/other")
    assert not kernels.has_kernel("acme/toy", backend="cuda")


def test_install_kernel_downloads_and_imports_nothing(publisher):
    publisher.publish("acme/toy", variants={"torch-cpu": {"__init__.py": "raise SystemExit\n"}})
    path = kernels.install_kernel("acme/toy", version=1)
    assert path.name == "torch-cpu"
    assert (path / "__init__.py").read_text() == "raise SystemExit\n"
    assert kernels.install_kernel("acme/toy", "v1", local_files_only=True) == path
    assert all(str(path) not in str(k.module.__file__) for k in kernels.get_loaded_kernels())


def test_variants_are_listed_with_reasons(publisher):
    publisher.publish("acme/toy", variants={"torch-cuda": {"a.py": ""}, "torch-cpu": {"a.py": ""}})
    accepted, rejected = kernels.get_kernel_variants("acme/toy")
    assert isinstance(accepted, kernels.VariantAccepted)
    assert accepted.name == "torch-cpu"
    assert isinstance(rejected, kernels.VariantRejected)
    assert "cuda" in rejected.reason


def test_loaded_kernels_are_listed_with_their_origin(publisher, make_variant, tmp_path):
    commit = publisher.publish("acme/toy")
    kernels.get_kernel("acme/toy")
    local = kernels.get_local_kernel(make_variant(tmp_path / "x" / "torch-cpu"))
    *_, from_hub, from_path = kernels.get_loaded_kernels()
    assert from_hub.repo_info == kernels.RepoInfo("acme/toy", commit)
    assert from_hub.metadata.name == "toy"
    assert from_path.module is local
    assert from_path.repo_info is None


def test_backend_is_respected(publisher):
    publisher.publish("acme/toy", variants={"torch-cuda": {"a.py": ""}}, backend=BackendKind.CUDA)
    with pytest.raises(NoVariantError):
        kernels.get_kernel("acme/toy", backend="cpu")


def test_the_trace_names_each_step(publisher):
    publisher.publish("acme/toy")
    cold = load_with_trace("acme/toy")
    assert [phase.name for phase in cold.phases] == [
        "prepare",
        "locate",
        "choose",
        "trust",
        "install",
        "import",
    ]
    assert cold.downloaded
    assert cold.seconds > 0
    assert cold.source == publisher.url
    assert not load_with_trace("acme/toy").downloaded


def test_nothing_is_left_in_the_temporary_folder(publisher, cache):
    publisher.publish("acme/toy")
    kernels.get_kernel("acme/toy")
    assert list((cache / "tmp").iterdir()) == []


def test_threads_that_call_at_once_share_one_install(publisher, cache):
    publisher.publish("acme/toy")
    barrier = threading.Barrier(6)
    modules = []

    def call() -> None:
        barrier.wait()
        modules.append(kernels.get_kernel("acme/toy"))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(modules) == 6
    assert len(set(modules)) == 1
    assert len(list((cache / "variants").iterdir())) == 1


def test_a_variant_of_a_later_time_is_reported_and_skipped(publisher):
    later = {"torch-cpu": {"__init__.py": ""}, "jax-cpu-x86_64-linux": {"__init__.py": ""}}
    publisher.publish("acme/toy", variants=later)
    accepted, unknown = kernels.get_kernel_variants("acme/toy")
    assert accepted.variant.variant_str == "torch-cpu"
    assert unknown.variant.variant_str == str(unknown.variant) == "jax-cpu-x86_64-linux"
    assert "jax" in unknown.reason
