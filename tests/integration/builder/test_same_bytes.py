"""The same sources give the same bytes, wherever and by whomever they are built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KITS = Path(__file__).parents[2] / "kits"
SOURCE = Path(__file__).parents[3] / "src"

_BUILD = """
import os, sys
from pathlib import Path
from kernel_builder.pipeline import build_project
from kernel_builder.report import format_report
os.umask(int(sys.argv[2], 8))
report = build_project(Path(sys.argv[1]), jobs=int(sys.argv[3]))
print(format_report(report))
sys.exit(report.exit_code)
"""


def build(project: Path, *, umask: str, jobs: int, variables: dict[str, str]) -> dict[str, bytes]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **variables}
    command = [sys.executable, "-c", _BUILD, str(project), umask, str(jobs)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    root = project / "build"
    return {
        f"{path.relative_to(root)} {path.stat().st_mode:o}": b""
        if path.is_dir()
        else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


@pytest.mark.parametrize("kit", ["add_stable", "throw_full", "scale_noarch"])
def test_two_places_two_people_one_result(tmp_path: Path, kit: str) -> None:
    first = tmp_path / "a" / "work"
    second = tmp_path / "another-place" / "with a longer name" / "checkout"
    shutil.copytree(KITS / kit, first)
    shutil.copytree(KITS / kit, second)
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
    one = build(
        first,
        umask="022",
        jobs=1,
        variables={"HOME": str(tmp_path / "home1"), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
    )
    two = build(
        second,
        umask="077",
        jobs=2,
        variables={
            "HOME": str(tmp_path / "home2"),
            "XDG_CACHE_HOME": str(tmp_path / "cache2"),
            "LC_ALL": "de_DE.UTF-8",
            "LANG": "ko_KR.UTF-8",
            "TZ": "Asia/Seoul",
            "CPATH": "/nonexistent",
            "PYTHONHASHSEED": "7",
            "TMPDIR": str(tmp_path),
        },
    )
    assert two == one
    assert len(one) >= 4
