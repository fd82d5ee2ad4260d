"""Whatever is done to a valid document: it is read and can be written again, or is an error of ours."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.errors import KernelError
from kernel_spec.listing import format_listing, parse_listing
from kernel_spec.lock import format_lock, parse_lock
from kernel_spec.metadata import format_metadata, parse_metadata
from kernel_spec.wire import format_refs, parse_organization, parse_refs, parse_tree

SHA1, SHA256 = "a" * 40, "b" * 64
FILE = {"path": "build/x/a.py", "size": 3, "oid": SHA1, "sha256": SHA256, "executable": False}
METADATA = {
    "name": "toy",
    "id": "_toy_cuda_0123456789ab",
    "version": 1,
    "license": "MIT",
    "backend": {"type": "cuda", "archs": ["9.0a"]},
    "python-depends": ["numpy"],
    "kernel-depends": [{"repo-id": "acme/x", "version": 1}],
    "kernels-minver": "0.17.0",
    "source": "https://github.com/a/b.git",
    "digest": {"algorithm": "sha256", "files": {"a.py": "A" * 43 + "="}},
    "provenance": {"kernel-builder": {"version": "1", "commit": SHA1, "dirty": False}},
    "later": {"x": 1.5},
}
OURS = {"repo-id": "acme/x", "commit": SHA1, "variants": {"torch-cpu": SHA256}, "version": 1}
NEW = {"dependency": {"repo-id": "a/b", "version": 1}, "lock": {"commit": SHA1}}
OLD_HASH = {"hash": f"sha256-{SHA256}", "hash_type": "git_lfs_concat"}
LFS = {"oid": SHA256, "size": 3, "pointerSize": 130}


def rewrite_lock(data: bytes) -> None:
    written = format_lock(parse_lock(data).kernels)
    assert format_lock(parse_lock(written).kernels) == written


def rewrite(
    parse: Callable[[bytes], Any], write: Callable[[Any], bytes]
) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        value = parse(data)
        assert parse(write(value)) == value
        assert write(parse(write(value))) == write(value)

    return check


def rewrite_refs(data: bytes) -> None:
    value = parse_refs(json.loads(data))
    assert parse_refs(json.loads(json.dumps(format_refs(value)))) == value


DOCUMENTS: dict[str, tuple[Any, Callable[[bytes], object]]] = {
    "listing": (
        {"files": [FILE, {**FILE, "path": "build/x/b.py"}], "format": 1, "parent": SHA1},
        rewrite(parse_listing, format_listing),
    ),
    "metadata": (METADATA, rewrite(parse_metadata, format_metadata)),
    "our lock": ({"format": 1, "kernels": [OURS]}, rewrite_lock),
    "new lock": ([NEW], rewrite_lock),
    "old lock": (
        [{"repo_id": "a/b", "sha": SHA1, "variants": {"torch-cpu": OLD_HASH}}],
        rewrite_lock,
    ),
    "refs": (
        {"branches": [{"name": "main", "targetCommit": SHA1}], "tags": [], "converts": []},
        rewrite_refs,
    ),
    "tree": (
        [{"type": "file", "oid": SHA1, "size": 3, "path": "x/y", "lfs": LFS}],
        lambda data: parse_tree(json.loads(data)),
    ),
    "organization": (
        {"name": "a", "fullname": "A", "trustedKernelPublisher": True},
        lambda data: parse_organization(json.loads(data)),
    ),
}
# In the form of the file: what no value of Python would be written as.
ODD = [
    "null", "true", "0", "-1", "1.5", "1e999", "-1e999", "NaN", "9" * 400, "9" * 5000, '"\\ud800"',
    '"\\u0000"', '""', '" "', '"a\\nb"', '"../x"', '"/x"', '"\\u001b[31m"', '"main"', f'"{SHA1}"',
    f'"{"x" * 5000}"', '"e\\u0301"', "[]", "{}", "[[]]", '{"": null}', '{"a": 1, "a": 2}',
    "[" * 900 + "]" * 900, "[" * 100_000, '["a", "a"]',
]  # fmt: skip
HERE = "<here>"


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container and key of a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def require_ours(kind: str, text: bytes) -> None:
    """Check a document, which may be refused in words of bearable length."""
    if kind in ("refs", "tree", "organization"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return  # whoever asked the hub has said so
    said = None
    try:
        DOCUMENTS[kind][1](text)
    except KernelError as err:
        said = str(err)
    assert said is None or 0 < len(said) < 20_000


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_each_odd_value_in_each_place_is_taken_or_refused_in_words(kind: str) -> None:
    valid, check = DOCUMENTS[kind]
    check(json.dumps(valid).encode())
    for at in range(len(list(places(valid)))):
        document = copy.deepcopy(valid)
        holder, key = list(places(document))[at]
        holder[key] = HERE
        text = json.dumps(document)
        for odd in ODD:
            require_ours(kind, text.replace(f'"{HERE}"', odd).encode())


@st.composite
def mutated(draw: st.DrawFn, valid: Any) -> bytes:
    document = copy.deepcopy(valid)
    holder, key = draw(st.sampled_from(list(places(document))))
    match draw(st.sampled_from(["gone", "name", "text"])):
        case "name" if isinstance(holder, dict):
            holder[draw(st.sampled_from([*"\0\n/ ", "", "..", "\ud800", "later"]))] = holder.pop(
                key
            )
        case "text" if isinstance(holder[key], str):
            at = draw(st.integers(0, len(holder[key])))
            holder[key] = holder[key][:at] + draw(st.text(max_size=2)) + holder[key][at + 1 :]
        case _:
            del holder[key]
    text = json.dumps(document).encode()
    return text[: draw(st.just(len(text)) | st.integers(0, len(text)))]


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
def test_what_lacks_something_or_is_cut_is_taken_or_refused_in_words(
    kind: str, data: st.DataObject
) -> None:
    require_ours(kind, data.draw(mutated(DOCUMENTS[kind][0])))
