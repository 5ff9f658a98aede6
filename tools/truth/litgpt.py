"""litgpt's recipes on one GPU: LoRA, 4-bit weights and full fine-tuning, in bf16.

Two sources. ``tutorials/resource-tables.md`` (A100-40GB, October 2023) says how many tokens
the longest example has, and that recipe begins with it, before there are gradients or states.
``config_hub/finetune/README.md`` (A10G) is of Alpaca2k cut at 512 tokens; litgpt prints that
the longest example has them (``tutorials/0_to_litgpt.md``), and one comes in some micro-batch,
which is padded to it, when gradients are accumulated and states are there.

What the recipe does to logits decides much: Fabric converts them to fp32 (``convert_output``
of its half-precision and bitsandbytes plugins), and the loop holds them until the next
micro-batch has its own. LoRA's recipe asks the head for 128 tokens at once. With
``bnb.nf4`` every linear layer is packed, as in ``litgpt_packed``, and the optimizer is
bitsandbytes' PagedAdamW, else torch's AdamW.

Settings are those of the files in ``config_hub`` when the figure was first written down.

Known differences: the resource tables name commit 8641822, whose RMSNorm computes in bf16. The
next, 6178c7cc, computes in fp32 and so saves 2 bytes more for each element that it normalizes,
which is what Llama's rows there are short of (0.7 GB of 7 B, 1.1 GB of 13 B); the tables came
into the repository after it. In ``config_hub`` the micro-batch before the longest example is
taken to be as long, so that as many logits are held as can be.

Source: Lightning-AI/litgpt, finetune/lora.py at 8641822; litgpt/finetune/lora.py, full.py and
utils.py, ``chunked_cross_entropy``, at 4a9b7e62 and 00af8b0d; Lightning-AI/pytorch-lightning,
src/lightning/fabric/plugins/precision/half.py and bitsandbytes.py at e7afe04ee8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmem.trace.adapters.packing import Packing
from graphmem.trace.optim.blockwise import Blockwise
from tools.truth import outcome
from tools.truth.litgpt_model import HEAD_CHUNK, Decoder, FeedForward, Lora, Norm, Shape
from tools.truth.litgpt_packed import pack
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import mark, run

BARS = (
    Bar("LoRA", outcome.median, None, "LoRA"),
    Bar("LoRA, 4-bit weights", outcome.median, None, "nf4"),
    Bar("LoRA, 4-bit weights and tables", outcome.median, None, "nf4-double"),
    Bar("full fine-tuning", outcome.median, None, "full"),
)

CUT = 512
"""``max_seq_length`` of every file in ``config_hub``, and the longest example's tokens."""

_NEOX: dict[str, Any] = {
    "norm": Norm.LAYER,
    "feed_forward": FeedForward.PLAIN,
    "is_parallel": True,
}
_BIAS = {**_NEOX, "has_bias": True}
_PHI = {**_BIAS, "has_shared_norm": True, "has_head_bias": True, "gelu": "tanh"}
_GEMMA: dict[str, Any] = {
    "feed_forward": FeedForward.GELU,
    "gelu": "tanh",
    "head_size": 256,
    "is_gemma": True,
}

STABLELM = Shape(50_688, 16, 4096, 32, 16_384, rotary=0.25, **_BIAS)
LLAMA_2_7B = Shape(32_000, 32, 4096, 32, 11_008)
LLAMA_3_8B = Shape(128_256, 32, 4096, 32, 14_336, key_heads=8)
MISTRAL_7B = Shape(32_000, 32, 4096, 32, 14_336, key_heads=8)
LLAMA_3_2_3B = Shape(128_256, 28, 3072, 24, 8192, key_heads=8)
TINY_LLAMA = Shape(32_000, 22, 2048, 32, 5632, key_heads=4)
PHI_3 = Shape(32_064, 32, 3072, 32, 8192)
"""Models as litgpt/config.py has them (at 00af8b0d), vocabularies padded."""


NONE = Lora()


@dataclass(frozen=True, slots=True)
class Recipe:
    """A run; ``is_first`` measures the first micro-batch alone."""

    shape: Shape
    batch: int
    tokens: int = CUT
    lora: Lora = NONE
    packing: Packing | None = None
    is_first: bool = False

    @property
    def group(self) -> str:
        """Which bar it is held to."""
        if not self.lora.rank:
            return "full"
        return "LoRA" if self.packing is None else str(self.packing)

    @property
    def technique(self) -> str:
        """In words."""
        return {bar.group: bar.name for bar in BARS}[self.group]


TABLES = {
    "Llama 2 13 B": (Shape(32_000, 40, 5120, 40, 13_824, norm=Norm.RMS_HALF), 1304),
    "Llama 2 7 B": (LLAMA_2_7B.at(Norm.RMS_HALF), 1304),
    "StableLM Alpha 3 B": (STABLELM, 1034),
    "phi-1.5 1.3 B": (Shape(51_200, 24, 2048, 32, 8192, rotary=0.5, **_PHI), 1044),
}
"""The models of resource-tables.md, and their longest example."""

PACKINGS = {"None": None, "bnb.nf4": Packing.NF4, "bnb.nf4-dq": Packing.NF4_DOUBLE}

_QV = Lora(32)
_QV_LATE = Lora(32, copies=False)
_ALL = Lora(8, has_key=True, is_everywhere=True)


def _all(rank: int, dropout: float) -> Lora:
    return Lora(rank, dropout, has_key=True, is_everywhere=True)


HUB = {
    "falcon-7b/qlora": Recipe(
        Shape(65_024, 32, 4544, 71, 18_176, key_heads=1, has_shared_norm=True, **_NEOX),
        *(1, CUT, _QV, Packing.NF4),
    ),
    "gemma-2b/lora": Recipe(
        Shape(256_000, 18, 2048, 8, 16_384, key_heads=1, **_GEMMA), 2, CUT, _all(16, 0.1)
    ),
    "gemma2-2b/lora": Recipe(
        Shape(256_000, 26, 2304, 8, 9216, 4, is_gemma2=True, **_GEMMA).at(Norm.RMS_WHOLE),
        *(2, CUT, _all(8, 0.1)),
    ),
    "gemma-7b/qlora": Recipe(
        Shape(256_000, 28, 3072, 16, 24_576, **_GEMMA), 1, CUT, _all(16, 0.1), Packing.NF4
    ),
    "llama-2-7b/qlora": Recipe(LLAMA_2_7B, 2, CUT, _QV, Packing.NF4),
    "llama-3-8b/qlora": Recipe(LLAMA_3_8B, 2, CUT, _QV, Packing.NF4),
    "llama-3.1-8b/qlora": Recipe(LLAMA_3_8B, 2, CUT, _QV, Packing.NF4),
    "llama-3.2-1b/lora": Recipe(
        Shape(128_256, 16, 2048, 32, 8192, 8, norm=Norm.RMS_WHOLE), 1, CUT, _QV_LATE
    ),
    "llama-3.2-3b/full": Recipe(LLAMA_3_2_3B.at(Norm.RMS_WHOLE), 4),
    "llama-3.2-3b/qlora": Recipe(LLAMA_3_2_3B.at(Norm.RMS_WHOLE), 2, CUT, _QV_LATE, Packing.NF4),
    "mistral-7b/qlora": Recipe(MISTRAL_7B, 2, CUT, _QV, Packing.NF4),
    "mistral-7b-v0.2/qlora": Recipe(MISTRAL_7B, 2, CUT, _QV, Packing.NF4),
    "phi-2/lora": Recipe(
        Shape(51_200, 32, 2560, 32, 10_240, rotary=0.4, **_PHI), 4, CUT, _all(8, 0.05)
    ),
    "phi-3/full": Recipe(PHI_3, 4),
    "phi-3/qlora": Recipe(PHI_3, 4, CUT, _all(8, 0.05), Packing.NF4),
    "stablelm-base-alpha-3b/lora": Recipe(STABLELM, 1, CUT, _QV),
    "tiny-llama/full": Recipe(TINY_LLAMA, 4),
    "tiny-llama/qlora": Recipe(TINY_LLAMA, 8, CUT, _all(32, 0.05), Packing.NF4),
}
"""The runs of config_hub, by the file's name."""


def takes(row: Row) -> bool:
    """All of litgpt's."""
    return row.source.startswith("Lightning-AI/litgpt")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict each row's run."""
    for row in rows:
        name, recipe = recipe_of(row)
        yield outcome.of(
            "litgpt", row, name=name, group=recipe.group, predicted=_peak(recipe, row.gpu)
        )


def recipe_of(row: Row) -> tuple[str, Recipe]:
    """The name of a row's run, and the run."""
    if "resource-tables" in row.source:
        model = row.model.partition(" (")[0]
        shape, tokens = TABLES[model]
        packing = PACKINGS[row.dtype.rpartition(" ")[2]]
        lora = Lora(8)
        recipe = Recipe(shape, int(row.batch), tokens, lora, packing, is_first=True)
        return f"{model}, {row.batch} x {tokens} tokens, {recipe.technique}", recipe
    [file] = re.findall(r"(\S+)\.yaml", row.model)
    recipe = HUB[file]
    return f"{file}, {recipe.batch} x {recipe.tokens} tokens", recipe


@cache
def _peak(recipe: Recipe, gpu: str) -> int:
    """``max_memory_allocated()`` of a run."""
    model = _model(recipe)
    optimizer = _optimizer(recipe, model)
    steps, micro_batches = (1, 1) if recipe.is_first else (2, 2)

    def script() -> None:
        mark()
        for _ in range(steps):
            for _ in range(micro_batches):
                ids = torch.randint(recipe.shape.vocabulary, (recipe.batch, recipe.tokens))
                tables = model.tables(recipe.tokens)
                logits, loss = _loss(model, ids, tables, bool(recipe.lora.rank))
                (loss / micro_batches).backward()
                loss = loss.detach()  # later ones are replaced by their number
            if not recipe.is_first:
                optimizer.step()
                optimizer.zero_grad()
        mark()
        del logits

    return run(script, gpu).peak()


def _model(recipe: Recipe) -> Decoder:
    with torch.device("meta"):
        model = Decoder(recipe.shape, recipe.lora).to(torch.bfloat16).train()
    if recipe.packing is not None:
        pack(model, recipe.packing is Packing.NF4_DOUBLE)
    return model


def _optimizer(recipe: Recipe, model: Decoder) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if recipe.packing is not None:
        return Blockwise(parameters, is_paged=True, optim_bits=32)
    return torch.optim.AdamW(parameters, lr=2e-4)


def _loss(
    model: Decoder, ids: Tensor, tables: tuple[Tensor, Tensor], is_lora: bool
) -> tuple[Any, Tensor]:
    """The fp32 logits that the recipe holds, and the loss by chunks of 128 tokens."""
    targets = ids.clone()
    if is_lora:
        logits = [part.float() for part in model(ids, *tables, chunk=HEAD_CHUNK)]
        logits[-1] = logits[-1][..., :-1, :]
        parts = [part.reshape(-1, part.shape[-1]) for part in logits]
        wanted = [t.reshape(-1) for t in targets[..., 1:].split(HEAD_CHUNK, dim=1)]
        return logits, _summed(parts, wanted)
    whole = model(ids, *tables).float()
    flat = whole[..., :-1, :].reshape(-1, whole.shape[-1])
    return whole, _summed(flat.split(HEAD_CHUNK), targets[..., 1:].reshape(-1).split(HEAD_CHUNK))


def _summed(logits: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    losses = [F.cross_entropy(a, b, reduction="none") for a, b in zip(logits, targets, strict=True)]
    return torch.cat(losses).mean()
