"""Bounds: exact outside of an analysis, noted inside, each once."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
import torch

from graphmem.errors import ValueNeededError
from graphmem.schedule import Unknown
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.registry import Call
from graphmem.sources.onnx.texts import as_array, decoded, encoded

_CALL = Call(Node("n", "NonZero", "", 17, (), (), {}))


def _refuse() -> NoReturn:
    raise ValueNeededError("nobody knows")


def test_outside_of_an_analysis_no_bound_is_taken() -> None:
    assert bounds.current() is None
    with pytest.raises(ValueNeededError, match="nobody knows"):
        bounds.or_bound(_refuse, lambda: 3, _CALL, what="a size", assumed="3")


def test_a_bound_is_noted_once_where_the_exact_size_is_not_known() -> None:
    taken = bounds.Bounds()
    with bounds.active(taken):
        assert bounds.current() is taken
        for _ in range(2):
            assert bounds.or_bound(_refuse, lambda: 3, _CALL, what="a size", assumed="3") == 3
        assert bounds.or_bound(lambda: 2, lambda: 3, _CALL, what="another", assumed="3") == 2
    assert bounds.current() is None
    assert list(taken.notes) == [Unknown("a size", "node n (NonZero)", "3")]


def test_an_error_ends_the_analysis_and_its_bounds() -> None:
    with pytest.raises(ZeroDivisionError), bounds.active(bounds.Bounds()):
        raise ZeroDivisionError
    assert bounds.current() is None


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_values_of_a_real_tensor_are_known(shape: tuple[int, ...]) -> None:
    assert bounds.is_known(torch.zeros(shape))


def test_codes_of_strings_are_in_their_order() -> None:
    """Of two arrays together: a, b, c are 0, 1, 2."""
    (first, second), pool = encoded([as_array([["c", "a"]]), as_array(["b", "c"])])
    assert (first.tolist(), second.tolist()) == ([[2, 0]], [1, 2])
    assert decoded(first, pool).tolist() == [["c", "a"]]
    assert decoded(torch.zeros(0, 2, dtype=torch.int64), pool).shape == (0, 2)
    assert as_array(np.array("a"), ()).shape == ()
