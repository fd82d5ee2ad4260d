"""The [test] table, and Python packages that hubs have no name for."""

from __future__ import annotations

import pytest

from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError
from kernel_builder.package import describe_testing
from kernel_builder.plan import plan
from kernel_builder.planned import Host
from kernel_builder.sources import SourceSet

TEXT = """\
[general]
name = "abc"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]
python-depends = ["einops", "numpy>=1.26,<3", "My.Package ~= 2.0"]

[torch-noarch]

[test]
python-depends = ["pytest", "scipy>=1.10"]
skip-import-check = "it asks for a GPU at import"
"""


def planned(text: str):
    made = plan(
        parse_build(text.encode()),
        SourceSet(listed=(), extension=()),
        host=Host(cpu="x86_64", os="linux", torch=None),
    )
    return made.variants[0], made.notes


def test_the_table_is_read() -> None:
    testing = parse_build(TEXT.encode()).testing
    assert testing.python_depends == ("pytest", "scipy>=1.10")
    assert testing.skip_import_check == "it asks for a GPU at import"


def test_names_go_where_hubs_look_and_requirements_under_our_own_key() -> None:
    variant, notes = planned(TEXT)
    assert variant.python_depends == ("einops",)
    assert describe_testing(variant) == {
        "python-requires": ["numpy>=1.26,<3", "My.Package ~= 2.0"],
        "import-check": "skipped: it asks for a GPU at import",
    }
    assert "[test] of build.toml is read by this builder alone; the published one refuses it" in (
        notes
    )


def test_a_project_without_them_says_nothing() -> None:
    variant, notes = planned(TEXT.partition("[test]")[0].replace(', "numpy>=1.26,<3"', ""))
    assert "import-check" not in describe_testing(variant)
    assert notes == ()


def test_doubts_are_told_by_the_plan() -> None:
    _, notes = planned(TEXT.replace("version = 1", "version = 0"))
    assert any(note.startswith("build.toml:3: general.version: 0 is for trials") for note in notes)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"numpy>=1.26,<3"', '"numpy"', 'or another package with its versions: "numpy>=1.26"'),
        ('"numpy>=1.26,<3"', '"einops>=0.8"', 'by its name alone; did you mean "einops"?'),
        ('"numpy>=1.26,<3"', '"numpy>=x y"', "is no requirement"),
        ('"pytest"', '"pytest @ https://host/x.whl"', "names a URL"),
        ('"pytest"', '"-r requirements.txt"', "is no requirement"),
        ('"it asks for a GPU at import"', '" "', "expected the reason"),
        ('"it asks for a GPU at import"', "true", "expected a string"),
        ("skip-import-check", "skip-import", 'did you mean "skip-import-check"?'),
    ],
)
def test_faults(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build(TEXT.replace(before, after).encode())
    (line,) = str(caught.value).splitlines()
    assert message in line
