"""The guides for those who write, check and publish kernels, run as they are printed, for the CPU.

Time budget: 3 minutes.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
from listings import find_unsaid, get_listing, parse_session


def plain(text: str) -> str:
    """Take hashes and sizes out of what is printed: they change with every edit."""
    text = re.sub(r"_cpu_[0-9a-f]{12}", "_cpu_…", text)
    return re.sub(r"\b[\d.]+ (bytes|kB|MB)\b", "N", text)


@pytest.fixture(scope="module")
def author(read, compiler, builder_cache, tmp_path_factory):
    """Who has done all of the first listing, with a hub in a folder of their own."""
    author = read(tmp_path_factory.mktemp("author") / "here")
    author.environ |= {"XDG_CACHE_HOME": builder_cache}
    # CUDA's compiler would be fetched; the groups of CUDA builds do that.
    author.replaced = {"--backends cpu cuda": "--backends cpu"}
    listing = get_listing("docs/guide/write-a-kernel.md", "$ kernel-builder init --name me/fresh")
    author.said = [author.type(command) for command, _ in parse_session(listing)]
    return author


@pytest.fixture
def inside(author, read, tmp_path):
    """The same person in a copy of the project, of which each test has its own."""
    reader = read(tmp_path / "place")
    shutil.copytree(author.folder / "fresh", tmp_path / "place/fresh")
    reader.environ |= {
        "XDG_CACHE_HOME": author.environ["XDG_CACHE_HOME"],
        "HOME": str(tmp_path / "place"),
    }
    reader.folder = tmp_path / "place/fresh"
    reader.replaced = {"/srv": str(tmp_path / "srv")}
    return reader


def test_write_a_kernel(author):
    made, built, tested, checked, published = author.said
    assert "fresh/build.toml" in made
    assert "torch-stable-abi210-cpu-x86_64-linux" in built
    assert " passed" in tested
    assert "the gate passes 2 cases" in checked
    assert "published me/fresh v1 at" in published


def test_an_extension_of_cpp_extension(inside):
    """A function of C++ reaches Python by the two listings of the page."""
    inside.folder = inside.folder.parent
    inside.type("kernel-builder init --name me/ext --backends cpu")
    project = inside.folder / "ext"
    files = {
        "torch-ext/torch_binding.cpp": get_listing(
            "docs/guide/write-a-kernel.md", "#include <ATen/ATen.h>"
        ),
        "torch-ext/ext/__init__.py": get_listing(
            "docs/guide/write-a-kernel.md", "from ._ops import ops"
        ),
        "csrc/ext_cpu.cpp": "#include <ATen/ATen.h>\n"
        "at::Tensor f(at::Tensor x) { return x + 1; }\n",
    }
    for place, text in files.items():
        assert (project / place).is_file()
        (project / place).write_text(text)
    toml = project / "build.toml"
    toml.write_text(toml.read_text().replace(', "torch-ext/torch_binding.h"', ""))
    inside.type("kernel-builder build ext")
    used = "import kernels, torch\nprint(kernels.get_local_kernel('ext').f(torch.ones(2)).tolist())"
    assert inside.run(used) == "[2.0, 2.0]\n"


def test_publish(inside, tmp_path):
    """The plan is the one of the page, but for sizes and hashes."""
    listing = get_listing("docs/guide/publish.md", "$ kernel-builder build\n")
    said = ""
    for command, printed in parse_session(listing):
        said = inside.type(command)
        assert find_unsaid(plain(printed), plain(said.replace(str(tmp_path / "srv"), "/srv"))) == []
    assert "published me/fresh v1 at" in said


def keys(value: object) -> object:
    """Return the names in a document, without the values."""
    if isinstance(value, dict):
        return {name: keys(each) for name, each in value.items() if name != "plan"} | (
            keys(value["plan"]["commits"][0]) if "plan" in value else {}
        )
    return None


def test_a_hub_that_takes_uploads(inside, serve, tmp_path):
    """A token by the page's command, the server with its options, and a document as the page has it."""
    listing = get_listing("docs/guide/publish.md", "$ kernel-hub add-token")
    (add, _), (start, _) = parse_session(listing)
    token = inside.type(add).strip()
    assert token.startswith("khub_")
    (root := tmp_path / "srv/kernels").mkdir(parents=True)
    *command, tokens = shlex.split(start)
    assert command == ["kernel-hub", "serve", "/srv/kernels", "--tokens"]
    served = serve(root, options=["--tokens", str(inside.folder / tokens)])
    inside.environ |= {"HF_ENDPOINT": served.url, "HF_TOKEN": token}
    said = inside.type("kernel-builder upload --repo-id acme/fresh --allow-dirty --json")
    printed = json.loads(get_listing("docs/guide/publish.md", '{"status"'))
    assert keys(json.loads(said)) == keys(printed)


def test_the_gate(author, projects, tmp_path):
    """The case of the page proves its op of our activation; that the others have no case is all that is wrong."""
    project = tmp_path / "activation"
    shutil.copytree(projects["activation"], project)
    gate = get_listing("docs/guide/checks.md", "import torch\n\nfrom kernel_builder.gate")
    (project / "tests/gate.py").write_text(gate)
    said = author.type(f"kernel-builder check --gate {project}", fails=True).splitlines()
    faults = [line for line in said if "tests/gate.py:" in line]
    assert faults
    assert all("gate-op-unreached" in line for line in faults)
    assert not any(": silu_and_mul: " in line for line in faults)


def test_the_proof_is_recorded_as_the_page_shows(author):
    [metadata] = author.folder.glob("fresh/build/*/metadata.json")
    [(_, found)] = json.loads(metadata.read_bytes())["kernels-ext"]["proof"].items()
    listing = get_listing("docs/guide/checks.md", '"proof"')
    printed = json.loads("{" + listing + "}")["proof"]["cpu"]
    assert set(found) == set(printed)
    [case] = printed["cases"].values()
    assert all(set(each) == set(case) for each in found["cases"].values())


def test_what_a_lock_records_and_refuses(inside, tmp_path):
    """Seven inputs of a project for two backends, and the words about another torch."""
    inside.folder = tmp_path / "place"
    inside.type("kernel-builder init both --name me/both --backends cpu cuda")
    inside.folder = tmp_path / "place/both"
    [(command, printed)] = parse_session(
        get_listing("docs/guide/reproducible-builds.md", "$ kernel-builder lock\n")
    )
    assert find_unsaid(printed, inside.type(command)) == []
    lock = inside.folder / "kernel-builder.lock"
    document = json.loads(lock.read_bytes())
    document["inputs"]["torch"] |= {"version": "2.12.0+cpu", "sha256": "6f2a638c" + "0" * 56}
    lock.write_text(json.dumps(document))
    [(command, printed)] = parse_session(
        get_listing("docs/guide/reproducible-builds.md", "$ kernel-builder build\n")
    )
    said = re.sub(r"found [0-9a-f]{8}", "found 91c0d7aa", inside.type(command, fails=True))
    assert find_unsaid(printed, said) == []


def test_a_published_kernel_is_checked(inside, tmp_path):
    """The sources come from a repository of git, as the page says; its place is this machine."""
    git = "git -c user.name=me -c user.email=me@example.org"
    toml = inside.folder / "build.toml"
    origin = "https://git.example.org/me/fresh"
    inside.type(f"git config --global url.file://{inside.folder}.insteadOf {origin}")
    toml.write_text(toml.read_text().replace("[general]\n", f'[general]\nsource = "{origin}"\n'))
    inside.type(f"git init -q; git add -A; {git} commit -q -m all; kernel-builder build")
    inside.environ["KERNELS_HUB"] = f"file://{tmp_path}/srv/kernels"
    inside.type("kernel-builder upload")
    [(command, printed)] = parse_session(
        get_listing("docs/guide/reproducible-builds.md", "$ kernel-builder rebuild")
    )
    said = inside.type(command.replace("org/name", "me/fresh"))
    pattern = printed.replace("https://…", "…").replace("3f2c91d0a7b4", "…")
    assert find_unsaid(pattern, said) == []
