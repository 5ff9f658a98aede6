"""The node tests of the onnx package, run on the translation to torch.

Run as a program, it prints for the operators named (all by default) how many cases pass,
and why others do not:

    python -m tests.sources.onnx.backend Conv MaxPool
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, SequenceProto, TensorProto, numpy_helper
from torch import Tensor

from graphmem.errors import GraphmemError
from graphmem.sources.onnx import rules as _rules  # registers them
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import TensorType, Value
from graphmem.sources.onnx.module import as_tensor, build_module
from graphmem.sources.onnx.read import as_model

assert _rules


@cache
def cases() -> dict[str, Any]:
    """All node tests of the installed onnx package, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of infinities
        return {case.name: case for case in load_model_tests(kind="node")}


def of_operator(*names: str) -> Iterator[str]:
    """The names of the cases whose model has a node of one of the operators."""
    for name, case in cases().items():
        if {node.op_type for node in case.model.graph.node} & set(names):
            yield name


def run_case(case: Any) -> str | None:
    """Run one case with all its data; None if it passes, else why it does not, in one line."""
    try:
        module = build_module(as_model(case.model, f"{case.name}.onnx"), weights=True).eval()
        for inputs, outputs in case.data_sets:
            given = as_inputs(case.model, inputs)
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                result = module(*given)
            results = result if isinstance(result, tuple) else (result,)
            for got, wanted in zip(results, outputs, strict=True):
                _compare(got, wanted, case.rtol, case.atol)
    except GraphmemError as error:
        return str(error).partition("\n")[0]
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return None


def as_inputs(proto: ModelProto, given: Iterable[Any]) -> list[Any]:
    """A case's inputs as its module takes them."""
    return [_as_torch(x, v) for x, v in zip(given, _inputs(proto), strict=True)]


def _inputs(proto: ModelProto) -> tuple[Value, ...]:
    return as_model(proto, "case.onnx").graph.inputs


def _as_torch(given: Any, value: Value) -> Any:
    if given is None:
        return None
    if isinstance(given, TensorProto):
        given = numpy_helper.to_array(given)
    if isinstance(given, SequenceProto):
        given = numpy_helper.to_list(given)
    if isinstance(given, list):
        return [_as_torch(item, value) for item in given]
    element = value.type.element if isinstance(value.type, TensorType) else None
    array = np.asarray(given)
    if element is ElementType.STRING or array.dtype.kind in "OUS":
        return array
    return as_tensor(array, element or _element_of(array))


def _element_of(array: np.ndarray[Any, Any]) -> ElementType:
    from onnx import helper

    return ElementType(helper.np_dtype_to_tensor_dtype(array.dtype))


def _compare(got: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Raise AssertionError where a result is not the expected one."""
    if isinstance(wanted, list):
        assert len(got) == len(wanted), f"{len(got)} values in place of {len(wanted)}"
        for a, b in zip(got, wanted, strict=True):
            _compare(a, b, rtol, atol)
        return
    if wanted is None:
        assert got is None, "a value where an optional is empty"
        return
    expected = np.asarray(
        numpy_helper.to_array(wanted) if isinstance(wanted, TensorProto) else wanted
    )
    if expected.dtype.kind in "OUS":
        np.testing.assert_array_equal(np.asarray(got), expected)
        return
    element = _element_of(expected)
    reference = as_tensor(expected, element)
    assert isinstance(got, Tensor), f"a {type(got).__name__} in place of a tensor"
    assert got.dtype is reference.dtype, f"{got.dtype} in place of {reference.dtype}"
    assert got.shape == reference.shape, f"{tuple(got.shape)} in place of {expected.shape}"
    if got.dtype.is_floating_point:
        got, reference = got.float() if got.dtype.itemsize < 4 else got, _wide(reference)
    np.testing.assert_allclose(got.detach().numpy(), reference.numpy(), rtol=rtol, atol=atol)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def main(operators: list[str]) -> None:
    """Print the results of the cases of some operators."""
    chosen = list(of_operator(*operators)) if operators else list(cases())
    failed = {name: why for name in chosen if (why := run_case(cases()[name])) is not None}
    for name, why in sorted(failed.items()):
        print(f"{name}: {why[:160]}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} pass")


if __name__ == "__main__":
    main(sys.argv[1:])
