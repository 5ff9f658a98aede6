"""PEFT's method comparison: Llama-3.2-3B in bf16 with 31 adapters, and fully tuned, on an L40S.

Three figures a run: the 99th percentile of what was reserved after a step, the largest
reserved, and the mean of what was allocated after a step. Each depends on the lengths of
MetaMathQA's batches, which are the same in all runs: one latent length a figure is fitted on
the rows of LoRA of rank 32 (``FITTED``, skipped in the errors), and all other rows are
predicted with it. What is allocated after a step is linear in the length, as the logits stay.

The adapters' settings are those in the result files, without what equals PEFT's default
(``peft_runs.json``). A batch has padding, so attention gets a mask.

Known differences: every ten steps the cache is emptied, and evaluation generates text in
between; both change what lies where, and so what is reserved. AdaLoRA gives ranks up. OSF
is 3 GB short at every moment, and LoRA-FA 1.6 GB at the peak: the fp32 copies of the inputs
of its frozen matrices are not kept here, but seem to be there; neither mechanism is known.
FRoD, SHiRA and UniLoRA look at weights when they are built, and are skipped.

Source: method_comparison/MetaMathQA/run.py of huggingface/peft at 5d602fd.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphmem.errors import GraphmemError, one_line
from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import Run, mark, run

P99 = "99th pct of per-step memory_reserved (empty_cache every 10 steps)"
LARGEST = "max_memory_reserved minus init"
MEAN = "mean memory_allocated at end of step, steps 1-250"

BARS = (
    Bar("reserved, 99th percentile", outcome.median, 0.03, "", P99),
    Bar("reserved, largest", outcome.median, 0.03, "", LARGEST),
    Bar("allocated after a step", outcome.median, 0.03, "", MEAN),
)

FITTED = "lora--llama-3.2-3B-rank32"
BATCH = 4
LONGEST = 768
INIT = 2**21
"""What ``nn.Linear(1, 1)`` had reserved before; the figures are less that."""

LLAMA: dict[str, Any] = {
    "vocab_size": 128_256,
    "hidden_size": 3_072,
    "intermediate_size": 8_192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}
RUNS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("peft_runs.json").read_text("utf-8")
)

Lengths = Mapping[str, float]
"""The latent length of each figure, in tokens."""


def takes(row: Row) -> bool:
    """All of PEFT's."""
    return row.source.startswith("huggingface/peft")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Fit the lengths on one run, and predict the others."""
    fitted = {row.metric: row for row in rows if _name(row) == FITTED}
    lengths = _fit({metric: row.measured for metric, row in fitted.items()})
    for row in rows:
        name = _name(row)
        if name == FITTED:
            why = f"fitted: {lengths[row.metric]:.0f} tokens"
            yield outcome.of("peft", row, name=name, skipped=why)
            continue
        try:
            predicted = _predicted(name, row.metric, lengths)
        except (GraphmemError, NotImplementedError) as error:
            yield outcome.of("peft", row, name=name, skipped=one_line(error)[:80])
        else:
            yield outcome.of("peft", row, name=name, predicted=predicted)


def _name(row: Row) -> str:
    return row.source.rpartition("/")[2].removesuffix(".json")


def _fit(measured: Mapping[str, float]) -> Lengths:
    """The lengths at which the fitted run has its measured figures."""
    lengths: dict[str, float] = {
        metric: _crossing(lambda n: _reserved(FITTED, n), measured[metric])
        for metric in (P99, LARGEST)
    }
    allocated = {int(n): _allocated(FITTED, int(n)) for n in lengths.values()}
    (short, low), (long, high) = sorted(allocated.items())
    slope = (high - low) / (long - short)
    lengths[MEAN] = short + (measured[MEAN] - low) / slope
    return lengths


def _crossing(value: Callable[[int], int], wanted: float) -> int:
    """The length at which a value that grows with it is nearest to the one wanted.

    Each guess is where the line through both ends of what is left has the value.
    """
    low, high = BATCH, LONGEST
    while high - low > 1:
        at_low, at_high = value(low), value(high)
        guess = low + round((high - low) * (wanted - at_low) / (at_high - at_low))
        guess = min(max(guess, low + 1), high - 1)
        if value(guess) < wanted:
            low = guess
        else:
            high = guess
    return min(low, high, key=lambda n: abs(value(n) - wanted))


def _predicted(name: str, metric: str, lengths: Lengths) -> float:
    if metric != MEAN:
        return _reserved(name, int(lengths[metric]))
    short, long = sorted(int(lengths[metric]) for metric in (P99, LARGEST))
    low, high = (_allocated(name, n) for n in (short, long))
    return low + (lengths[MEAN] - short) * (high - low) / (long - short)


def _reserved(name: str, length: int) -> int:
    return _run(name, length).reserved(-1) - INIT


def _allocated(name: str, length: int) -> int:
    return _run(name, length).level(-1) - INIT


@cache
def _run(name: str, length: int) -> Run:
    """Two steps of a run, with batches of one length."""
    model = _model(name)
    optimizer = _optimizer(name, model)
    mask = torch.ones(BATCH, length, dtype=torch.int64)
    mask[0, -1] = 0  # a batch has padding

    def script() -> None:
        for _ in range(2):
            ids = torch.randint(LLAMA["vocab_size"], (BATCH, length))
            batch = {"input_ids": ids, "attention_mask": mask.clone(), "labels": ids.clone()}
            optimizer.zero_grad()
            outputs = model(**batch, num_items_in_batch=BATCH * length - 1)
            loss = outputs.loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            mark()

    return run(script, "NVIDIA L40S")


def _model(name: str) -> Any:
    from peft import get_peft_model
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = dict(RUNS[name]["config"])
    kind = settings.pop("peft_type", None)
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(LlamaConfig(**LLAMA))
        model = model.to(torch.bfloat16).train()
        if kind is None:
            return model
        config = PEFT_TYPE_TO_CONFIG_MAPPING[kind](task_type="CAUSAL_LM", **settings)
        casts = RUNS[name].get("autocast_adapter_dtype", True)
        return get_peft_model(model, config, autocast_adapter_dtype=casts)


def _optimizer(name: str, model: Any) -> torch.optim.Optimizer:
    if RUNS[name].get("optimizer") == "lora-fa":
        from peft.optimizers import create_lorafa_optimizer

        made: torch.optim.Optimizer = create_lorafa_optimizer(
            model, r=32, lora_alpha=64, lr=1e-4, weight_decay=0.1
        )
        return made
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
