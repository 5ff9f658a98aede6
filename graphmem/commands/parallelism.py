"""The arguments of a training on several GPUs."""

from __future__ import annotations

import argparse
from typing import Any

from graphmem.options import DEFAULTS
from graphmem.parallelism import DTYPES, NAMES


def add_parallelism(parser: argparse.ArgumentParser) -> None:
    """How many GPUs, and how the model is spread over them."""
    group = parser.add_argument_group("several GPUs, one rank of them")
    group.add_argument("--ranks", type=int, metavar="N", help="the GPUs that train one model")
    group.add_argument(
        "--zero",
        type=int,
        metavar="STAGE",
        help="0 (DistributedDataParallel), 1 (ZeroRedundancyOptimizer too), 2 (DeepSpeed's) or "
        "3 (FSDP2's fully_shard)",
    )
    group.add_argument("--ddp", action="store_true", help="DistributedDataParallel")
    group.add_argument(
        "--bucket-view", action="store_true", help="its gradient_as_bucket_view=True"
    )
    group.add_argument(
        "--bucket-cap",
        type=int,
        default=DEFAULTS["bucket_cap_mb"],
        metavar="MIB",
        help=f"its bucket_cap_mb ({DEFAULTS['bucket_cap_mb']})",
    )
    group.add_argument(
        "--zero-bucket",
        type=int,
        default=DEFAULTS["zero_bucket"],
        metavar="N",
        help=f"elements of DeepSpeed's reduce_bucket_size ({DEFAULTS['zero_bucket']:,})",
    )
    group.add_argument("--fsdp", action="store_true", help="fully_shard of FSDP2")
    group.add_argument(
        "--fsdp-units",
        metavar="PATTERNS",
        help='its units beside the root, such as "model.layers.*"; by default the items of all '
        "ModuleLists",
    )
    group.add_argument(
        "--fsdp-reshard",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="its reshard_after_forward (default: all but the root)",
    )
    group.add_argument(
        "--fsdp-prefetch",
        type=int,
        default=0,
        metavar="N",
        help="gather the next N units beforehand in forward and backward (0: torch's own choice)",
    )
    for name in ("param", "reduce"):
        group.add_argument(
            f"--fsdp-{name}-dtype",
            metavar="DTYPE",
            help=f"{name}_dtype of its MixedPrecisionPolicy: {', '.join(DTYPES)}",
        )
    group.add_argument("--tp", action="store_true", help="tensor parallelism")
    group.add_argument(
        "--tp-plan",
        metavar="PLAN",
        help='its plan, such as "layers.*.up=colwise,layers.*.down=rowwise"; by default that of '
        "the model, if it is one of transformers",
    )


def parallelism_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that the arguments name."""
    arguments.bucket_cap_mb = arguments.bucket_cap
    return {name: getattr(arguments, name) for name in NAMES}
