"""Recurrent modules as they are on a GPU: all weights on one buffer, cuDNN's.

``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` put them there when they come to a GPU. Source:
torch/nn/modules/rnn.py, ``RNNBase.flatten_parameters`` (torch 2.13).
"""

from __future__ import annotations

from typing import TypeGuard

from torch import Tensor, nn

from graphmem.targets import cuda
from graphmem.trace.hollow import hollow_storage, is_hollow, on_storage

_MODES = {
    "RNN_RELU": cuda.rnn_sizes.Mode.RELU,
    "RNN_TANH": cuda.rnn_sizes.Mode.TANH,
    "LSTM": cuda.rnn_sizes.Mode.LSTM,
    "GRU": cuda.rnn_sizes.Mode.GRU,
}


def flatten_recurrent(root: nn.Module) -> None:
    """Move the hollow weights of every recurrent module onto one hollow storage."""
    for module in root.modules():
        if isinstance(module, nn.RNNBase):
            weights = [module._parameters.get(name) for name in module._flat_weights_names]
            if _can_be_flat(weights):
                _flatten(module, weights)


def _can_be_flat(weights: list[nn.Parameter | None]) -> TypeGuard[list[Tensor]]:
    """Whether they are separate hollow parameters of one dtype; None is a computed weight."""
    storages = {w.untyped_storage()._cdata for w in weights if isinstance(w, nn.Parameter)}
    dtypes = {w.dtype for w in weights if isinstance(w, nn.Parameter) and is_hollow(w)}
    return len(storages) == len(weights) and len(dtypes) == 1


def _flatten(module: nn.RNNBase, weights: list[Tensor]) -> None:
    layers = cuda.rnn_sizes.Recurrent(
        mode=_MODES[module.mode],
        inputs=module.input_size,
        hidden=module.hidden_size,
        projection=module.proj_size,
        layers=module.num_layers,
        directions=2 if module.bidirectional else 1,
        steps=1,
        batch=1,
        rows=1,
        packed=False,
        itemsize=weights[0].element_size(),
        has_dropout=False,
    )
    offsets = cuda.rnn.weight_offsets(layers, biases=module.bias)
    storage = hollow_storage(layers.weight_elements() * layers.itemsize)
    for weight, offset in zip(weights, offsets, strict=True):
        weight.data = on_storage(storage, weight.size(), weight.stride(), weight.dtype, offset)
