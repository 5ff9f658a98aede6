"""The modules and storages of a language model of the Llama family, as a report has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphmem.report import Holder
from graphmem.schedule import TOP_LEVEL
from tests.render.parts import GIB, MIB, Share, share


def llama_shares(blocks: int = 32, width: int = 4096, tokens: int = 2048) -> list[Share]:
    """A language model of the Llama family, bf16, trained with AdamW."""
    hidden = tokens * width * 2  # [1, tokens, width] bf16
    wide = width * 7 // 2
    sizes: dict[str, Any] = {
        "element_bytes": 2,
        "forward_peak_bytes": 60 * GIB,
        "backward_peak_bytes": 63 * GIB,
    }
    shares = [share("model.embed_tokens", "Embedding", 128256 * width, tokens * 8, **sizes)]
    for i in range(blocks):
        block = f"model.layers.{i}"
        shares.append(share(block, "LlamaDecoderLayer", 0, 0, output_bytes=hidden, **sizes))
        shares.append(share(f"{block}.self_attn", "LlamaAttention", 0, 3 * hidden, **sizes))
        for name, size in (("q", width), ("k", width // 4), ("v", width // 4), ("o", width)):
            path = f"{block}.self_attn.{name}_proj"
            output = tokens * size * 2
            shares.append(share(path, "Linear", width * size, hidden, output_bytes=output, **sizes))
        shares += [
            share(f"{block}.mlp.{name}_proj", "Linear", width * wide, hidden, **sizes)
            for name in ("gate", "up", "down")
        ]
        shares += [
            share(f"{block}.{name}_layernorm", "LlamaRMSNorm", width, 2 * hidden, **sizes)
            for name in ("input", "post_attention")
        ]
    shares.append(share("model.norm", "LlamaRMSNorm", width, 2 * hidden, **sizes))
    shares.append(share("model.rotary_emb", "LlamaRotaryEmbedding", 0, 0, buffers=512, **sizes))
    logits = tokens * 128256 * 4
    shares.append(share("lm_head", "Linear", 128256 * width, hidden, outputs=logits, **sizes))
    shares.append(
        share(
            TOP_LEVEL,
            "LlamaForCausalLM",
            inputs=2 * tokens * 8,
            temporaries=logits,
            workspaces=32 * MIB + 8192,
            allocator_slack=12_345_600,
            **sizes,
        )
    )
    return shares


def llama_holders(place: str, source: str) -> tuple[Holder, ...]:
    """The largest storages of ``training_report``, one of them idle."""
    logits = Holder(
        bytes=2048 * 128256 * 4,
        shape=(1, 2048, 128256),
        dtype="float32",
        category="outputs",
        op="aten._to_copy",
        module="lm_head",
        source="transformers/loss/loss_utils.py:55",
        born=2100,
        last_use=2103,
        freed=9000,
        idle_bytes=2048 * 128256 * 4,
    )
    weight = Holder(
        bytes=128256 * 4096 * 2,
        shape=(128256, 4096),
        dtype="bfloat16",
        category="parameters",
        op=None,
        module="model.embed_tokens",
        source=None,
        born=-1,
        last_use=9000,
        freed=None,
        idle_bytes=0,
    )
    state = replace(weight, category="optimizer_states", op="aten.zeros_like", born=4000)
    saved = replace(
        logits,
        bytes=2048 * 4096 * 2,
        shape=(1, 2048, 4096),
        dtype="bfloat16",
        category="saved_for_backward",
        op="aten.mul",
        module=place,
        source=source,
        idle_bytes=0,
    )
    saved_by_source = [replace(saved, source=f"{source}{i}") for i in range(8)]
    return (
        logits,
        replace(logits, category="temporaries", idle_bytes=0, op="aten._log_softmax"),
        weight,
        replace(weight, module="lm_head"),
        state,
        *saved_by_source,
    )
