"""Writes docs/plan.md: what makes Llama-3-8B fit, on three machines, and how that is found.

python tools/plan_page.py            needs the extras hf and peft; three minutes of one core
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmem import collector
from graphmem.instantiate import record_subject
from graphmem.largest import Memory
from graphmem.options import Options
from graphmem.plans import made
from graphmem.plans.technique import Loses
from graphmem.render.plan import rendered
from graphmem.resolve import make_options
from graphmem.schedule import Schedule
from graphmem.sources import InputRequest
from graphmem.trace.run import model_dtype

PAGE = Path(__file__).resolve().parent.parent / "docs" / "plan.md"
SUBJECT, SEQ, SECONDS = "hf:models/llama3_8b.json", 2048, 40


@dataclass(frozen=True, slots=True)
class Case:
    """A machine, and the batch of each of its GPUs."""

    title: str
    batch: int
    device: str
    gpus: int | None

    @property
    def command(self) -> str:
        """The command line."""
        gpus = "" if self.gpus is None else f" --gpus {self.gpus}"
        run = f"--batch {self.batch} --seq {SEQ} --precision bf16"
        return f"graphmem plan {SUBJECT} {run} --device {self.device}{gpus} --seconds {SECONDS}"


CASES = (
    Case("One GPU of 24 GB", 1, "L4", 1),
    Case("One GPU of 80 GB", 4, "A100-80GB", 1),
    Case("Eight GPUs of 80 GB", 1, "A100-80GB", 8),
)

_HEAD = """\
# What makes it fit

`graphmem plan` changes a training that does not fit: it tries combinations of techniques, each by
a trace of the changed run, and names those that fit, the cheapest first, with the peak, what that
saves, and the flags and code to write. `graphmem.plan()` is the same in Python. Written by
`tools/plan_page.py`.

Below is full fine-tuning of Llama-3-8B in bf16 with AdamW, two steps. Seconds are of one CPU core,
without the imports of torch and transformers (about five more); `--seconds` is when the last trace
begins (by default 35 of them).
"""

_COST = """
## What is cheaper than what

By the worst that a combination loses, then by how many techniques it has, then by the share of a
step that is computed again:

"""

_FOUND = """
## How they are found

1. The run as it is is traced. With `--gpus N` that is DistributedDataParallel's, with its buckets,
   unless options say how else it is spread.
2. A technique has, for each category of memory, the least that it may leave (8-bit states a
   quarter of the states, checkpoints nothing of what the blocks keep). What a combination leaves at
   least of any moment of that run has to fit, or it is left out: such ones *can't fit*, without a
   trace. `tests/plans/test_candidates.py` holds each of these bounds to a trace.
3. The others are traced, the cheaper first, and of the equally bad those first that likely fit.
   Each kind of loss has an equal part of the time. What was traced gives a bound too, for all
   that have it within. A combination is not tried if a part of it fits: it would only cost more.
4. Every line is a trace of two whole steps, placed in the memory of the GPU by the model of
   PyTorch's allocator; it is what `graphmem analyze` gives with the line's flags (tested).

Nothing in the tables is an estimate. Those *not tried* when the time was over are neither fitting
nor not; `--seconds` and `--enough` change how far it goes.

## Which blocks are checkpointed

If a combination with every block checkpointed fits, the cheapest set of blocks that still does is
looked for (`graphmem/plans/checkpoints.py`):

1. A block's *gain* is what its forward makes for its own backward alone, and its *cost* the bytes
   that its forward writes, in the place of its time.
2. While blocks wait for their backward, the live bytes of every operation are lowered by the
   gains of the waiting ones that are chosen. Blocks wait like a stack, so each moment asks for
   some gain of the first k blocks.
3. The set of least cost that has enough at every moment is found exactly: block after block, the
   sets are kept that no cheaper one gains as much as (a Pareto front; tested beside all subsets).
   The numbers are few, and no solver from outside is asked.
4. Beside its live tensors a run is taken to need what it needs with every block checkpointed
   (segments, workspaces). The set is traced and placed; where it lacks memory all the same, the
   search is repeated with so much less, up to three times.

So that a set *fits* is confirmed by its trace. That no cheaper one fits is of the sums alone:
with a better layout of segments a block less may do. Sets are of whole blocks; for a policy over
operators there is one candidate, "all but products", and `--checkpoint-save` for any other.

## What is not tried

- A smaller batch or a shorter sequence: `graphmem max-batch`, also with `--dim seq`. `plan` cuts
  the batch into micro-batches instead.
- Checkpoints with `use_reentrant=True`, which save no more.
- Several GPUs with offloading, a chunked loss or the optimizer's step in backward: not simulated.
- Tensor parallelism of models without a plan of their own: give `--tp-plan` to `analyze`.
"""


def main() -> None:
    """Write the page."""
    parts = [_HEAD, *(section(case) for case in CASES), _COST, losses(), _FOUND]
    PAGE.write_text("".join(parts), encoding="utf-8")


def section(case: Case) -> str:
    """A machine's plan."""
    plan = planned(case)
    seconds = plan.pop("seconds")
    text = rendered({**plan, "seconds": seconds}, "table").split("\n", 2)[2]
    fence = f"```sh\n{case.command}\n```\n\n```text\n{text}```\n"
    return f"\n## {case.title}\n\n{fence}\n{seconds:.0f} seconds of one core.\n"


def planned(case: Case) -> dict[str, Any]:
    """The plan of a machine, by the clock of the process."""
    options = make_options(precision="bf16", device=case.device)

    def trace(changed: Options, parts: int) -> Schedule:
        request = InputRequest(
            batch=case.batch // parts, seq=SEQ, dtype=model_dtype(changed), labels=True
        )
        return record_subject(SUBJECT, request, changed).schedule

    with collector.off():
        memory = Memory(options, None)
        plan = made(
            SUBJECT, trace, memory, case.gpus, case.batch, seconds=SECONDS, clock=time.process_time
        )
    return plan.to_dict()


def losses() -> str:
    """The kinds of loss, in order."""
    return "".join(f"{place}. {_LOSSES[loss]}\n" for place, loss in enumerate(Loses, start=1))


_LOSSES: Mapping[Loses, str] = {
    Loses.NOTHING: "nothing: expandable segments, gradients set to none, channels last, a fused "
    "step or one without foreach, the step in backward, micro-batches, DDP's gradients in its "
    "buckets",
    Loses.RECOMPUTATION: "recomputation: checkpoints of the blocks, of all or of all but products; "
    "the loss in chunks",
    Loses.TRANSFER: "transfer: activations or the optimizer on the host; ZeRO 1 and 2, FSDP2 and "
    "tensor parallelism over the GPUs that there are",
    Loses.PRECISION: "precision: autocast, bf16 with and without fp32 copies; AdamW in 8 and 4 "
    "bits, also paged",
    Loses.OPTIMIZER: "another optimizer: Adam-mini, Lion, Adafactor",
    Loses.TRAINED: "fewer weights trained: the upper half of the blocks, LoRA, LoRA on 8 bits, "
    "QLoRA",
    Loses.GPUS: "more GPUs than are said to be there: 2, 4, 8 of them",
}


if __name__ == "__main__":
    main()
