"""Control flow: branches and loops over graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from graphmem.errors import ModelLoadError, ValueNeededError
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.model import Graph, TensorType
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import as_array
from graphmem.sources.onnx.values import integer, integers

_NO_LIMIT = (1 << 31) - 1
"""A trip count from which on it is taken for none.

A while loop of TorchScript is exported with the largest int64 (torch/csrc/jit/frontend/
ir_emitter.cpp, emitLoopCommon), and no analysis would come to the end of the largest int32.
"""


@rule("If")
def if_(call: Call, condition: Tensor) -> Any:
    """The outputs of the branch that the condition chooses."""
    taken = bounds.or_bound(
        lambda: _truth(condition),
        lambda: _nodes(call, "then_branch") >= _nodes(call, "else_branch"),
        call,
        what="which branch is taken",
        assumed="the one of more nodes",
    )
    return _one_or_all(call.body("then_branch" if taken else "else_branch")())


def _truth(condition: Tensor) -> bool:
    return bool(condition.reshape(()).item())


def _nodes(call: Call, name: str) -> int:
    """The nodes of a branch, those of graphs in it included."""

    def of(graph: Graph) -> int:
        return sum(1 + sum(of(body) for _, body in node.bodies()) for node in graph.nodes)

    return of(call.get(name))


def _one_or_all(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


@rule("Loop")
def loop(call: Call, *inputs: Any) -> Any:
    """The body, as often as trip count and condition say; carried values, then stacked ones."""
    trips, condition, *carried = _all_inputs(call, inputs)
    body, asked = call.body("body"), condition is not None
    limit = _limit(call, trips, asked)
    value = condition if asked else torch.tensor(True)
    scanned: list[tuple[Any, ...]] = []
    while len(scanned) < limit and (not asked or _goes_on(call, value, len(scanned), limit)):
        results = body(torch.tensor(len(scanned)), value, *carried)
        value, carried = results[0], list(results[1 : 1 + len(carried)])
        scanned.append(results[1 + len(carried) :])
    return _one_or_all((*carried, *_stacked(call, scanned, 1 + len(carried))))


def _all_inputs(call: Call, inputs: Sequence[Any]) -> list[Any]:
    """The inputs, with None for those at the end that are left out or empty."""
    return [*inputs, *[None] * (max(len(call.node.inputs), 2) - len(inputs))]


def _limit(call: Call, trips: Tensor | None, asked: bool) -> float:
    """The iterations at most; infinity where a condition alone ends the loop."""
    if trips is not None:
        return _or_assumed(call, lambda: integer(trips), math.inf, "how often the loop runs")
    if asked:
        return math.inf
    if bounds.current() is None:
        raise ModelLoadError(f"node {call.node.name} (Loop): it has no end: give it a trip count")
    return _or_assumed(call, _unknown, math.inf, "how often the loop runs")


def _goes_on(call: Call, value: Tensor, step: int, limit: float) -> bool:
    """The condition; where it is not known, whether the assumed end is still to come."""
    try:
        return _truth(value)
    except ValueNeededError:
        if bounds.current() is None:
            raise
    return step < _or_assumed(call, _unknown, limit, "when the loop ends")


def _unknown() -> NoReturn:
    raise ValueNeededError("a loop's end")


def _or_assumed(call: Call, exact: Callable[[], float], limit: float, what: str) -> float:
    """The iterations that ``exact`` tells, or those that an analysis assumes.

    These are the given trip count, else the loop's own limit, else one.
    """
    found = bounds.current()
    given = None if found is None else found.trip_count
    bounded = limit if limit < _NO_LIMIT else None
    assumed = min(n for n in (given, bounded) if n is not None) if given or bounded else 1
    times = "once" if assumed == 1 else f"{assumed:,} times"
    return bounds.or_bound(exact, lambda: assumed, call, what=what, assumed=f"it runs {times}")


def _stacked(call: Call, scanned: Sequence[Sequence[Any]], first: int) -> list[Any]:
    """What iterations gave, stacked along a new first dimension.

    Without iterations it is empty, of the type that the body's outputs from ``first`` on have.
    """
    if scanned:
        return [_stack(parts, 0) for parts in zip(*scanned, strict=True)]
    return [_empty(call, value.type, 0) for value in call.get("body").outputs[first:]]


def _stack(parts: Sequence[Any], axis: int) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts, axis)
    return torch.stack(list(parts), axis)


def _empty(call: Call, kind: Any, axis: int) -> Any:
    if not isinstance(kind, TensorType) or kind.shape is None:
        raise ModelLoadError(
            f"node {call.node.name} ({call.node.kind}): its body never runs, and the file does "
            "not say which shape it would give"
        )
    shape = [n if isinstance(n, int) else 0 for n in kind.shape]
    shape.insert(axis % (len(shape) + 1), 0)
    dtype = kind.element.dtype
    return as_array([], tuple(shape)) if dtype is None else torch.empty(shape, dtype=dtype)


@rule("Scan", since=8)
def scan_batches(call: Call, lengths: Tensor | None, *inputs: Tensor) -> Any:
    """The body over the second dimension of inputs [B, T, ...], for each of a batch.

    Scan outputs of sequences shorter than T end with zeros.
    """
    scans = call.integer("num_scan_inputs")
    states, scanned = inputs[: len(inputs) - scans], inputs[len(inputs) - scans :]
    batch, steps = scanned[0].shape[:2]
    counts = [steps] * batch if lengths is None else integers(lengths)
    backward = call.integers("directions", (0,) * scans)
    results = []
    for b, length in enumerate(counts):
        parts = [
            x[b, :length].flip(0) if back else x[b, :length]
            for x, back in zip(scanned, backward, strict=True)
        ]
        final, gathered = _run(call, [s[b] for s in states], [p.unbind(0) for p in parts])
        stacked = _stacked(call, gathered, len(states))
        results.append([*final, *(_lengthened(made, steps) for made in stacked)])
    return _one_or_all([torch.stack(parts) for parts in zip(*results, strict=True)])


def _lengthened(made: Tensor, steps: int) -> Tensor:
    missing = steps - made.shape[0]
    return torch.cat([made, made.new_zeros(missing, *made.shape[1:])]) if missing else made


@rule("Scan", since=9)
def scan(call: Call, *inputs: Tensor) -> Any:
    """The body over slices of the last inputs; final states, then stacked outputs."""
    scans = call.integer("num_scan_inputs")
    states, scanned = inputs[: len(inputs) - scans], inputs[len(inputs) - scans :]
    axes = call.integers("scan_input_axes", (0,) * scans)
    backward = call.integers("scan_input_directions", (0,) * scans)
    slices = [
        x.unbind(axis)[::-1] if back else x.unbind(axis)
        for x, axis, back in zip(scanned, axes, backward, strict=True)
    ]
    final, gathered = _run(call, states, slices)
    return _one_or_all([*final, *_scan_outputs(call, gathered, len(states))])


def _run(
    call: Call, states: Sequence[Any], slices: Sequence[Sequence[Tensor]]
) -> tuple[Sequence[Any], list[Sequence[Any]]]:
    """The final states, and what each step gave besides."""
    body = call.body("body")
    gathered: list[Sequence[Any]] = []
    for step in zip(*slices, strict=True):
        results = body(*states, *step)
        states = results[: len(states)]
        gathered.append(results[len(states) :])
    return states, gathered


def _scan_outputs(call: Call, gathered: Sequence[Sequence[Any]], first: int) -> list[Any]:
    kinds = [value.type for value in call.get("body").outputs[first:]]
    axes = call.integers("scan_output_axes", (0,) * len(kinds))
    backward = call.integers("scan_output_directions", (0,) * len(kinds))
    if not gathered:
        return [_empty(call, kind, axis) for kind, axis in zip(kinds, axes, strict=True)]
    columns = zip(zip(*gathered, strict=True), axes, backward, strict=True)
    return [_stack(parts[::-1] if back else parts, axis) for parts, axis, back in columns]


@rule("SequenceMap", since=17)
def sequence_map(call: Call, sequence: Sequence[Any], *others: Any) -> Any:
    """The body of each element, with those of other sequences and with whole tensors."""
    body = call.body("body")
    results = [
        body(item, *(other[i] if isinstance(other, list) else other for other in others))
        for i, item in enumerate(sequence)
    ]
    columns = [[result[i] for result in results] for i in range(call.outputs)]
    return _one_or_all(columns)
