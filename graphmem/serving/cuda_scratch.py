"""What kernels of ONNX Runtime's CUDA provider allocate in the arena for themselves.

- A convolution takes the workspace of the plan that cuDNN's heuristics rank first:
  ``cudnn_conv_algo_search`` EXHAUSTIVE is its mode B, HEURISTIC mode A, DEFAULT its list of
  fallbacks; none is timed. ``cudnn_conv_use_max_workspace`` was a limit of 32 MiB with cuDNN 8
  and is read no more with cuDNN 9.
- A product of matrices in batches that are broadcast has three lists of addresses.
- Softmax along another axis than the last works on a copy, and has another for its result.

Source: onnxruntime/core/providers/cuda/nn/conv.cc and conv_transpose.cc
(``CreateCudnnFeExecutionPlan``), math/matmul.cc, math/softmax.cc; the last two also as
``tools/ort_cuda`` measures them with ONNX Runtime 1.31.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, unique

import torch

from graphmem.devices import Gpu
from graphmem.schedule import Unknown
from graphmem.serving.results import NOTHING, Result
from graphmem.serving.settings import CudaSettings, Search
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.cuda.memory import TAKES_NOTHING
from graphmem.targets.cuda.cudnn import table
from graphmem.targets.cuda.cudnn.backend import Kind
from graphmem.targets.cuda.cudnn.formats import Format, dense_strides
from graphmem.targets.cuda.cudnn.library import Library, Missing, load
from graphmem.targets.cuda.cudnn.plans import (
    Mode,
    Operand,
    Problem,
    largest_workspace,
    workspace,
)

_MODES = {Search.EXHAUSTIVE: Mode.B, Search.HEURISTIC: Mode.INSTANT, Search.DEFAULT: Mode.FALLBACK}
_DTYPES = {
    ElementType.FLOAT: torch.float32,
    ElementType.DOUBLE: torch.float64,
    ElementType.FLOAT16: torch.float16,
    ElementType.BFLOAT16: torch.bfloat16,
}
_ALIGNMENT = 16  # of cudnn_frontend's Tensor_attributes
_POINTER_BYTES = 8
_CONVOLUTIONS = {
    ("", "Conv"): Kind.FORWARD,
    ("", "ConvTranspose"): Kind.DATA_GRADIENT,
    ("com.microsoft", "FusedConv"): Kind.FORWARD,
}
_PRODUCTS = frozenset({("", "MatMul"), ("com.microsoft", "FusedMatMul")})
_SOFTMAX = frozenset({("", "Softmax"), ("", "LogSoftmax")})
_SOFTMAX_OF_AXIS = 13
"""The version since which Softmax works along one axis, not along all from it on."""


@unique
class Pick(Enum):
    """A workspace of a convolution: the first of cuDNN's ranking, none, or the largest."""

    NONE = "none"
    FIRST = "first"
    LARGEST = "largest"


@dataclass(slots=True)
class CudaScratch:
    """The buffers of kernels on a GPU; ``low`` and ``high`` sum what they may be at least, most.

    Called with a node and all results it gives the blocks in bytes. ``pick`` is which of the
    workspaces of a convolution is taken.
    """

    gpu: Gpu
    settings: CudaSettings
    pick: Pick = Pick.FIRST
    convolutions: int = 0
    not_asked: Library | Missing | None = None
    uneven: list[str] = field(default_factory=list)

    def __call__(self, node: Node, results: Mapping[str, Result]) -> tuple[int, ...]:
        """The blocks of one call."""
        key = node.domain, node.op
        given = [results.get(name, NOTHING) if name else NOTHING for name in node.inputs]
        made = results.get(node.outputs[0], NOTHING) if node.outputs else NOTHING
        if key in _CONVOLUTIONS:
            return tuple(n for n in (self._workspace(node, given, made),) if n)
        if key in _PRODUCTS:
            return _addresses(given, made)
        if key in _SOFTMAX:
            return _copies(node, made)
        return ()

    def _workspace(self, node: Node, given: Sequence[Result], made: Result) -> int:
        """The workspace of a convolution, in bytes."""
        self.convolutions += 1
        if self.pick is Pick.NONE:
            return 0
        problem = self._problem(node, given, made)
        if problem is None:
            self.uneven.append(node.name)
            return 0
        library = load()
        if not isinstance(library, Library) or self.gpu.sm < library.oldest_sm:
            self.not_asked = library
            return (
                2 * table.assumed(problem) if self.pick is Pick.LARGEST else table.assumed(problem)
            )
        if self.pick is Pick.LARGEST:
            return largest_workspace(library, self.gpu, problem)
        return workspace(library, self.gpu, problem) or 0

    def _problem(self, node: Node, given: Sequence[Result], made: Result) -> Problem | None:
        """The convolution as cuDNN is asked for it; None where its padding is uneven."""
        kind = _CONVOLUTIONS[node.domain, node.op]
        x, w, y = given[0].shape, given[1].shape, made.shape
        dtype = _DTYPES.get(given[0].element or ElementType.UNDEFINED)
        if x is None or w is None or y is None or dtype is None or 0 in (*x, *w, *y):
            return None
        if kind is Kind.DATA_GRADIENT:
            x, y = y, x
        geometry = _Geometry.of(node, x, w, y)
        if geometry is None:
            return None
        if len(w) == 3:  # of one dimension: cuDNN gets a second
            at = 2 if self.settings.pad_to_nc1d else 3
            x, w, y = ((*s[:at], 1, *s[at:]) for s in (x, w, y))
            geometry = geometry.with_another(at - 2)
        return Problem(
            kind,
            _operand(x),
            _operand(w),
            _operand(y),
            geometry.padding,
            geometry.stride,
            geometry.dilation,
            dtype,
            allow_tf32=self.settings.tf32,
            mode=_MODES[self.settings.search],
        )

    def notes(self, nodes: Sequence[Node]) -> Iterator[Unknown]:
        """What could not be known of the kernels of these nodes."""
        rest = {node.kind for node in nodes if not _is_known(node)}
        if rest:
            yield Unknown(
                "what kernels of ONNX Runtime's CUDA provider allocate for themselves",
                ", ".join(sorted(rest)),
                "nothing",
            )
        if self.uneven:
            yield Unknown(
                "the workspace of convolutions whose padding is uneven, or whose sizes are not "
                "known",
                ", ".join(self.uneven),
                "none",
            )


def _is_known(node: Node) -> bool:
    key = node.domain, node.op
    return key in TAKES_NOTHING or key in _CONVOLUTIONS or key in _PRODUCTS or key in _SOFTMAX


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Padding, stride and dilation: one number a spatial dimension."""

    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(node: Node, x: Sequence[int], w: Sequence[int], y: Sequence[int]) -> _Geometry | None:
        """Of a node; x is the larger side. None where the two sides of a dimension differ."""
        rank = len(w) - 2
        stride = tuple(node.attributes.get("strides", ())) or (1,) * rank
        dilation = tuple(node.attributes.get("dilations", ())) or (1,) * rank
        pads = tuple(node.attributes.get("pads", ())) or (0,) * (2 * rank)
        if str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME"):
            total = [
                max(0, (y[d + 2] - 1) * stride[d] + (w[d + 2] - 1) * dilation[d] + 1 - x[d + 2])
                for d in range(rank)
            ]
            pads = (*(t // 2 for t in total), *(t - t // 2 for t in total))
        if pads[:rank] != pads[rank:]:
            return None
        return _Geometry(pads[:rank], stride, dilation)

    def with_another(self, at: int) -> _Geometry:
        """With a dimension of one element at a place."""

        def put(numbers: tuple[int, ...], new: int) -> tuple[int, ...]:
            return (*numbers[:at], new, *numbers[at:])

        return _Geometry(put(self.padding, 0), put(self.stride, 1), put(self.dilation, 1))


def _operand(size: tuple[int, ...]) -> Operand:
    return Operand(size, dense_strides(size, Format.CONTIGUOUS), _ALIGNMENT)


def _addresses(given: Sequence[Result], made: Result) -> tuple[int, ...]:
    """Three lists of an address for each matrix, where batches are broadcast.

    Not where both have as many, where the second is one matrix, or where there is one product.
    Source: ``MatMul::ComputeInternal``, ``CanUseStridedBatchedGemm``.
    """
    first, second, result = (one.shape for one in (given[0], given[1], made))
    if first is None or second is None or result is None:
        return ()
    left, right = first[:-2], second[:-2]
    is_strided = bool(left) and (not right or math.prod(left) == math.prod(right))
    count = math.prod(result[:-2])
    return () if is_strided or count <= 1 else (count * _POINTER_BYTES,) * 3


def _copies(node: Node, made: Result) -> tuple[int, ...]:
    if made.shape is None or node.version < _SOFTMAX_OF_AXIS:
        return ()
    axis = int(node.attributes.get("axis", -1)) % max(len(made.shape), 1)
    return () if axis == len(made.shape) - 1 else (made.nbytes, made.nbytes)
