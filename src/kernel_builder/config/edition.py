"""Which edition of ``build.toml`` a file is written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_builder.config.model import CURRENT_EDITION
from kernel_builder.config.table import Faults

FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")


def find_edition(data: Mapping[str, Any], faults: Faults) -> int | None:
    """Return the edition that a file names, or else the one whose marks it carries.

    Editions 1 to 4 had no key for it: ``language`` or ``torch.universal`` is the mark of
    1, no ``general.backends`` that of 2, no licence, version or framework that of 3.

    Returns:
        The edition, or None where the file names one that does not exist; nothing else can be
        judged then.
    """
    general = _table(data.get("general"))
    stated = general.get("edition")
    if stated is None:
        return _guess(data, general)
    path = ("general", "edition")
    if isinstance(stated, int) and not isinstance(stated, bool):
        if 1 <= stated <= CURRENT_EDITION:
            return stated
        message = f"found {stated}; this version reads editions 1 to {CURRENT_EDITION}"
        if stated > CURRENT_EDITION:
            message += "; a newer kernel-builder may read it"
        faults.add(path, "bad-edition", message)
        return None
    faults.add_wrong_type(path, stated, "a whole number")
    return CURRENT_EDITION


def _guess(data: Mapping[str, Any], general: Mapping[str, Any]) -> int:
    if "backends" in general:
        complete = "version" in general and "license" in general
        return 4 if complete and any(name in data for name in FRAMEWORKS) else 3
    components = [_table(value) for value in _table(data.get("kernel")).values()]
    if any("language" in component or "backend" not in component for component in components):
        return 1
    return 1 if "universal" in _table(data.get("torch")) else 2


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
