"""``one_hot``: torch's composition without the checks of values, which the CPU's has alone.

Source: aten/src/ATen/native/Onehot.cpp, ``one_hot`` (torch 2.13): "for cuda, rely on device
assert thrown by scatter". The two numbers that the CPU checks by are 16 bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.options import Target
from graphmem.targets.overrides import override

_ONE_HOT = torch.ops.aten.one_hot.default


@override(_ONE_HOT, Target.CPU)
@override(_ONE_HOT, Target.CUDA)
def one_hot(classes: Tensor, num_classes: int = -1) -> Tensor:
    """Zeros [*, num_classes] with ones scattered into them.

    Inputs: classes [*] int64; without ``num_classes`` there are as many as the largest asks for.
    """
    if num_classes == -1:
        num_classes = int(classes.max()) + 1
    zeros = torch.zeros((*classes.shape, num_classes), dtype=torch.int64, device=classes.device)
    return zeros.scatter_(-1, classes.unsqueeze(-1), 1)
