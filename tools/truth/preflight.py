"""Whole AMP steps on a T4, by torch-preflight: the second step's peaks, fresh process each.

``torch.cuda.is_bf16_supported()`` counts emulation and is true on a T4, so autocast's dtype
was bfloat16, for which cuDNN has no engine there: convolutions run PyTorch's own kernels.

Known difference: of GPT-2, 8.9 MB of 2.7 GB are missing at the peak, where the loss's backward
begins: about one cuBLAS workspace more than the two that are known of.

Source: tests/calibration/measure_cuda.py of highwaterlabs/torch-preflight at 774b839.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import Run, mark, run

BARS = (
    Bar("transformers, allocated", outcome.worst, 0.01, "transformers", "allocated"),
    Bar("transformers, reserved", outcome.worst, 0.03, "transformers", "reserved"),
    Bar("ResNet-50, allocated", outcome.worst, 0.002, "resnet50", "allocated"),
    Bar("ResNet-50, reserved", outcome.worst, 0.01, "resnet50", "reserved"),
)

DTYPE = torch.bfloat16


def takes(row: Row) -> bool:
    """All of torch-preflight's."""
    return row.source.startswith("highwaterlabs/torch-preflight")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict every row."""
    for row in rows:
        traced = _run(row.model, int(row.batch), row.gpu)
        is_allocated = "allocated" in row.metric
        predicted = traced.peak(1, 2) if is_allocated else traced.reserved(2)
        group = "resnet50" if row.model == "resnet50" else "transformers"
        name = f"{row.model}, batch {row.batch}"
        yield outcome.of("preflight", row, name=name, group=group, predicted=predicted)


@cache
def _run(name: str, batch: int, gpu: str) -> Run:
    with torch.device("meta"):
        model = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def script() -> None:
        loss_of = _images(model, batch) if name == "resnet50" else _tokens(model, batch)
        mark()
        for _ in range(2):
            _step(loss_of, optimizer)
            mark()

    return run(script, gpu)


LossOf = Callable[[], tuple[Any, Tensor]]
"""Gives what the measured step holds until it returns (the output, or nothing), and the loss."""


def _step(loss_of: LossOf, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=DTYPE):
        held, loss = loss_of()
    loss.backward()
    optimizer.step()
    del held


def _images(model: nn.Module, batch: int) -> LossOf:
    x, target = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    return lambda: (None, nn.functional.cross_entropy(model(x), target))


def _tokens(model: Any, batch: int) -> LossOf:
    """The output of a transformer holds logits and the cache of keys and values."""
    ids = torch.randint(0, model.config.vocab_size - 1, (batch, 128))

    def loss() -> tuple[Any, Tensor]:
        if model.config.model_type == "gpt2":
            output = model(input_ids=ids, labels=ids)
            return output, output.loss
        output = model(input_ids=ids)
        return output, output.last_hidden_state.float().pow(2).mean()

    return loss


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()).train()


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()).train()


def _distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    return DistilBertModel(DistilBertConfig()).train()


def _resnet50() -> Any:
    from torchvision.models import resnet50

    return resnet50().train()


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": _gpt2,
    "bert-base-uncased": _bert,
    "distilbert-base-uncased": _distilbert,
    "resnet50": _resnet50,
}
