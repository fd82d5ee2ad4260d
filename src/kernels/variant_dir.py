"""A variant in a directory, verified: every byte of it is the one that its name and its metadata promise."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kernel_spec.digest import Digest, compare, digest_tree, is_counted, iter_files, variant_digest
from kernel_spec.document import open_plain, read_plain
from kernel_spec.errors import IntegrityError
from kernel_spec.metadata import FILE_NAME, Metadata, parse_metadata
from kernel_spec.names import module_name
from kernels.errors import NotAKernelError

SIGNATURE_NAME = f"{FILE_NAME}.sigstore"


class VariantDir(NamedTuple):
    """A variant on disk whose bytes were verified.

    Attributes:
        path: the directory that holds ``metadata.json``.
        metadata: what it says of itself.
        digest: the name of its whole content (``variant_digest``).
        sha256: the hex sha256 of each file, by POSIX path.
    """

    path: Path
    metadata: Metadata
    digest: str
    sha256: Mapping[str, str]


def read_variant(path: Path) -> VariantDir:
    """Hash a variant directory and verify it against its own metadata.

    Raises:
        IntegrityError: files are not those that the metadata's digest promises.
        MetadataError: the metadata cannot be used.
        NotAKernelError: no ``metadata.json``, or files that cannot be read.
    """
    try:
        data = read_plain(path / FILE_NAME)
    except (FileNotFoundError, NotADirectoryError) as err:
        raise NotAKernelError(path, f"{path} is no build variant: it has no {FILE_NAME}.") from err
    except OSError as err:
        raise _unread(path, path / FILE_NAME, err) from err
    metadata = parse_metadata(data)
    sha256 = {FILE_NAME: hashlib.sha256(data).hexdigest()}
    sizes = {FILE_NAME: len(data)}
    signature = path / SIGNATURE_NAME
    signed = [(SIGNATURE_NAME, signature)] if signature.is_file() else []
    file = path
    try:
        for name, file in [*iter_files(path), *signed]:
            sizes[name] = file.stat().st_size
            sha256[name] = hash_file(file)
    except OSError as err:
        raise _unread(path, Path(err.filename or file), err) from err
    verify_own_digest(path, metadata, sha256)
    digest = variant_digest((name, sizes[name], sha256[name]) for name in sorted(sha256))
    return VariantDir(path=path, metadata=metadata, digest=digest, sha256=sha256)


def _unread(path: Path, file: Path, err: OSError) -> NotAKernelError:
    return NotAKernelError(
        path, f"{file} cannot be read: {err.strerror or err}. Let this user read it."
    )


def verify_own_digest(path: Path, metadata: Metadata, sha256: Mapping[str, str]) -> None:
    """Compare the files of a variant with the digest in its own metadata, where it has one.

    Raises:
        IntegrityError: naming every file that is missing, unknown or changed.
    """
    promised = metadata.digest
    if promised is None:
        return
    if promised.algorithm == "sha256":
        import base64

        counted = {
            name: base64.b64encode(bytes.fromhex(value)).decode()
            for name, value in sorted(sha256.items())
            if is_counted(PurePosixPath(name))
        }
        actual = Digest("sha256", counted)
    else:
        actual = digest_tree(path, promised.algorithm)
    if violations := compare(promised, actual):
        found = "\n".join(f"  {violation}" for violation in violations)
        raise IntegrityError(
            f"{path} is not what its own {FILE_NAME} promises; nothing of it was executed:\n{found}\n"
            "Build or publish the variant again."
        )


def find_init(variant: VariantDir) -> Path:
    """Return the ``__init__.py`` of a variant: at its top, or in the older ``<module>/`` layout.

    Raises:
        NotAKernelError: there is neither.
    """
    module = module_name(variant.metadata.name)
    for relative in ("__init__.py", f"{module}/__init__.py"):
        if relative in variant.sha256:
            return variant.path / relative
    raise NotAKernelError(
        variant.path, f"{variant.path} has neither __init__.py nor {module}/__init__.py."
    )


def hash_file(path: Path) -> str:
    """Return the hex sha256 of a file."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
