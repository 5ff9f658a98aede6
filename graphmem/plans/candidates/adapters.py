"""LoRA: adapters are trained in the place of the weights, which may be packed to fewer bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphmem.plans.blocks import block_of
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category, Module

_LINEAR = frozenset({"Linear", "Conv1D"})
"""The types that peft adapts in every transformer; ``Conv1D`` is GPT-2's of transformers."""

_RANK = 16

_LIKELY_SAVED = 1.4
"""Adapters keep their inputs, in fp32: 19.27 of 13.55 GiB (docs/adapters.md); for the order of
what is tried alone."""


@dataclass(frozen=True, slots=True)
class _Base:
    """How the base weights lie; ``bits`` are those of a weight, None: as they are."""

    name: str
    quantize: str | None
    bits: int | None
    cost: str
    code: str


_BASES = (
    _Base("LoRA", None, None, "the weights stay as they are", ""),
    _Base(
        name="LoRA on 8 bits",
        quantize="int8",
        bits=8,
        cost="the weights stay as they are, in 8 bits",
        code="BitsAndBytesConfig(load_in_8bit=True); ",
    ),
    _Base(
        name="QLoRA",
        quantize="nf4-double",
        bits=4,
        cost="the weights stay as they are, in 4 bits",
        code="BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', "
        "bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16); ",
    ),
)


def techniques(run: Run) -> Iterator[Technique]:
    """Of all linear layers in the blocks: on the weights as they are, in 8 and in 4 bits."""
    names = _linear_layers(run)
    if run.options.lora is not None or not names:
        return
    listed = ", ".join(f"'{name}'" for name in names)
    config = f"LoraConfig(r={_RANK}, lora_alpha={_RANK}, target_modules=[{listed}])"
    lora = f"r={_RANK},alpha={_RANK},targets={'+'.join(names)}"
    for strength, base in enumerate(_BASES, start=1):
        if base.quantize is None or run.options.quantize is None:
            flag = f" --quantize {base.quantize}" if base.quantize else ""
            yield Technique(
                name=base.name,
                loses=Loses.TRAINED,
                cost=f"adapters of rank {_RANK} are trained; {base.cost}",
                flag=f"--lora {lora}{flag}",
                code=f"{base.code}peft.get_peft_model(model, {config})",
                change={"lora": lora, **({"quantize": base.quantize} if base.quantize else {})},
                least={
                    Category.PARAMETERS: _share(base, run),
                    Category.GRADIENTS: 0.0,
                    Category.OPTIMIZER_STATES: 0.0,
                    Category.SAVED_FOR_BACKWARD: 0.0,
                },
                least_in_step={Category.TEMPORARIES: 0.0},
                likely={Category.SAVED_FOR_BACKWARD: _LIKELY_SAVED},
                family="lora",
                strength=strength,
                apart="trained weights",
                needs="peft",
            )


def _share(base: _Base, run: Run) -> float:
    """What may be left of the parameters: those of other layers, and few bits of the linear."""
    if base.bits is None:
        return 1.0
    modules = run.schedule.modules
    whole = sum(s.nbytes for s in run.schedule.storages if s.category is Category.PARAMETERS)
    linear = sum(m.parameter_bytes for m in modules if _is_adapted(m, frozenset(run.blocks)))
    return 1 - linear / whole * (1 - base.bits / (32 if run.fp32 else 16))


def _linear_layers(run: Run) -> list[str]:
    """The names of the linear layers in the blocks."""
    blocks = frozenset(run.blocks)
    adapted = (m.path for m in run.schedule.modules if _is_adapted(m, blocks))
    return list(dict.fromkeys(path.rpartition(".")[2] for path in adapted))


def _is_adapted(module: Module, blocks: frozenset[str]) -> bool:
    return module.type in _LINEAR and block_of(module.path, blocks) is not None
