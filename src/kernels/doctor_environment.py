"""What this machine is to the loader: Python, torch, devices, libraries, cache, hubs, trust, settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_spec.amounts import format_count
from kernels._version import __version__
from kernels.hub_address import hide_credentials
from kernels.settings import Settings, describe_settings
from kernels.store import Store
from kernels.system import describe, detect, detect_devices
from kernels.trust import read_trusted

_LIBSTDCXX = re.compile(rb"\0GLIBCXX_(\d+)\.(\d+)(?:\.(\d+))?(?=\0)")


def examine(settings: Settings) -> dict[str, Any]:
    """Describe this machine as one document; nothing secret is in it."""
    system = detect()
    return {
        "kernels": __version__,
        "system": describe(system),
        "python": {
            "version": ".".join(map(str, sys.version_info[:3])),
            "executable": sys.executable,
            "free_threaded": system.free_threaded,
        },
        "torch": None
        if system.torch is None
        else {
            "version": system.torch.version,
            "prerelease": system.torch.prerelease,
            "cxx11_abi": system.torch.cxx11_abi,
        },
        "backend": str(system.backend),
        "glibc": None if system.glibc is None else str(system.glibc),
        "libstdc++": _read_libstdcxx(system),
        "devices": _read_devices(system),
        "cache": _read_cache(settings.cache),
        "hubs": [
            {"url": hide_credentials(hub.url), "owners": sorted(hub.owners)}
            for hub in settings.hubs
        ],
        "offline": settings.offline_cause or None,
        "trust": _read_trust(settings),
        "settings": [
            {"name": name, "value": value, "origin": origin}
            for name, value, origin in describe_settings()
        ],
    }


def _read_libstdcxx(system: Any) -> dict[str, str] | None:
    from kernels.linkage.host import read_host

    path = read_host(system).libstdcxx
    if path is None:
        return None
    try:
        found = [tuple(int(n or 0) for n in m) for m in _LIBSTDCXX.findall(path.read_bytes())]
    except OSError:
        return None
    newest = ".".join(map(str, max(found))) if found else "unknown"
    return {"path": str(path), "newest": f"GLIBCXX_{newest}"}


def _read_devices(system: Any) -> list[dict[str, Any]] | str:
    try:
        devices = detect_devices(system).devices
    except (ImportError, RuntimeError, OSError, AssertionError) as err:
        return f"cannot be read: {err}"
    return [{"index": d.index, "name": d.name, "arch": d.arch} for d in devices]


def _read_cache(root: Path) -> dict[str, Any]:
    variants = Store(root).folder("variants")
    above = next((p for p in (root, *root.parents) if p.exists()), root)
    try:
        count = sum(1 for _ in variants.iterdir())
    except OSError:
        count = 0
    return {"path": str(root), "writable": os.access(above, os.W_OK), "variants": count}


def _read_trust(settings: Settings) -> dict[str, Any]:
    trusted = read_trusted(settings.config)
    owners = sorted(f"{entry.owner} on {hide_credentials(entry.hub)}" for entry in trusted.owners)
    return {"owners": owners, "digests": sorted(trusted.digests)}


def format_report(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report for people."""
    python, torch, cache = report["python"], report["torch"], report["cache"]
    kind = " (free-threaded)" if python["free_threaded"] else ""
    yield f"kernels {report['kernels']}"
    yield f"Python {python['version']}{kind} at {python['executable']}"
    yield "no torch" if torch is None else f"torch {torch['version']}, {report['backend']}"
    library = report["libstdc++"]
    yield f"glibc {report['glibc'] or 'none'}, libstdc++ {library['newest'] if library else 'unknown'}"
    devices = report["devices"]
    if isinstance(devices, str):
        yield f"devices: {devices}"
    for device in devices if isinstance(devices, list) else ():
        yield f"device {device['index']}: {device['name']} ({device['arch']})"
    if not devices:
        yield "no accelerator"
    writable = "" if cache["writable"] else ", cannot be written"
    yield f"cache {cache['path']}: {format_count(cache['variants'], 'variant')}{writable}"
    for hub in report["hubs"]:
        owners = f" (only for {', '.join(hub['owners'])})" if hub["owners"] else ""
        yield f"hub {hub['url']}{owners}"
    if report["offline"]:
        yield f"offline: {report['offline']}"
    for owner in report["trust"]["owners"]:
        yield f"trusting {owner}"
    if digests := report["trust"]["digests"]:
        yield f"trusting {format_count(len(digests), 'variant')} by digest"
    for setting in report["settings"]:
        yield f"{setting['name']} = {setting['value'] or '(empty)'}  [{setting['origin']}]"
