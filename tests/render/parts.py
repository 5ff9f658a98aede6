"""What modules hold at the peak: the parts that reports made by hand are put together of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphmem.report import BREAKDOWN, Layer, Step

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True)
class Share:
    """What a module holds at the peak: its row, and its part of each category."""

    layer: Layer
    categories: tuple[tuple[str, int], ...]


def share(
    module: str,
    kind: str,
    parameters: int = 0,
    saved_bytes: int = 0,
    *,
    training: bool = True,
    calls: int = 1,
    output_bytes: int = 0,
    element_bytes: int = 4,
    forward_peak_bytes: int | None = 0,
    backward_peak_bytes: int | None = None,
    **others: int,
) -> Share:
    """A module's row; with ``training`` it has gradients and two states of the same size.

    ``others`` are bytes of further categories that are live at the peak.
    """
    own = parameters * element_bytes
    gradient, optimizer = (own, 2 * own) if training else (0, 0)
    held = {
        "parameters": own,
        "gradients": gradient,
        "optimizer_states": optimizer,
        "saved_for_backward": saved_bytes,
        **others,
    }
    layer = Layer(
        module=module,
        type=kind,
        calls=calls,
        parameters=parameters,
        parameter_bytes=own,
        output_bytes=output_bytes,
        saved_bytes=saved_bytes,
        gradient_bytes=gradient,
        optimizer_bytes=optimizer,
        forward_peak_bytes=forward_peak_bytes or None,
        backward_peak_bytes=backward_peak_bytes,
        live_at_peak_bytes=sum(held.values()),
    )
    return Share(layer, tuple(held.items()))


def breakdown_of(shares: Sequence[Share]) -> dict[str, int]:
    """The categories of all modules, added up; all ten are there."""
    result = dict.fromkeys(BREAKDOWN, 0)
    for each in shares:
        for name, size in each.categories:
            result[name] += size
    return result


def step(number: int, peak: int, **phases: int) -> Step:
    """A step whose phases reach so many per cent of a peak."""
    sizes: dict[str, int | None] = {name: peak * part // 100 for name, part in phases.items()}
    most = max(size for size in sizes.values() if size is not None)
    return Step(number, most, most + 700 * MIB, sizes)
