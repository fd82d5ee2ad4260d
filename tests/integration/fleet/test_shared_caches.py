"""Caches that are read-only, belong to another user, are full, or were filled by the published client."""

from __future__ import annotations

import os

import pytest
from lacking import require_commands

LOAD = "import kernels; print(kernels.get_kernel('acme/toy').VALUE)"
OFFLINE = {"HF_HUB_OFFLINE": "1"}
# Files of at most so many bytes can be written, as on a disk that is full.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))\n"
# root may write everywhere unless it gives that up.
NO_MORE_THAN_OTHERS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture(autouse=True)
def published(root, publish):
    return publish(root)


@pytest.fixture
def hand_over(host):
    """Give the cache to another user, so that this one may only read it from now on."""

    def change():
        for path in [host.cache, *host.cache.rglob("*")]:
            if os.geteuid() == 0:
                os.chown(path, 65534, 65534)
            else:
                path.chmod(path.stat().st_mode & 0o555)
        if os.geteuid() == 0:
            require_commands("setpriv")
            host.wrapper = NO_MORE_THAN_OTHERS

    yield change
    for path in [host.cache, *host.cache.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


def snapshot(folder):
    return {
        path.relative_to(folder).as_posix(): path.lstat().st_mtime_ns for path in folder.rglob("*")
    }


@pytest.mark.parametrize("environ", [{}, OFFLINE, {"KERNELS_REF_TTL": "0"}])
def test_another_users_cache_is_read_and_never_written(web, host, hand_over, environ):
    assert host.run() == "1"
    hand_over()
    before = snapshot(host.cache)
    assert host.run(**environ) == "1"
    assert snapshot(host.cache) == before


def test_what_another_users_cache_lacks_is_an_error_of_the_cache(
    web, host, hand_over, root, publish
):
    assert host.run() == "1"
    publish(root, {"__init__.py": "VALUE = 2\n"}, repo="acme/second")
    hand_over()
    said = host.run(LOAD.replace("toy", "second"), fails=True)
    assert "CacheError" in said
    assert "KERNELS_CACHE" in said


@pytest.mark.parametrize("limit", [0, 1000, 50_000])
def test_a_full_disk_leaves_nothing_and_says_so(web, host, limit):
    said = host.run(FULL.format(limit) + LOAD, fails=True)
    assert "CacheError" in said
    assert "has room" in said
    assert not (host.store / "variants").exists()
    assert not (host.store / "tmp").exists() or list((host.store / "tmp").iterdir()) == []
    assert host.run() == "1"


def test_a_disk_that_fills_after_the_load_harms_nobody(web, host):
    assert host.run() == "1"
    assert host.run(FULL.format(0) + LOAD, KERNELS_REF_TTL="0") == "1"


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "a.py").write_text("VALUE = 6\n"),
        lambda place: (place / "data.bin").write_bytes(b""),
        lambda place: (place / "a.py").unlink(),
        lambda place: (place / "extra.py").write_text("import os\n"),
    ],
    ids=["changed", "emptied", "gone", "added"],
)
def test_damage_is_repaired_online_by_one_of_many_and_refused_offline(web, host, finish, damage):
    assert host.run() == "1"
    [place] = host.store.glob("variants/*/torch-cpu")
    damage(place)
    assert "IntegrityError" in host.run(fails=True, **OFFLINE)
    before = len(web.requests())
    assert finish([host.start() for _ in range(4)]) == ["1"] * 4
    assert len(web.requests()) - before <= 4, "one of them fetched the four files anew"
    assert host.run(**OFFLINE) == "1"


def test_a_cache_that_the_published_client_filled_serves_many_offline(web, host, reference, finish):
    theirs = host.home / "theirs"
    theirs.mkdir()
    code = "import kernels; result = kernels.get_kernel('acme/toy', version=1).VALUE"
    assert reference.python(web, theirs, code) == 1
    host.environ["HF_HUB_CACHE"] = str(theirs / "hf" / "hub")
    consenting = LOAD.replace("'acme/toy'", "'acme/toy', trust_remote_code=True")
    before = len(web.requests())
    assert finish([host.start(consenting, **OFFLINE) for _ in range(3)]) == ["1"] * 3
    assert len(web.requests()) == before
