"""Convolution workspaces where no library can be asked: ones that were seen, else a rule.

``seen.csv`` holds what public CUDA snapshots show for fp32, [N, C, H, W], on GPUs that they
do not name: 0 where no workspace was allocated.

The rule: the bytes of x, w and y together, what their copies in the other layout take. Of
222 random 2-d convolutions (batch 1 to 64, 3 to 1,024 channels, kernels 1 to 7, stride 1 and
2), asked of cuDNN 9.24 for SM 7.5, 8.0, 8.9, 9.0 and 12.0 in fp32 and fp16, the median
workspace of a contiguous convolution in fp16 is that sum (forward and data gradient 1.00,
filter gradient 1.00 to 1.06), in fp32 0.0 to 1.06 of it, channels last in fp16 0.00 to 0.06;
nine of ten are below twice the sum in every group, the largest is 19 times it (a filter
gradient of 7 x 7).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources

import torch

from graphmem.devices import Gpu
from graphmem.schedule import Unknown
from graphmem.targets.cuda.cudnn.backend import Kind
from graphmem.targets.cuda.cudnn.formats import Format, dense_strides
from graphmem.targets.cuda.cudnn.library import Library, Missing
from graphmem.targets.cuda.cudnn.plans import Problem

_Key = tuple[Kind, tuple[int, ...], tuple[int, ...], int, int]


def assumed(problem: Problem) -> int:
    """The bytes that are assumed for a convolution's workspace."""
    seen = _seen().get(_key(problem)) if _is_plain(problem) else None
    return operand_bytes(problem) if seen is None else seen


def operand_bytes(problem: Problem) -> int:
    """The bytes of x, w and y."""
    operands = (problem.x, problem.w, problem.y)
    return sum(math.prod(operand.size) for operand in operands) * problem.dtype.itemsize


def unknown(library: Library | Missing, gpu: Gpu) -> Unknown:
    """What the report says of the workspaces that are assumed."""
    return Unknown(
        f"cuDNN's workspaces: {_why(library, gpu)}",
        "aten::convolution, aten::convolution_backward",
        "what was seen of the same shape, else the bytes of input, weight and output "
        "together; nine of ten are between 0 and twice that",
    )


def _why(library: Library | Missing, gpu: Gpu) -> str:
    if isinstance(library, Missing):
        return library.reason
    return f"{library.name} for CUDA {library.cuda // 1000} has no kernels for {gpu.name}"


def _is_plain(problem: Problem) -> bool:
    """Whether the problem is of a kind that the table may have."""
    dense = dense_strides(problem.x.size, Format.CONTIGUOUS)
    return (
        problem.dtype is torch.float32
        and problem.x.stride == dense
        and problem.dilation == (1, 1)
        and len(set(problem.stride)) == len(set(problem.padding)) == 1
    )


def _key(problem: Problem) -> _Key:
    sizes = problem.x.size, problem.w.size
    return problem.kind, *sizes, problem.stride[0], problem.padding[0]


@cache
def _seen() -> Mapping[_Key, int]:
    file = resources.files("graphmem.targets.cuda.cudnn").joinpath("seen.csv")
    return dict(map(_row, csv.DictReader(file.read_text("utf-8").splitlines())))


def _row(row: Mapping[str, str]) -> tuple[_Key, int]:
    kind = Kind[row["kind"].upper()]
    key = (kind, _size(row["input"]), _size(row["weight"]))
    return (*key, int(row["stride"]), int(row["padding"])), int(row["workspace_bytes"])


def _size(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))
