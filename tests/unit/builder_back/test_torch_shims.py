import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kernel_builder.policy import read_shims
from kernel_spec.version import MajorMinor

TOOL = Path(__file__).parents[3] / "tools" / "refresh_torch_shims.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh_torch_shims", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_functions_and_the_guards_around_them(tool: ModuleType) -> None:
    text = """
/* AOTI_TORCH_EXPORT int in_a_comment(); */
#ifndef HEADER
AOTI_TORCH_EXPORT int32_t old(); // AOTI_TORCH_EXPORT int also_not();
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_11_0
AOTI_TORCH_EXPORT AOTITorchError
new_one(
    const char* name,
    void (*deleter)(void* data));
#ifdef USE_CUDA
AOTI_TORCH_EXPORT void newer_cuda(char*);
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_13_0
AOTI_TORCH_EXPORT const char* newest();
#endif
#else
AOTI_TORCH_EXPORT void else_of_cuda();
#endif
#else
AOTI_TORCH_EXPORT int32_t before();
#endif
AOTI_TORCH_EXPORT int32_t after();
#endif
"""
    assert tool.read_functions(text) == {
        "old": MajorMinor(2, 10),
        "new_one": MajorMinor(2, 11),
        "newer_cuda": MajorMinor(2, 11),
        "newest": MajorMinor(2, 13),
        "else_of_cuda": MajorMinor(2, 11),
        "before": MajorMinor(2, 10),
        "after": MajorMinor(2, 10),
    }


def test_the_table_knows_what_kernels_need() -> None:
    shims = read_shims()
    assert shims.since["aoti_torch_get_numel"] == MajorMinor(2, 10)
    assert shims.since["torch_parallel_for"] == MajorMinor(2, 10)
    assert shims.since["torch_from_blob"] == MajorMinor(2, 11)
    assert shims.since["torch_tag_core"] == MajorMinor(2, 12)
    assert shims.since["aoti_torch_get_current_cuda_stream"] == MajorMinor(2, 10)
    assert shims.known_to >= MajorMinor(2, 13)
