"""Writes docs/optimizers.md: what every optimizer keeps and needs, simulated for one model.

python tools/optimizers.py            needs the extra hf
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from graphmem.analysis import traced_call
from graphmem.errors import GraphmemError
from graphmem.liveness import live_at, measure
from graphmem.resolve import make_options
from graphmem.schedule import Category, Phase, Schedule
from graphmem.sources import InputRequest, load_subject
from graphmem.textbook.states import STATES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "optimizers.md"
_STATES = Category.OPTIMIZER_STATES
SUBJECT, BATCH, SEQ = "hf:models/gpt2.json", 1, 128

OPTIMIZERS = {
    "sgd": "torch.optim",
    "sgd+momentum": "torch.optim",
    "adam": "torch.optim",
    "adamw": "torch.optim",
    "adamw(fused=True)": "torch.optim",
    "adamw(foreach=False)": "torch.optim",
    "amsgrad": "torch.optim",
    "nadam": "torch.optim",
    "radam": "torch.optim",
    "adamax": "torch.optim",
    "rmsprop": "torch.optim",
    "adagrad": "torch.optim",
    "adadelta": "torch.optim",
    "rprop": "torch.optim",
    "asgd": "torch.optim",
    "adafactor": "torch.optim",
    "transformers_adafactor": "transformers, as its Trainer sets it",
    "muon+adamw": "torch.optim: Muon for hidden matrices, AdamW for the rest",
    "lion": "lion-pytorch",
    "adam_mini": "adam-mini",
    "adamw8bit": "bitsandbytes, blocks of 256",
    "adamw8bit(block_size=2048)": "bitsandbytes before 0.44, blocks of 2,048",
    "adamw_bnb_8bit": "bitsandbytes in transformers' Trainer: embeddings in 32 bits",
    "lion8bit": "bitsandbytes",
    "ademamix8bit": "bitsandbytes",
    "paged_adamw": "bitsandbytes, managed memory",
    "paged_adamw8bit": "bitsandbytes, managed memory",
    "ao_adamw8bit": "torchao",
    "ao_adamw4bit": "torchao",
    "ao_adamwfp8": "torchao",
}

_HEAD = f"""\
# What optimizers keep

Each optimizer simulated for two training steps of GPT-2 (`{SUBJECT}`, fp32, batch {BATCH}, {SEQ}
tokens, CUDA). States are what it keeps from step to step, in bytes and for each byte of the
parameters; temporaries what its step needs beside them, at most; the textbook's column is what
`graphmem estimate` counts. `--optimizer` takes every name here, and arguments in brackets.

Written by `tools/optimizers.py`.

| `--optimizer` | states, MiB | for each byte of parameters | the textbook | temporaries, MiB | of |
|---|--:|--:|--:|--:|---|
"""

_TAIL = """
- Without `foreach=False` or `fused=True`, PyTorch steps all parameters at once on CUDA
  (`foreach`), with temporaries as large as all of them.
- States of 8 bits have tables beside them (a maximum of 4 bytes for each 256 values, so 1/64 of
  the codes), and parameters below 4,096 elements stay in 32 bits.
- bitsandbytes' states of 32 bits are so for half-precision parameters as well; those of
  torch.optim, Lion, Adam-mini and torchao have the parameters' own dtype.
- What is paged lies in CUDA's managed memory: PyTorch's allocator never counts it, the driver
  brings it to the GPU for the step.
- torchao compiles its step; that the compiled kernel needs no temporaries is an assumption.
- Optimizers of other packages are models of what they allocate
  (`graphmem/trace/optim`), compared with the packages in the tests.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """An optimizer's states and temporaries, in bytes; ``error`` in their place.

    ``paged`` ones of the states lie in managed memory, and are not counted in ``states``.
    """

    name: str
    parameters: int = 0
    states: int = 0
    paged: int = 0
    temporaries: int = 0
    error: str | None = None


def row(name: str, subject: str = SUBJECT, batch: int = BATCH, seq: int | None = SEQ) -> Row:
    """What an optimizer keeps for a model."""
    options = make_options(optimizer=name)
    loaded = load_subject(subject, InputRequest(batch=batch, seq=seq, labels=True))
    call = (loaded.args, loaded.kwargs)
    try:
        _, schedule = traced_call(loaded.model, call, options, optimizer=name)
    except GraphmemError as error:
        return Row(name, error=str(error))
    return _measured(name, schedule)


def _measured(name: str, schedule: Schedule) -> Row:
    """A row of the operation in the last step of the optimizer with the most live bytes."""
    live = measure(schedule, lambda storage: storage.nbytes)
    last = schedule.operations[-1].step
    stepping = [
        operation
        for operation in schedule.operations
        if operation.phase is Phase.OPTIMIZER and operation.step == last
    ]
    fullest = max(stepping, key=lambda operation: live.live_bytes[operation.index])
    held = live_at(schedule, fullest.index)

    def of(category: Category) -> int:
        return sum(s.nbytes for s in held if s.category is category and not s.host)

    return Row(
        name,
        of(Category.PARAMETERS),
        of(_STATES),
        # but for step counts, which the host has of all optimizers
        sum(s.nbytes for s in held if s.host and s.shape and s.category is _STATES),
        of(Category.TEMPORARIES) + fullest.scratch_bytes,
    )


def line(made: Row) -> str:
    """A row of the table."""
    if made.error is not None:
        return f"| `{made.name}` | {made.error} | | | | {OPTIMIZERS.get(made.name, '')} |"
    times = f"{made.states / made.parameters:.3f}"
    paged = f" and {_mib(made.paged)} paged" if made.paged else ""
    cells = (_mib(made.states) + paged, times, _textbook(made.name), _mib(made.temporaries))
    return f"| `{made.name}` | {' | '.join(cells)} | {OPTIMIZERS.get(made.name, '')} |"


def _textbook(name: str) -> str:
    """What the textbook counts for each byte of fp32 parameters."""
    known = STATES.get(name.partition("(")[0])
    if known is None:
        return "-"
    each = Fraction(1) if known.nbytes is None else known.nbytes / 4
    return f"{float(known.count * each):g}"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f}"


def page() -> str:
    """The whole page."""
    return _HEAD + "\n".join(line(row(name)) for name in OPTIMIZERS) + "\n" + _TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
