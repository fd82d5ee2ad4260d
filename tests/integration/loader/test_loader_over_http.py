"""The loader against our own hub over HTTP, with the installed huggingface_hub and an old one."""

from __future__ import annotations

from collections import Counter

import pytest

OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.fixture
def web(serve, root, commit):
    hub = serve(root, trusted=("acme",))
    yield hub
    hub.stop()


def asked(hub):
    return Counter(f"{request.method} {request.path}" for request in hub.requests())


def test_cold_then_warm_then_offline_then_without_the_hub(web, machine, commit):
    machine.hub = web.url
    assert machine.run() == "1"
    cold = asked(web)
    assert set(cold.values()) == {1}, cold
    assert not any(line.startswith("HEAD") for line in cold)
    assert len([line for line in cold if "/resolve/" in line]) == 5
    assert len(cold) == 5 + 3, "refs, tree, overview and the files"
    assert machine.run() == "1"
    assert asked(web) == cold, "a warm start asks nothing"
    web.stop()
    assert machine.run(**OFFLINE) == "1"
    pinned = f"import kernels; print(kernels.get_kernel('acme/toy', revision={commit!r}).VALUE)"
    assert machine.run(pinned, KERNELS_REF_TTL="0") == "1"
    assert machine.run(KERNELS_REF_TTL="0") == "1", "the record stands in for a hub that is gone"


def test_the_oldest_supported_huggingface_hub(web, machine, old_hub_client):
    machine.hub = web.url
    machine.python = old_hub_client
    code = "import huggingface_hub; assert huggingface_hub.__version__.startswith('1.10.')\n"
    assert machine.run(code + "import kernels; print(kernels.get_kernel('acme/toy').VALUE)") == "1"
    for name in ("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        assert (
            machine.run(
                "import kernels; print(kernels.get_kernel('acme/toy', refresh=True).VALUE)",
                **{name: "1"},
            )
            == "1"
        )


def test_without_telemetry(web, machine):
    machine.hub = web.url
    assert machine.run(HF_HUB_DISABLE_TELEMETRY="1") == "1"


def test_the_endpoint_alone_suffices(web, machine):
    machine.hub = ""
    assert machine.run(HF_ENDPOINT=web.url) == "1"


def test_processes_that_start_at_once_share_one_download(web, machine):
    machine.hub = web.url
    processes = [machine.start() for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "1"), err
    files = {line: n for line, n in asked(web).items() if "/resolve/" in line}
    # Each process reads metadata.json to choose; the rest is fetched once for all.
    assert {n for line, n in files.items() if not line.endswith("metadata.json")} == {1}, files
    assert len(list((machine.store / "variants").iterdir())) == 1


def test_strangers_are_refused_and_the_command_makes_them_welcome(serve, root, machine, commit):
    hub = serve(root)
    machine.hub = hub.url
    err = machine.run(code_expected=1)
    assert "TrustError" in err
    assert "kernels trust add acme" in err
    cli = "import sys; from kernels.cli import main; main({!r})"
    assert machine.run(cli.format(["trust", "add", "acme"])) == f"trusting acme on {hub.url}"
    assert machine.run() == "1"
    hub.stop()


def test_unknown_things(web, machine):
    machine.hub = web.url
    call = "import kernels; kernels.get_kernel({})"
    assert "RepoNotFoundError" in machine.run(call.format("'acme/none'"), code_expected=1)
    assert "VersionNotFoundError" in machine.run(
        call.format("'acme/toy', version=9"), code_expected=1
    )
    unknown = call.format("'acme/toy', revision='0' * 40")
    assert "RevisionNotFoundError" in machine.run(unknown, code_expected=1)
    assert machine.run("import kernels; print(kernels.has_kernel('acme/none'))") == "False"


def test_damage_is_repaired_online(web, machine):
    machine.hub = web.url
    machine.run()
    [path] = machine.store.glob("variants/*/torch-cpu/a.py")
    path.write_text("raise SystemExit\n")
    assert "IntegrityError" in machine.run(code_expected=1, **OFFLINE)
    assert machine.run() == "1"
    assert machine.run(**OFFLINE) == "1"
