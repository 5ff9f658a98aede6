"""One call of a kernel, as the rules for its own buffers see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.packers import Constants

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks in bytes; the first ``before`` of them are taken before the outputs.

    ``passing`` are blocks that are given back before the next one is taken, each with the
    number of blocks that were taken before. ``is_reserved``: they lie outside of the regions.
    """

    blocks: tuple[int, ...] = ()
    before: int = 0
    passing: tuple[tuple[int, tuple[int, ...]], ...] = ()
    is_reserved: bool = False


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of one call: None for what is left out or no tensor.

    ``item_bytes`` are those of an element of the first output, ``threads`` run one operator.
    ``constants`` is what was known of the inputs when the session began, and ``packs`` whether
    kernels have packed their weights then.
    """

    inputs: Sequence[Shape | None]
    outputs: Sequence[Shape | None]
    item_bytes: int = 4
    threads: int = 1
    constants: Constants = field(default_factory=lambda: Constants({}, {}))
    packs: bool = True

    def given(self, position: int) -> Shape | None:
        """The shape of an input."""
        return self.inputs[position] if position < len(self.inputs) else None

    def has(self, position: int) -> bool:
        """Whether an input is given."""
        return self.given(position) is not None

    def made(self, position: int) -> Shape | None:
        """The shape of an output."""
        return self.outputs[position] if position < len(self.outputs) else None

    def element(self, position: int) -> ElementType | None:
        """The element type of an input."""
        return self.constants.elements.get(position)


Rule = Callable[[Node, Shapes], Scratch]
NONE = Scratch()


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of two operands together."""
    rank = max(len(first), len(second))
    pairs = zip(_padded(first, rank), _padded(second, rank), strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape
