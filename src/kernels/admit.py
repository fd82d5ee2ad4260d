"""Lets what was found onto this disk: trusted first, then downloaded, compared with its lock, and judged.

What only the bytes can tell (kernels.linkage) is known when a variant is here. One that would not link is
left in the cache with that verdict, and the next best is looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kernels.errors import TrustError
from kernels.loaded import Clock
from kernels.request import Found, Request, walk
from kernels.resolve import resolve
from kernels.settings import Settings
from kernels.store import Store

if TYPE_CHECKING:
    from kernels.importer import VariantDir

Consent = bool | Collection[str]


def admit(
    found: Found, request: Request, consent: Consent, clock: Clock
) -> tuple[tuple[Found, ...], list[VariantDir]]:
    """Return what was found and what it needs, what is needed first, each on disk and fit to be loaded.

    Raises:
        NoVariantError: no variant would link here.
        As :func:`install_all` and ``resolve.resolve``.
    """
    passed_over: set[str] = set()
    while True:
        nodes = tuple(walk(found))
        variants = install_all(nodes, request, consent, clock)
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


def install_all(
    nodes: Sequence[Found], request: Request, consent: Consent, clock: Clock
) -> list[VariantDir]:
    """Return every kernel on disk and verified; nothing is downloaded before all are trusted."""
    settings = request.settings
    doubts = [_doubt(node, settings, consent, refresh=request.refresh) for node in nodes]
    clock.lap("trust")
    variants = []
    for node, doubt in zip(nodes, doubts, strict=True):
        variant = node.variant
        if variant is None:
            from kernels.install import install

            assert node.chosen is not None
            store = Store(settings.cache)
            variant = install(store, node.chosen.wanted, settings.state, have=node.chosen.have)
        if doubt is not None:
            from kernels.trust import is_trusted_digest

            if not is_trusted_digest(settings.config, variant.digest):
                raise doubt
        if node.locked is not None:
            from kernels.locked import require_locked

            require_locked(node, variant)
        variants.append(variant)
    clock.lap("install")
    return variants


def _doubt(node: Found, settings: Settings, consent: Consent, *, refresh: bool) -> Exception | None:
    """Return why a kernel may not run, where only its digest can still say that it may.

    Raises:
        TrustError: nothing can.
    """
    located = node.located
    if located is None or located.hub.is_directory or (node.locked and node.locked.variants):
        # The caller named the path or the folder, or the lock names the very bytes.
        return None
    from kernels.trust import is_trusted_digest, require_trust, trusts_digests

    variant = node.on_disk
    if variant is not None and is_trusted_digest(settings.config, variant.digest):
        # Whatever the hub says of its owner; a machine that no hub reaches need not ask.
        return None
    try:
        require_trust(located, settings, consent, refresh=refresh)
    except TrustError as err:
        if not trusts_digests(settings.config):
            raise
        return err
    return None
