"""Times kernels against their peers: what a kernel's ``benchmarks/benchmark*.py`` may import.

Such a file defines ``cases(kernel, device)``, which yields a :class:`Case` for everything that is
to be timed; ``kernels benchmark`` does the rest.
"""

from kernels.bench.case import Case

__all__ = ["Case"]
