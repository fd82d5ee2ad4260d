import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.backend import BackendKind
from kernel_spec.digest import Digest
from kernel_spec.errors import KernelError, MetadataError
from kernel_spec.metadata import (
    KernelDependency,
    Metadata,
    format_metadata,
    is_from_the_future,
    parse_metadata,
)
from kernel_spec.provenance import Provenance

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = json.loads((FIXTURES / "metadata.json").read_text())["cases"]
SMALLEST = {
    "name": "relu",
    "id": "_relu_cuda_abc1234",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": [],
    "backend": {"type": "cuda"},
}


def bytes_of(case):
    return case["text"].encode() if "text" in case else json.dumps(case["document"]).encode()


def parse(**changes):
    return parse_metadata(json.dumps(SMALLEST | changes).encode())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_golden_document(case):
    if case["outcome"] == "accept":
        written = json.loads(format_metadata(parse_metadata(bytes_of(case))))
        for key, expected in case["parsed"].items():
            # The writer leaves out what is empty.
            assert written.get(key, [] if isinstance(expected, list) else None) == expected
        return
    with pytest.raises(MetadataError) as err:
        parse_metadata(bytes_of(case))
    (fault,) = err.value.faults
    assert (fault.kind, fault.where, fault.entry) == (
        case["fault"],
        case.get("key", ""),
        case.get("entry"),
    )
    assert is_from_the_future(err.value) == (case["outcome"] == "skip")
    assert isinstance(err.value, KernelError)


def test_every_fault_is_told_at_once():
    document = {"name": "9", "id": "a b", "version": -1, "license": 3, "backend": {"type": "q"}}
    with pytest.raises(MetadataError) as err:
        parse_metadata(json.dumps(document).encode())
    assert {(fault.kind, fault.where) for fault in err.value.faults} == {
        ("bad-name", "name"),
        ("bad-id", "id"),
        ("bad-value", "version"),
        ("wrong-type", "license"),
        ("unknown-backend", "backend.type"),
        ("missing-key", "python-depends"),
    }
    for word in ("metadata.json", "name", "'9'", "unknown backend 'q'", "python-depends"):
        assert word in str(err.value)
    assert not is_from_the_future(err.value)


def test_keys_given_twice_are_found_at_any_depth():
    text = json.dumps(SMALLEST | {"new": [{"a": 1}]}).replace('{"a": 1}', '{"a": 1, "a": 2}')
    text = text.replace('"type": "cuda"', '"type": "cuda", "type": "cpu"')
    with pytest.raises(MetadataError) as err:
        parse_metadata(text.encode())
    assert [(fault.kind, fault.where) for fault in err.value.faults] == [
        ("duplicate-key", "backend.type"),
        ("duplicate-key", "new[0].a"),
    ]


def test_a_key_given_twice_among_many_costs_no_more_than_reading_them():
    """Looked for one by one, 200,000 keys took many minutes."""
    keys = ", ".join(f'"k{number}": 0' for number in range(200_000))
    began = time.process_time()
    with pytest.raises(MetadataError) as err:
        parse_metadata(f'{{{keys}, "k7": 1}}'.encode())
    assert ("duplicate-key", "k7") in {(fault.kind, fault.where) for fault in err.value.faults}
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{",
        b"[" * 100_000,
        json.dumps(SMALLEST).encode("utf-16"),
        json.dumps(SMALLEST | {"new": float("nan")}).encode(),
        b'{"version": ' + b"1" * 5000 + b"}",
    ],
)
def test_what_is_not_json_is_one_fault(data):
    with pytest.raises(MetadataError) as err:
        parse_metadata(data)
    assert [fault.kind for fault in err.value.faults] == ["bad-json"]


def test_keys_of_a_later_time_are_kept_and_written_back():
    metadata = parse(**{"shiny": {"deep": [1, None]}, "kernels-ext": {"gate": True}})
    assert metadata.unknown == {"shiny": {"deep": [1, None]}}
    assert metadata.extension == {"gate": True}
    written = json.loads(format_metadata(metadata))
    assert written["shiny"] == {"deep": [1, None]}
    assert written["kernels-ext"] == {"gate": True}


def test_a_client_version_of_the_future_is_read_and_left_to_the_loader():
    assert parse(**{"kernels-minver": "99.0.1"}).minver == (99, 0, 1)


def test_the_writer_makes_what_the_published_client_requires():
    data = format_metadata(
        Metadata(name="relu", id="_relu", version=0, license="MIT", backend=BackendKind.CPU)
    )
    assert data == (
        b'{\n  "backend": {\n    "type": "cpu"\n  },\n  "id": "_relu",\n  "license": "MIT",\n'
        b'  "name": "relu",\n  "python-depends": [],\n  "version": 0\n}\n'
    )


@pytest.mark.parametrize(
    ("changes", "kind", "where"),
    [
        ({"backend": "cuda"}, "wrong-type", "backend"),
        ({"backend": {}}, "missing-key", "backend.type"),
        ({"backend": {"type": "cuda", "archs": "9.0"}}, "wrong-type", "backend.archs"),
        ({"backend": {"type": "cuda", "archs": [9.0]}}, "wrong-type", "backend.archs[0]"),
        ({"python-depends": [1]}, "wrong-type", "python-depends[0]"),
        ({"kernel-depends": ["a/b"]}, "wrong-type", "kernel-depends[0]"),
        ({"kernel-depends": [{"version": 1}]}, "missing-key", "kernel-depends[0].repo-id"),
        ({"source": "https://"}, "bad-url", "source"),
        ({"source": "git+file:///srv/x"}, "bad-url", "source"),
        ({"source": "https://example.org/\nx"}, "bad-url", "source"),
        ({"kernels-ext": []}, "wrong-type", "kernels-ext"),
        ({"digest": {"algorithm": "sha256", "files": {"a": 1}}}, "wrong-type", "digest.files"),
        ({"provenance": {}}, "missing-key", "provenance.kernel-builder"),
        (
            {"provenance": {"kernel-builder": {}}},
            "missing-key",
            "provenance.kernel-builder.version",
        ),
        (
            {"provenance": {"kernel-builder": {"version": "1"}, "kernel": {"dirty": False}}},
            "missing-key",
            "provenance.kernel.commit",
        ),
        (
            {"provenance": {"kernel-builder": {"version": "1", "commit": "0" * 40}}},
            "missing-key",
            "provenance.kernel-builder.dirty",
        ),
        (
            {"provenance": {"kernel-builder": {"version": "1", "sha": "zz", "dirty": True}}},
            "bad-commit",
            "provenance.kernel-builder.sha",
        ),
        (
            {
                "provenance": {
                    "kernel-builder": {"version": "1"},
                    "kernel": {"sha": "0" * 40, "commit": "0" * 40, "dirty": True},
                }
            },
            "both-given",
            "provenance.kernel",
        ),
    ],
)
def test_faults_name_their_kind_and_key(changes, kind, where):
    with pytest.raises(MetadataError) as err:
        parse(**changes)
    assert [(fault.kind, fault.where) for fault in err.value.faults] == [(kind, where)]


commits = st.text("0123456789abcdef", min_size=40, max_size=40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
repo_ids = st.from_regex(r"[a-z]{1,5}/[a-z]{1,5}", fullmatch=True)
hashes = st.binary(min_size=32, max_size=32)


@st.composite
def digests(draw):
    from base64 import b64encode

    files = draw(
        st.dictionaries(
            st.from_regex(r"[a-zé]{1,4}(/[a-z ]{1,3}[a-z])?", fullmatch=True), hashes, max_size=3
        )
    )
    return Digest("sha256", {path: b64encode(raw).decode() for path, raw in sorted(files.items())})


@st.composite
def provenances(draw):
    builder, kernel = draw(st.none() | commits), draw(st.none() | commits)
    return Provenance(
        builder_version=draw(texts),
        builder_commit=builder,
        builder_dirty=None if builder is None else draw(st.booleans()),
        kernel_commit=kernel,
        kernel_dirty=None if kernel is None else draw(st.booleans()),
    )


urls = st.sampled_from(["https://example.org/a", "ssh://git@example.org/a", "git+https://e.org/x"])
known = set(SMALLEST) | {"kernel-depends", "kernels-minver", "upstream", "source", "digest"}
metadatas = st.builds(
    Metadata,
    name=st.from_regex(r"[a-z][-a-z0-9]*[a-z0-9]", fullmatch=True),
    id=st.from_regex(r"_[a-z0-9_]+", fullmatch=True),
    version=st.integers(0, 10**9),
    license=texts,
    backend=st.sampled_from(BackendKind),
    archs=st.lists(texts, max_size=3).map(tuple),
    python_depends=st.lists(texts, max_size=3).map(tuple),
    kernel_depends=st.lists(
        st.builds(
            KernelDependency, repo_id=repo_ids, version=st.integers(0, 99), revision=st.none()
        )
        | st.builds(KernelDependency, repo_id=repo_ids, version=st.none(), revision=texts),
        max_size=2,
    ).map(tuple),
    minver=st.none() | st.tuples(*[st.integers(0, 99)] * 3),
    upstream=st.none() | urls,
    source=st.none() | urls,
    digest=st.none() | digests(),
    provenance=st.none() | provenances(),
    extension=st.dictionaries(texts, json_values, max_size=3),
    unknown=st.dictionaries(
        texts.filter(lambda key: key not in known | {"provenance", "kernels-ext"}),
        json_values,
        max_size=3,
    ),
)


@given(metadatas)
def test_written_metadata_reads_back_equal(metadata):
    data = format_metadata(metadata)
    assert parse_metadata(data) == metadata
    assert format_metadata(parse_metadata(data)) == data


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_metadata_are_refused_with_a_fault(data):
    with pytest.raises(MetadataError) as err:
        parse_metadata(data)
    assert err.value.faults


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "9" * 5000])
@pytest.mark.parametrize("key", ["later", "kernels"])
def test_a_number_that_could_not_be_written_again_is_a_fault(key, number):
    text = json.dumps({**SMALLEST, key: {"x": [0.5, "here"]}}).replace('"here"', number)
    with pytest.raises(MetadataError, match="not JSON") as caught:
        parse_metadata(text.encode())
    assert len(str(caught.value)) < 200
