"""A small convolutional network that needs no torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import graphmem
from graphmem.sources import InputSpec


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm, around which the input is added.

    Maps [N, C, H, W] to [N, D, H/stride, W/stride].
    """

    def __init__(self, channels: int, out: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, groups=groups, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ConvNet(nn.Module):
    """Images [N, 3, H, W] to scores [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(
            Block(32, 64, 1), Block(64, 128, 2), Block(128, 128, 1, groups=128)
        )
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of each image."""
        features: Tensor = self.blocks(self.pool(self.stem(x)))
        scores: Tensor = self.head(features.mean((2, 3)))
        return scores


def convnet(batch: int = 16) -> tuple[nn.Module, InputSpec]:
    """The network, on images of 96 x 96."""
    return ConvNet(), graphmem.spec(f"{batch}x3x96x96")


def channels_last(batch: int = 16) -> tuple[nn.Module, InputSpec]:
    """The same with weights in channels_last, to which convolutions convert their input."""
    return ConvNet().to(memory_format=torch.channels_last), graphmem.spec(f"{batch}x3x96x96")  # type: ignore[call-overload]
