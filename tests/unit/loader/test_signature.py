"""``kernels verify-signature``: what it finds, what it never claims, and that it exits with 1."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from kernel_spec.metadata import FILE_NAME
from kernel_spec.provenance import Provenance
from kernels.cli import run

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


@pytest.fixture
def call(capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["verify-signature", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def sign(variant, data=None, **changes):
    """Put a bundle beside a variant's metadata, for its bytes or for ``data``."""
    signed = hashlib.sha256((variant / FILE_NAME).read_bytes() if data is None else data).digest()
    digest = {"algorithm": "SHA2_256", "digest": base64.b64encode(signed).decode()}
    write(variant, {"messageSignature": {"messageDigest": digest}} | changes)


def sign_in_envelope(variant):
    sha256 = hashlib.sha256((variant / FILE_NAME).read_bytes()).hexdigest()
    payload = json.dumps({"subject": [{"digest": {"sha256": sha256}}]})
    write(variant, {"dsseEnvelope": {"payload": base64.b64encode(payload.encode()).decode()}})


def write(variant, content):
    document = {"mediaType": BUNDLE} | content
    (variant / f"{FILE_NAME}.sigstore").write_text(json.dumps(document))


def test_what_is_not_signed_says_so_and_fails(call, publisher):
    publisher.publish(
        "acme/toy", provenance=Provenance(builder_version="0.18.2", kernel_commit="a" * 40)
    )
    code, out, err = call("acme/toy", "1")
    assert code == 1
    assert out.startswith("torch-cpu: not signed; every file is as its metadata says")
    assert f"(unproved) that kernel-builder 0.18.2 built it from commit {'a' * 12}" in out
    assert "kernels lock" in err


@pytest.mark.parametrize("put", [sign, sign_in_envelope])
def test_a_signature_that_cannot_be_checked_is_not_called_good(call, tmp_path, make_variant, put):
    put(make_variant(tmp_path / "toy" / "build" / "torch-cpu"))
    code, out, _ = call(str(tmp_path / "toy"))
    assert code == 1
    assert "not verified" in out
    assert "whose is not known here" in out
    code, out, _ = call(str(tmp_path / "toy"), "--json")
    [entry] = json.loads(out)["variants"]
    assert (code, entry["signature"], entry["verified"]) == (1, "unchecked", False)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda variant: sign(variant, b"other"), "other-bytes"),
        (lambda variant: sign(variant, mediaType="text/plain"), "broken"),
        (lambda variant: sign(variant, messageSignature={}), "broken"),
        (lambda variant: sign(variant, messageSignature=None), "broken"),
        (lambda variant: (variant / f"{FILE_NAME}.sigstore").write_text("{"), "broken"),
        (lambda variant: (variant / f"{FILE_NAME}.sigstore").write_text("[]"), "broken"),
        (lambda variant: (variant / f"{FILE_NAME}.sigstore").write_bytes(b"\xff"), "broken"),
    ],
)
def test_a_signature_of_something_else_is_told(call, tmp_path, make_variant, change, state):
    change(make_variant(tmp_path / "toy" / "build" / "torch-cpu"))
    code, out, err = call(str(tmp_path / "toy"), "--json")
    [entry] = json.loads(out)["variants"]
    assert (code, entry["signature"]) == (1, state)
    assert "Traceback" not in err


def test_changed_files_are_told_before_any_signature(call, tmp_path, make_variant):
    variant = make_variant(tmp_path / "toy" / "build" / "torch-cpu")
    sign(variant)
    (variant / "__init__.py").write_text("VALUE = 2\n")
    code, out, _ = call(str(tmp_path / "toy"))
    assert code == 1
    assert "__init__.py" in out
    assert "signature" not in out


def test_filters_leave_nothing_to_be_called_verified(call, tmp_path, make_variant):
    make_variant(tmp_path / "toy" / "build" / "torch-cpu", digest=False)
    for option in ("--filter-unsigned", "--filter-no-digest"):
        code, out, err = call(str(tmp_path / "toy"), option)
        assert (code, out) == (1, "")
        assert "no variant" in err
    assert "promises nothing" in call(str(tmp_path / "toy"))[1]


def test_every_variant_where_it_is_asked_for(call, publisher):
    files = {"__init__.py": ""}
    publisher.publish("acme/toy", variants={"torch-cpu": files, "torch-cuda": files})
    assert call("acme/toy", "1")[1].count("not signed") == 1
    assert call("acme/toy", "1", "--all-variants")[1].count("not signed") == 2
    assert call("acme/none", "1")[0] == 1
