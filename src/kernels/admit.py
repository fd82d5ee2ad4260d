"""Lets what was found onto this disk: trusted first, then downloaded, compared with its lock, and judged.

What only the bytes can tell (kernels.linkage) is known when a variant is here. One that would not link is
left in the cache with that verdict, and the next best is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernels.errors import TrustError
from kernels.loaded import Clock
from kernels.request import Found, Request, walk
from kernels.resolve import resolve

if TYPE_CHECKING:
    from kernels.variant_dir import VariantDir


def admit(
    found: Found, request: Request, clock: Clock
) -> tuple[tuple[Found, ...], list[VariantDir]]:
    """Return what was found and what it needs, what is needed first, each on disk and fit to be loaded.

    Raises:
        NoVariantError: no variant would link here.
        As :func:`install_all` and ``resolve.resolve``.
    """
    passed_over: set[str] = set()
    while True:
        nodes = tuple(walk(found))
        variants = install_all(nodes, request, clock)
        unfit = {
            variant.digest
            for node, variant in zip(nodes, variants, strict=True)
            if node.variant is None and not _links(variant, request)
        }
        if not unfit - passed_over:
            return nodes, variants
        passed_over |= unfit
        found = resolve(found.ref, request._replace(refresh=False), clock)


def _links(variant: VariantDir, request: Request) -> bool:
    from kernels.fit import find_unfit

    return find_unfit(variant, request.settings.state, check_arch=request.check_arch) is None


def install_all(nodes: Sequence[Found], request: Request, clock: Clock) -> list[VariantDir]:
    """Return every kernel on disk and verified; nothing is downloaded before all are trusted."""
    settings = request.settings
    doubts = [_doubt(node, request) for node in nodes]
    clock.lap("trust")
    variants = []
    for node, doubt in zip(nodes, doubts, strict=True):
        variant = node.variant
        if variant is None:
            from kernels.choose import obtain

            assert node.chosen is not None
            variant = obtain(node.chosen, settings)
        if doubt is not None:
            from kernels.trust import read_trusted

            if variant.digest not in read_trusted(settings.config).digests:
                raise doubt
        if node.locked is not None:
            from kernels.locked import require_locked

            require_locked(node, variant)
        variants.append(variant)
    clock.lap("install")
    return variants


def _doubt(node: Found, request: Request) -> Exception | None:
    """Return why a kernel may not run, where only its digest can still say that it may.

    Raises:
        TrustError: nothing can.
    """
    located, settings = node.located, request.settings
    if located is None or located.hub.is_directory or (node.locked and node.locked.variants):
        # The caller named the path or the folder, or the lock names the very bytes.
        return None
    from kernels.trust import read_trusted, require_trust

    digests = read_trusted(settings.config).digests
    variant = node.on_disk
    if variant is not None and variant.digest in digests:
        # Whatever the hub says of its owner; a machine that no hub reaches need not ask.
        return None
    try:
        require_trust(located, settings, request.consent, refresh=request.refresh)
    except TrustError as err:
        if not digests:
            raise
        return err
    return None
