"""docs/guide/build-toml.md lists every key that the reader takes, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "build-toml.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
TABLES = {
    "general": "[general]\nedition = 5\nODD = 1\n",
    "general.hub": "[general]\nedition = 5\n[general.hub]\nODD = 1\n",
    "general.cuda": "[general]\nedition = 5\n[general.cuda]\nODD = 1\n",
    "torch": "[general]\nedition = 5\n[torch]\nODD = 1\n",
    "torch-noarch": "[general]\nedition = 5\n[torch-noarch]\nODD = 1\n",
    "tvm-ffi": "[general]\nedition = 5\n[tvm-ffi]\nODD = 1\n",
    "kernel.<name>": "[general]\nedition = 5\n[torch]\n[kernel.a]\nODD = 1\n",
    "sources.<name>": "[general]\nedition = 5\n[torch]\n[sources.a]\nODD = 1\n",
    "test": "[general]\nedition = 5\n[torch]\n[test]\nODD = 1\n",
}
# Said in the text above the table, or in words: keys of the same meaning.
ALSO = {"edition", "cuda_capabilities", "rocm_archs"}


def section(table: str) -> str:
    (found,) = [text for text in SECTIONS if text.startswith(f"`[{table}]`\n")]
    return found


@pytest.mark.parametrize("table", TABLES)
def test_every_key_has_a_row(table: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build(TABLES[table].encode())
    (odd,) = [fault for fault in caught.value.faults if fault.path.endswith(".ODD")]
    taken = set(odd.message.partition("expected one of ")[2].split(", "))
    rows = re.findall(r"^\| ([^|]+) \|", section(table), re.MULTILINE)
    shown = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    assert shown - ALSO == taken - ALSO


def test_every_table_has_a_section() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_build(b"ODD = 1\n[general]\nedition = 5\n[torch]\n")
    (odd,) = [fault for fault in caught.value.faults if fault.path == "ODD"]
    taken = set(odd.message.partition("expected one of ")[2].split(", ")) | {"general", "torch"}
    shown = {re.split(r"[.\]]", text[2:])[0] for text in SECTIONS if text.startswith("`[")}
    assert shown == taken
