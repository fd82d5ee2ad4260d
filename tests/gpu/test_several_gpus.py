"""Our kernels on each GPU of a host, while another one is current, and in threads on all at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

if torch.cuda.device_count() < 2:
    pytest.skip("needs two GPUs", allow_module_level=True)

from torch.nn import functional as F  # noqa: E402, N812

from kernels import get_local_kernel  # noqa: E402

COMMUNITY = Path(__file__).resolve().parents[2] / "kernels-community"
GPUS = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
HIDDEN = 4096


def load(name: str) -> ModuleType:
    project = COMMUNITY / name
    if not list(project.glob("build/*-cu1*")):
        pytest.skip(f"not built: run `kernel-builder build {project} --backend cuda` first")
    return get_local_kernel(project)


def draw(*shape: int, device: str) -> Any:
    generator = torch.Generator(device).manual_seed(sum(shape))
    return torch.randn(shape, device=device, dtype=torch.float16, generator=generator)


def check_activation(device: str) -> None:
    x = draw(64, 2 * HIDDEN, device=device)
    out = torch.empty(64, HIDDEN, device=device, dtype=torch.float16)
    load("activation").silu_and_mul(out, x)
    gate, up = x.float().chunk(2, -1)
    torch.testing.assert_close(out.float(), F.silu(gate) * up, rtol=2e-3, atol=2e-3)


def check_norm(device: str) -> None:
    norm = load("triton-layer-norm")
    weight = draw(HIDDEN, device=device)
    for rows in (3, 64, 2048):
        x = draw(rows, HIDDEN, device=device)
        wanted = F.rms_norm(x.float(), (HIDDEN,), weight.float(), 1e-6)
        found = norm.rms_norm_fn(x, weight, eps=1e-6)
        torch.testing.assert_close(found.float(), wanted, rtol=4e-3, atol=4e-3)


def check_norm_gradient(device: str) -> None:
    norm = load("triton-layer-norm")
    weight = draw(HIDDEN, device=device).float()
    ours, theirs = (draw(64, HIDDEN, device=device).float().requires_grad_() for _ in range(2))
    norm.rms_norm_fn(ours, weight, eps=1e-6).square().sum().backward()
    F.rms_norm(theirs, (HIDDEN,), weight, 1e-6).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def check_img2gray(device: str) -> None:
    gray = load("img2gray")
    picture = torch.randint(0, 256, (480, 640, 3), device=device, dtype=torch.uint8)
    wanted = gray.reference.img2gray(picture)
    torch.testing.assert_close(gray.img2gray(picture), wanted, rtol=0, atol=1)


CHECKS = [check_activation, check_norm, check_norm_gradient, check_img2gray]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("device", GPUS)
def test_a_kernel_runs_where_its_tensors_are(check: Callable[[str], None], device: str) -> None:
    for current in range(len(GPUS)):
        with torch.cuda.device(current):
            check(device)
            assert torch.cuda.current_device() == current


def test_threads_on_all_gpus_do_not_disturb_each_other() -> None:
    work = [(check, device) for _ in range(5) for device in GPUS for check in CHECKS]
    with ThreadPoolExecutor(2 * len(GPUS)) as threads:
        for done in [threads.submit(check, device) for check, device in work]:
            done.result()
