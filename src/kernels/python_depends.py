"""The Python packages that a kernel says it needs: are they here?"""

from __future__ import annotations

from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING

from kernels.errors import KernelImportError

if TYPE_CHECKING:
    from kernel_spec.metadata import Metadata
    from kernels.variant_dir import VariantDir

# name in ``python-depends`` -> (distribution, module); the names that the published client knows.
# Source: "python-depends" of kernels 0.17. onednn is a library that nothing imports.
_KNOWN = {
    "einops": ("einops", "einops"),
    "helion": ("helion", "helion"),
    "tvm-ffi": ("apache-tvm-ffi", "tvm_ffi"),
    "nvidia-cutlass-dsl": ("nvidia-cutlass-dsl", "cutlass"),
    "nki": ("nki", "nki"),
    "onednn": ("onednn-devel", ""),
}


def require_packages(variant: VariantDir) -> None:
    """Return where every package that a variant needs is installed.

    Raises:
        KernelImportError: naming those that are not, and how to get them.
    """
    if missing := find_missing(variant.metadata):
        wanted = " ".join(quote(distribution_of(name)) for name in missing)
        raise KernelImportError(
            f"The kernel {variant.metadata.name} needs Python packages that are not installed: "
            f"{', '.join(missing)}. Install them: pip install {wanted}",
            variant.path,
        )


def find_missing(metadata: Metadata) -> list[str]:
    """Return the packages that a kernel says it needs and that are not installed."""
    missing = [name for name in metadata.python_depends if not _is_here(name)]
    return missing + [text for text in metadata.python_requires if not _is_satisfied(text)]


def _is_satisfied(text: str) -> bool:
    """Say whether a package is here, in a version that fits."""
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except (PackageNotFoundError, ValueError):
        return False


def distribution_of(name: str) -> str:
    """Return the distribution that a name in ``python-depends`` stands for."""
    return _KNOWN.get(name, (name, ""))[0]


def _is_here(name: str) -> bool:
    if name in _KNOWN:
        module = _KNOWN[name][1]
        return not module or find_spec(module) is not None
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(name)
    except (PackageNotFoundError, ValueError):
        return False
    return True
