"""Building what no variant fits, with a builder that copies the sources: what is built, and when it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kernels
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.errors import FormatError, KernelError, UsageError
from kernel_spec.system import Device
from kernel_spec.wire import TreeFile
from kernels.errors import DeviceError, NoVariantError, SourceBuildError, TrustError
from kernels.from_source import key_of
from kernels.load import forget
from kernels.system import detect

CUDA = {"torch-cuda": {"__init__.py": "VALUE = 0\n"}}


@pytest.fixture
def builder(monkeypatch, make_variant):
    """Install a builder whose variant says what the sources say; return the calls to it."""
    calls = []

    class Entry:
        @staticmethod
        def load():
            return build

    def build(project, system, backend):
        calls.append((project, system.backend.kind, backend))
        text = (project / "value.py").read_text()
        if "broken" in text:
            raise KernelError("value.py:1: broken")
        return make_variant(project / "build" / "torch-cpu", {"__init__.py": text})

    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [Entry])
    return calls


@pytest.fixture
def publish(publisher):
    """Publish a variant for CUDA alone, with sources."""

    def publish(value="VALUE = 1\n", path="value.py"):
        extra = {f"src/{path}": value, "src/build.toml": "[general]\n"}
        return publisher.publish("acme/toy", variants=CUDA, extra=extra, backend=BackendKind.CUDA)

    return publish


def load(**arguments):
    return kernels.get_kernel("acme/toy", build_from_source="missing", **arguments)


def test_what_is_missing_is_built_once_and_found_by_the_next_process(publish, builder, cache):
    publish()
    assert load().VALUE == 1
    assert [call[1:] for call in builder] == [(BackendKind.CPU, None)]
    forget()
    assert load().VALUE == 1
    assert len(builder) == 1
    assert list((cache / "tmp").iterdir()) == []


def test_other_sources_are_another_build(publish, builder):
    publish()
    assert load().VALUE == 1
    publish("VALUE = 2\n")
    assert load().VALUE == 2
    assert len(builder) == 2


def test_a_variant_that_fits_is_taken_as_it_is(publisher, builder):
    publisher.publish("acme/toy")
    assert load().VALUE == 1
    assert builder == []


def test_what_has_no_code_for_the_device_is_built_for_it(publisher, builder, monkeypatch):
    system = replace(
        detect(), backend=Backend(BackendKind.CUDA), devices=(Device("10.0", "B200", 0),)
    )
    for module in ("choose", "local", "load", "from_source"):
        monkeypatch.setattr(f"kernels.{module}.detect", lambda: system, raising=False)
    monkeypatch.setattr("kernels.from_source.detect_devices", lambda system: system)
    extra = {"src/value.py": "VALUE = 1\n", "src/build.toml": "[general]\n"}
    publisher.publish(
        "acme/toy", variants=CUDA, extra=extra, backend=BackendKind.CUDA, archs=("8.0", "9.0a")
    )
    with pytest.raises(DeviceError, match="torch-cuda: built for"):
        kernels.get_kernel("acme/toy")
    assert builder == []
    assert load().VALUE == 1
    assert [call[1:] for call in builder] == [(BackendKind.CUDA, None)]


def test_a_damaged_build_is_built_again(publish, builder, cache):
    publish()
    load()
    forget()
    [place] = cache.glob("variants/*/torch-cpu")
    (place / "__init__.py").write_text("raise SystemExit\n")
    assert load().VALUE == 1
    assert len(builder) == 2


def test_a_build_that_fails_says_why_nothing_fits_and_what_broke(publish, builder, cache):
    publish("broken")
    with pytest.raises(SourceBuildError) as error:
        load()
    assert "runs on cuda, this system has cpu" in str(error.value)
    assert "value.py:1: broken" in str(error.value)
    assert isinstance(error.value, FileNotFoundError)
    assert [decision.name for decision in error.value.decisions] == ["torch-cuda"]
    assert list((cache / "tmp").iterdir()) == []


def test_a_stranger_needs_consent_before_anything_is_fetched(publish, builder, web):
    publish()
    web.trusted.clear()
    with pytest.raises(TrustError):
        load()
    assert not any("src" in line for line in web.requests)
    assert load(trust_remote_code=True).VALUE == 1


def test_offline_what_was_built_is_found_and_nothing_new_is_built(
    publish, builder, web, monkeypatch
):
    publish()
    assert load().VALUE == 1
    forget()
    web.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load().VALUE == 1
    assert (web.requests, len(builder)) == ([], 1)


def test_offline_without_the_listing_of_the_sources(publish, builder, web, monkeypatch):
    publish()
    with pytest.raises(NoVariantError):
        kernels.get_kernel("acme/toy")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SourceBuildError):
        load(trust_remote_code=True)
    assert builder == []


def test_sources_that_are_not_those_of_the_listing_are_not_built(publish, builder, web):
    publish()
    web.fault = lambda path: (200, {}, b"VALUE = 9\n") if "/src/value.py" in path else None
    with pytest.raises(KernelError, match="other bytes than its listing promises"):
        load()
    assert builder == []


def test_a_path_that_leaves_the_project_is_refused(publish, builder, web, monkeypatch):
    publish()
    monkeypatch.setattr(
        "kernels.from_source._list_sources",
        lambda located, request: (TreeFile(path="../../evil.py", size=1, oid="0" * 40),),
    )
    with pytest.raises(FormatError):
        load()
    assert builder == []


@pytest.mark.parametrize("word", ["always", True, ""])
def test_any_other_word_is_wrong_usage(publish, word):
    with pytest.raises(UsageError, match='expected None or "missing"'):
        kernels.get_kernel("acme/toy", build_from_source=word)


def test_the_key_of_a_build_names_everything_that_went_in():
    files = (
        TreeFile(path="build.toml", size=3, oid="0" * 40),
        TreeFile(path="a.cu", size=5, oid="1" * 40),
    )
    system = detect()
    assert system.torch is not None
    keys = {
        key_of(files, system, None),
        key_of(files, system, BackendKind.CPU),
        key_of((files[0], files[1]._replace(oid="2" * 40)), system, None),
        key_of((files[0], files[1]._replace(path="b.cu")), system, None),
        key_of(files, replace(system, torch=replace(system.torch, version="2.14.0a0")), None),
        key_of(files, replace(system, cpu="aarch64"), None),
        key_of(files, replace(system, devices=(Device("9.0", "one", 0),)), None),
        key_of(files, replace(system, devices=(Device("8.0", "one", 0),)), None),
    }
    assert len(keys) == 8
    assert key_of(files, system, None) == key_of(files[::-1], system, None)
    two = (Device("9.0", "one", 0), Device("9.0", "two", 1))
    assert key_of(files, replace(system, devices=two), None) in keys, "how many is no matter"
