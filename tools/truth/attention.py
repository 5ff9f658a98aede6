"""Attention alone, in plain operators on [8, S, d] fp32: three benchmarks of CUDA memory.

EnzoDing-rgb, yyin-dev and MarkMrLi spell softmax out, GAOYUEtianc calls torch's; yyin-dev
masks. Each script is repeated here with what it keeps alive: how many gradients there are,
whether the output of the last call is still referenced, and that the first backward has
brought the second cuBLAS workspace. What they give back to the driver in between
(``empty_cache``) changes no allocated byte.

Source: the scripts named in the rows, at the commits named there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from models.decoder import softmax
from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import Run, mark, run

BARS = (Bar("attention alone", outcome.median, 0.005),)

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def takes(row: Row) -> bool:
    """Attention alone, with or without torch.compile."""
    return row.model == "attention only"


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict the eager rows."""
    for row in rows:
        name = f"{row.source.partition('/')[0]} {row.shape}"
        if "compile" in row.attention:
            yield _outcome(row, name, skipped="torch.compile decides what is allocated")
        else:
            yield _outcome(row, name, predicted=_predicted(row))


def _outcome(row: Row, name: str, **values: object) -> Outcome:
    return outcome.of("attention", row, name=name, **values)


def _predicted(row: Row) -> int:
    author = row.source.partition("/")[0]
    length, width = (int(size) for size in re.findall(r"\d+", row.shape))
    traced = _run(author, length, width, row.gpu)
    return _READ[author, row.metric](traced)


@cache
def _run(author: str, length: int, width: int, gpu: str) -> Run:
    return run(lambda: _SCRIPTS[author](length, width), gpu)


_READ: dict[tuple[str, str], Callable[[Run], int]] = {
    ("EnzoDing-rgb", "allocated before backward"): lambda r: r.level(0),
    ("yyin-dev", "allocated after forward"): lambda r: r.level(0),
    ("GAOYUEtianc", "allocated before backward"): lambda r: r.level(1),
    ("GAOYUEtianc", "peak_allocated fwd+bwd loop"): lambda r: r.peak(0, 2),
    ("MarkMrLi", "peak_allocated after forward"): lambda r: r.peak(0, 1),
    ("MarkMrLi", "allocated delta of forward"): lambda r: r.level(1) - r.level(0),
}


def _tensors(length: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(8, length, width, requires_grad=True) for _ in range(3))
    return q, k, v


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention with softmax spelled out: [B, S, D] each; mask [S, S]."""
    scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("bqk,bkd->bqd", weights, v)


def _attend_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
    weights = torch.nn.functional.softmax(scores, dim=-1)
    return torch.matmul(weights, v)


def _new_tensors_each_time(length: int, width: int) -> None:
    q, k, v = _tensors(length, width)
    attend(q, k, v).sum().backward()
    del q, k, v
    q, k, v = _tensors(length, width)
    out = attend(q, k, v).sum()
    mark()
    out.backward()


def _masked_with_gradients(length: int, width: int) -> None:
    q, k, v = _tensors(length, width)
    mask = torch.tril(torch.ones(length, length)).bool()
    for _ in range(2):
        out = attend(q, k, v, mask)
        loss = out.sum()
        loss.backward()
    for _ in range(2):
        out = attend(q, k, v, mask)
    mark()


def _gradients_dropped(length: int, width: int) -> None:
    q, k, v = _tensors(length, width)
    for _ in range(2):
        output = _attend_softmax(q, k, v)
        loss = output.sum()
        loss.backward()
        q.grad = k.grad = v.grad = None
    mark()
    for _ in range(2):
        output = _attend_softmax(q, k, v)
    mark()
    output = _attend_softmax(q, k, v)
    loss = output.sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
    mark()


def _gradients_zeroed(length: int, width: int) -> None:
    q, k, v = _tensors(length, width)
    for _ in range(2):
        out = attend(q, k, v)
        out = out.sum()
        out.backward()
    mark()
    out = attend(q, k, v)
    out = out.sum()
    mark()
    out.backward()


_SCRIPTS = {
    "EnzoDing-rgb": _new_tensors_each_time,
    "yyin-dev": _masked_with_gradients,
    "GAOYUEtianc": _gradients_dropped,
    "MarkMrLi": _gradients_zeroed,
}
