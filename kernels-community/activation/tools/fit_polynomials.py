"""Compute the polynomial coefficients of csrc/cpu/vector_math.h and csrc/cuda/device_math.cuh.

Each fit minimises the largest relative error by Lawson's method: weighted least
squares on Chebyshev nodes, the weights multiplied by the error of every round.
Needs numpy and mpmath. Run it and compare; the headers hold what it prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np

NODES = 400
ROUNDS = 300


def fit(
    function: Callable[[float], object],
    low: float,
    high: float,
    degree: int,
    weigh: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda _, y: 1 / np.abs(y),
):
    """Fit a polynomial on [low, high]; returns (largest weighted error, coefficients from x^0).

    `weigh(x, y)` says what an absolute error counts; by default errors are relative.
    """
    angles = np.pi * (2 * np.arange(NODES) + 1) / (2 * NODES)
    unit = np.cos(angles)
    x = (low + high) / 2 + (high - low) / 2 * unit
    y = np.array([float(function(float(v))) for v in x])
    counts = weigh(x, y)
    basis = np.polynomial.chebyshev.chebvander(unit, degree)
    weights = np.ones(NODES)
    best_error, best = np.inf, None
    for _ in range(ROUNDS):
        scale = np.sqrt(weights) * counts
        coefficients, *_ = np.linalg.lstsq(basis * scale[:, None], y * scale, rcond=None)
        error = np.abs(basis @ coefficients - y) * counts
        if error.max() < best_error:
            best_error, best = error.max(), coefficients
        weights = np.maximum(weights * error, 1e-14)
        weights /= weights.sum()
    in_unit = np.polynomial.Polynomial(np.polynomial.chebyshev.cheb2poly(best))
    to_unit = np.polynomial.Polynomial([-(low + high) / (high - low), 2 / (high - low)])
    return best_error, in_unit(to_unit).coef


def exp_remainder(r: float) -> object:
    """(exp(r) - 1 - r) / r^2, which the header multiplies back."""
    return (mpmath.expm1(r) - r) / mpmath.mpf(r) ** 2 if r else mpmath.mpf(1) / 2


def scaled_tail(s: float) -> object:
    """exp(a^2 / 2) * P(N > a) for a normal N, where s = (a - 3) / (a + 3)."""
    a = 3 * (1 + mpmath.mpf(s)) / (1 - mpmath.mpf(s))
    return mpmath.exp(a * a / 2) * mpmath.erfc(a / mpmath.sqrt(2)) / 2


def log_tail_slope(a: float) -> object:
    """(log2 P(N > a) + 1) / a, so that the header's polynomial is -1 at 0."""
    return mpmath.log(mpmath.erfc(mpmath.mpf(a) / mpmath.sqrt(2)), 2) / a


def as_relative_error_of_the_power(x: np.ndarray, _y: np.ndarray) -> np.ndarray:
    return x * math.log(2)


def main() -> None:
    mpmath.mp.dps = 40
    half_ln2 = float(mpmath.log(2)) / 2 * 1.0001
    fits = {
        "kExpRemainder": (exp_remainder, -half_ln2, half_ln2, 4),
        # The header of the CPU clamps a to 15, that is s to 2/3.
        "kScaledTail, kFactor": (scaled_tail, -1.0, (15 - 3) / (15 + 3), 9),
        "kSlope of float16": (log_tail_slope, 0.0, 6.0, 6, as_relative_error_of_the_power),
        "kSlope of bfloat16": (log_tail_slope, 0.0, 13.4, 8, as_relative_error_of_the_power),
    }
    for name, arguments in fits.items():
        error, coefficients = fit(*arguments)
        print(f"{name}: largest error {error:.2g}")
        print(",\n".join(f"    {float(np.float32(c))!r}f" for c in coefficients))


if __name__ == "__main__":
    main()
