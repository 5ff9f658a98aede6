"""Eight MLP blocks, with their activations kept or computed again in backward."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphmem.sources.inputs import InputSpec

WIDTH = 512
HIDDEN = 2_048
BLOCKS = 8


class CheckpointedMLP(nn.Module):
    """A stem, blocks of two linear layers, and a head: [B, 512] -> [B, 10].

    ``reentrant`` is the kind of checkpoint around each block, None for none. The stem
    gives the first block an input that needs a gradient, without which a reentrant
    checkpoint has none.
    """

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH), nn.GELU())
            for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of x, [B, 512]: [B, 10]."""
        x = self.stem(x)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)  # type: ignore[no-any-return]


def kept(batch: int = 2_048) -> tuple[nn.Module, InputSpec]:
    """No checkpoints."""
    return CheckpointedMLP(None), InputSpec((batch, WIDTH))


def reentrant(batch: int = 2_048) -> tuple[nn.Module, InputSpec]:
    """A reentrant checkpoint around each block."""
    return CheckpointedMLP(True), InputSpec((batch, WIDTH))


def not_reentrant(batch: int = 2_048) -> tuple[nn.Module, InputSpec]:
    """A checkpoint that is not reentrant around each block."""
    return CheckpointedMLP(False), InputSpec((batch, WIDTH))
