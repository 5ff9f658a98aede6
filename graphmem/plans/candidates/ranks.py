"""Several GPUs: states, gradients and parameters spread over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphmem.options import Options, Precision, Wrapper
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_COUNTS = (2, 4, 8)

_SPREAD = (None, Wrapper.DDP)


def under_ddp(options: Options, gpus: int) -> dict[str, Any]:
    """The changes with which a run has as many GPUs as there are, if nothing says how."""
    return {"ddp": True, "ranks": gpus} if gpus > 1 and options.wrapper is None else {}


def techniques(run: Run) -> Iterator[Technique]:
    """Over the GPUs there are, or, where nobody said how many there are, over 2, 4 and 8."""
    options = run.options
    if options.wrapper not in _SPREAD or run.gpus == 1:
        return
    if options.wrapper is Wrapper.DDP and not options.bucket_view:
        yield _views(options.ranks or 1)
    for ranks in _COUNTS if run.gpus is None else (run.gpus,):
        loses = Loses.GPUS if run.gpus is None else Loses.TRANSFER
        for way in (_ZERO_1, _ZERO_2, _FSDP, _TENSORS):
            yield _over(way, ranks, loses, options)


def _views(ranks: int) -> Technique:
    return Technique(
        name="gradients in DDP's buckets",
        loses=Loses.NOTHING,
        cost="nothing; gradients can't be detached",
        flag=f"--ddp --ranks {ranks} --bucket-view",
        code="DistributedDataParallel(model, gradient_as_bucket_view=True)",
        change={"bucket_view": True},
        least={Category.GRADIENTS: 0.5},
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to spread a model; ``shared`` are divided among the ranks.

    ``masters`` are the changes for a run in bf16 with fp32 copies, and ``masters_flag`` how they
    are written.
    """

    name: str
    option: str
    change: Mapping[str, Any]
    code: str
    cost: str
    shared: tuple[Category, ...]
    masters: Mapping[str, Any] = field(default_factory=dict)
    masters_flag: str = ""


_ZERO_1 = _Way(
    name="ZeRO 1",
    option="--zero 1",
    change={"zero": 1},
    code="ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)",
    cost="updated parameters are sent once a step",
    shared=(Category.OPTIMIZER_STATES,),
)
_ZERO_2 = _Way(
    name="ZeRO 2",
    option="--zero 2",
    change={"zero": 2, "ddp": False, "bucket_view": False},
    code="DeepSpeed: zero_optimization.stage = 2",
    cost="updated parameters are sent once a step; fp32 copies of the own part are kept",
    shared=(Category.GRADIENTS, Category.OPTIMIZER_STATES),
    masters={"master_weights": False},
    masters_flag=" --no-master-weights",
)
_FSDP = _Way(
    name="FSDP2",
    option="--fsdp",
    change={"fsdp": True, "ddp": False, "bucket_view": False},
    code="for block in blocks: fully_shard(block)",
    cost="parameters are gathered for each block, forward and backward",
    shared=(Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATES),
    masters={
        "master_weights": False,
        "precision": Precision.FP32,
        "fsdp_param_dtype": "bfloat16",
    },
    masters_flag=" --no-master-weights --precision fp32 --fsdp-param-dtype bfloat16",
)
_TENSORS = _Way(
    name="tensor parallelism",
    option="--tp",
    change={"tp": True, "ddp": False, "bucket_view": False},
    code="parallelize_module(model, mesh, plan)",
    cost="all GPUs compute one batch, and exchange activations in each layer",
    shared=(
        *(Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATES),
        *(Category.SAVED_FOR_BACKWARD, Category.OUTPUTS, Category.TEMPORARIES),
    ),
)


def _over(way: _Way, ranks: int, loses: Loses, options: Options) -> Technique:
    masters = options.master_weights and options.precision is Precision.BF16
    return Technique(
        name=f"{way.name} over {ranks} GPUs",
        loses=loses,
        cost=way.cost,
        flag=f"{way.option} --ranks {ranks}{way.masters_flag if masters else ''}",
        code=way.code,
        change={**way.change, "ranks": ranks, **(way.masters if masters else {})},
        family=way.option,
        strength=ranks,
        least=dict.fromkeys(way.shared, 1 / ranks),
        least_in_step={Category.TEMPORARIES: 0.0},
    )
