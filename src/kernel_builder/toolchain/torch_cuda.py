"""What a torch for the CPU lacks of the interface of a torch for CUDA: headers, and names to load with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernel_builder.process import run
from kernel_builder.toolchain.cuda import CudaToolchain
from kernel_builder.toolchain.stubs import store_directory
from kernel_builder.toolchain.torch import TorchInstall

# torch's wheels for the CPU bring the headers of ATen/cuda and c10/cuda but for these two, which
# its build writes.
_GENERATED = {
    "c10/cuda/impl/cuda_cmake_macros.h": """\
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
""",
    "ATen/cuda/CUDAConfig.h": """\
#pragma once
#define AT_CUDNN_ENABLED() 1
#define AT_CUSPARSELT_ENABLED() 1
#define AT_ROCM_ENABLED() 0
#define AT_MAGMA_ENABLED() 1
#define NVCC_FLAGS_EXTRA ""
""",
}

# torch's headers name the handles and status codes of these libraries. Kernels that call the
# libraries themselves need the real headers, of a whole toolkit.
_LIBRARIES = {
    "cublas_v2.h": """\
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
""",
    "cublasLt.h": """\
#pragma once
#include "cublas_v2.h"
typedef struct cublasLtContext* cublasLtHandle_t;
""",
    "cusolver_common.h": """\
#pragma once
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
""",
    "cusolverDn.h": """\
#pragma once
#include "cusolver_common.h"
typedef struct cusolverDnContext* cusolverDnHandle_t;
""",
    "cusparse.h": """\
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
#ifdef __cplusplus
extern "C"
#endif
const char* cusparseGetErrorString(cusparseStatus_t status);
""",
}

_TRAPS = {"x86_64": "ud2", "aarch64": "brk #1"}
_DATA = ("_ZTV", "_ZTI", "_ZTS", "_ZTT")


def make_cuda_headers(torch: TorchInstall, cuda: CudaToolchain, *, store: Path) -> Path:
    """Return a directory with the headers that a torch and a toolkit lack; it comes last.

    Args:
        torch: the torch.
        cuda: the toolkit.
        store: the directory of all that is made once.
    """
    texts = {
        **{name: text for name, text in _GENERATED.items() if not _is_in(torch.include_dirs, name)},
        **{name: text for name, text in _LIBRARIES.items() if not _is_in([cuda.include], name)},
    }
    key = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()

    def fill(directory: Path) -> None:
        for name, text in texts.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)

    return store_directory(store / f"headers-{key[:32]}", fill)


def _is_in(directories: Iterable[Path], name: str) -> bool:
    return any((directory / name).is_file() for directory in directories)


def make_stand_ins(
    names: Iterable[str],
    directory: Path,
    *,
    cpu: str,
    compiler: Sequence[str],
    variables: Mapping[str, str],
) -> tuple[Path, ...]:
    """Make libraries under the names of torch's own for CUDA, in which functions only trap.

    With them a library that asks for torch's can be loaded where torch has none for CUDA, so that
    what it registers can be looked at. None of their functions returns.

    Args:
        names: the functions and objects to define.
        directory: where to.
        cpu: the processor.
        compiler: the compiler, which assembles and links.
        variables: its environment.

    Raises:
        CommandError: the compiler fails.
    """
    lines = []
    for name in sorted(names):
        data = name.startswith(_DATA)
        lines += [
            ".data" if data else ".text",
            f'.globl "{name}"',
            f'.type "{name}",@{"object" if data else "function"}',
            f'"{name}": {".skip 256" if data else _TRAPS[cpu]}',
        ]
    made = []
    for library, text in (("libc10_cuda.so", lines), ("libtorch_cuda.so", [])):
        source = directory / f"{library}.s"
        source.write_text("\n".join([*text, '.section .note.GNU-stack,"",@progbits', ""]))
        target = directory / library
        command = [*compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library}"]
        run([*command, source, "-o", target], variables=variables)
        made.append(target)
    return tuple(made)
