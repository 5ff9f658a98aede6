"""``--freeze 'model.layers.*'``: modules whose parameters are not trained."""

from __future__ import annotations

from torch import nn

from graphmem import techniques
from graphmem.trace.matching import find_modules


def freeze(model: nn.Module, patterns: str) -> None:
    """Freeze all parameters in the modules that match, in place.

    Args:
        patterns: of paths (see ``graphmem.trace.matching``), with commas between them.

    Raises:
        UsageError: for a pattern that matches nothing, with the nearest names.
    """
    for module in find_modules(model, techniques.parts(patterns), "freeze").values():
        module.requires_grad_(False)
