"""The recorded graph is a program: run for real, it does what the steps do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import fx, nn

import graphmem
from graphmem.schedule import Operation
from tests.trace import subjects


def replay(graph: fx.Graph, model: nn.Module, x: torch.Tensor) -> None:
    """Run the graph on the model's own parameters, which it updates in place."""
    by_name = {name.replace(".", "_"): p.data for name, p in model.named_parameters()}
    values = []
    for node in graph.find_nodes(op="placeholder"):
        name = str(node.target).lstrip("_")
        values.append(by_name.get(name, x))
    fx.GraphModule({}, graph)(*values)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (subjects.mlp(), torch.randn(16, 64)),
        (subjects.Residual(), torch.randn(8, 128)),
        (subjects.NotContiguous(), torch.randn(8, 16, 64)),
        (subjects.Checkpointed(False), torch.randn(16, 64)),
    ],
    ids=["mlp", "residual", "bias apart", "checkpointed"],
)
def test_two_recorded_steps_give_the_weights_of_two_real_steps(model: nn.Module, x: Any) -> None:
    real, replayed = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = torch.optim.SGD(real.parameters(), lr=0.001)
    for _ in range(2):
        optimizer.zero_grad()
        real(x).mean().backward()
        optimizer.step()

    graph = graphmem.graph(model, x, optimizer="sgd", target="cpu")
    replay(graph, replayed, x)

    for one, other in zip(real.parameters(), replayed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_every_operator_carries_its_operation() -> None:
    graph = graphmem.graph(subjects.mlp(), torch.randn(16, 64))

    nodes = [n for n in graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)]
    assert all(isinstance(node.meta["operation"], Operation) for node in nodes)
    assert {node.meta["operation"].phase for node in nodes} == {"forward", "backward", "optimizer"}
    addmm = next(node for node in nodes if "addmm" in str(node.target))
    assert tuple(addmm.meta["tensor_meta"].shape) == (16, 256)
    result, workspace = addmm.meta["operation"].allocates  # cuBLAS takes one at its first call
    assert addmm.meta["storage"] == [result]
    assert workspace != result


def test_the_most_that_the_nodes_say_is_allocated_is_the_peak_of_the_report() -> None:
    x = torch.randn(16, 64)
    report = graphmem.analyze(subjects.mlp(), x)
    graph = graphmem.graph(subjects.mlp(), x)
    nodes = [node for node in graph.nodes if "operation" in node.meta]
    allocated = [node.meta["allocated_bytes"] for node in nodes]
    assert max(allocated) == report.peak.allocated_bytes
    most = nodes[allocated.index(max(allocated))]
    assert report.peak.op_index in most.meta["indices"]
    assert max(node.meta["reserved_bytes"] for node in nodes) == report.peak.reserved_bytes
