"""What the tests of the sandbox share. The group's budget: three minutes on two cores."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lacking import give_up, require_commands

from kernel_builder.sandbox import Mechanism, choose_sandbox
from kernel_builder.settings import SandboxMode, Settings, read_settings

KITS = Path(__file__).parents[2] / "kits"


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    require_commands("g++")
    cache = tmp_path_factory.mktemp("cache")
    return read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})


@pytest.fixture
def kit(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(KITS / name, tmp_path / "project" / name))


@pytest.fixture(params=list(Mechanism), scope="session")
def confined(
    request: pytest.FixtureRequest, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Settings with which builds run in one kind of sandbox, or not at all."""
    # A directory with all programs but the other mechanism's.
    programs = tmp_path_factory.mktemp("bin")
    hidden = {Mechanism.BUBBLEWRAP: "unshare", Mechanism.UNSHARE: "bwrap"}[request.param]
    for directory in reversed(settings.search_path.split(os.pathsep)):
        for path in Path(directory).glob("*"):
            if path.name != hidden:
                place = programs / path.name
                place.unlink(missing_ok=True)
                place.symlink_to(path)
    variables = {**settings.variables, "PATH": str(programs)}
    made = replace(settings, variables=variables, sandbox=SandboxMode.AUTO)
    found = choose_sandbox(made)
    if found.mechanism is not request.param:
        give_up(f"{request.param} does not work here: {found.note}")
    return replace(made, sandbox=SandboxMode.REQUIRE)
