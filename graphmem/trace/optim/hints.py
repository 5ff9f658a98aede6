"""What some optimizers ask of the model beside its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class Hints:
    """Of the parameters that an optimizer works on, by their ``id``.

    ``embeddings`` are weights of nn.Embedding; ``hidden`` and ``heads`` are the elements of a
    token and the attention heads of the model's configuration, None where there is none.
    """

    names: Mapping[int, str] = field(default_factory=dict)
    embeddings: frozenset[int] = frozenset()
    hidden: int | None = None
    heads: int | None = None


def hints_of(model: nn.Module, copies: Mapping[nn.Parameter, nn.Parameter]) -> Hints:
    """The hints of a model.

    Args:
        copies: parameters whose master weights the optimizer works on in their place.
    """

    def optimized(parameter: Any) -> int:
        return id(copies.get(parameter, parameter))

    config = getattr(model, "config", None)
    tables = (m.weight for m in model.modules() if isinstance(m, nn.Embedding))
    return Hints(
        names={optimized(p): name for name, p in model.named_parameters()},
        embeddings=frozenset(optimized(table) for table in tables),
        hidden=_whole(config, "hidden_size"),
        heads=_whole(config, "num_attention_heads"),
    )


def _whole(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else None
