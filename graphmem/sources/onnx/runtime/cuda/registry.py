"""Which operators have a kernel in ONNX Runtime's CUDA provider: ``kernels.csv``.

The table is what ``get_all_opkernel_def`` of ONNX Runtime 1.31.1 lists for the provider, with
the names of type constraints turned into positions of inputs and outputs by the operators'
schemas (``tools/ort_cuda/table.py``). Kernels of the NHWC layout are not in it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import onnx

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node

Elements = Sequence[ElementType | None]
"""The element types of a node's inputs or outputs; None: left out, no tensor, not known."""


class Kernel(NamedTuple):
    """One registration: ``types`` allowed at ``("in", 0)`` and so on; ``until`` None: open."""

    since: int
    until: int | None
    types: Mapping[tuple[str, int], frozenset[str]]


def has_kernel(node: Node, inputs: Elements, outputs: Elements) -> bool:
    """Whether the provider has a kernel for a node with these element types.

    A kernel without a last version is for operators of its first version alone.
    Source: ``VerifyVersion`` and ``MatchKernelDefTypes`` in
    onnxruntime/core/framework/kernel_registry.cc.
    """
    since = _since(node)
    return any(
        _is_of(kernel, since) and _takes(kernel, inputs, outputs)
        for kernel in _table().get((node.domain, node.op), ())
    )


def _is_of(kernel: Kernel, since: int) -> bool:
    if kernel.until is None:
        return kernel.since == since
    return kernel.since <= since <= kernel.until


def _takes(kernel: Kernel, inputs: Elements, outputs: Elements) -> bool:
    given = {("in", at): element for at, element in enumerate(inputs)}
    given |= {("out", at): element for at, element in enumerate(outputs)}
    return all(
        (element := given.get(place)) is None or element.name.lower() in allowed
        for place, allowed in kernel.types.items()
    )


def _since(node: Node) -> int:
    """The version in which the operator got the form that the node has."""
    if node.domain and node.domain != "ai.onnx.ml":
        return 1
    try:
        return int(onnx.defs.get_schema(node.op, node.version, node.domain).since_version)
    except onnx.defs.SchemaError:
        return node.version


@cache
def _table() -> Mapping[tuple[str, str], Sequence[Kernel]]:
    text = resources.files(__package__).joinpath("kernels.csv").read_text("utf-8")
    made: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for row in csv.DictReader(text.splitlines()):
        until = int(row["until"]) if row["until"] else None
        kernel = Kernel(int(row["since"]), until, dict(_types(row["types"])))
        made[row["domain"], row["op"]].append(kernel)
    return made


def _types(text: str) -> Iterator[tuple[tuple[str, int], frozenset[str]]]:
    for group in filter(None, text.split(";")):
        places, _, names = group.partition("=")
        for place in places.split():
            kind = place.rstrip("0123456789")
            yield (kind, int(place[len(kind) :])), frozenset(names.split("|"))
