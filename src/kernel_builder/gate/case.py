"""A case: one function of a kernel, what it should compute, and the inputs to try it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """One function of a kernel, beside what it should compute.

    Attributes:
        name: how reports call it; no two cases of a file share one.
        function: what is tried: ``function(*inputs)``, or with `out` ``function(out, *inputs)``; a
            layer (``torch.nn.Module``) counts as one.
        reference: the same in plain torch: ``reference(*inputs)``, whose floating inputs come in
            float64. It must be differentiable where `differentiable` is true.
        inputs: ``inputs(dtype, **sizes)`` makes the arguments of one call, on the device that
            ``cases(kernel, device)`` was given. Random numbers are seeded before.
        sizes: the sizes that shapes are made of, and the number that each must be a multiple of:
            ``{"rows": 1, "width": 2}``.
        tolerance: for each dtype to try, how far off a result may be:
            ``|found - exact| / (1 + |exact|)``. 0 means equal.
        out: ``out(*inputs)`` makes the tensor that `function` fills; None: it returns its result.
        differentiable: whether training goes through it. Where False, the proof says so, and
            ``kernelize`` does not use it for training.
        gradient_tolerance: as `tolerance`, for gradients of a sum over the whole result; None:
            the same.
        compiles: whether it works inside ``torch.compile(fullgraph=True)``.
        batch: the size that counts independent rows along the first dimension of inputs and
            results; then more than 2^31 elements are tried. None: that is not proved.
        layer: the class of ``layers`` that stands or falls with this case.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[..., Sequence[Any]]
    sizes: Mapping[str, int]
    tolerance: Mapping[Any, float]
    out: Callable[..., Any] | None = None
    differentiable: bool = True
    gradient_tolerance: Mapping[Any, float] | None = None
    compiles: bool = True
    batch: str | None = None
    layer: str | None = None

    def __post_init__(self) -> None:
        """Refuse a case that could prove nothing.

        Raises:
            TypeError: a function that is none.
            ValueError: no dtype, no size, a step below 1, or a batch that is no size.
        """
        for what in ("function", "reference", "inputs"):
            if not callable(given := getattr(self, what)):
                raise TypeError(
                    f"case {self.name!r}: {what} is {type(given).__name__}, which cannot be called; expected "
                    "a function or a torch.nn.Module"
                )
        if not self.tolerance:
            raise ValueError(
                f"case {self.name!r}: tolerance names no dtype; expected {{dtype: 1e-6}}"
            )
        if not self.sizes:
            raise ValueError(f"case {self.name!r}: it has no sizes; expected such as {{'rows': 1}}")
        for size, step in self.sizes.items():
            if step < 1:
                raise ValueError(
                    f"case {self.name!r}: sizes[{size!r}] is {step}; expected 1 or more"
                )
        if self.batch is not None and self.batch not in self.sizes:
            known = ", ".join(self.sizes)
            raise ValueError(
                f"case {self.name!r}: batch={self.batch!r} is none of its sizes ({known})"
            )
