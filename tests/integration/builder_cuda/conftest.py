"""A cache with the pinned CUDA toolkit in it. The group's budget: twelve minutes on two cores."""

from __future__ import annotations

import os

import pytest
from lacking import give_up

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain.cuda import get_cuda


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    cache = tmp_path_factory.mktemp("cache")
    found = read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})
    try:
        get_cuda(found)
    except ToolchainUnavailableError as err:
        give_up(err)
    return found
