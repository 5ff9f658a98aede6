"""The arguments of techniques that save memory."""

from __future__ import annotations

import argparse
from typing import Any

from graphmem.techniques import NAMES, OFFLOADED


def add_techniques(parser: argparse.ArgumentParser) -> None:
    """Checkpointing, offloading and the like."""
    group = parser.add_argument_group("techniques of training")
    group.add_argument(
        "--checkpoint",
        action="append",
        metavar="PATTERN",
        help="modules to recompute in backward, such as 'model.layers.*'; may be repeated",
    )
    group.add_argument(
        "--checkpoint-every", type=int, default=1, metavar="K", help="every K-th of them (1)"
    )
    group.add_argument(
        "--checkpoint-save",
        action="append",
        metavar="OPS",
        help="operators whose results are kept all the same, such as aten.mm,aten.addmm",
    )
    group.add_argument(
        "--checkpoint-reentrant", action="store_true", help="with use_reentrant=True"
    )
    group.add_argument(
        "--offload",
        action="append",
        metavar="WHAT",
        help=f"to the host's memory: {', '.join(OFFLOADED)}",
    )
    group.add_argument("--pin-memory", action="store_true", help="of what is offloaded")
    group.add_argument(
        "--optimizer-in-backward",
        action="store_true",
        help="each parameter is updated, and its gradient let go, as soon as it is there",
    )
    group.add_argument(
        "--channels-last", action="store_true", help="weights and images with channels last"
    )
    group.add_argument(
        "--chunked-loss",
        type=int,
        metavar="N",
        help="of a causal language model: logits and loss in N chunks, recomputed in backward",
    )


def techniques_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that the arguments name."""
    return {name: getattr(arguments, name) for name in NAMES}
