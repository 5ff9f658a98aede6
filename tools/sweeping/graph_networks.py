"""torch-geometric: its models, and its convolutions alone, on one random graph.

N nodes, E edges, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.options import Mode
from graphmem.sources import InputSpec
from graphmem.sources.building import Built
from graphmem.sources.inputs import ModelInputs
from tools.sweeping.case import BuiltCase

_N, _E, _F = 64, 256, 16

_BASIC = ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN")
_CONVOLUTIONS = {
    **dict.fromkeys(
        (
            *("GCNConv", "SAGEConv", "GraphConv", "ResGatedGraphConv", "GATConv", "GATv2Conv"),
            *("TransformerConv", "TAGConv", "ARMAConv", "SGConv", "MFConv", "FeaStConv", "LEConv"),
            *("ClusterGCNConv", "GENConv", "FiLMConv", "SuperGATConv", "EGConv", "GeneralConv"),
            *("MixHopConv", "HypergraphConv"),
        ),
        (_F, _F),
    ),
    **dict.fromkeys(("AGNNConv", "LGConv", "SimpleConv"), ()),
    **dict.fromkeys(("CGConv", "AntiSymmetricConv"), (_F,)),
    "ChebConv": (_F, _F, 3),
    "SSGConv": (_F, _F, 0.1),
    "APPNP": (3, 0.1),
    "GatedGraphConv": (_F, 2),
    "PANConv": (_F, _F, 3),
}
"""Convolutions of x [N, F] and edge_index [2, E], and what they are made with."""


def names() -> list[str]:
    """Models and convolutions."""
    return [*_MODELS, *_CONVOLUTIONS]


def case(name: str) -> BuiltCase:
    """One of them, with what it takes."""

    def build(mode: Mode) -> Built:
        if name in _CONVOLUTIONS:
            return _convolution(name)
        model, *inputs = _MODELS[name]()
        return model, ModelInputs(tuple(inputs))

    return BuiltCase(name, build)


def _convolution(name: str) -> Built:
    import torch_geometric.nn

    made: nn.Module = getattr(torch_geometric.nn, name)(*_CONVOLUTIONS[name])
    return made, ModelInputs((_x(), _edges()))


def _x() -> InputSpec:
    return InputSpec((_N, _F))


def _edges() -> Tensor:
    """Random edges [2, E]; the same ones each time."""
    return torch.randint(_N, (2, _E), generator=torch.Generator().manual_seed(0))


def _graphs() -> Tensor:
    """Which of two graphs each node is of [N]."""
    return (torch.arange(_N) >= _N // 2).long()


def _atoms() -> tuple[Tensor, Tensor, Tensor]:
    """Kinds [N], places [N, 3] and molecules [N] of atoms."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randint(1, 9, (_N,), generator=generator)
    return kinds, 4 * torch.rand((_N, 3), generator=generator), _graphs()


def _basic(name: str) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        import torch_geometric.nn

        return getattr(torch_geometric.nn, name)(_F, 32, 3, out_channels=7), _x(), _edges()

    return make


def _of(name: str, *args: Any, inputs: Callable[[], tuple[Any, ...]], **kwargs: Any) -> Any:
    def make() -> tuple[Any, ...]:
        import torch_geometric.nn

        made = [arg() if callable(arg) else arg for arg in args]
        return getattr(torch_geometric.nn, name)(*made, **kwargs), *inputs()

    return make


def _nodes() -> tuple[Any, ...]:
    return _x(), _edges()


def _nodes_of_graphs() -> tuple[Any, ...]:
    return _x(), _edges(), _graphs()


def _pna() -> tuple[Any, ...]:
    import torch_geometric.nn

    degrees = torch.bincount(torch.bincount(_edges()[1], minlength=_N))
    aggregators, scalers = ["mean", "max", "std"], ["identity", "amplification"]
    options = {"aggregators": aggregators, "scalers": scalers, "deg": degrees}
    return torch_geometric.nn.PNA(_F, 32, 3, out_channels=7, **options), *_nodes()


def _autoencoder() -> tuple[Any, ...]:
    import torch_geometric.nn

    return torch_geometric.nn.GAE(torch_geometric.nn.GCN(_F, 32, 2)), *_nodes()


def _with_nn(name: str) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        import torch_geometric.nn

        width = 2 * _F if name == "EdgeConv" else _F
        return getattr(torch_geometric.nn, name)(nn.Linear(width, _F)), *_nodes()

    return make


def _relational() -> tuple[Any, ...]:
    kinds = torch.randint(3, (_E,), generator=torch.Generator().manual_seed(0))
    return _x(), _edges(), kinds


_MODELS: dict[str, Callable[[], tuple[Any, ...]]] = {
    **{name: _basic(name) for name in _BASIC},
    "PNA": _pna,
    "MLP": _of("MLP", [_F, 32, 7], inputs=lambda: (_x(),)),
    "GraphUNet": _of("GraphUNet", _F, 32, 7, 3, inputs=_nodes),
    "PMLP": _of("PMLP", _F, 32, 7, 2, inputs=_nodes),
    "LINKX": _of("LINKX", _N, _F, 32, 7, 2, inputs=_nodes),
    "RECT_L": _of("RECT_L", _F, 32, inputs=_nodes),
    "NeuralFingerprint": _of("NeuralFingerprint", _F, 32, 7, 2, inputs=_nodes),
    "LightGCN": _of("LightGCN", _N, 32, 2, inputs=lambda: (_edges(),)),
    "SGFormer": _of("SGFormer", _F, 32, 7, inputs=_nodes_of_graphs),
    "Polynormer": _of("Polynormer", _F, 32, 7, inputs=_nodes_of_graphs),
    "AttentiveFP": _of(
        *("AttentiveFP", _F, 32, 7, 4, 2, 2),
        inputs=lambda: (_x(), _edges(), InputSpec((_E, 4)), _graphs()),
    ),
    "SchNet": _of("SchNet", inputs=_atoms),
    "DimeNet": _of("DimeNet", 32, 1, 2, 4, 7, 6, inputs=_atoms),
    "DimeNetPlusPlus": _of("DimeNetPlusPlus", 32, 1, 2, 32, 8, 32, 7, 6, inputs=_atoms),
    "ViSNet": _of("ViSNet", inputs=_atoms),
    "GNNFF": _of("GNNFF", 32, 32, 2, inputs=_atoms),
    "GAE": _autoencoder,
    "GINConv": _with_nn("GINConv"),
    "EdgeConv": _with_nn("EdgeConv"),
    "GINEConv": _of(
        *("GINEConv", lambda: nn.Linear(_F, _F)),
        inputs=lambda: (_x(), _edges(), InputSpec((_E, _F))),
    ),
    "RGCNConv": _of("RGCNConv", _F, _F, 3, inputs=_relational),
    "FastRGCNConv": _of("FastRGCNConv", _F, _F, 3, inputs=_relational),
    "RGATConv": _of("RGATConv", _F, _F, 3, inputs=_relational),
    "GCN2Conv": _of("GCN2Conv", _F, 0.1, inputs=lambda: (_x(), _x(), _edges())),
    "FAConv": _of("FAConv", _F, inputs=lambda: (_x(), _x(), _edges())),
    "PointNetConv": _of("PointNetConv", inputs=lambda: (_x(), InputSpec((_N, 3)), _edges())),
    "PointTransformerConv": _of(
        "PointTransformerConv", _F, _F, inputs=lambda: (_x(), InputSpec((_N, 3)), _edges())
    ),
    "GMMConv": _of("GMMConv", _F, _F, 3, 5, inputs=lambda: (_x(), _edges(), InputSpec((_E, 3)))),
    "NNConv": _of(
        "NNConv",
        _F,
        _F,
        lambda: nn.Linear(4, _F * _F),
        inputs=lambda: (_x(), _edges(), InputSpec((_E, 4))),
    ),
    "DynamicEdgeConv": _of(
        "DynamicEdgeConv", lambda: nn.Linear(2 * _F, _F), 4, inputs=lambda: (_x(),)
    ),
    "GravNetConv": _of("GravNetConv", _F, _F, 4, 8, 4, inputs=lambda: (_x(),)),
    "PDNConv": _of("PDNConv", _F, _F, 4, 8, inputs=lambda: (*_nodes(), InputSpec((_E, 4)))),
}
"""Models of more than x and edge_index, and how each is made with its inputs."""
