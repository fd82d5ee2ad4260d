"""``get_kernel_dep``: hands the code of a kernel the kernels that its metadata names."""

from __future__ import annotations

import sys
from types import ModuleType

from kernel_spec.errors import WrongTypeError
from kernels.errors import DependencyError


def get_kernel_dep(repo_id: str) -> ModuleType:
    """Return a kernel that the calling kernel names in its ``kernel-depends``.

    It was loaded before the calling kernel was, so this costs nothing and may be called while the
    module runs or at any later time.

    Args:
        repo_id: ``owner/name``, as the metadata has it.

    Raises:
        TypeError: ``repo_id`` is no text.
        RuntimeError: the caller is no code of a kernel, or its kernel does not name that one.
    """
    if not isinstance(repo_id, str):
        raise WrongTypeError("repo_id", "a text such as 'owner/name'", repo_id)
    from kernels import importer

    caller = str(sys._getframe(1).f_globals.get("__name__", ""))
    dependencies = importer.dependencies_of(caller)
    if dependencies is None:
        raise DependencyError(
            f"get_kernel_dep({repo_id!r}) was called by {caller or 'no module'}, which is not the "
            "code of a loaded kernel. Everywhere else, use get_kernel."
        )
    try:
        return dependencies[repo_id]
    except KeyError:
        named = ", ".join(dependencies) or "no kernel at all"
        raise DependencyError(
            f"{caller} asks for the kernel {repo_id!r}, but its metadata names {named}. "
            "Add it to kernel-depends in build.toml and build the kernel again."
        ) from None
