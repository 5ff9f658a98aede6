"""Models that the user has spread over GPUs already, before the analysis sees them.

Their wrappers keep what they need in C++ or in objects of their own, which hold the user's tensors
and not the stand-ins: the analysis wants the model itself, and spreads it as it is told to.
"""

from __future__ import annotations

from torch import nn

from graphmem.errors import UsageError
from graphmem.schedule import Unknown


def spread_before(root: nn.Module) -> Unknown | None:
    """What is not known of a model that was given to a wrapper, None if it was to none.

    Raises:
        UsageError: if its parameters are sharded.
    """
    for module in root.modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if kinds & {"FSDPModule", "FullyShardedDataParallel"}:
            raise UsageError(
                f"{type(module).__name__} is sharded already; give the model as it was before, "
                "with fsdp and ranks"
            )
        if "DistributedDataParallel" in kinds:
            trained = (p for p in module.parameters() if p.requires_grad)
            return Unknown(
                "the buckets of a DistributedDataParallel that was made before the analysis",
                "gradients",
                "none; give the model inside of it, with ddp and ranks",
                sum(p.numel() * p.element_size() for p in trained),
            )
    return None
