"""Liger-Kernel's benchmarks of PyTorch's own operators: the reference in each comparison.

A benchmark makes its tensors once, then runs ``full`` (forward and backward) ten times and
takes the median of ``max_memory_allocated``: the steady state, where gradients exist and are
added to. It makes the same layer for Liger first where the script does, and earlier
benchmarks of the process have made both cuBLAS workspaces where it multiplies matrices.

The embedding's process holds 12 GiB more than its script makes, from whatever ran before it;
so what is compared there is the growth over the smallest vocabulary's row.

Source: benchmark/scripts of linkedin/Liger-Kernel at b5672a1 (0.2.1), of the fused linear
cross-entropy at the commit before 2024-11-25 (0.4.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import mark, run

BARS = (Bar("single operators", outcome.worst, 0.01),)

Function = Callable[[], Any]
Benchmark = Callable[[int, dict[str, Any]], tuple[Function, Function]]
"""From x and the settings to its ``forward`` and ``full``."""

BFLOAT16 = torch.bfloat16
REPEATS = 3
EMBEDDING = "op:embedding"
WITH_PRODUCTS = ("op:fused_linear_cross_entropy", "op:geglu", "op:swiglu")


def takes(row: Row) -> bool:
    """All of Liger's."""
    return row.source.startswith("linkedin/Liger-Kernel")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict all rows; those of the embedding as growth."""
    for row in rows:
        base = _smallest(row, rows) if row.model == EMBEDDING else None
        name = f"{row.model.removeprefix('op:')} {row.shape.partition(' ')[0]}"
        if base is None:
            yield outcome.of("liger", row, name=name, predicted=_peak(row))
        elif base is row:
            why = "12 GiB in the process that the script did not make; the base of the rows after"
            yield outcome.of("liger", row, name=name, skipped=why)
        else:
            yield Outcome(
                family="liger",
                name=name,
                metric=f"growth over {base.shape.partition(' ')[0]}",
                measured=row.measured - base.measured,
                predicted=_peak(row) - _peak(base),
                resolution=row.resolution,
            )


def _smallest(row: Row, rows: Sequence[Row]) -> Row:
    same = [r for r in rows if (r.model, r.batch) == (row.model, row.batch)]
    return min(same, key=lambda r: r.measured)


@cache
def _peak(row: Row) -> int:
    x, _, settings = row.shape.partition(" ")

    def script() -> None:
        if row.model in WITH_PRODUCTS:
            _both_workspaces()
        forward, full = BENCHMARKS[row.model](int(x.partition("=")[2]), json.loads(settings))
        measured = forward if row.metric.endswith("mode=forward") else full
        for _ in range(REPEATS):
            mark()
            measured()
        mark()

    return run(script, row.gpu).peak(-2, -1)


def _both_workspaces() -> None:
    """What ran before in the process: a product forward and one backward."""
    x = torch.ones(1, 1, requires_grad=True)
    (x @ x).sum().backward()


def _cross_entropy(vocab: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    tokens = settings["B"] * settings["T"]
    logits = torch.empty(tokens, vocab, requires_grad=True)
    target = torch.empty(tokens, dtype=torch.int64)
    loss = nn.CrossEntropyLoss()

    def forward() -> Any:
        return loss(logits, target)

    return forward, lambda: forward().backward()


def _embedding(vocab: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    layer, of_liger = (nn.Embedding(vocab, settings["D"]) for _ in range(2))
    ids = torch.empty(settings["B"], settings["T"], dtype=torch.int64)

    def full() -> None:
        assert of_liger.weight is not None  # made by the script, and never used
        output = layer(ids)
        output.backward(torch.randn_like(output))

    return lambda: layer(ids), full


def _linear_cross_entropy(tokens: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    width, vocab = settings["H"], settings["V"]
    head, of_liger = (nn.Linear(width, vocab, bias=False, dtype=BFLOAT16) for _ in range(2))
    x = torch.empty(tokens, width, dtype=BFLOAT16, requires_grad=True)
    target = torch.empty(tokens, dtype=torch.int64)
    loss = nn.CrossEntropyLoss()

    def forward() -> Any:
        assert of_liger.weight is not None  # made by the script, and never used
        logits = head(x)
        return loss(logits, target)

    return forward, lambda: forward().backward()


def _mlp(length: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    sizes = ("hidden_size", "intermediate_size", "hidden_act")
    config = LlamaConfig(**{name: settings[name] for name in sizes})
    batch = settings.get("bsz") or settings["B"]
    layer = LlamaMLP(config).to(BFLOAT16)
    x = torch.empty(batch, length, config.hidden_size, dtype=BFLOAT16, requires_grad=True)

    def full() -> None:
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    return lambda: layer(x), full


def _norm(layer: nn.Module, x: Tensor) -> tuple[Function, Function]:
    dy = torch.empty_like(x, requires_grad=False)

    def full() -> None:
        y = layer(x)
        y.backward(dy, retain_graph=True)

    return lambda: layer(x), full


def _layer_norm(width: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    x = torch.empty(settings["M"], width, requires_grad=True)
    return _with_twin(lambda: nn.LayerNorm(width, eps=settings["eps"]), x)


def _rms_norm(width: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    x = torch.empty(settings["M"], width, dtype=BFLOAT16, requires_grad=True)
    return _with_twin(lambda: LlamaRMSNorm(width, eps=settings["eps"]), x)


def _with_twin(layer: Callable[[], nn.Module], x: Tensor) -> tuple[Function, Function]:
    """A norm beside Liger's of the same size."""
    of_torch, of_liger = layer(), layer()
    forward, full = _norm(of_torch, x)

    def both() -> None:
        assert of_liger is not None  # made by the script, and never used
        full()

    return forward, both


def _rope(x: int, settings: dict[str, Any]) -> tuple[Function, Function]:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    heads = settings["num_q_heads"], settings["num_kv_heads"]
    length = settings.get("seq_len", x)
    width = settings.get("hidden_size", x) // heads[0]
    frequencies = torch.empty(width // 2)
    positions = torch.empty(1, length, dtype=torch.int64)
    angles = (frequencies[None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
    angles = torch.cat((angles, angles), dim=-1)
    cos, sin = angles.cos().to(BFLOAT16), angles.sin().to(BFLOAT16)
    del angles
    leaves = [
        torch.empty(1, length, count, width, dtype=BFLOAT16, requires_grad=True) for count in heads
    ]
    grads = [torch.empty(1, count, length, width, dtype=BFLOAT16) for count in heads]
    q, k = (leaf.transpose(1, 2) for leaf in leaves)

    def forward() -> Any:
        return apply_rotary_pos_emb(q, k, cos, sin)

    def full() -> None:
        assert frequencies.dim() == 1  # both held by the script
        assert positions.dim() == 2
        outputs = forward()
        torch.autograd.grad(outputs, (q, k), grads, allow_unused=True, retain_graph=True)

    return forward, full


BENCHMARKS: dict[str, Benchmark] = {
    "op:cross_entropy": _cross_entropy,
    EMBEDDING: _embedding,
    "op:fused_linear_cross_entropy": _linear_cross_entropy,
    "op:geglu": _mlp,
    "op:layer_norm": _layer_norm,
    "op:rms_norm": _rms_norm,
    "op:rope": _rope,
    "op:swiglu": _mlp,
}
