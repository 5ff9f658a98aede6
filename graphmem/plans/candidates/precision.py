"""Half precision: of the operators (autocast), or of the whole model."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.options import Precision
from graphmem.plans.technique import EVERYTHING, Loses, Run, Technique
from graphmem.schedule import Category


def techniques(run: Run) -> Iterator[Technique]:
    """Autocast and pure bf16, of a model in fp32."""
    if not run.fp32 or run.options.precision not in (None, Precision.FP32):
        return
    yield Technique(
        name="autocast to bf16",
        loses=Loses.PRECISION,
        cost="products and activations in bf16",
        flag="--precision amp-bf16",
        code="with torch.autocast('cuda', torch.bfloat16): loss = model(batch)",
        change={"precision": Precision.AMP_BF16},
        least=dict.fromkeys(
            (Category.SAVED_FOR_BACKWARD, Category.OUTPUTS, Category.TEMPORARIES), 0.5
        ),
    )
    yield Technique(
        name="all in bf16",
        loses=Loses.PRECISION,
        cost="weights, gradients and states in bf16: small updates are lost",
        flag="--precision bf16",
        code="model.to(torch.bfloat16)",
        change={"precision": Precision.BF16},
        least=dict.fromkeys(EVERYTHING, 0.5),
    )
