"""Modules that are changed or wrapped: quantized, scripted, parametrized, lazy, deferred."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.nn.utils import parametrizations, parametrize, skip_init

from tests.trace.difficult.cases import Difficult


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))


def dynamic_quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(_mlp(), {nn.Linear}, dtype=torch.qint8)


class _Static(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()
        self.conv = nn.Conv2d(3, 16, 3)
        self.relu = nn.ReLU()
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dequant(self.relu(self.conv(self.quant(x))))
        return y


def static_quantized() -> nn.Module:
    model = _Static().eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    prepared = torch.ao.quantization.prepare(model)
    prepared(torch.randn(2, 3, 16, 16))
    return torch.ao.quantization.convert(prepared)


def scripted() -> nn.Module:
    return torch.jit.script(_mlp())


def traced() -> nn.Module:
    return torch.jit.trace(_mlp(), torch.randn(4, 64))


def weight_norm() -> nn.Module:
    model = _mlp()
    parametrizations.weight_norm(model[0])
    return model


def weight_norm_by_hook() -> nn.Module:
    model = _mlp()
    torch.nn.utils.weight_norm(model[0])
    return model


def spectral_norm() -> nn.Module:
    model = _mlp()
    parametrizations.spectral_norm(model[0])
    return model


def spectral_norm_by_hook() -> nn.Module:
    model = _mlp()
    torch.nn.utils.spectral_norm(model[0])
    return model


def orthogonal() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    parametrizations.orthogonal(model[0])
    return model


class _Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


def symmetric() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    parametrize.register_parametrization(model[0], "weight", _Symmetric())
    return model


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(128), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(64))


def skipped() -> nn.Module:
    return nn.Sequential(skip_init(nn.Linear, 64, 128), nn.ReLU(), skip_init(nn.Linear, 128, 64))


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return _mlp()


class Ensemble(nn.Module):
    """Several models in one, by vmap over their stacked parameters."""

    def __init__(self) -> None:
        super().__init__()
        models = [_mlp() for _ in range(3)]
        stacked, _ = stack_module_state(models)
        self.names = list(stacked)
        self.stacked = nn.ParameterList(nn.Parameter(p.detach()) for p in stacked.values())
        self.base = [_mlp().to("meta")]

    def forward(self, x: Tensor) -> Tensor:
        def one(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            y: Tensor = functional_call(self.base[0], parameters, (x,))
            return y

        parameters = dict(zip(self.names, self.stacked, strict=True))
        return vmap(one, in_dims=(0, None))(parameters, x)


class PerSample(nn.Module):
    """Gradients of each sample, as differential privacy needs them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        def loss(weight: Tensor, row: Tensor) -> Tensor:
            return F.linear(row, weight).square().sum()

        grads = vmap(grad(loss), in_dims=(None, 0))(self.layer.weight, x)
        return grads.flatten(1).norm(dim=1)


class Jacobians(nn.Module):
    """Forward- and reverse-mode derivatives inside of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        jacobian = vmap(jacrev(lambda row: self.layer(row).tanh()))(x)
        tangent = jvp(lambda rows: self.layer(rows).tanh(), (x,), (torch.ones_like(x),))[1]
        return jacobian.sum((1, 2)) + tangent.sum(1)


_MATRIX_EXPONENTIAL = frozenset(
    {"aten::linalg_matrix_exp", "aten::zeros", "aten::index_select", "aten::cat", "aten::mul"}
)


def _rows() -> Tensor:
    return torch.randn(32, 64)


DIFFICULT = (
    Difficult("dynamic quantization", dynamic_quantized, _rows, trains=False),
    Difficult(
        "static quantization",
        static_quantized,
        lambda: torch.randn(2, 3, 16, 16),
        trains=False,
        kernels=frozenset({"quantized::conv2d", "aten::_empty_affine_quantized"}),
    ),
    Difficult("TorchScript, scripted", scripted, _rows, real=()),  # its copies can't be trained
    Difficult("TorchScript, traced", traced, _rows, real=()),
    Difficult("weight norm", weight_norm, _rows),
    Difficult("weight norm by a hook", weight_norm_by_hook, _rows, real=()),  # can't be copied
    Difficult("spectral norm", spectral_norm, _rows),
    # The weight of before the first call is freed in the run, and the profiler did not see it made.
    Difficult("spectral norm by a hook", spectral_norm_by_hook, _rows, real=()),
    Difficult("an orthogonal weight", orthogonal, _rows, kernels=_MATRIX_EXPONENTIAL),
    Difficult("a parametrization of one's own", symmetric, _rows),
    Difficult("lazy modules", lazy, _rows, real=()),  # can't be copied
    Difficult("weights without initial values", skipped, _rows),
    Difficult("weights on meta", on_meta, _rows, real=()),
    Difficult("an ensemble by vmap", Ensemble, _rows),
    Difficult("gradients per sample", PerSample, _rows),
    # In training a zero tangent is computed that a real run leaves out: 8 * 64 * 4 B of weights.
    Difficult("jacobians", Jacobians, _rows, real=("inference",)),
)
