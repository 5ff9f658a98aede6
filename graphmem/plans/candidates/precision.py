"""Half precision: of the operators (autocast), or of the whole model."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.fits import gpu_of
from graphmem.options import Precision
from graphmem.plans.technique import EVERYTHING, Loses, Run, Technique
from graphmem.schedule import Category

_BF16_FROM = (8, 0)
"""Compute capability. Source: the CUDA C++ Programming Guide, arithmetic instructions: bfloat16
from 8.0 on."""


def techniques(run: Run) -> Iterator[Technique]:
    """Of a model in fp32 autocast and pure bf16; of one in half precision no fp32 copies."""
    options = run.options
    if options.master_weights:
        yield _without_copies()
    if not run.fp32 or options.precision not in (None, Precision.FP32):
        return
    if gpu_of(options).compute_capability < _BF16_FROM:
        yield _autocast(Precision.AMP_FP16, "fp16", "torch.float16", ", with a GradScaler")
        return
    yield _autocast(Precision.AMP_BF16, "bf16", "torch.bfloat16", "")
    yield _half("bf16 with fp32 copies", masters=True)
    yield _half("all in bf16", masters=False)


def _autocast(precision: Precision, name: str, dtype: str, besides: str) -> Technique:
    return Technique(
        name=f"autocast to {name}",
        loses=Loses.PRECISION,
        cost=f"products and activations in {name}",
        flag=f"--precision {precision}",
        code=f"with torch.autocast('cuda', {dtype}): loss = model(batch){besides}",
        change={"precision": precision},
        least=dict.fromkeys(
            (Category.SAVED_FOR_BACKWARD, Category.OUTPUTS, Category.TEMPORARIES), 0.5
        ),
    )


def _half(name: str, *, masters: bool) -> Technique:
    lost = "activations and gradients" if masters else "weights, gradients and states"
    return Technique(
        name=name,
        loses=Loses.PRECISION,
        cost=f"{lost} in bf16{'' if masters else ': small updates are lost'}",
        flag=f"--precision bf16{' --master-weights' if masters else ''}",
        code="model.to(torch.bfloat16)"
        + ("; the optimizer on fp32 copies of the parameters" if masters else ""),
        change={"precision": Precision.BF16, "master_weights": masters},
        least=dict.fromkeys(EVERYTHING, 0.5),
    )


def _without_copies() -> Technique:
    return Technique(
        name="no fp32 copies",
        loses=Loses.PRECISION,
        cost="the optimizer works on the weights themselves: small updates are lost",
        flag="--no-master-weights",
        code="the optimizer on model.parameters()",
        change={"master_weights": False},
        least={
            Category.OPTIMIZER_STATES: 0.0,
            Category.GRADIENTS: 0.5,
            Category.TEMPORARIES: 0.0,
        },
    )
