"""Write the kernels of ONNX Runtime's CUDA provider: graphmem's ``runtime/cuda/kernels.csv``.

In the stand-in's environment ``table``, with libraries of the names of TensorRT's, which ONNX
Runtime asks for its kernels too.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnxruntime.capi import onnxruntime_pybind11_state as state

TABLE = Path(__file__).parents[2] / "graphmem/sources/onnx/runtime/cuda/kernels.csv"
_OPEN = 2**31 - 1
Types = dict[str, frozenset[str]]
Key = tuple[str, str, int, int | str]


def main() -> None:
    """Write the table."""
    rows = _rows()
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["domain", "op", "since", "until", "types"])
        for key in sorted(rows, key=lambda k: (k[0], k[1], k[2])):
            for types in _merged(rows[key]):
                text = ";".join(f"{at}={'|'.join(sorted(t))}" for at, t in sorted(types.items()))
                writer.writerow([*key, text])


def _rows() -> dict[Key, list[Types]]:
    schemas: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for schema in state.get_all_operator_schema():
        schemas[schema.domain, schema.name].append(schema)
    rows: dict[Key, list[Types]] = defaultdict(list)
    for kernel in state.get_all_opkernel_def():
        is_ours = kernel.provider == "CUDAExecutionProvider"
        if is_ours and kernel.domain != "com.ms.internal.nhwc":
            since, until = kernel.version_range
            schema = _schema(schemas[kernel.domain, kernel.op_name], since)
            key = (kernel.domain, kernel.op_name, since, "" if until == _OPEN else until)
            rows[key].append(_types(schema, kernel.type_constraints))
    return rows


def _schema(schemas: list[Any], since: int) -> Any:
    """The operator as it was when the kernel's first version came."""
    older = [schema for schema in schemas if schema.since_version <= since]
    return max(older or schemas, key=lambda schema: schema.since_version)


def _types(schema: Any, constraints: dict[str, list[str]]) -> Types:
    """The element types by the places that they are for, such as ``in0 out0``."""
    return {
        " ".join(_places(schema, name)): frozenset(
            kind.removeprefix("tensor(").removesuffix(")")
            for kind in kinds
            if not kind.startswith(("seq(", "optional("))
        )
        for name, kinds in constraints.items()
    }


def _places(schema: Any, name: str) -> Iterable[str]:
    for side, formals in (("in", schema.inputs), ("out", schema.outputs)):
        for at, formal in enumerate(formals):
            if name in (formal.typeStr, formal.name):
                yield f"{side}{at}"


def _merged(kernels: list[Types]) -> list[Types]:
    """Kernels that differ in the types of one place are one row."""
    left = [dict(types) for types in kernels]
    made: list[Types] = []
    while left:
        one = left.pop(0)
        while (other := next((o for o in left if _differ(one, o) <= 1), None)) is not None:
            left.remove(other)
            one = {place: one[place] | other[place] for place in one}
        made.append(one)
    return made


def _differ(one: Types, other: Types) -> int:
    if one.keys() != other.keys():
        return len(one) + len(other)
    return sum(one[place] != other[place] for place in one)


if __name__ == "__main__":
    main()
