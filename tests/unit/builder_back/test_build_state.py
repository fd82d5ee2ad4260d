from dataclasses import replace
from pathlib import Path

from kernel_builder.planned import VariantBuild
from kernel_builder.settings import read_settings
from kernel_builder.state import Record, digest_directory, find_record, fingerprint, write_record
from kernel_spec.backend import BackendKind
from kernel_spec.provenance import Provenance
from kernel_spec.variant import NoarchVariant

BUILD = VariantBuild(
    variant=NoarchVariant(BackendKind.CPU),
    backend=BackendKind.CPU,
    op_id="_kit_cpu_0123456789ab",
    module="kit",
    units=(),
    headers=(),
    package=("__init__.py",),
    torch=None,
    archs=(),
    depends=(),
    name="kit",
    version=1,
    license="MIT",
)


def test_records_read_back(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "state.json"
    record = Record(inputs="a", digest="b")
    write_record(place, record)
    assert find_record(place) == record
    assert [path.name for path in place.parent.iterdir()] == ["state.json"]


def test_what_is_no_record_is_none(tmp_path: Path) -> None:
    place = tmp_path / "state.json"
    assert find_record(place) is None
    for text in ("", "{", "[]", "null", '{"inputs": "a"}'):
        place.write_text(text)
        assert find_record(place) is None


def test_the_fingerprint_follows_all_that_goes_in() -> None:
    settings = read_settings({"HOME": "/h"})
    provenance = Provenance(builder_version="1")
    one = fingerprint(BUILD, provenance, settings)
    assert one == fingerprint(replace(BUILD), provenance, settings)
    others = [
        fingerprint(replace(BUILD, op_id="_kit_cpu_ba9876543210"), provenance, settings),
        fingerprint(replace(BUILD, license="Apache-2.0"), provenance, settings),
        fingerprint(BUILD, Provenance(builder_version="2"), settings),
    ]
    assert len({one, *others}) == 4


def test_the_digest_of_a_directory_counts_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    first, size = digest_directory(tmp_path)
    assert size == 1
    (tmp_path / "sub").mkdir()
    assert digest_directory(tmp_path) == (first, 1)
    (tmp_path / "sub" / "b.py").write_text("bb")
    second, size = digest_directory(tmp_path)
    assert (second != first, size) == (True, 3)


def test_a_variant_without_machine_code_needs_no_compiler() -> None:
    settings = read_settings({"HOME": "/h"})
    lost = replace(settings, cxx="no-such-compiler")
    provenance = Provenance(builder_version="1")
    assert fingerprint(BUILD, provenance, lost) == fingerprint(BUILD, provenance, settings)
