"""RMSNorm in a small model: its own, and the kernel of kernels-community/triton-layer-norm.

    python examples/rmsnorm_kernelized.py [--select measured] [--rows 256 512 ...]

Prints what each layer runs, how far both are from float64 on random weights, and a table of
times for 8 batch sizes. Autograd records throughout, as in any model that is called without
torch.no_grad(). The kernel comes from KERNELS_HUB, or from a build on disk:

    kernel-builder build kernels-community/triton-layer-norm
    export LOCAL_KERNELS=kernels-community/triton-layer-norm=kernels-community/triton-layer-norm

On a CPU that kernel is plain torch, as the model's own norm is: there the table says that it runs, and no more.
"""

import argparse
import copy
import statistics
import time

import torch
from torch import nn

from kernels import (
    LayerRepository,
    Mode,
    kernelize,
    report,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)

MAPPING = {
    "LlamaRMSNorm": {
        device: LayerRepository(
            "kernels-community/triton-layer-norm", layer_name="LlamaRMSNorm", version=1
        )
        for device in ("cuda", "rocm", "cpu")
    }
}


@use_kernel_forward_from_hub("LlamaRMSNorm")
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, variance_epsilon=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = variance_epsilon

    def forward(self, x):
        input_dtype = x.dtype
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return (self.weight * x).to(input_dtype)


class Model(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.linear1 = nn.Linear(input_size, hidden_size)
        self.norm = RMSNorm(hidden_size)
        self.activation = nn.GELU()
        self.linear2 = nn.Linear(hidden_size, output_size)
        # All ones would hide errors.
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def forward(self, x):
        return self.linear2(self.activation(self.norm(self.linear1(x))))


def seconds(model, x, calls, synchronize):
    synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        model(x)
    synchronize()
    return (time.perf_counter() - begin) / calls


def compare(baseline, kernel, x, calls, synchronize):
    """Time both in turns, so that a change of the machine's pace hits both alike."""
    times = ([], [])
    for model in (baseline, kernel):
        for _ in range(max(3, calls // 10)):
            model(x)
    for _ in range(7):
        for index, model in enumerate((baseline, kernel)):
            times[index].append(seconds(model, x, calls, synchronize))
    return statistics.median(times[0]), statistics.median(times[1])


def largest_error(norm, x):
    """The largest difference to the same norm in float64, relative to the largest output."""
    with torch.no_grad():
        wide = x.double()
        variance = wide.pow(2).mean(-1, keepdim=True)
        expected = norm.weight.double() * wide * torch.rsqrt(variance + norm.eps)
        return ((norm(x).double() - expected).abs().max() / expected.abs().max()).item()


def main():
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    rows = [256 * 2**power for power in range(8)] if on_gpu else [2**power for power in range(8)]
    parser.add_argument("--rows", type=int, nargs="+", default=rows)
    parser.add_argument("--hidden", type=int, default=4096 if on_gpu else 512)
    parser.add_argument("--calls", type=int, default=100 if on_gpu else 20)
    parser.add_argument("--select", choices=["mapped", "measured"], default="mapped")
    options = parser.parse_args()
    dtype = torch.float16 if on_gpu else torch.float32
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None

    torch.manual_seed(0)
    baseline = Model(options.hidden, options.hidden, 10).to(device).to(dtype).eval()
    kernel = copy.deepcopy(baseline)
    with use_kernel_mapping(MAPPING):
        kernelize(kernel, mode=Mode.TRAINING, select=options.select, strict=True)

    x = torch.randn(256, options.hidden, device=device, dtype=dtype)
    torch.testing.assert_close(kernel(x), baseline(x), rtol=1e-2, atol=1e-2)
    for name, model in (("own", baseline), ("kernel", kernel)):
        print(
            f"largest error of the {name} norm, against float64: {largest_error(model.norm, x):.1e}"
        )

    print(f"\n{'rows':>6} | {'baseline ms':>11} | {'kernel ms':>9} | speedup")
    for count in options.rows:
        x = torch.randn(count, options.hidden, device=device, dtype=dtype)
        own, fast = compare(baseline, kernel, x, options.calls, synchronize)
        print(f"{count:>6} | {own * 1e3:>11.4f} | {fast * 1e3:>9.4f} | {own / fast:.2f}x")
    if not on_gpu:
        print("\nOn a CPU both are plain torch: these times say that it runs, and no more.")
    print(f"\n{report(kernel)}")


if __name__ == "__main__":
    main()
