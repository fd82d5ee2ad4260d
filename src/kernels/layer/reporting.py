"""What each extensible layer of a model really runs, and why it is not the kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kernels.layer import decision
from kernels.layer.binding import (
    Bound,
    find_bound,
    has_foreign_forward,
    has_forward_of_another,
)
from kernels.layer.contract import find_passed_by
from kernels.layer.extensible import ExtensibleLayer, find_extensible_layers
from kernels.layer.timings import Timing

Runs = Literal["kernel", "original", "measured", "other"]


@dataclass(frozen=True, kw_only=True)
class ShapeReport:
    """What was measured for one class of shapes.

    Attributes:
        shape: dtype, rows (rounded up to a power of two) and last size of each tensor.
        kernel_us, original_us: microseconds of a call, in the best round.
        runs: which of the two is taken.
    """

    shape: str
    kernel_us: float
    original_us: float
    runs: Literal["kernel", "original"]


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    """What one layer, or one function that layers call, runs.

    Attributes:
        path: where it is in the model.
        layer_name: what mappings call it.
        cls: its class.
        runs: ``kernel``, ``original``, ``measured`` (the faster of the two, by ``shapes``), or
            ``other``: something else has replaced its forward.
        kernel: the kernel's layer, as the mapping names it; None where none is in question.
        commit: the commit that it was loaded from; None for a kernel from a path.
        mode, device: what the model was kernelized for; None where it was not.
        reason: why it is not the kernel, or when it is not; empty where it always is.
        users: for a function, how many modules of the model call it; all models share it.
        shapes: what was measured so far.
    """

    path: str
    layer_name: str
    cls: str
    runs: Runs
    kernel: str | None = None
    commit: str | None = None
    mode: str | None = None
    device: str | None = None
    reason: str = ""
    users: int | None = None
    shapes: tuple[ShapeReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a model runs; ``print`` shows it as a table.

    Attributes:
        layers: the extensible layers and functions, in the model's order.
        training: whether the model is in training mode (``model.train()``).
    """

    layers: tuple[LayerReport, ...]
    training: bool

    @property
    def kernels(self) -> tuple[LayerReport, ...]:
        """The layers that run a kernel, if only on some shapes."""
        return tuple(
            layer
            for layer in self.layers
            if layer.runs == "kernel"
            or (layer.runs == "measured" and any(each.runs == "kernel" for each in layer.shapes))
        )

    @property
    def originals(self) -> tuple[LayerReport, ...]:
        """The layers that run no kernel."""
        running = {layer.path for layer in self.kernels}
        return tuple(layer for layer in self.layers if layer.path not in running)

    def to_json(self) -> str:
        """Write the report as JSON: ``{"layers": [...], "training": ...}``, one key a field."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        return format_report(self)


def report(model: Any) -> Report:
    """Say what each extensible layer of a model really runs, and why it is not the kernel.

    It looks at the model as it is now, not at what was asked of :func:`kernels.kernelize`.

    Args:
        model: a ``torch.nn.Module``, kernelized or not.

    Raises:
        WrongTypeError: it is none; it is also a TypeError.
    """
    layers = find_extensible_layers(model)
    return Report(layers=tuple(_describe(layer) for layer in layers), training=bool(model.training))


def format_report(found: Report) -> str:
    """Write a report as a table, layers that differ only in numbers of their path in one line."""
    if not found.layers:
        return "No layer of this model is extensible (use_kernel_forward_from_hub)."
    head = f"{len(found.kernels)} of {len(found.layers)} layers run a kernel"
    wanted = {layer.mode for layer in found.layers if layer.mode}
    if found.training and wanted and not any("TRAINING" in mode for mode in wanted):
        head += f"; the model is in training mode, but was kernelized for {', '.join(wanted)}"
    rows = [("layer", "runs", "kernel", "why")]
    rows += _grouped_rows(found.layers)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return "\n".join([head, *(line.rstrip() for line in lines)])


def _describe(layer: ExtensibleLayer) -> LayerReport:
    kept = decision.read(layer.module)
    bound = find_bound(layer.module)
    return LayerReport(
        path=layer.path,
        layer_name=layer.name,
        cls=type(layer.module).__name__,
        runs=_runs(layer.module, bound),
        # One forward may be mapped under two names; what was decided tells which it was.
        kernel=kept.get("kernel") or (bound.layer.repository if bound else None),
        commit=bound.layer.commit if bound else kept.get("commit"),
        mode=kept.get("mode"),
        device=kept.get("device"),
        reason=_reason(layer.module, bound, kept),
        users=layer.users,
        shapes=tuple(_describe_shapes(bound)),
    )


def _runs(module: Any, bound: Bound | None) -> Runs:
    if bound is None:
        is_other = has_foreign_forward(module) or has_forward_of_another(module)
        return "other" if is_other else "original"
    return "kernel" if bound.selection is None else "measured"


def _reason(module: Any, bound: Bound | None, kept: Mapping[str, str]) -> str:
    if bound is not None:
        limits = [
            f"{fault}: kernelize it again" for fault in find_passed_by(bound.layer.cls, module)
        ]
        limits += bound.limits
        if bound.selection is not None and not bound.selection.timings:
            why = bound.selection.untimed
            until = "until the model was called outside torch.compile"
            limits.insert(0, f"the original: {why}" if why else f"the original {until}")
        return "; ".join(limits)
    if has_foreign_forward(module):
        return "something else has replaced its forward"
    if has_forward_of_another(module):
        return "it runs the kernel for the layer that it is a shallow copy of: kernelize it again"
    if not kept:
        return "the model was not kernelized"
    if kept["runs"] == "kernel":
        return "its kernel did not come along (pickled, or taken out): kernelize the model again"
    return kept["reason"]


def _describe_shapes(bound: Bound | None) -> Iterable[ShapeReport]:
    timings: Mapping[str, Timing] = {}
    if bound is not None and bound.selection is not None:
        timings = dict(bound.selection.timings)
    for shape, timing in sorted(timings.items(), key=lambda item: _by_number(item[0])):
        yield ShapeReport(
            shape=shape,
            kernel_us=timing.kernel_us,
            original_us=timing.original_us,
            runs="kernel" if timing.is_kernel_faster else "original",
        )


def _by_number(text: str) -> list[tuple[str, int]]:
    """Order texts as people do: 8x4 before 32x4."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", text)]


def _grouped_rows(layers: Iterable[LayerReport]) -> list[tuple[str, str, str, str]]:
    groups: dict[tuple[str, ...], list[LayerReport]] = {}
    for layer in layers:
        shown = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", layer.path)
        key = (shown, layer.runs, layer.kernel or "", layer.reason, repr(layer.shapes))
        groups.setdefault(key, []).append(layer)
    rows = []
    for (shown, runs, kernel, reason, _), members in groups.items():
        place = members[0].path or "(the model)"
        if len(members) > 1:
            place = f"{shown} ({len(members)} times)"
        if members[0].users is not None:
            place += " (function)"
        # The column beside it names the kernel.
        why = _first_sentence(reason.removeprefix(f"{kernel} "))
        rows.append((place, runs, kernel, why))
        rows += [
            (f"  {each.shape}", each.runs, f"{each.kernel_us:.1f} us", _against(each))
            for each in members[0].shapes
        ]
    return rows


def _first_sentence(reason: str) -> str:
    """Leave the rest to the JSON: a table is read for which layers, not for all that was tried."""
    line = reason.partition("\n")[0]
    first, end, _ = line.partition(". ")
    return f"{first}." if end else line


def _against(shape: ShapeReport) -> str:
    return f"against {shape.original_us:.1f} us of the original"
