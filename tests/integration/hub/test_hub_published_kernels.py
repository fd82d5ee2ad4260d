"""The unmodified published kernels 0.17.2 loads from a served directory."""

from __future__ import annotations

import pytest


def test_the_client_is_the_published_one(reference, served, tmp_path):
    code = """
import importlib.metadata, importlib.util, kernels
result = [kernels.__version__, importlib.metadata.version("kernels"),
          importlib.util.find_spec("kernel_spec") is None, kernels.__file__]
"""
    version, dist, alone, place = reference.python(served, tmp_path, code)
    assert (version, dist, alone) == ("0.17.2", "0.17.2", True)
    assert place.startswith(str(reference.folder))


def test_one_line_loads_a_kernel_of_a_trusted_owner(reference, served, tmp_path):
    code = """
import torch
from kernels import get_kernel, get_kernel_variants, has_kernel
toy = get_kernel("acme/toy", version=1)
result = {
    "double": toy.double(torch.ones(2)).tolist(),
    "versions": [toy.VERSION, get_kernel("acme/toy", version=2).VERSION,
                 get_kernel("acme/toy", revision="v1.0.1").VERSION],
    "has": [has_kernel("acme/toy", version=1), has_kernel("acme/toy", version=2)],
    "variants": [[type(v).__name__, v.variant.variant_str]
                 for v in get_kernel_variants("acme/toy", version=1)],
}
for name, call in {
    "version": lambda: get_kernel("acme/toy", version=7),
    "repo": lambda: get_kernel("acme/none", version=1),
    "stranger": lambda: get_kernel("stranger/toy", version=1),
}.items():
    try:
        call()
    except Exception as error:
        result[name] = [type(error).__name__, str(error)]
result["consent"] = get_kernel("stranger/toy", version=1, trust_remote_code=True).VERSION
"""
    before = len(served.requests())
    found = reference.python(served, tmp_path, code)
    assert found["double"] == [2.0, 2.0]
    assert found["versions"] == [1, 2, 1]
    assert found["has"] == [True, True]
    assert found["variants"] == [
        ["VariantAccepted", "torch-cpu"],
        ["VariantRejected", "torch-cuda"],
    ]
    assert found["version"][0] == "ValueError"
    assert "available versions: 1, 2" in found["version"][1]
    assert found["repo"][0] == "RepositoryNotFoundError"
    assert found["stranger"][0] == "ValueError"
    assert found["consent"] == 1
    # Only the files of the chosen variant were fetched.
    paths = {request.path for request in served.requests()[before:]}
    assert any(path.endswith("/build/torch-cpu/__init__.py") for path in paths)
    assert not any(path.endswith("/build/torch-cuda/__init__.py") for path in paths)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["versions", "acme/toy"], ["Version 1:", "Version 2:", "torch-cpu", "torch-cuda"]),
        (["info", "acme/toy", "--version", "1"], ["acme/toy", "Apache-2.0"]),
    ],
)
def test_the_command_line(reference, served, tmp_path, words, expected):
    done = reference.run(served, tmp_path, "kernels", *words)
    for word in expected:
        assert word in done.stdout + done.stderr
