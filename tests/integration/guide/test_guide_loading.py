"""What users copy from the README, the guides and the cards, with our own kernels on a hub that is a folder.

Time budget: 90 s, and a minute for the builds of the kernels.
"""

from __future__ import annotations

import json
import shutil

import pytest
from listings import get_listing

from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish

FALLBACK = """
import torch

x = torch.randn(4, 16)
a, b = x.chunk(2, dim=-1)
torch.testing.assert_close(silu_and_mul(x), torch.nn.functional.silu(a) * b)
print("kernel" if activation else "plain")
"""


@pytest.fixture
def user(reader, community):
    reader.environ["KERNELS_HUB"] = community
    return reader


def test_the_first_listing_of_the_readme(user):
    listing = get_listing("README.md", "import torch\nfrom kernels import get_kernel")
    after = "torch.testing.assert_close(y, torch.nn.functional.gelu(x, approximate='tanh'))"
    user.run(listing, after=after)


def test_load(user):
    listing = get_listing("docs/guide/load.md", "import torch\nfrom kernels import get_kernel")
    gate = "torch.nn.functional.silu(x[:, :8]) * x[:, 8:]"
    user.run(listing, after=f"torch.testing.assert_close(out, {gate})")


def test_a_library_that_falls_back(user):
    """The kernel where there is one; plain torch where there is none, no hub, or no consent."""
    library = get_listing("docs/guide/load.md", "import logging")
    assert user.run(library, after=FALLBACK) == "kernel\n"
    hub = user.environ["KERNELS_HUB"]
    for switch in ({"KERNELS_LOAD": "never"}, {"KERNELS_HUB": "http://127.0.0.1:9"}):
        user.environ |= switch | {"KERNELS_CACHE": str(user.folder / "empty")}
        assert user.run(library, after=FALLBACK) == "plain\n"
        user.environ |= {"KERNELS_HUB": hub, "KERNELS_LOAD": "allow"}


CARDS = {
    "activation": "torch.testing.assert_close(y, torch.nn.functional.gelu(x, approximate='tanh'))",
    "gemm": "assert c.shape == (M, N) and c.dtype is torch.bfloat16 and c.isfinite().all()",
    "img2gray": "assert grey.shape == (1080, 1920) and grey.dtype is torch.uint8",
    "triton-layer-norm": "torch.testing.assert_close("
    "y, torch.nn.functional.rms_norm(x.float(), (64,), weight.float(), 1e-6).half(), "
    "rtol=2e-3, atol=2e-3)",
}


@pytest.mark.parametrize("name", CARDS)
def test_cards(user, name):
    listings = {
        "activation": get_listing("kernels-community/activation/CARD.md", "import torch"),
        "gemm": get_listing("kernels-community/gemm/CARD.md", "import torch"),
        "img2gray": get_listing("kernels-community/img2gray/CARD.md", "import torch"),
        "triton-layer-norm": get_listing(
            "kernels-community/triton-layer-norm/CARD.md", "import torch"
        ),
    }
    listing = listings[name].replace("{{ repo_id }}", f"kernels-community/{name}")
    user.run(listing, after=CARDS[name])


def test_cache(user):
    user.run("import kernels; kernels.install_kernel('kernels-community/img2gray', version=1)")
    said = user.type(get_listing("docs/guide/cache.md", "kernels cache list"))
    assert "kernels-community/img2gray" in said
    assert list((user.folder / "cache/store-v1/variants").iterdir())


def test_benchmark(user, projects):
    """The command of the page, and its own benchmark in the place of the kernel's."""
    few = '--only "silu 16x4096 float16" --rounds 3'
    user.replaced = {"activation@v1": f"activation@v1 {few}"}
    said = user.type(get_listing("docs/guide/benchmark.md", "kernels benchmark"))
    assert "silu" in said
    project = user.folder / "activation"
    shutil.copytree(projects["activation"], project)
    shutil.rmtree(project / "benchmarks")
    (project / "benchmarks").mkdir()
    listing = get_listing("docs/guide/benchmark.md", "import torch\nfrom kernels.bench")
    (project / "benchmarks/benchmark.py").write_text(listing)
    said = user.type("kernels benchmark activation --device cpu --rounds 3 --json")
    rows = json.loads(said)["rows"]
    assert {row["kernel"].rpartition(".")[2] for row in rows} == {"silu"}
    assert not any(row["wrong"] for row in rows)


def test_a_variant_that_is_missing_is_built(user, compiler, builder_cache):
    """The listing of the page, where the only variant is one for another processor."""
    user.environ |= {"XDG_CACHE_HOME": builder_cache}
    user.type("kernel-builder init --name acme/toy --backends cpu && kernel-builder build toy")
    hub = DirectoryHub(user.folder / "hub")
    hub.root.mkdir()
    project = user.folder / "toy"
    other = "torch-stable-abi210-cpu-aarch64-linux"
    [variant] = (project / "build").iterdir()
    files = {f"build/{other}/{path.name}": path for path in variant.iterdir()}
    for folder in ("csrc", "torch-ext"):
        files |= {
            f"src/{path.relative_to(project).as_posix()}": path
            for path in (project / folder).rglob("*")
            if path.is_file()
        }
    files["src/build.toml"] = project / "build.toml"
    publish(hub, RepoId("acme", "toy"), files, branch="v1", parent=None)
    user.environ["KERNELS_HUB"] = hub.root.as_uri()
    listing = get_listing("docs/guide/many-processes.md", "from kernels import get_kernel")
    checked = "import torch; print(toy.add_one(torch.ones(2)).tolist())"
    assert user.run(listing, after=checked) == "[2.0, 2.0]\n"


def test_a_kernel_that_needs_another(user, builder_cache):
    """The line of the page in a kernel of its own, built and published as the base that it names."""
    hub = f"file://{user.folder}/hub"
    user.environ |= {"XDG_CACHE_HOME": builder_cache, "KERNELS_HUB": hub}
    user.type("kernel-builder init --name org/base --noarch && kernel-builder build base")
    user.type("kernel-builder upload base && kernel-builder init --name org/user --noarch")
    toml = user.folder / "user/build.toml"
    needs = 'kernel-depends = [{ repo-id = "org/base", version = 1 }]'
    toml.write_text(toml.read_text().replace("[general]\n", f"[general]\n{needs}\n"))
    listing = get_listing("docs/guide/load.md", "from kernels import get_kernel_dep")
    module = user.folder / "user/torch-ext/user/__init__.py"
    module.write_text(f"{listing}\nadd_one = base.add_one\n")
    user.type("kernel-builder build user && kernel-builder upload user")
    used = "import torch, kernels\nuser = kernels.get_kernel('org/user')\n"
    assert user.run(f"{used}print(user.add_one(torch.ones(2)).tolist())") == "[2.0, 2.0]\n"
