"""What the two runs do not have in common, besides the model's layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem.as_text import format_count, format_tensor
from graphmem.diffs.items import Difference
from graphmem.options import DEFAULTS, words
from graphmem.report import Kernel, Report


def differences(base: Report, head: Report) -> tuple[Difference, ...]:
    """Inputs, options, devices, kernels and versions that differ, in this order.

    An option that a report does not have was the default: it was made before there was such
    an option.
    """
    return (*_inputs(base, head), *_options(base, head), *_subject(base, head))


def _inputs(base: Report, head: Report) -> Iterator[Difference]:
    sides = [
        {i.name or f"#{n}": format_tensor(i.dtype, i.shape) for n, i in enumerate(r.subject.inputs)}
        for r in (base, head)
    ]
    yield from _differing("input", *sides)


def _options(base: Report, head: Report) -> Iterator[Difference]:
    names = {**base.created_from, **head.created_from}
    sides = [
        {words(name): _text(report.created_from.get(name, DEFAULTS.get(name))) for name in names}
        for report in (base, head)
    ]
    yield from _differing("option", *sides)


def _subject(base: Report, head: Report) -> Iterator[Difference]:
    reports = (base, head)
    if base.created_from.get("device") == head.created_from.get("device"):
        yield from _differing("device", *({"device": _device(report)} for report in reports))
    yield from _differing("model", *({"model": report.subject.name} for report in reports))
    yield from _differing("model", *({"parameters": _count(r.subject.parameters)} for r in reports))
    if any(r.subject.trainable_parameters != r.subject.parameters for r in reports):
        trained = (_count(report.subject.trainable_parameters) for report in reports)
        yield from _differing("model", *({"trainable parameters": count} for count in trained))
    yield from _differing("kernel", *(_kernels(report) for report in reports))
    for package in ("torch", "graphmem"):
        yield from _differing("version", *({package: getattr(r, package)} for r in reports))


def _differing(
    kind: str, before: Mapping[str, str | None], after: Mapping[str, str | None]
) -> Iterator[Difference]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Difference(kind, name, before.get(name), after.get(name))


def _text(value: Any) -> str | None:
    """An option's value as the command line has it; nothing for one that is off."""
    if value is None or value is False or value in ("", (), [], {}):
        return None
    if value is True:
        return "yes"
    return value if isinstance(value, str) else json.dumps(value)


def _device(report: Report) -> str | None:
    return None if report.device is None else str(report.device["name"])


def _count(elements: int) -> str:
    """In full too, where three digits say too little to tell counts apart."""
    return f"{format_count(elements)} ({elements:,})"


def _kernels(report: Report) -> dict[str, str | None]:
    """Which kernel each operator takes. Who decided and how often it runs may differ."""
    found: dict[str, list[Kernel]] = {}
    for kernel in report.kernels:
        found.setdefault(kernel.op, []).append(kernel)
    return {op: " and ".join(sorted({k.kernel for k in own})) for op, own in found.items()}
