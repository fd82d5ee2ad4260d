"""Load the kernel as a user does, by its hub name, from the variants that were built here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

REPO_ID = "kernels-community/gemm"
PROJECT = Path(__file__).resolve().parents[1]
BLOCK = 128

# Kept for subprocesses, and beside whatever other kernels the variable already names.
_named = os.environ.get("LOCAL_KERNELS", "")
if f"{REPO_ID}=" not in _named:
    os.environ["LOCAL_KERNELS"] = ":".join(filter(None, (_named, f"{REPO_ID}={PROJECT}")))


@pytest.fixture(scope="session")
def gemm() -> ModuleType:
    if not (PROJECT / "build").is_dir():
        message = f"not built: run `kernel-builder build {PROJECT}` first"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from kernels import get_kernel

    return get_kernel(REPO_ID)


def _has_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def _list_devices() -> list[str]:
    found = ["cpu", *(["cuda"] if _has_hopper() else [])]
    wanted = os.environ.get("KERNELS_TEST_DEVICES", "cpu cuda").replace(",", " ").split()
    return [name for name in found if name in wanted]


@pytest.fixture(params=_list_devices())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@dataclass(frozen=True, kw_only=True)
class Operands:
    """The arguments of `gemm_nt`: a is M x K, b is N x K, the scales step by blocks of 128."""

    a: torch.Tensor
    b: torch.Tensor
    a_scale: torch.Tensor
    b_scale: torch.Tensor

    @property
    def native(self) -> tuple[torch.Tensor, ...]:
        return (self.a, self.b, self.a_scale, self.b_scale)

    @property
    def turned(self) -> tuple[torch.Tensor, ...]:
        """The arguments of `gemm`, without moving a byte."""
        return tuple(each.t() for each in self.native)


def _magnitudes(shape: tuple[int, ...], widest: float) -> torch.Tensor:
    return 10.0 ** torch.empty(shape).uniform_(-widest, widest)


@pytest.fixture
def draw(device: str) -> Callable[..., Operands]:
    """Draw operands whose blocks differ in size by up to ``10**(2 * widest)`` in each of a and b."""

    def draw_operands(
        m: int,
        n: int,
        k: int,
        *,
        dtype: torch.dtype = torch.float8_e4m3fn,
        widest: float = 1.0,
        seed: int = 0,
    ) -> Operands:
        torch.manual_seed(seed)
        return Operands(
            a=torch.randn(m, k).to(dtype).to(device),
            b=torch.randn(n, k).to(dtype).to(device),
            a_scale=_magnitudes((k // BLOCK, m), widest).t().to(device),
            b_scale=_magnitudes((-(-n // BLOCK), k // BLOCK), widest).to(device),
        )

    return draw_operands


@pytest.fixture
def assert_close(gemm: ModuleType) -> Callable[[torch.Tensor, Operands], None]:
    """Compare with float64: half a unit of bfloat16, and what the sums may lose.

    A matrix unit sums 128 products with about 13 bits below the largest; the CPU has float32's 24.
    """

    def check(result: torch.Tensor, operands: Operands) -> None:
        expected = gemm.reference.gemm_nt(*operands.native)
        sizes = gemm.reference.gemm_nt(
            operands.a.float().abs(), operands.b.float().abs(), *operands.native[2:]
        )
        lost = 2.0**-12 if result.is_cuda else 2.0**-19
        allowed = expected.abs() * 2.0**-8 + sizes * lost
        difference = (result.double() - expected).abs()
        assert result.isfinite().all()
        assert (difference <= allowed).all(), (difference / allowed).max()
        if expected.numel() > 1000:
            assert difference.norm() / expected.norm() < 2.5e-3

    return check
