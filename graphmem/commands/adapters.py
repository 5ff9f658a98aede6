"""The arguments of parameter-efficient training: frozen parts, adapters, packed weights."""

from __future__ import annotations

import argparse
from typing import Any


def add_adapters(parser: argparse.ArgumentParser) -> None:
    """Frozen parts, adapters, and packed base weights."""
    group = parser.add_argument_group("parameter-efficient training")
    group.add_argument(
        "--freeze",
        action="append",
        metavar="PATTERN",
        help="modules that are not trained, such as 'model.layers.*'; may be repeated",
    )
    group.add_argument(
        "--lora",
        metavar="SETTINGS",
        help="by peft, all else frozen: r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05",
    )
    group.add_argument(
        "--quantize",
        metavar="HOW",
        help="weights of linear layers as bitsandbytes packs them: nf4, nf4-double, fp4, "
        "fp4-double or int8",
    )


def adapters_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that the arguments name."""
    return {
        "freeze": arguments.freeze,
        "lora": arguments.lora,
        "quantize": arguments.quantize,
    }
