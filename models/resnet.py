"""ResNets of torchvision."""

from __future__ import annotations

import torchvision
from torch import nn

from graphmem.sources.inputs import InputSpec


def resnet18(batch: int = 8) -> tuple[nn.Module, InputSpec]:
    """ResNet-18 on images of 224 x 224."""
    model: nn.Module = torchvision.models.resnet18(weights=None)
    return model, InputSpec((batch, 3, 224, 224))


def resnet50(batch: int = 32) -> tuple[nn.Module, InputSpec]:
    """ResNet-50 on images of 224 x 224."""
    model: nn.Module = torchvision.models.resnet50(weights=None)
    return model, InputSpec((batch, 3, 224, 224))


def resnet50_fine(batch: int = 32) -> tuple[nn.Module, InputSpec]:
    """ResNet-50 whose first convolution keeps every pixel: stride 1 in the place of 2."""
    model = torchvision.models.resnet50(weights=None)
    model.conv1.stride = (1, 1)
    return model, InputSpec((batch, 3, 224, 224))


def resnet1001(batch: int = 8) -> tuple[nn.Module, InputSpec]:
    """A ResNet of 1,001 layers: 333 bottlenecks of three, the stem and the classifier."""
    block = torchvision.models.resnet.Bottleneck
    model: nn.Module = torchvision.models.ResNet(block, [83, 83, 83, 84])
    return model, InputSpec((batch, 3, 224, 224))
