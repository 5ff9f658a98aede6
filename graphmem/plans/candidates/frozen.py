"""Frozen parts: only the upper half of the blocks, and what comes after them, is trained."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.blocks import block_of, compact
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import TOP_LEVEL, Category, Phase

_OF_TRAINED = (Category.GRADIENTS, Category.OPTIMIZER_STATES, Category.SAVED_FOR_BACKWARD)


def techniques(run: Run) -> Iterator[Technique]:
    """One, of a model with blocks, none of whose parts is frozen yet."""
    options = run.options
    lower = run.blocks[: len(run.blocks) // 2]
    if options.freeze is None and options.lora is None and lower:
        patterns = ",".join([*_before(run), compact(lower)])
        yield Technique(
            name=f"upper {len(run.blocks) - len(lower)} blocks trained",
            loses=Loses.TRAINED,
            cost="the lower blocks and what comes before them stay as they are",
            flag=f"--freeze '{patterns}'",
            code="for module in lower: module.requires_grad_(False)",
            change={"freeze": patterns},
            least=dict.fromkeys(_OF_TRAINED, 0.0),
            least_in_step={Category.TEMPORARIES: 0.0},
            likely=dict.fromkeys(_OF_TRAINED, len(lower) / len(run.blocks)),
            apart="trained weights",
        )


def _before(run: Run) -> list[str]:
    """Modules with parameters of their own that run before the first block, if any do."""
    blocks = frozenset(run.blocks)
    found: list[str] = []
    for op in run.schedule.operations:
        if op.phase is Phase.FORWARD and block_of(op.module, blocks):
            break
        if op.phase is Phase.FORWARD and op.module != TOP_LEVEL:
            found.append(op.module)
    known = {m.path for m in run.schedule.modules if m.parameters}
    return [path for path in dict.fromkeys(found) if path in known]
