"""More GPUs: states, gradients and parameters spread over them (ZeRO, FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.options import Precision
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_COUNTS = (2, 4, 8)

_MIXED = {
    "master_weights": False,
    "precision": Precision.FP32,
    "fsdp_param_dtype": "bfloat16",
}
"""FSDP2's own way to have fp32 parameters beside those that are computed with."""

_MIXED_FLAG = " --precision fp32 --fsdp-param-dtype bfloat16 (without --master-weights)"


def techniques(run: Run) -> Iterator[Technique]:
    """ZeRO 1 and FSDP2 over the GPUs there are, or, where nobody said, over 2, 4 and 8."""
    if run.options.wrapper is not None or run.gpus == 1:
        return
    masters = run.options.master_weights and run.options.precision is Precision.BF16
    loses = Loses.GPUS if run.gpus is None else Loses.TRANSFER
    for ranks in _COUNTS if run.gpus is None else (run.gpus,):
        yield Technique(
            name=f"ZeRO 1 over {ranks} GPUs",
            loses=loses,
            cost="updated parameters are sent once a step",
            flag=f"--zero 1 --ranks {ranks}",
            code="ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)",
            change={"zero": 1, "ranks": ranks},
            family="zero 1",
            strength=ranks,
            least={Category.OPTIMIZER_STATES: 1 / ranks, Category.TEMPORARIES: 0.0},
        )
        shared = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATES)
        yield Technique(
            name=f"FSDP2 over {ranks} GPUs",
            loses=loses,
            cost="parameters are gathered for each block, forward and backward",
            flag=f"--fsdp --ranks {ranks}{_MIXED_FLAG if masters else ''}",
            code="for block in blocks: fully_shard(block)",
            change={"fsdp": True, "ranks": ranks, **(_MIXED if masters else {})},
            family="fsdp",
            strength=ranks,
            least={**dict.fromkeys(shared, 1 / ranks), Category.TEMPORARIES: 0.0},
        )
